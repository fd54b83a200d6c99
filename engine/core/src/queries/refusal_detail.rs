//! The values that explain a rejected command.

use crate::answer::Outcome;
use crate::command::{Command, PlaceBid};
use crate::event::Scope;
use crate::exchange::Exchange;
use crate::types::market_rules::MarketRules;
use crate::types::money::Price;
use crate::types::reject::Reject;
use crate::types::units::{BidId, MarketId, MarketName, Micros};

/// The value of the exchange that a rejected command contradicts, as far as a message can name one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RefusalDetail {
    /// The command and its [`Reject`] say everything.
    #[default]
    None,
    /// The first market of the bid that does not exist.
    UnknownMarket(MarketName),
    /// The first market of the bid that takes no new bids.
    ClosedMarket(MarketName),
    /// The market time, which the expiry of the bid is not after.
    Now(Micros),
    /// The first market of which the price is not a multiple of the tick.
    Tick {
        /// The market.
        market: MarketName,
        /// Its tick, in micro-dollars.
        tick: u64,
    },
    /// The first market whose highest ceiling is exceeded.
    CeilingMax {
        /// The market.
        market: MarketName,
        /// Its highest ceiling, in micro-dollars per node-hour.
        ceiling_max: u64,
    },
    /// The first market that does not accept a bid for this many nodes.
    BidNodesMax {
        /// The market.
        market: MarketName,
        /// The most nodes of one bid there.
        bid_nodes_max: u64,
    },
    /// The nodes below which `max_nodes` of the bid cannot go.
    HeldNodes {
        /// The live allocations of the bid.
        live: u32,
        /// The minimum of the bid (R12).
        min_nodes: u32,
    },
    /// The ceiling below which the bid cannot go while one of its nodes is protected.
    Ceiling(Price),
    /// The ceiling below which the bid cannot go for a time, because it was raised while a node was under notice.
    LockedCeiling {
        /// The ceiling of the bid.
        ceiling: Price,
        /// The time from which it may be lowered again.
        until: Micros,
    },
}

impl Exchange {
    /// Returns the detail of a command that was just refused; [`RefusalDetail::None`] if it was accepted.
    pub fn refusal_detail(&self, command: &Command, outcome: Outcome) -> RefusalDetail {
        match outcome {
            Outcome::Rejected(reject) | Outcome::Repeated { refusal: Some(reject), .. } => {
                self.reject_detail(command, reject)
            }
            Outcome::Accepted | Outcome::Repeated { refusal: None, .. } => RefusalDetail::None,
        }
    }

    /// Returns the detail of a command that the exchange would reject, or has rejected.
    pub fn reject_detail(&self, command: &Command, reject: Reject) -> RefusalDetail {
        let detail = match (command, reject) {
            (Command::PutOffer { market, reserve, .. }, Reject::BadReserve) => {
                self.market_id(market).and_then(|market| self.off_tick(&[market], *reserve))
            }
            (Command::PlaceBid(bid), _) => self.place_bid_detail(bid, reject),
            (Command::AmendBid { bid, ceiling, max_nodes, .. }, _) => {
                self.amend_bid_detail(*bid, *ceiling, *max_nodes, reject)
            }
            _ => None,
        };
        detail.unwrap_or_default()
    }

    fn place_bid_detail(&self, bid: &PlaceBid, reject: Reject) -> Option<RefusalDetail> {
        if reject == Reject::UnknownMarket {
            let unknown = bid.markets.iter().flatten().find(|market| self.market_id(market).is_none())?;
            return Some(RefusalDetail::UnknownMarket(unknown.clone()));
        }
        if reject == Reject::MarketClosed {
            let mut named = bid.markets.iter().flatten();
            let closed = named.find(|market| self.market_id(market).is_some_and(|id| !self.is_open(id)))?;
            return Some(RefusalDetail::ClosedMarket(closed.clone()));
        }
        if reject == Reject::Expired {
            return Some(RefusalDetail::Now(self.now()));
        }
        let mut markets: Vec<MarketId> = match (&bid.markets, &bid.instance_type) {
            (Some(markets), _) => markets.iter().filter_map(|market| self.market_id(market)).collect(),
            (None, Some(instance_type)) => self.markets_of_type(instance_type.as_str()),
            (None, None) => Vec::new(),
        };
        markets.retain(|market| self.is_open(*market));
        self.broken_rule(&markets, Some(bid.ceiling), Some(bid.max_nodes), reject)
    }

    fn amend_bid_detail(
        &self,
        bid: BidId,
        ceiling: Option<Price>,
        max_nodes: Option<u32>,
        reject: Reject,
    ) -> Option<RefusalDetail> {
        let bid = self.view_bid(bid)?;
        if reject == Reject::BelowHeld {
            return Some(RefusalDetail::HeldNodes { live: bid.live.len() as u32, min_nodes: bid.min_nodes });
        }
        if reject == Reject::Protected {
            let protected = bid.live.iter().any(|id| self.is_protected(self.allocation(*id)));
            let lock = bid.ceiling_locked_until.filter(|_| !protected);
            return Some(match lock {
                Some(until) => RefusalDetail::LockedCeiling { ceiling: bid.ceiling, until },
                None => RefusalDetail::Ceiling(bid.ceiling),
            });
        }
        let mut markets = match &bid.scope {
            Scope::Markets(markets) => markets.to_vec(),
            Scope::InstanceType(instance_type) => self.markets_of_type(instance_type.as_str()),
        };
        markets.retain(|market| self.market(*market).state.admits(bid.bid));
        self.broken_rule(&markets, ceiling, max_nodes, reject)
    }

    /// Returns the first market whose rules a ceiling or a number of nodes breaks.
    fn broken_rule(
        &self,
        markets: &[MarketId],
        ceiling: Option<Price>,
        max_nodes: Option<u32>,
        reject: Reject,
    ) -> Option<RefusalDetail> {
        match (reject, ceiling, max_nodes) {
            (Reject::NotATick, Some(ceiling), _) => self.off_tick(markets, ceiling),
            (Reject::CeilingTooHigh, Some(ceiling), _) => {
                let (market, rules) = self.first_with(markets, |rules| ceiling.0 > rules.ceiling_max)?;
                Some(RefusalDetail::CeilingMax { market, ceiling_max: rules.ceiling_max })
            }
            (Reject::TooManyNodes, _, Some(nodes)) => {
                let nodes = u64::from(nodes);
                let (market, rules) = self.first_with(markets, |rules| nodes > rules.bid_nodes_max)?;
                Some(RefusalDetail::BidNodesMax { market, bid_nodes_max: rules.bid_nodes_max })
            }
            _ => None,
        }
    }

    fn off_tick(&self, markets: &[MarketId], price: Price) -> Option<RefusalDetail> {
        let (market, rules) = self.first_with(markets, |rules| !price.is_multiple_of(rules.tick))?;
        Some(RefusalDetail::Tick { market, tick: rules.tick })
    }

    fn first_with(
        &self,
        markets: &[MarketId],
        breaks: impl Fn(&MarketRules) -> bool,
    ) -> Option<(MarketName, &MarketRules)> {
        let market = markets.iter().find(|market| breaks(self.market_rules(**market)))?;
        Some((self.names.market(*market).clone(), self.market_rules(*market)))
    }

    /// Returns the markets of an instance type, closed ones too, in the order in which they were opened.
    pub(super) fn markets_of_type(&self, instance_type: &str) -> Vec<MarketId> {
        let names = self.names.markets.iter().filter(|market| market.parts().0 == instance_type);
        names.filter_map(|name| self.market_id(name)).collect()
    }
}
