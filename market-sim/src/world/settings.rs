//! The settings of a world: everything that is chosen and not drawn.

mod fields;

pub use fields::{FIELDS, Field, PAIRS, SettingsError};

use super::run::START;
use super::tenants::Kind;
use kubebid_core::command::RuleChange;
use kubebid_core::units::Micros;
use kubebid_core::{MarketRules, Price};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The settings of a world. Shares are of one, rates are per day, spans say their unit. Prices are shares of the
/// on-demand price. [`FIELDS`] has the meaning and the range of each field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Everything that is drawn follows from it.
    pub seed: u64,
    /// Simulated days.
    pub days: u32,
    /// Markets.
    pub markets: u32,
    /// Rules of all markets.
    pub rules: Rules,
    /// Micro-dollars per node-hour.
    pub on_demand_micros: u64,
    /// Seconds between two points of a series.
    pub sample_seconds: u64,
    /// Supply of each market.
    pub supply: Supply,
    /// Jobs of each market.
    pub jobs: Jobs,
    /// Bursts of urgent demand in each market.
    pub rushes: RushSettings,
    /// The series to keep; nothing else depends on it.
    #[serde(skip)]
    pub kept: SeriesChoice,
}

/// The series that are kept: their size grows with the days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeriesChoice {
    /// All series.
    #[default]
    All,
    /// The market price only.
    Prices,
    /// No series.
    None,
}

/// The rules that a world chooses for its markets; the others are the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Seconds for which a node is protected after it is ready.
    pub min_runtime_seconds: u64,
    /// Seconds from a notice to its deadline.
    pub notice_seconds: u64,
    /// Seconds for which a released node is billed at least.
    pub min_charge_seconds: u64,
    /// The highest ceiling, in on-demand prices; none for the default.
    pub ceiling_max_on_demand: Option<u64>,
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rules { min_runtime_seconds, notice_seconds, min_charge_seconds, ceiling_max_on_demand } = self;
        let most = ceiling_max_on_demand.map_or("any".to_owned(), |times| times.to_string());
        write!(
            f,
            "minimum runtime {min_runtime_seconds} s, notice {notice_seconds} s, minimum charge \
             {min_charge_seconds} s, ceilings up to {most} × on-demand"
        )
    }
}

impl Rules {
    /// The rules of a market like those of EC2 in 2015: no minimum runtime, two minutes of notice, a cap.
    pub const EC2_2015: Rules = Rules {
        min_runtime_seconds: 0,
        notice_seconds: 120,
        min_charge_seconds: 300,
        ceiling_max_on_demand: Some(10),
    };

    /// The default rules of a market.
    pub const MARKET_DEFAULT: Rules = Rules {
        min_runtime_seconds: 3600,
        notice_seconds: 300,
        min_charge_seconds: 300,
        ceiling_max_on_demand: None,
    };

    pub(super) fn changes(self, on_demand: Price) -> Vec<RuleChange> {
        let span = |name: &str, seconds: u64| RuleChange::number(name, Micros::seconds(seconds).0);
        let mut changes = vec![
            span("min_runtime_us", self.min_runtime_seconds),
            span("notice_us", self.notice_seconds),
            span("min_charge_us", self.min_charge_seconds),
        ];
        let cap = |times: u64| RuleChange::number("ceiling_max", times * on_demand.0);
        changes.extend(self.ceiling_max_on_demand.map(cap));
        changes
    }

    pub(super) fn market_rules(self, on_demand: Price) -> MarketRules {
        let rules = MarketRules::default().with(&self.changes(on_demand));
        rules.expect("the rules of a world are allowed")
    }
}

/// The providers of a market. [`FIELDS`] has the meaning of each field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "`FIELDS` has the meaning of each field")]
pub struct Supply {
    /// Units of a market, and how far markets differ (lognormal).
    pub units: f64,
    pub units_sigma: f64,
    pub providers: u32,
    /// Reserves lie between these.
    pub reserve: [f64; 2],
    /// Seconds from award to ready.
    pub boot_seconds: f64,
    pub boot_sigma: f64,
    /// Changes of capacity a day of a churning provider, and the share of it that comes and goes.
    pub churn_rate: f64,
    pub churn_share: f64,
    /// Outages a day of a faltering provider, the share of the units that one takes, and its length.
    pub outage_rate: f64,
    pub outage_share: [f64; 2],
    pub outage_hours: f64,
    pub outage_sigma: f64,
}

