//! Demand and supply of a market by price level, without identities (R9).

use crate::exchange::Exchange;
use crate::types::money::Price;
use crate::types::units::{AccountName, MarketId};
use std::collections::BTreeMap;

/// Demand and supply by price level, the best first: the highest ceilings and the lowest reserves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Price levels of bids, the highest ceiling first.
    pub demand: Vec<DemandLevel>,
    /// Price levels of units, the lowest reserve first.
    pub supply: Vec<SupplyLevel>,
}

/// Nodes wanted and held at one ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandLevel {
    /// The ceiling of the level, in micro-dollars per node-hour.
    pub ceiling: Price,
    /// The nodes that eligible bids still search for, waiting gangs included.
    pub unmet: u64,
    /// The number of live allocations of bids with this ceiling.
    pub held: u64,
    /// The number of claims of bids with this ceiling.
    pub claimed: u64,
}

/// The units at one reserve that are not leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupplyLevel {
    /// The reserve of the offers, in micro-dollars per node-hour.
    pub reserve: Price,
    /// The number of free units.
    pub free: u64,
    /// The number of allocated units that are not under notice.
    pub allocated: u64,
    /// The number of units under notice, claimed ones included and leaving ones not.
    pub notice: u64,
}

impl Exchange {
    /// Returns at most `levels` price levels of either side.
    pub fn depth(&self, market: MarketId, levels: usize) -> Depth {
        Depth { demand: self.demand_levels(market, levels), supply: self.supply_levels(market, levels) }
    }

    /// Returns the depth as an account sees it; None stands for one that sees all. An account that sells in the market
    /// does not see the ceilings of nodes and of claims on nodes, which may be on its own units.
    pub fn depth_for(&self, market: MarketId, account: Option<&AccountName>, levels: usize) -> Depth {
        let sells = account.is_some_and(|account| self.offer_of(market, account).is_some());
        if !sells {
            return self.depth(market, levels);
        }
        let mut depth = self.depth(market, usize::MAX);
        depth.demand.retain(|level| level.unmet > 0);
        depth.demand.iter_mut().for_each(|level| (level.held, level.claimed) = (0, 0));
        depth.demand.truncate(levels);
        depth.supply.truncate(levels);
        depth
    }

    fn demand_levels(&self, market: MarketId, levels: usize) -> Vec<DemandLevel> {
        let book = &self.market(market).book;
        let mut found: BTreeMap<Price, DemandLevel> = BTreeMap::new();
        // Each source has one entry for each of its ceilings, so the work depends only on
        // `levels`.
        let mut at = |ceiling: Price, add: &dyn Fn(&mut DemandLevel)| {
            let level = DemandLevel { ceiling, unmet: 0, held: 0, claimed: 0 };
            add(found.entry(ceiling).or_insert(level));
            if found.len() > levels {
                found.pop_first();
            }
            // The later entries of the same source have lower ceilings, so reading stops once
            // there are enough levels.
            found.first_key_value().is_none_or(|(lowest, _)| found.len() < levels || ceiling >= *lowest)
        };
        for (ceiling, nodes) in book.demand.levels() {
            if !at(ceiling, &|level| level.unmet += nodes) {
                break;
            }
        }
        for (ceiling, nodes) in book.demand.gang_levels() {
            if !at(ceiling, &|level| level.unmet += nodes) {
                break;
            }
        }
        for (ceiling, count) in book.held.levels().rev() {
            if !at(ceiling, &|level| level.held += count) {
                break;
            }
        }
        for (ceiling, count) in book.held.claim_levels().rev() {
            if !at(ceiling, &|level| level.claimed += count) {
                break;
            }
        }
        found.into_values().rev().collect()
    }

    fn supply_levels(&self, id: MarketId, levels: usize) -> Vec<SupplyLevel> {
        let market = self.market(id);
        let mut found: Vec<SupplyLevel> = Vec::new();
        for provider in market.book.free.providers() {
            let offer = &market.offers[&provider];
            let reserve = offer.reserve;
            if found.last().is_none_or(|last| last.reserve != reserve) {
                if found.len() == levels {
                    break;
                }
                found.push(SupplyLevel { reserve, free: 0, allocated: 0, notice: 0 });
            }
            let level = found.last_mut().expect("pushed above");
            level.free += offer.free.len() as u64;
            level.allocated += offer.allocated();
            level.notice += offer.notices;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Auction;
    use crate::command::{OnPreemption, PlaceBid, TimeInForce};
    use crate::types::units::{AccountName, MarketName, Micros};
    use crate::{Command, StampedCommand};

    #[test]
    fn a_hundred_thousand_waiting_gangs_are_looked_at_as_one_level() {
        let (mut exchange, market) = (Exchange::new(), MarketName::new("a/b"));
        let mut apply = |command| exchange.apply(&StampedCommand { at: Micros(0), key: None, command });
        apply(Command::OpenMarket { market: market.clone(), rules: Vec::new() });
        let bid = PlaceBid {
            tenant: AccountName::new("t1"),
            markets: Some(vec![market]),
            instance_type: None,
            ceiling: Price(1_000),
            min_nodes: 2,
            max_nodes: 3,
            time_in_force: TimeInForce::Gtc,
            expire_at: None,
            on_preemption: OnPreemption::Requeue,
        };
        for _ in 0..100_000 {
            apply(Command::PlaceBid(bid.clone()));
        }
        let book = &exchange.market(MarketId(0)).book;
        assert_eq!(book.demand.gang_levels().collect::<Vec<_>>(), [(Price(1_000), 300_000)]);
        let level = DemandLevel { ceiling: Price(1_000), unmet: 300_000, held: 0, claimed: 0 };
        assert_eq!(exchange.depth(MarketId(0), 10).demand, [level]);
    }
}
