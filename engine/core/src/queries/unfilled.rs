//! Explains why a bid lacks nodes, market by market, and what would change that.

use crate::book::BookPlace;
use crate::exchange::Exchange;
use crate::state::Bid;
use crate::types::money::Price;
use crate::types::units::{BidId, MarketId, Micros};

/// Why a bid gets no more nodes at the moment. Later variants are closer to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unfilled {
    /// No market in which the bid may search is open.
    NoMarket,
    /// The account sells there (R17).
    OwnSupply,
    /// No unit stays there, except those that the bid holds itself.
    NoSupply,
    /// The ceiling is below the floor of the market (R9).
    BelowFloor,
    /// The ceiling is at least the floor, but below what a unit or a displacement needs.
    BelowNeededCeiling,
    /// The bid could get a node, but not as many at once as it needs (R12).
    MinimumNotMet,
    /// Its account cannot pay for one more node there, or for the minimum (R19).
    NoFunds,
    /// It may displace a node as soon as that node's protection ends (R4).
    WaitingForProtectedNode,
}

impl Unfilled {
    /// Returns the stable word of the reason, as in `NO_MARKET`.
    pub fn word(self) -> &'static str {
        match self {
            Unfilled::NoMarket => "NO_MARKET",
            Unfilled::OwnSupply => "OWN_SUPPLY",
            Unfilled::NoSupply => "NO_SUPPLY",
            Unfilled::BelowFloor => "BELOW_FLOOR",
            Unfilled::BelowNeededCeiling => "BELOW_NEEDED_CEILING",
            Unfilled::MinimumNotMet => "MINIMUM_NOT_MET",
            Unfilled::NoFunds => "NO_FUNDS",
            Unfilled::WaitingForProtectedNode => "WAITING_FOR_PROTECTED_NODE",
        }
    }
}

/// The situation of a bid in one market.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The market that was looked at.
    pub market: MarketId,
    /// The reason why the bid gets no further node there.
    pub reason: Unfilled,
    /// The lowest ceiling with which the bid would get one more node, or its minimum, at once or as
    /// soon as a protection ends. None if no ceiling is enough.
    pub needed_ceiling: Option<Price>,
    /// The end of the first protection that keeps the bid waiting.
    pub protected_until: Option<Micros>,
}

/// The most protected nodes that are read for one answer, so that no question takes long.
const PROTECTED: usize = 1000;

impl Exchange {
    /// Returns the obstacles of a bid with unmet demand, in each of its markets, in its order. Returns none for any
    /// other bid.
    pub fn obstacles(&self, id: BidId) -> Vec<Obstacle> {
        let Some(bid) = self.bids.get(id).filter(|bid| bid.unmet() > 0) else { return Vec::new() };
        self.admitting_markets(id).map(|market| self.obstacle(id, bid, market)).collect()
    }

    /// Returns the reason of the market in which the bid is closest to a node.
    pub(crate) fn why_unfilled(&self, id: BidId, bid: &Bid) -> Unfilled {
        let reasons = self.admitting_markets(id).map(|market| self.reason_in(id, bid, market));
        reasons.max().unwrap_or(Unfilled::NoMarket)
    }

    fn obstacle(&self, id: BidId, bid: &Bid, market: MarketId) -> Obstacle {
        let reason = self.reason_in(id, bid, market);
        let waits = reason == Unfilled::WaitingForProtectedNode;
        let needed = match reason {
            Unfilled::NoMarket | Unfilled::OwnSupply | Unfilled::NoSupply | Unfilled::NoFunds => None,
            Unfilled::WaitingForProtectedNode => self.needed_while_waiting(id, bid, market),
            Unfilled::BelowFloor | Unfilled::BelowNeededCeiling | Unfilled::MinimumNotMet => {
                self.needed_by(bid, market)
            }
        };
        Obstacle {
            market,
            reason,
            needed_ceiling: needed.and_then(|needed| self.as_ceiling(id, needed)),
            protected_until: waits.then(|| self.first_protection(bid, market)).flatten(),
        }
    }

    fn reason_in(&self, id: BidId, bid: &Bid, market: MarketId) -> Unfilled {
        if self.sells(bid.terms.tenant, market) {
            return Unfilled::OwnSupply;
        }
        if !self.takes_part(id, market) {
            return Unfilled::NoFunds;
        }
        let Some(floor) = self.floor_of_others(bid, market) else { return Unfilled::NoSupply };
        if bid.terms.ceiling < floor {
            return Unfilled::BelowFloor;
        }
        if self.needed_by(bid, market).is_some_and(|needed| needed <= bid.terms.ceiling) {
            return Unfilled::WaitingForProtectedNode;
        }
        let one = self.needed_for(market, 1).is_some_and(|needed| needed <= bid.terms.ceiling);
        if bid.wanted_at_once() > 1 && one {
            return Unfilled::MinimumNotMet;
        }
        Unfilled::BelowNeededCeiling
    }

    /// Returns the floor of the market. None if no unit stays there, except those that the bid holds
    /// itself.
    fn floor_of_others(&self, bid: &Bid, market: MarketId) -> Option<Price> {
        let here = |id: &_| self.allocation(*id).unit.market == market;
        let stays = |id: &_| !matches!(self.allocation(*id).place, Some(BookPlace::Leaving));
        let held = bid.live.iter().chain(bid.notices.iter());
        let own = held.filter(here).filter(stays).count() + bid.claims.iter().filter(here).count();
        let market = self.market(market);
        let mut staying = 0;
        let offers = market.book.free.providers();
        let others = offers.map(|provider| market.offers[&provider].for_sale());
        let enough = others.into_iter().any(|capacity| {
            staying += capacity;
            staying > own as u64
        });
        market.book.free.floor().filter(|_| enough)
    }

