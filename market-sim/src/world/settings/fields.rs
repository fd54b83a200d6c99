//! The fields of a world: what each one means and which values it may have. The check of `--world` and the table
//! in `docs/simulator.md` are made from this list.

use super::Settings;
use crate::jsonl::parse_unique;
use crate::world::Kind;
use serde_json::Value;

/// One number of [`Settings`], or a pair of numbers that are the ends of a range.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name with dots, as in `jobs.per_hour`.
    pub name: &'static str,
    /// The least value.
    pub least: f64,
    /// The highest value.
    pub most: f64,
    /// The meaning and the unit.
    pub about: &'static str,
}

const fn field(name: &'static str, least: f64, most: f64, about: &'static str) -> Field {
    Field { name, least, most, about }
}

/// Seconds in a year.
const YEAR: f64 = 366.0 * 86_400.0;

/// All fields but `jobs.kinds`, in the order of [`Settings`].
pub const FIELDS: &[Field] = &[
    field("seed", 0.0, u64::MAX as f64, "everything that is drawn follows from it"),
    field("days", 1.0, 3660.0, "simulated days"),
    field("markets", 1.0, 10_000.0, "markets"),
    field("rules.min_runtime_seconds", 0.0, YEAR, "seconds for which a node is protected after it is ready"),
    field("rules.notice_seconds", 0.0, YEAR, "seconds from a notice to its deadline"),
    field("rules.min_charge_seconds", 0.0, YEAR, "seconds that a released node is billed for at least"),
    field(
        "rules.ceiling_max_on_demand",
        1.0,
        1000.0,
        "highest ceiling, in on-demand prices; null for the default",
    ),
    field("on_demand_micros", 10_000.0, 1e9, "on-demand price, micro-dollars per node-hour"),
    field("sample_seconds", 1.0, 86_400.0, "seconds between two points of a series"),
    field("supply.units", 1.0, 20_000.0, "units of a market (lognormal median)"),
    field("supply.units_sigma", 0.0, 1.0, "spread of the units between markets"),
    field("supply.providers", 1.0, 100.0, "providers of a market"),
    field("supply.reserve", 0.0, 1000.0, "least and highest reserve, share of the on-demand price"),
    field("supply.boot_seconds", 0.0, 86_400.0, "seconds from award to ready (lognormal median)"),
    field("supply.boot_sigma", 0.0, 3.0, "spread of the boot time"),
    field("supply.churn_rate", 0.0, 1000.0, "changes of capacity a day, of a churning provider"),
    field("supply.churn_share", 0.0, 1.0, "share of its units that comes and goes"),
    field("supply.outage_rate", 0.0, 1000.0, "outages a day, of a faltering provider"),
    field("supply.outage_share", 0.0, 1.0, "least and highest share of the units that an outage takes"),
    field("supply.outage_hours", 0.001, 10_000.0, "hours of an outage (lognormal median)"),
    field("supply.outage_sigma", 0.0, 3.0, "spread of the length of outages"),
    field("jobs.per_hour", 0.0, 10_000.0, "jobs an hour, in each market; 0: no jobs but rushes"),
    field("jobs.gap_sigma", 0.0, 5.0, "spread of the gaps between jobs"),
    field("jobs.together", 0.0, 0.99, "share of jobs that come together with the one before"),
    field("jobs.burst_sigma", 0.0, 3.0, "spread of the quick drift of the rate"),
    field("jobs.burst_hours", 0.001, 100_000.0, "hours over which that drift is forgotten"),
    field("jobs.day_swing", 1.0, 1000.0, "peak over trough of the day"),
    field("jobs.weekend", 0.0, 1000.0, "weekend over weekday"),
    field("jobs.drift_sigma", 0.0, 3.0, "spread of the slow drift of the rate"),
    field("jobs.drift_hours", 0.001, 100_000.0, "hours over which that drift is forgotten"),
    field(
        "jobs.value",
        0.0001,
        1000.0,
        "worth of a node-hour, share of the on-demand price (lognormal median)",
    ),
    field("jobs.value_sigma", 0.0, 3.0, "spread of the worth"),
    field("jobs.value_least", 0.0, 1000.0, "least worth, share of the on-demand price"),
    field("jobs.value_drift_sigma", 0.0, 3.0, "spread of the slow drift of the median worth"),
    field("jobs.value_drift_hours", 0.001, 100_000.0, "hours over which that drift is forgotten"),
    field(
        "jobs.slack",
        0.0,
        1000.0,
        "deadline: duration times one plus this (lognormal median), and 30 minutes",
    ),
    field("jobs.slack_sigma", 0.0, 3.0, "spread of the slack"),
    field(
        "jobs.checkpoint_minutes",
        0.0,
        1e6,
        "minutes of work between two checkpoints; 0: every moment is one",
    ),
    field(
        "jobs.daily_budget",
        0.0,
        1e9,
        "most an account spends a day, in on-demand prices of a unit for a day",
    ),
    field("rushes.calm_rate", 0.0, 10_000.0, "rushes a day in calm times"),
    field("rushes.hot_rate", 0.0, 10_000.0, "rushes a day in hot times"),
    field("rushes.hot_share", 0.0, 1.0, "share of the time that is hot"),
    field("rushes.mood_hours", 0.001, 100_000.0, "hours that a mood lasts"),
    field("rushes.mood_sharpness", 0.0, 1000.0, "how sudden the change of mood is"),
    field("rushes.day_swing", 1.0, 1000.0, "peak over trough of the day"),
    field("rushes.size", 0.0, 100.0, "nodes of a rush, in capacities of the market (lognormal median)"),
    field("rushes.size_sigma", 0.0, 3.0, "spread of the size"),
    field("rushes.hours", 0.0, 10_000.0, "hours of a rush (lognormal median)"),
    field("rushes.hours_sigma", 0.0, 5.0, "spread of the hours"),
    field("rushes.hours_most", 0.0, 10_000.0, "most hours of a rush"),
    field("rushes.hours_least", 0.0, 10_000.0, "hours below which nobody comes"),
    field("rushes.brevity", 0.0, 10.0, "the time goes with this power of the worth, downwards"),
    field("rushes.worth", 0.0001, 1000.0, "least worth of a node, share of the on-demand price"),
    field(
        "rushes.worth_tail",
        0.05,
        100.0,
        "exponent of the worth (Pareto): the smaller, the more often much",
    ),
    field("rushes.worth_most", 0.0001, 1000.0, "most worth of a node, share of the on-demand price"),
    field("rushes.tenants", 1.0, 1000.0, "most tenants of a rush"),
    field("rushes.worth_sigma", 0.0, 3.0, "spread of the worth among them"),
];

