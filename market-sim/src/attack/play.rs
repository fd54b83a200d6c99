//! Runs of policies: one run by its seed, and all seeds of a setting against the truth.

use super::book::{Need, Role, Setting};
use super::finding::Measurement;
use super::ledger::Outcome;
use super::named::{truth, truth_of_gang};
use super::policy::{Count, Policy};
use super::stage::{Means, Stage};
use crate::parallel::in_parallel;
use crate::world::{
    Jobs, Kind, RandomStream, Rules, START, SeriesChoice, Settings, Supply, WorldError, simulate,
};
use kubebid_core::Price;
use kubebid_core::command::RuleChange;
use kubebid_core::units::{MarketName, Micros};
use std::num::NonZeroUsize;
use std::ops::Range;

/// The reason for which a run ended early.
#[derive(Debug, thiserror::Error)]
#[error("{setting}, seed {seed}, policy {policy}: {fault}\n{rules}")]
pub struct AttackError {
    setting: &'static str,
    seed: u64,
    policy: String,
    /// The rules of the policy, one on a line: a search does not keep a policy that it could not measure.
    rules: String,
    #[source]
    fault: WorldError,
}

/// The settings that all runs share.
#[derive(Clone, Debug)]
pub struct Runs {
    /// Rules of the markets of small books that differ from the defaults.
    pub rules: Vec<RuleChange>,
    /// Runs at the same time.
    pub threads: NonZeroUsize,
}

/// The truth in a setting: what each policy is compared with, seed by seed.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// The setting.
    pub setting: Setting,
    /// The nodes that the truthful agent bids for. Where fewer nodes at a lower price are worth more than all of them,
    /// the best fixed number.
    pub nodes: Option<u32>,
    /// The seeds.
    pub seeds: Range<u64>,
    /// The outcome for each seed.
    pub outcomes: Vec<Outcome>,
}

impl Runs {
    /// Plays a policy once.
    pub fn play(&self, setting: Setting, seed: u64, policy: &Policy) -> Result<Outcome, AttackError> {
        let outcome = match setting.draw(seed) {
            Some(book) => {
                let end = book.end;
                Ok(Stage::of_book(book, policy, &self.rules).finish(end))
            }
            None => play_world(seed, policy),
        };
        outcome.map_err(|fault| AttackError {
            setting: setting.name(),
            seed,
            policy: policy.name.clone(),
            rules: policy.to_string(),
            fault,
        })
    }

    /// Plays a policy once for each seed, in parallel.
    pub fn play_all(
        &self,
        setting: Setting,
        seeds: Range<u64>,
        policy: &Policy,
    ) -> Result<Vec<Outcome>, AttackError> {
        let first = seeds.start;
        let count = (seeds.end - first) as usize;
        in_parallel(self.threads, count, |n| self.play(setting, first + n as u64, policy))
            .into_iter()
            .collect()
    }

    /// Plays the truth in a setting.
    pub fn baseline(&self, setting: Setting, seeds: Range<u64>) -> Result<Baseline, AttackError> {
        let all = match setting {
            Setting::Corner | Setting::Several => 10,
            Setting::Closing => 2,
            Setting::World => NODES_IN_WORLD,
            Setting::OneOfTen
            | Setting::Arrivals
            | Setting::TwoMarkets
            | Setting::Gang
            | Setting::Withdrawals
            | Setting::Seller
            | Setting::Full
            | Setting::Roomy
            | Setting::SelfReporting => 1,
        };
        let mut best: Option<Baseline> = None;
        for nodes in 1..=all {
            let policy = if setting == Setting::Gang {
                truth_of_gang()
            } else {
                truth(setting.role(), Count::Nodes(nodes as u8))
            };
            let outcomes = self.play_all(setting, seeds.clone(), &policy)?;
            let baseline = Baseline {
                setting,
                nodes: (setting.role() == Role::Tenant && all > 1).then_some(nodes),
                seeds: seeds.clone(),
                outcomes,
            };
            if best.as_ref().is_none_or(|best| baseline.payoff() >= best.payoff()) {
                best = Some(baseline);
            }
        }
        Ok(best.expect("at least one number of nodes"))
    }

    /// Measures a policy against the truth.
    pub fn measure(&self, baseline: &Baseline, policy: &Policy) -> Result<Measurement, AttackError> {
        let outcomes = self.play_all(baseline.setting, baseline.seeds.clone(), policy)?;
        Ok(Measurement::new(baseline, policy, &outcomes))
    }
}

impl Baseline {
    /// Returns the mean payoff of the agent.
    pub fn payoff(&self) -> f64 {
        self.outcomes.iter().map(|outcome| outcome.payoff).sum::<f64>() / self.outcomes.len() as f64
    }
}

const NODES_IN_WORLD: u32 = 2;

/// Plays the agent as one more tenant of a simulated world of truthful tenants.
fn play_world(seed: u64, policy: &Policy) -> Result<Outcome, WorldError> {
    let usual = Settings::default();
    let settings = Settings {
        seed,
        days: 2,
        markets: 1,
        rules: Rules::MARKET_DEFAULT,
        // The world learns at each of its steps what the agent has done, so that no boot ends between two.
        sample_seconds: 60,
        kept: SeriesChoice::None,
        supply: Supply { units: 24.0, providers: 2, boot_seconds: 120.0, boot_sigma: 0.0, ..usual.supply },
        jobs: Jobs {
            per_hour: 1.7,
            kinds: vec![(Kind::Truthful, 1.0)],
            daily_budget: 1e9,
            checkpoint_minutes: 5,
            ..usual.jobs
        },
        ..usual
    };
    let value = 0.09 * (1.0 + RandomStream::named(seed, "agent").share());
    let hour = |hours: u64| START.after(Micros(hours * Micros::HOUR.0));
    let need = Need {
        value: Price((value * 10_000.0) as u64 * 100),
        nodes: NODES_IN_WORLD,
        least: 1,
        from: hour(2),
        to: hour(46),
    };
    let means = Means {
        need,
        machines: 0,
        cost: Price::ZERO,
        self_reporting: false,
        node_hours: need.node_hours(),
        markets: vec![MarketName::new("gpu-1/sim")],
        tick: 100,
    };
    let mut stage = Stage::of_world(means, policy);
    simulate(&settings, &mut stage, |_| {})?;
    Ok(stage.finish(hour(48)))
}
