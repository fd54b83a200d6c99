//! The three strategies: what each bids, and what it does at a notice.

use crate::quote::Quote;
use crate::reference::MEDIAN_PERCENT;
use std::fmt;
use std::str::FromStr;

/// A bidding strategy: a trade of price against interruptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// Bids the median price of the last two days, so it waits for the cheaper half of the time.
    CostOptimized,
    /// Bids a third above that median, which is enough most of the time.
    #[default]
    Balanced,
    /// Bids nearly twice the median, and stays for whatever its owner allows.
    AvailabilityOptimized,
}

/// The answer to a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtNotice {
    /// Raise the ceiling of the bid, and the notice is taken back.
    RaiseTo {
        /// The ceiling, micro-dollars per node-hour.
        ceiling_micros: u64,
    },
    /// Drain the node: it is not worth more.
    LetGo,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Strategy; 3] =
        [Strategy::CostOptimized, Strategy::Balanced, Strategy::AvailabilityOptimized];

    /// Returns the name in specifications and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::CostOptimized => "cost-optimized",
            Strategy::Balanced => "balanced",
            Strategy::AvailabilityOptimized => "availability-optimized",
        }
    }

    /// Returns the share of the reference price that it bids, in percent.
    pub fn factor_percent(self) -> u64 {
        match self {
            Strategy::CostOptimized => MEDIAN_PERCENT,
            Strategy::Balanced => 90,
            Strategy::AvailabilityOptimized => 120,
        }
    }

    /// Returns the ceiling to bid: its share of the reference, or the whole `max_bid_micros` if there is no
    /// reference. It is a multiple of the tick, rounded down, so the tenant gains, and never above
    /// `max_bid_micros`. Two of the three never bid below the floor if `max_bid_micros` allows it: if reserves have
    /// risen above the reference, a share of it would never win. It is at least one tick, because a market takes no
    /// lower bid, even if its nodes cost nothing. 0 means that `max_bid_micros` is below one tick.
    ///
    /// # Panics
    ///
    /// If the tick is 0.
    pub fn ceiling_micros(self, max_bid_micros: u64, quote: &Quote) -> u64 {
        let most = quote.round_down_micros(max_bid_micros);
        let Some(reference) = quote.reference_micros else { return most };
        let share = quote.round_down_micros(self.share_micros(reference, quote));
        let floor = quote.floor_micros.and_then(|floor| quote.round_up_micros(floor));
        match (self, floor) {
            (Strategy::Balanced | Strategy::AvailabilityOptimized, Some(floor)) if floor <= most => {
                share.clamp(floor, most)
            }
            (Strategy::CostOptimized | Strategy::Balanced | Strategy::AvailabilityOptimized, _) => {
                share.min(most)
            }
        }
    }

    /// Returns what to do at a notice. `price_to_stay_micros` is the market's price to stay; `None` if no ceiling
    /// brings the node back. A raise is to the lowest ceiling that is enough.
    ///
    /// Each strategy stays for as much as the next one bids (90 %, 120 % of the reference, the maximum; one tick at least): a
    /// restart loses the work since the last checkpoint, so a node that is held is worth more than one that
    /// is sought.
    pub fn at_notice(
        self,
        price_to_stay_micros: Option<u64>,
        max_bid_micros: u64,
        quote: &Quote,
    ) -> AtNotice {
        let next = match self {
            Strategy::CostOptimized => Some(Strategy::Balanced),
            Strategy::Balanced => Some(Strategy::AvailabilityOptimized),
            Strategy::AvailabilityOptimized => None,
        };
        let share = next.zip(quote.reference_micros);
        let most = share.map_or(max_bid_micros, |(next, reference)| {
            next.share_micros(reference, quote).min(max_bid_micros)
        });
        match price_to_stay_micros.and_then(|price| quote.round_up_micros(price)) {
            Some(ceiling_micros) if ceiling_micros <= most => AtNotice::RaiseTo { ceiling_micros },
            Some(_) | None => AtNotice::LetGo,
        }
    }

    /// Returns the strategy's share of a reference price: one tick at least.
    fn share_micros(self, reference_micros: u64, quote: &Quote) -> u64 {
        percent_micros(self.factor_percent(), reference_micros).max(quote.tick_micros)
    }
}

/// Returns this share of a price, rounded down; the highest `u64` if it is too large.
fn percent_micros(percent: u64, price_micros: u64) -> u64 {
    let share = u128::from(price_micros) * u128::from(percent) / 100;
    u64::try_from(share).unwrap_or(u64::MAX)
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that no strategy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownStrategy(pub String);

impl fmt::Display for UnknownStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Strategy::ALL.map(Strategy::name).join(", ");
        write!(f, "{:?} is no bidding strategy: there are {names}", self.0)
    }
}

impl std::error::Error for UnknownStrategy {}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(text: &str) -> Result<Strategy, UnknownStrategy> {
        let known = Strategy::ALL.into_iter().find(|strategy| strategy.name() == text);
        known.ok_or_else(|| UnknownStrategy(text.to_owned()))
    }
}