    /// Returns the ceiling that would get the bid what it wants at once in a market if no node were
    /// protected. Its own nodes and claims do not count, because their ceiling would rise with it.
    fn needed_by(&self, bid: &Bid, id: MarketId) -> Option<Price> {
        let nodes = u64::from(bid.wanted_at_once());
        let market = self.market(id);
        let mut needs: Vec<(Price, u64)> = Vec::new();
        let enough = |have: &mut u64, count: u64| {
            let before = *have;
            *have += count;
            before < nodes
        };
        let mut have = 0;
        needs.extend(
            market
                .book
                .free
                .iter()
                .map(|(reserve, count, _)| (reserve, count))
                .take_while(|(_, count)| enough(&mut have, *count)),
        );
        needs.extend(self.standing_notices(id).take(nodes as usize).map(|standing| (standing.needed, 1)));
        let mut have = 0;
        let levels = self.levels_of_others(bid, id).take_while(|(_, count)| enough(&mut have, *count));
        needs.extend(levels.map(|(ceiling, count)| (market.rules.needed(ceiling), count)));
        let claims = market.book.held.claims();
        let claims = claims.filter(|claim| !bid.claims.contains(*claim));
        let claims = claims.take(nodes as usize).filter_map(|claim| self.allocation(claim).claim());
        needs.extend(claims.map(|claim| (market.rules.needed(self.bid(claim.by.bid).terms.ceiling), 1)));
        needs.sort_unstable();
        let mut have = 0;
        needs
            .into_iter()
            .find(|(_, count)| {
                have += count;
                have >= nodes
            })
            .map(|(needed, _)| needed)
    }

    /// Returns the ceilings of other bids' live nodes, the lowest first, with their number.
    fn levels_of_others(&self, bid: &Bid, market: MarketId) -> impl Iterator<Item = (Price, u64)> {
        let own = bid.live.iter().filter(|id| self.allocation(*id).unit.market == market).count() as u64;
        let ceiling = bid.terms.ceiling;
        let others = move |(level, count)| (level, if level == ceiling { count - own } else { count });
        self.market(market).book.held.levels().map(others).filter(|(_, count)| *count > 0)
    }

    /// Returns the ceiling that also passes higher bids that wait for the same node. It is more than
    /// the node itself needs.
    fn needed_while_waiting(&self, id: BidId, bid: &Bid, market: MarketId) -> Option<Price> {
        let needed = self.needed_by(bid, market)?;
        let tick = self.market(market).rules.tick;
        let first = self.market(market).book.demand.plain().find(|(_, other)| *other != id);
        let rival = first.map(|(rank, _)| rank).filter(|rank| rank.ceiling.0 >= needed);
        Some(match rival {
            Some(rival) if rival < bid.rank() => needed.max(Price(rival.ceiling.0.0.saturating_add(tick))),
            Some(rival) => bid.terms.ceiling.min(Price(rival.ceiling.0.0.saturating_add(tick))),
            None => needed,
        })
    }

    /// Returns the end of the first protection among the nodes that the bid could otherwise displace.
    /// For a gang that concerns many levels, reads only the [`PROTECTED`] nodes with the lowest
    /// ceilings.
    fn first_protection(&self, bid: &Bid, market: MarketId) -> Option<Micros> {
        let rules = &self.market(market).rules;
        let levels = self.levels_of_others(bid, market);
        let mut within = levels.take_while(|(ceiling, _)| rules.needed(*ceiling) <= bid.terms.ceiling);
        // A plain bid only ever displaces in the lowest level (R4).
        let (lowest, _) = within.next()?;
        let highest =
            if bid.wanted_at_once() > 1 { within.last().map_or(lowest, |(c, _)| c) } else { lowest };
        let protected = self.market(market).book.held.protected();
        let others = protected.filter(|(.., id)| !bid.live.contains(*id));
        let within = others.take_while(|(ceiling, ..)| *ceiling <= highest);
        // At one ceiling, the protection that ends first comes first.
        let looked_at = if highest == lowest { 1 } else { PROTECTED };
        within.take(looked_at).map(|(_, until, _)| until).min()
    }

    /// Returns a price as a ceiling that the bid may have: a multiple of the ticks of all its
    /// markets, and not above their highest ceilings.
    pub(crate) fn as_ceiling(&self, id: BidId, price: Price) -> Option<Price> {
        let markets = self.admitting_markets(id);
        let rules = || markets.clone().map(|market| &self.market(market).rules);
        let tick = rules().map(|rules| rules.tick).fold(1, lcm);
        let ceiling = price.max(Price(1)).round_up(tick)?;
        rules().all(|rules| ceiling.0 <= rules.ceiling_max).then_some(ceiling)
    }
}

impl Bid {
    /// Returns the number of nodes it takes at a time: its minimum for a waiting gang (R12).
    fn wanted_at_once(&self) -> u32 {
        self.gang().unwrap_or(1)
    }
}

pub(crate) fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x).saturating_mul(b)
}
