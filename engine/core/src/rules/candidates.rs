//! The nodes that a bid could take in a market: free units, standing notices, displacements (R3, R4, R6).

use crate::book::Victim;
use crate::exchange::Exchange;
use crate::state::{Bid, BidTerms};
use crate::types::money::Price;
use crate::types::units::{AccountId, AllocationId, BidId, MarketId, Micros};
use std::cmp::{Ordering, Reverse};

/// A node that a bid can get, and the ceiling that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) kind: CandidateKind,
    /// The needed ceiling: the reserve, or for a displacement at least the victim's ceiling plus the
    /// increment.
    pub(crate) needed: Price,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CandidateKind {
    Free(MarketId, AccountId),
    Standing(AllocationId),
    Displace(Victim),
}

impl Exchange {
    /// Returns the ceilings that nodes there need one after another, the cheapest first (R9).
    pub(crate) fn needs(&self, id: MarketId) -> impl Iterator<Item = Price> {
        let mut free = self.free_units(id).map(|o| o.needed).peekable();
        let mut standing = self.standing_notices(id).map(|o| o.needed).peekable();
        // No victim is passed over for a later one, so each needs at least what those before it
        // need.
        let mut displacements = self
            .displacements(id)
            .scan(Price::ZERO, |needed, o| {
                *needed = o.needed.max(*needed);
                Some(*needed)
            })
            .peekable();
        std::iter::from_fn(move || {
            let least =
                [free.peek(), standing.peek(), displacements.peek()].into_iter().flatten().min().copied()?;
            free.next_if_eq(&least)
                .or_else(|| standing.next_if_eq(&least))
                .or_else(|| displacements.next_if_eq(&least))
        })
    }

    /// Returns the nodes that one bid with this ceiling would take in a market, one after another (R3, R4).
    fn takings(&self, id: MarketId, ceiling: Price) -> impl Iterator<Item = Candidate> {
        let affordable = move |o: &Candidate| o.needed <= ceiling;
        let mut free = self.free_units(id).take_while(affordable).peekable();
        let mut standing = self.standing_notices(id).take_while(affordable).peekable();
        let mut displacements = self.displacements(id).take_while(affordable).peekable();
        std::iter::from_fn(move || {
            let displacement = displacements.peek().copied();
            free.next_if(|o| o.precedes(displacement))
                .or_else(|| standing.next_if(|o| o.precedes(displacement)))
                .or_else(|| displacements.next())
        })
    }

    pub(crate) fn free_units(&self, id: MarketId) -> impl Iterator<Item = Candidate> {
        self.market(id).book.free.iter().flat_map(move |(reserve, count, provider)| {
            let candidate = Candidate { kind: CandidateKind::Free(id, provider), needed: reserve };
            std::iter::repeat_n(candidate, usize::try_from(count).unwrap_or(usize::MAX))
        })
    }

    pub(crate) fn standing_notices(&self, id: MarketId) -> impl Iterator<Item = Candidate> {
        let standing = self.market(id).book.standing.iter();
        standing.map(|(reserve, _, node)| Candidate { kind: CandidateKind::Standing(node), needed: reserve })
    }

    /// Returns the displacements one after another, each as if those before it were done.
    pub(crate) fn displacements(&self, id: MarketId) -> impl Iterator<Item = Candidate> {
        self.market(id).book.held.victims().map(|victim| self.displacing(victim))
    }

    /// Returns the first of [`Exchange::displacements`].
    pub(crate) fn displacement(&self, id: MarketId) -> Option<Candidate> {
        self.market(id).book.held.first_victim().map(|victim| self.displacing(victim))
    }

    fn displacing(&self, victim: Victim) -> Candidate {
        let unit = self.allocation(victim.allocation).unit;
        Candidate { kind: CandidateKind::Displace(victim), needed: self.needed(unit, victim.ceiling) }
    }

    /// Returns the first free unit.
    pub(crate) fn free_unit(&self, id: MarketId) -> Option<Candidate> {
        let (reserve, _, provider) = self.market(id).book.free.first()?;
        Some(Candidate { kind: CandidateKind::Free(id, provider), needed: reserve })
    }

    /// Returns the ceiling that one node needs (R9): the first of [`Exchange::needs`].
    fn need(&self, id: MarketId) -> Option<Price> {
        let all = [self.free_unit(id), self.standing_notices(id).next(), self.displacement(id)];
        all.into_iter().flatten().map(|candidate| candidate.needed).min()
    }

    /// Returns the ceiling that the last of `nodes` nodes needs (R9).
    pub(crate) fn needed_for(&self, id: MarketId, nodes: u32) -> Option<Price> {
        match nodes {
            1 => self.need(id),
            _ => self.needs(id).nth(nodes as usize - 1),
        }
    }

    /// Returns the node that a bid would take now over all its markets, if it took one (R3, R4, R13).
    pub(crate) fn best_for(&self, bid: BidId) -> Option<Candidate> {
        let Bid { terms: BidTerms { tenant, scope, ceiling, .. }, is_funded, .. } = *self.bid(bid);
        let (mut displacement, mut free, mut standing) =
            (Cheapest::default(), Cheapest::default(), Cheapest::default());
        for market in self.scopes.markets(scope).iter().copied() {
            if !self.may_buy(bid, tenant, is_funded, market) {
                continue;
            }
            let affordable = |o: &Candidate| o.needed <= ceiling;
            displacement.look_at(market, self.displacement(market).filter(affordable));
            free.look_at(market, self.free_unit(market).filter(affordable));
            standing.look_at(market, self.standing_notices(market).next().filter(affordable));
        }
        let displacement = displacement.candidate();
        let precedes = |o: &Candidate| o.precedes(displacement);
        free.candidate().filter(precedes).or(standing.candidate().filter(precedes)).or(displacement)
    }

