//! Mechanism experiments: small worlds of one-node jobs in one market, run again and again while one rule changes.
//! Measures churn, revenue, fairness, and welfare against the computed optimum.
//!
//! The exchange runs every variant that its rules can express. The reference model runs those without the waiting rule
//! of R4.

mod document;
mod optimum;
mod outcome;
mod page;
mod run;

pub use document::{NoPlace, with_tables};
pub use optimum::{bound, optimum};
pub use outcome::{Arm, Figure, Finding, Outcome, WelfareMeasure};
pub use page::{charts, markdown, page};
pub use run::{Job, Settings, draw, play};

use crate::estimate::Estimate;
use kubebid_core::command::{RuleChange, RuleValue};

/// An experiment, named by the rule that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Experiment {
    /// The increment (R4).
    Increment,
    /// The minimum runtime (R4).
    MinRuntime,
    /// The length of the notice (R5).
    Notice,
    /// The price rule (R8).
    Pricing,
    /// Bids below the worth of a node, under both price rules.
    Shading,
    /// The waiting rule of R4, with and without.
    WaitingRule,
}

/// One variant: a value of the rule that changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Name in tables.
    pub label: String,
    /// The rules that differ from the defaults.
    pub rules: Vec<RuleChange>,
    /// True if the waiting rule of R4 holds.
    pub waits: bool,
    /// The share of a node's worth that a tenth of the jobs bid; 1 is the truth.
    pub shade: f64,
    /// True for the default rules.
    pub is_default: bool,
}

impl Experiment {
    /// All experiments.
    pub const ALL: [Experiment; 6] = [
        Experiment::Increment,
        Experiment::MinRuntime,
        Experiment::Notice,
        Experiment::Pricing,
        Experiment::Shading,
        Experiment::WaitingRule,
    ];

    /// Returns the name for command lines.
    pub fn name(self) -> &'static str {
        match self {
            Experiment::Increment => "increment",
            Experiment::MinRuntime => "min-runtime",
            Experiment::Notice => "notice",
            Experiment::Pricing => "pricing",
            Experiment::Shading => "shading",
            Experiment::WaitingRule => "waiting-rule",
        }
    }

    /// Returns the title for pages.
    pub fn title(self) -> &'static str {
        match self {
            Experiment::Increment => "The increment a challenger must offer",
            Experiment::MinRuntime => "The minimum runtime",
            Experiment::Notice => "The notice",
            Experiment::Pricing => "What the price is",
            Experiment::Shading => "Bidding less than a node is worth",
            Experiment::WaitingRule => "Waiting for a cheaper, protected node",
        }
    }

    /// Returns the variants of the rule.
    pub fn variants(self) -> Vec<Variant> {
        let number = RuleChange::number;
        let word = |word: &str| RuleChange { name: "pricing".into(), value: RuleValue::Word(word.into()) };
        let variant = |label: String, rule: RuleChange, is_default: bool| Variant {
            label,
            rules: vec![rule],
            waits: true,
            shade: 1.0,
            is_default,
        };
        let minutes = |name: &'static str, all: &[u64], default: u64| {
            let one = |m: &u64| variant(format!("{m} min"), number(name, m * 60_000_000), *m == default);
            all.iter().map(one).collect()
        };
        match self {
            Experiment::Increment => [0, 100, 250, 500, 1000, 2000, 5000]
                .map(|bps| match bps {
                    0 => variant("a tick".to_owned(), number("increment_bps", 0), false),
                    bps => {
                        variant(format!("{} %", bps as f64 / 100.0), number("increment_bps", bps), bps == 500)
                    }
                })
                .to_vec(),
            Experiment::MinRuntime => minutes("min_runtime_us", &[0, 5, 15, 30, 60, 120], 60),
            Experiment::Notice => minutes("notice_us", &[0, 2, 5, 15, 30, 60], 5),
            Experiment::Pricing => vec![
                variant("highest losing".to_owned(), word("HighestLosing"), true),
                variant("lowest accepted".to_owned(), word("LowestAccepted"), false),
            ],
            Experiment::Shading => [("HL", "HighestLosing"), ("LA", "LowestAccepted")]
                .into_iter()
                .flat_map(|(short, pricing)| {
                    [1.0, 0.95, 0.9, 0.8, 0.6].map(|shade| Variant {
                        label: format!("{short} {shade:.2}"),
                        rules: vec![word(pricing)],
                        waits: true,
                        shade,
                        is_default: short == "HL" && shade == 1.0,
                    })
                })
                .collect(),
            Experiment::WaitingRule => [(0, true), (15, true), (15, false), (60, true), (60, false)]
                .map(|(minutes, waits)| Variant {
                    waits,
                    ..variant(
                        match (minutes, waits) {
                            (0, _) => "no minimum".to_owned(),
                            (minutes, true) => format!("{minutes} min"),
                            (minutes, false) => format!("{minutes} min, passing over"),
                        },
                        number("min_runtime_us", minutes * 60_000_000),
                        minutes == 60 && waits,
                    )
                })
                .to_vec(),
        }
    }
}