/// Pairs of fields of which the first may not be above the second: the least and the highest value of the same thing.
pub const PAIRS: &[(&str, &str)] =
    &[("rushes.hours_least", "rushes.hours_most"), ("rushes.worth", "rushes.worth_most")];

/// The reason for which settings are refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// The text cannot be read.
    #[error("it cannot be read as JSON or YAML: {0}")]
    Syntax(String),
    /// The text is no object.
    #[error("it is not an object with fields")]
    NoObject,
    /// A field has a value that it may not have.
    #[error("{field}: {message}")]
    Field {
        /// Name of the field, with dots.
        field: String,
        /// The reason.
        message: String,
    },
}

fn bad(field: &str, message: String) -> SettingsError {
    SettingsError::Field { field: field.to_owned(), message }
}

/// Parses a JSON or YAML document in which no key is there twice.
pub(super) fn parse(text: &str) -> Result<Value, SettingsError> {
    let value = if text.trim_start().starts_with('{') {
        parse_unique(text).map_err(|error| match error.field {
            Some(field) => SettingsError::Field { field, message: error.message },
            None => SettingsError::Syntax(error.message),
        })?
    } else {
        serde_saphyr::from_str::<Value>(text).map_err(|error| SettingsError::Syntax(error.to_string()))?
    };
    if value.is_object() { Ok(value) } else { Err(SettingsError::NoObject) }
}

/// Converts a document to settings; an error names the field.
pub(super) fn read(value: Value) -> Result<Settings, SettingsError> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| bad(&error.path().to_string(), error.inner().to_string()))
}