    /// Returns the cheapest candidate of some of the bid's markets that it can afford. In a tie the first
    /// market wins.
    pub(crate) fn best_of(
        &self,
        markets: impl Iterator<Item = MarketId>,
        bid: BidId,
        in_market: impl Fn(MarketId) -> Option<Candidate>,
    ) -> Option<Candidate> {
        let (ceiling, mut best) = (self.bid(bid).terms.ceiling, Cheapest::default());
        for market in markets {
            best.look_at(market, in_market(market).filter(|candidate| candidate.needed <= ceiling));
        }
        best.candidate()
    }

    /// Returns the markets of a bid in which it may buy (R17, R18), in the order in which they were named.
    pub(crate) fn open_markets(&self, bid: BidId) -> impl Iterator<Item = MarketId> {
        let BidTerms { tenant, scope, .. } = self.bid(bid).terms;
        let markets = self.scopes.markets(scope).iter().copied();
        markets.filter(move |market| self.market(*market).serves(bid, tenant))
    }

    /// Returns the markets of a bid in which it may buy and takes part (R19), in the order in which they were named.
    pub(crate) fn buying_markets(&self, bid: BidId) -> impl Iterator<Item = MarketId> {
        let Bid { terms: BidTerms { tenant, scope, .. }, is_funded, .. } = *self.bid(bid);
        let markets = self.scopes.markets(scope).iter().copied();
        markets.filter(move |market| self.may_buy(bid, tenant, is_funded, *market))
    }

    /// Returns true if a bid may buy in one of its markets and takes part there. Only a bid of a funded account can fail to
    /// take part.
    fn may_buy(&self, bid: BidId, tenant: AccountId, is_funded: bool, market: MarketId) -> bool {
        self.market(market).serves(bid, tenant) && (!is_funded || self.takes_part(bid, market))
    }

    /// Returns how many of `nodes` a bid would take in a market now, and how many of these only after a notice.
    pub(crate) fn would_take(&self, market: MarketId, ceiling: Price, nodes: u32) -> (u32, u32) {
        let is_instant = self.market(market).rules.notice == Micros(0);
        let taken: Vec<Candidate> = self.takings(market, ceiling).take(nodes as usize).collect();
        let (mut free_taken, mut claimed) = (0, Vec::new());
        for candidate in &taken {
            match candidate.kind {
                CandidateKind::Free(..) => free_taken += 1,
                CandidateKind::Standing(node) => claimed.push(node),
                // A victim is unprotected (R4), so its notice lasts exactly `rules.notice`.
                CandidateKind::Displace(victim) if victim.claimed || !is_instant => {
                    claimed.push(victim.allocation)
                }
                CandidateKind::Displace(_) => {}
            }
        }
        // A free unit that was left for a cheaper claim may rescue the bid in the same settlement, since R6 looks at the
        // holder of the claimed node.
        claimed.sort_by_key(|node| {
            Reverse((self.bid(self.allocation(*node).bid).terms.ceiling, Reverse(*node)))
        });
        let mut free =
            self.free_units(market).skip(free_taken).take_while(|free| free.needed <= ceiling).peekable();
        let is_rescued =
            |node: &&AllocationId| free.next_if(|free| free.needed <= self.needed_against(**node)).is_some();
        let rescued = claimed.iter().take_while(is_rescued).count();
        (taken.len() as u32, (claimed.len() - rescued) as u32)
    }

    /// Returns what a gang would take at once in a market to have `nodes`, if its ceiling allows it (R12).
    pub(crate) fn gang_in(&self, market: MarketId, nodes: u32, ceiling: Price) -> Option<Gang> {
        let taken: Vec<Candidate> = self.takings(market, ceiling).take(nodes as usize).collect();
        let displacements = taken.iter().filter(|o| matches!(o.kind, CandidateKind::Displace(_))).count();
        let needed = taken.iter().map(|o| o.needed).max()?;
        (taken.len() == nodes as usize).then_some(Gang { taken, displacements, needed, market })
    }
}

impl Candidate {
    /// Returns true if the candidate is not dearer than a displacement that is open to the bid (R3).
    fn precedes(&self, displacement: Option<Candidate>) -> bool {
        displacement.is_none_or(|displacement| self.needed <= displacement.needed)
    }
}

/// The cheapest candidate of several markets. In a tie it is that of the market that was opened first.
#[derive(Default)]
struct Cheapest(Option<(MarketId, Candidate)>);

impl Cheapest {
    fn look_at(&mut self, market: MarketId, candidate: Option<Candidate>) {
        let Some(candidate) = candidate else { return };
        if self.0.is_none_or(|(first, best)| (candidate.needed, market) < (best.needed, first)) {
            self.0 = Some((market, candidate));
        }
    }

    fn candidate(self) -> Option<Candidate> {
        self.0.map(|(_, candidate)| candidate)
    }
}

/// A way to place a waiting gang.
#[derive(Debug)]
pub(crate) struct Gang {
    pub(crate) taken: Vec<Candidate>,
    displacements: usize,
    needed: Price,
    market: MarketId,
}

impl Gang {
    /// Compares two ways to place a gang: the fewest displacements, then the lowest needed ceiling,
    /// then the first market (R12).
    pub(crate) fn compare(&self, other: &Gang) -> Ordering {
        let key = |gang: &Gang| (gang.displacements, gang.needed, gang.market);
        key(self).cmp(&key(other))
    }
}
