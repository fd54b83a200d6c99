//! The behaviour of tenants: what each kind does when a job arrives, as time passes, and at a notice.

use kubebid_core::Price;
use kubebid_core::units::Micros;
use kubebid_strategy::{AtNotice, Quote, Standing, Strategy, amendment_micros};
use serde::{Deserialize, Serialize};

/// Accounts of one kind in one market.
pub(super) const ACCOUNTS: u64 = 4;

/// A kind of tenant, named by the way it bids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Bids as the operator does with this strategy.
    CostOptimized,
    /// Bids as the operator does with this strategy.
    Balanced,
    /// Bids as the operator does with this strategy.
    AvailabilityOptimized,
    /// Bids what a node is worth, and waits.
    Truthful,
    /// Looks on until nodes are to be had at once for less than they are worth, and takes them then.
    Sniper,
    /// Begins low and raises as its deadline comes near, in the end beyond the worth.
    Panicker,
    /// Asks for half of what it wants, so as not to drive the price.
    DemandReducer,
    /// Part of a rush: much, soon, and not for long.
    Urgent,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 8] = [
        Kind::CostOptimized,
        Kind::Balanced,
        Kind::AvailabilityOptimized,
        Kind::Truthful,
        Kind::Sniper,
        Kind::Panicker,
        Kind::DemandReducer,
        Kind::Urgent,
    ];

    /// Returns the name, of which account names are made.
    pub fn name(self) -> &'static str {
        match self {
            Kind::CostOptimized => "cost-optimized",
            Kind::Balanced => "balanced",
            Kind::AvailabilityOptimized => "availability-optimized",
            Kind::Truthful => "truthful",
            Kind::Sniper => "sniper",
            Kind::Panicker => "panicker",
            Kind::DemandReducer => "demand-reducer",
            Kind::Urgent => "urgent",
        }
    }

    fn strategy(self) -> Option<Strategy> {
        match self {
            Kind::CostOptimized => Some(Strategy::CostOptimized),
            Kind::Balanced => Some(Strategy::Balanced),
            Kind::AvailabilityOptimized => Some(Strategy::AvailabilityOptimized),
            Kind::Truthful | Kind::Sniper | Kind::Panicker | Kind::DemandReducer | Kind::Urgent => None,
        }
    }
}

/// The knowledge of a tenant that decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) now: Micros,
    pub(super) quote: Quote,
    pub(super) entry: Option<Price>,
    pub(super) increment_bps: u64,
}

/// The wish of a tenant, and how pressing it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) kind: Kind,
    pub(super) watched: bool,
    pub(super) nodes: u32,
    /// The most a node is worth.
    pub(super) worth: Price,
    pub(super) submitted: Micros,
    /// The time at which it has to have nodes, to be done by its deadline.
    pub(super) latest_start: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// Bid and wait.
    Bid { ceiling: Price, nodes: u32 },
    /// Take what is there, and search no longer.
    Take { ceiling: Price, nodes: u32 },
    /// Look again later.
    Later,
}

impl Want {
    pub(super) fn open(&self, seen: &Seen) -> Opening {
        let ceiling = self.ceiling(seen);
        match self.kind {
            Kind::CostOptimized | Kind::Balanced | Kind::AvailabilityOptimized | Kind::Panicker => {
                Opening::Bid { ceiling, nodes: self.nodes }
            }
            Kind::Truthful | Kind::Urgent => Opening::Bid { ceiling, nodes: self.nodes },
            Kind::DemandReducer => Opening::Bid { ceiling, nodes: self.nodes.div_ceil(2) },
            Kind::Sniper if seen.entry.is_some_and(|entry| entry <= ceiling) => {
                Opening::Take { ceiling, nodes: self.nodes }
            }
            Kind::Sniper => Opening::Later,
        }
    }

    fn ceiling(&self, seen: &Seen) -> Price {
        let worth = self.worth.0;
        let wanted = match self.kind {
            Kind::Panicker if seen.now >= self.latest_start => worth.saturating_mul(2),
            Kind::Panicker => {
                let (waited, time) =
                    (seen.now.since(self.submitted).0, self.latest_start.since(self.submitted).0);
                (u128::from(worth) * u128::from(time * 7 + waited * 3) / u128::from((time * 10).max(1)))
                    as u64
            }
            Kind::CostOptimized
            | Kind::Balanced
            | Kind::AvailabilityOptimized
            | Kind::Truthful
            | Kind::Sniper
            | Kind::DemandReducer
            | Kind::Urgent => worth,
        };
        let ceiling = match self.kind.strategy() {
            Some(strategy) => strategy.ceiling_micros(wanted, &seen.quote),
            None => seen.quote.round_down_micros(wanted),
        };
        Price(ceiling.max(seen.quote.tick_micros))
    }

    /// Returns whether it thinks its ceiling over now and then.
    pub(super) fn revises(&self) -> bool {
        self.kind == Kind::Panicker || self.kind.strategy().is_some()
    }

    /// Returns another ceiling, if it is worth a command.
    pub(super) fn revise(&self, seen: &Seen, ceiling: Price, waits: bool) -> Option<Price> {
        let standing = Standing {
            ceiling_micros: ceiling.0,
            waits,
            tick_micros: seen.quote.tick_micros,
            increment_bps: seen.increment_bps,
        };
        amendment_micros(&standing, self.ceiling(seen).0).map(Price)
    }

    /// Returns whether the price to stay matters to it.
    pub(super) fn would_stay(&self) -> bool {
        self.kind.strategy().is_some()
    }

    pub(super) fn at_notice(&self, seen: &Seen, price_to_stay: Option<Price>) -> Option<Price> {
        let strategy = self.kind.strategy()?;
        match strategy.at_notice(price_to_stay.map(|price| price.0), self.worth.0, &seen.quote) {
            AtNotice::RaiseTo { ceiling_micros } => Some(Price(ceiling_micros)),
            AtNotice::LetGo => None,
        }
    }
}