/// The jobs of a market. [`FIELDS`] has the meaning of each field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "`FIELDS` has the meaning of each field")]
pub struct Jobs {
    pub per_hour: f64,
    /// Logarithmic spread of the gaps between jobs, and the share that come together with the one before.
    pub gap_sigma: f64,
    pub together: f64,
    /// Quick drift of the rate: short gaps follow short gaps.
    pub burst_sigma: f64,
    pub burst_hours: f64,
    /// Peak over trough of the day, weekend over weekday.
    pub day_swing: f64,
    pub weekend: f64,
    /// Slow drift of the rate.
    pub drift_sigma: f64,
    pub drift_hours: f64,
    /// Worth of a node-hour (lognormal median and spread), at least `value_least`.
    pub value: f64,
    pub value_sigma: f64,
    pub value_least: f64,
    /// Slow drift of the median.
    pub value_drift_sigma: f64,
    pub value_drift_hours: f64,
    /// Time from submission to deadline: the duration times one plus this (lognormal), and half an hour.
    pub slack: f64,
    pub slack_sigma: f64,
    /// Shares of all jobs, by kind of tenant.
    pub kinds: Vec<(Kind, f64)>,
    /// Minutes of work between two checkpoints. A job that loses a node repeats its work since the last one. 0: it
    /// loses none.
    pub checkpoint_minutes: u64,
    /// Most an account spends a day, in on-demand prices of a market's unit for a day.
    pub daily_budget: f64,
}

/// Bursts of urgent demand: a few tenants at once that want much, soon, and not for long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "`FIELDS` has the meaning of each field")]
pub struct RushSettings {
    /// Rushes a day, in calm times and in hot ones.
    pub calm_rate: f64,
    pub hot_rate: f64,
    /// Share of the time that is hot, the length of a mood, and the suddenness of the change.
    pub hot_share: f64,
    pub mood_hours: f64,
    pub mood_sharpness: f64,
    /// Peak over trough of the day.
    pub day_swing: f64,
    /// Nodes in all, in capacities of the market (lognormal).
    pub size: f64,
    pub size_sigma: f64,
    pub hours: f64,
    pub hours_sigma: f64,
    pub hours_most: f64,
    /// A rush that would be shorter does not come.
    pub hours_least: f64,
    /// The more it is worth, the shorter it lasts: the time goes with this power of the worth.
    pub brevity: f64,
    /// Worth of a node: at least this (Pareto), at most `worth_most`.
    pub worth: f64,
    pub worth_tail: f64,
    pub worth_most: f64,
    /// Tenants of a rush, at most; each has its own idea of the worth (lognormal around it).
    pub tenants: u64,
    pub worth_sigma: f64,
}

impl Settings {
    /// Returns when the world begins and ends.
    pub(super) fn span(&self) -> (Micros, Micros) {
        (START, START.after(Micros(u64::from(self.days) * Micros::DAY.0)))
    }

    /// Returns these settings with the changes of a JSON or YAML object of the same shape, which may leave out any field.
    /// Each field lies in its range afterwards.
    pub fn with(&self, changes: &str) -> Result<Settings, SettingsError> {
        let mut all = serde_json::to_value(self).map_err(|error| SettingsError::Syntax(error.to_string()))?;
        merge(&mut all, fields::parse(changes)?);
        let settings = fields::read(all)?;
        settings.check()?;
        Ok(Settings { kept: self.kept, ..settings })
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 1,
            days: 60,
            markets: 12,
            rules: Rules::EC2_2015,
            on_demand_micros: 1_000_000,
            sample_seconds: 300,
            kept: SeriesChoice::All,
            supply: Supply {
                units: 210.0,
                units_sigma: 0.15,
                providers: 4,
                reserve: [0.055, 0.065],
                boot_seconds: 90.0,
                boot_sigma: 0.3,
                churn_rate: 6.0,
                churn_share: 0.15,
                outage_rate: 0.15,
                outage_share: [0.2, 0.8],
                outage_hours: 0.7,
                outage_sigma: 1.0,
            },
            jobs: Jobs {
                per_hour: 15.0,
                gap_sigma: 1.6,
                together: 0.075,
                burst_sigma: 1.3,
                burst_hours: 0.3,
                day_swing: 2.1,
                weekend: 0.77,
                drift_sigma: 0.65,
                drift_hours: 40.0,
                value: 0.104,
                value_sigma: 0.2,
                value_least: 0.055,
                value_drift_sigma: 0.55,
                value_drift_hours: 70.0,
                slack: 1.0,
                slack_sigma: 0.7,
                kinds: vec![
                    (Kind::CostOptimized, 0.05),
                    (Kind::Balanced, 0.1),
                    (Kind::AvailabilityOptimized, 0.1),
                    (Kind::Truthful, 0.62),
                    (Kind::Sniper, 0.05),
                    (Kind::Panicker, 0.03),
                    (Kind::DemandReducer, 0.05),
                ],
                checkpoint_minutes: 0,
                daily_budget: 40.0,
            },
            rushes: RushSettings {
                calm_rate: 4.5,
                hot_rate: 130.0,
                hot_share: 0.13,
                mood_hours: 35.0,
                mood_sharpness: 12.0,
                day_swing: 2.0,
                size: 1.6,
                size_sigma: 0.41,
                hours: 0.0619,
                hours_sigma: 1.7,
                hours_most: 12.0,
                hours_least: 0.064,
                brevity: 0.92,
                worth: 0.19,
                worth_tail: 0.45,
                worth_most: 9.0,
                tenants: 5,
                worth_sigma: 0.1,
            },
        }
    }
}
