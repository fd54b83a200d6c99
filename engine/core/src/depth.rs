//! Demand and supply of a market by price level, without identities (R9). Reads only.

use crate::exchange::Exchange;
use crate::money::Price;
use crate::units::MarketId;
use std::collections::BTreeMap;

/// Best first: the highest ceilings, the lowest reserves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    pub demand: Vec<DemandLevel>,
    pub supply: Vec<SupplyLevel>,
}

/// Nodes wanted and held at one ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandLevel {
    pub ceiling: Price,
    /// What bids eligible here still search for, waiting gangs too.
    pub unmet: u64,
    pub held: u64,
    pub claimed: u64,
}

/// Units at one reserve, those that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupplyLevel {
    pub reserve: Price,
    pub free: u64,
    /// Not under notice.
    pub allocated: u64,
    pub notice: u64,
}

impl Exchange {
    /// At most `levels` of either side.
    pub fn depth(&self, market: MarketId, levels: usize) -> Depth {
        Depth { demand: self.demand_levels(market, levels), supply: self.supply_levels(market, levels) }
    }

    fn demand_levels(&self, market: MarketId, levels: usize) -> Vec<DemandLevel> {
        let book = &self.market(market).book;
        let mut found: BTreeMap<Price, DemandLevel> = BTreeMap::new();
        let mut at = |ceiling: Price, add: &dyn Fn(&mut DemandLevel)| {
            let level = DemandLevel { ceiling, unmet: 0, held: 0, claimed: 0 };
            add(found.entry(ceiling).or_insert(level));
            if found.len() > levels {
                found.pop_first();
            }
            // What comes next of the same kind is not higher.
            found.first_key_value().is_none_or(|(lowest, _)| found.len() < levels || ceiling >= *lowest)
        };
        let unmet = |bid| u64::from(self.bid(bid).unmet());
        for (rank, bid) in book.demand.plain() {
            if !at(rank.ceiling.0, &|level| level.unmet += unmet(bid)) {
                break;
            }
        }
        for (rank, bid) in book.demand.gangs() {
            at(rank.ceiling.0, &|level| level.unmet += unmet(bid));
        }
        for (ceiling, count) in book.held.levels().rev() {
            if !at(ceiling, &|level| level.held += count) {
                break;
            }
        }
        for ceiling in book.held.claim_ceilings().rev() {
            if !at(ceiling, &|level| level.claimed += 1) {
                break;
            }
        }
        found.into_values().rev().collect()
    }

    fn supply_levels(&self, id: MarketId, levels: usize) -> Vec<SupplyLevel> {
        let market = self.market(id);
        let mut notices: BTreeMap<Price, u64> = BTreeMap::new();
        let orphans = self.orphans.iter().map(|(_, node)| node.0);
        let orphans = orphans.filter(|node| self.allocation(*node).unit.market == id);
        let standing = market.book.standing.iter().map(|(.., node)| node);
        for node in market.book.held.claims().chain(standing).chain(orphans) {
            *notices.entry(self.offer(self.allocation(node).unit).reserve).or_default() += 1;
        }
        let mut found: Vec<SupplyLevel> = Vec::new();
        for provider in market.book.free.providers() {
            let offer = &market.offers[&provider];
            let reserve = offer.reserve;
            if found.last().is_none_or(|last| last.reserve != reserve) {
                if found.len() == levels {
                    break;
                }
                let notice = notices.get(&reserve).copied().unwrap_or(0);
                found.push(SupplyLevel { reserve, free: 0, allocated: 0, notice });
            }
            let level = found.last_mut().expect("pushed above");
            level.free += offer.free.len() as u64;
            level.allocated += offer.capacity() - offer.free.len() as u64;
        }
        for level in &mut found {
            level.allocated -= level.notice;
        }
        found
    }
}