/// Runs every variant on the same worlds. Calls `progress` after each world.
pub fn experiment(
    experiment: Experiment,
    settings: &Settings,
    yardstick: WelfareMeasure,
    seeds: std::ops::Range<u64>,
    mut progress: impl FnMut(),
) -> Finding {
    let mut arms: Vec<Arm> = experiment.variants().into_iter().map(Arm::new).collect();
    for seed in seeds {
        let jobs = draw(settings, seed);
        let best = yardstick.of(&jobs, settings);
        for arm in &mut arms {
            let played = play(&jobs, settings, &arm.variant);
            arm.outcomes.push(Outcome::of(&played, &jobs, settings, best));
        }
        progress();
    }
    Finding { experiment, yardstick, arms }
}

impl Arm {
    /// Returns the mean of a figure over the worlds.
    pub fn estimate(&self, figure: Figure) -> Estimate {
        Estimate::of(&self.outcomes.iter().map(|outcome| outcome.get(figure)).collect::<Vec<f64>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rules_beat_the_optimum_and_longer_protection_evicts_less() {
        let settings = Settings { hours: 24, ..Settings::default() };
        for which in Experiment::ALL {
            let finding = experiment(which, &settings, WelfareMeasure::Optimum, 0..4, || {});
            for arm in &finding.arms {
                let welfare = arm.estimate(Figure::Welfare).mean;
                assert!((70.0..=100.0).contains(&welfare), "{}: {welfare}", arm.variant.label);
            }
            let churn: Vec<f64> = finding.arms.iter().map(|arm| arm.estimate(Figure::Churn).mean).collect();
            if which == Experiment::MinRuntime {
                assert!(churn.is_sorted_by(|shorter, longer| shorter >= longer), "{churn:?}");
            }
        }
    }

    #[test]
    fn welfare_is_a_share_of_the_optimum_or_of_a_bound_or_dollars() {
        let settings = Settings { hours: 12, ..Settings::default() };
        let welfare = |yardstick| {
            let finding = experiment(Experiment::Pricing, &settings, yardstick, 0..3, || {});
            assert!(markdown(&finding).contains(Figure::Welfare.label(yardstick)));
            finding.arms[0].estimate(Figure::Welfare).mean
        };
        let [optimum, bound, dollars] =
            [WelfareMeasure::Optimum, WelfareMeasure::Bound, WelfareMeasure::None].map(welfare);
        assert!(bound <= optimum && bound > 0.9 * optimum, "{optimum} {bound}");
        assert!((0.1..10.0).contains(&dollars), "{dollars}");
    }

    #[test]
    fn with_room_for_all_nobody_waits_for_a_unit_and_only_boots_cost() {
        let settings = Settings { units: 200, load: 0.01, boot: Default::default(), ..Settings::default() };
        let jobs = draw(&settings, 1);
        assert!(jobs.len() > 10);
        let variant = &Experiment::Pricing.variants()[0];
        let played = play(&jobs, &settings, variant);
        let able = |n: &usize| jobs[*n].worth >= settings.reserve;
        assert!((0..jobs.len()).filter(able).all(|n| played.jobs[n].done == jobs[n].work));
        let outcome = Outcome::of(&played, &jobs, &settings, optimum(&jobs, &settings));
        assert!((outcome.get(Figure::Welfare) - 100.0).abs() < 1e-6);
        assert_eq!((outcome.get(Figure::Churn), outcome.get(Figure::Envy)), (0.0, 0.0));
        assert_eq!(played, play(&jobs, &settings, variant));
    }
}