impl Settings {
    /// Checks that each field lies in its range, and that the fields agree with each other.
    pub fn check(&self) -> Result<(), SettingsError> {
        let all = serde_json::to_value(self).map_err(|error| SettingsError::Syntax(error.to_string()))?;
        for field in FIELDS {
            let pointer = format!("/{}", field.name.replace('.', "/"));
            let value = all.pointer(&pointer).unwrap_or(&Value::Null);
            if let Some(ends) = value.as_array() {
                ends.iter().try_for_each(|end| field.check(end))?;
                if ends.windows(2).any(|pair| pair[0].as_f64() > pair[1].as_f64()) {
                    return Err(bad(field.name, "the first number is above the second one".to_owned()));
                }
            } else if !(value.is_null() && field.name == "rules.ceiling_max_on_demand") {
                field.check(value)?;
            }
        }
        let number =
            |name: &str| all.pointer(&format!("/{}", name.replace('.', "/"))).and_then(Value::as_f64);
        for (least, most) in PAIRS {
            if let (Some(low), Some(high)) = (number(least), number(most))
                && low > high
            {
                return Err(bad(least, format!("{low} is above {most}, which is {high}")));
            }
        }
        self.check_kinds()
    }

    fn check_kinds(&self) -> Result<(), SettingsError> {
        let bad = |message: String| Err(bad("jobs.kinds", message));
        for (place, (kind, share)) in self.jobs.kinds.iter().enumerate() {
            if self.jobs.kinds[..place].iter().any(|(earlier, _)| earlier == kind) {
                return bad(format!("{} is there twice", kind.name()));
            }
            if !(0.0..=1e6).contains(share) {
                return bad(format!("the share of {} is {share}, not from 0 to 1000000", kind.name()));
            }
            if *kind == Kind::Urgent {
                return bad("urgent tenants come with rushes, not with jobs".to_owned());
            }
        }
        if self.jobs.kinds.iter().map(|(_, share)| share).sum::<f64>() > 0.0 {
            Ok(())
        } else {
            bad("no kind of tenant has a share above 0; for no jobs set jobs.per_hour to 0".to_owned())
        }
    }

    /// Returns the table of all fields in Markdown: name, default, range, meaning.
    pub fn table_of_fields() -> String {
        let all = serde_json::to_value(Settings::default()).expect("settings are JSON");
        let mut table = "| field | default | from | to | meaning |\n|---|---:|---:|---:|---|\n".to_owned();
        for Field { name, least, most, about } in FIELDS {
            let default = all.pointer(&format!("/{}", name.replace('.', "/"))).unwrap_or(&Value::Null);
            let most = if *name == "seed" { "2^64 − 1".to_owned() } else { most.to_string() };
            table.push_str(&format!("| `{name}` | {default} | {least} | {most} | {about} |\n"));
        }
        let kinds = &all["jobs"]["kinds"];
        table
            + &format!(
                "| `jobs.kinds` | `{kinds}` | | | pairs of a kind of tenant and its share of all jobs |\n"
            )
    }
}

impl Field {
    fn check(&self, value: &Value) -> Result<(), SettingsError> {
        let Field { name, least, most, .. } = self;
        // JSON has no infinite number and no NaN: they become null.
        match value.as_f64() {
            Some(number) if (*least..=*most).contains(&number) => Ok(()),
            _ => Err(bad(name, format!("{value} is not from {least} to {most}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn leaves(prefix: &str, value: &Value, into: &mut BTreeSet<String>) {
        let Some(fields) = value.as_object() else {
            into.insert(prefix.to_owned());
            return;
        };
        for (name, value) in fields {
            let dot = if prefix.is_empty() { "" } else { "." };
            leaves(&format!("{prefix}{dot}{name}"), value, into);
        }
    }

    #[test]
    fn every_field_of_a_world_has_a_range() {
        let mut fields = BTreeSet::new();
        leaves("", &serde_json::to_value(Settings::default()).expect("JSON"), &mut fields);
        let known = FIELDS.iter().map(|field| field.name).chain(["jobs.kinds"]).map(str::to_owned);
        assert_eq!(known.collect::<BTreeSet<String>>(), fields);
        assert_eq!(Settings::default().check(), Ok(()));
    }

    #[test]
    fn the_documentation_has_the_table_of_all_fields() {
        let page = include_str!("../../../../docs/simulator.md");
        let table = Settings::table_of_fields();
        assert!(page.contains(&table), "docs/simulator.md, under World, should have\n{table}");
    }
}
