//! The market's own stream: all units are held, more is wanted than there is, and time passes. Bids displace
//! and wait, nodes come under notice and change hands at their deadlines, holders raise to stay, release, give up.

use crate::{TICK, bid, stamped};
use kubebid_core::answer::{Answer, Auction};
use kubebid_core::command::{CancelMode, RuleChange};
use kubebid_core::event::Fact;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName, Micros, Names};
use kubebid_core::{Command, Exchange, Price, StampedCommand};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;

const MARKET: &str = "h100-8x/eu-west";
const TENANTS: u64 = 1000;
/// Of market time, between commands.
const PACE: Micros = Micros(100_000);
/// The most units of one offer.
const OFFER: usize = 100_000;

/// How ceilings are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prices {
    /// 1000 different ones.
    Grid,
    /// Nearly all different.
    Distinct,
}

#[derive(Debug, Default)]
pub struct Overloaded {
    pub setup: Vec<StampedCommand>,
    pub commands: Vec<StampedCommand>,
    /// What the stream brought, by event: shows that it is what it says it is.
    pub events: std::collections::BTreeMap<&'static str, u64>,
}

struct Player {
    rng: ChaCha8Rng,
    prices: Prices,
    exchange: Exchange,
    now: Micros,
    list: Vec<StampedCommand>,
    overloaded: Overloaded,
    /// Bids that search, with their tenants; and nodes that are held, with theirs.
    bids: Bag<BidId>,
    nodes: Bag<AllocationId>,
    to_report: Vec<AllocationId>,
}

/// Drawn from at random.
struct Bag<T> {
    items: Vec<(T, u64)>,
    places: HashMap<T, usize>,
}

impl<T: Copy + Eq + std::hash::Hash> Bag<T> {
    fn new() -> Bag<T> {
        Bag { items: Vec::new(), places: HashMap::new() }
    }

    fn insert(&mut self, item: T, tenant: u64) {
        self.places.insert(item, self.items.len());
        self.items.push((item, tenant));
    }

    fn remove(&mut self, item: T) {
        let Some(at) = self.places.remove(&item) else { return };
        self.items.swap_remove(at);
        if let Some((moved, _)) = self.items.get(at) {
            self.places.insert(*moved, at);
        }
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> Option<(T, u64)> {
        (!self.items.is_empty()).then(|| self.items[rng.random_range(0..self.items.len())])
    }
}

impl Overloaded {
    /// `live` nodes are held when the stream of `commands` begins.
    pub fn new(live: usize, prices: Prices, commands: usize) -> Overloaded {
        let rng = ChaCha8Rng::seed_from_u64(1);
        let mut player = Player {
            rng,
            prices,
            exchange: Exchange::new(),
            now: Micros(0),
            list: Vec::new(),
            overloaded: Overloaded::default(),
            bids: Bag::new(),
            nodes: Bag::new(),
            to_report: Vec::new(),
        };
        player.set_up(live);
        player.overloaded.setup = std::mem::take(&mut player.list);
        player.overloaded.events.clear();
        while player.list.len() < commands {
            player.step();
        }
        player.overloaded.commands = player.list;
        player.overloaded
    }

    /// The market in which the nodes are held.
    pub fn exchange(&self) -> Exchange {
        let mut exchange = Exchange::new();
        for command in &self.setup {
            exchange.apply(command);
        }
        exchange
    }
}

fn tenant(number: u64) -> AccountName {
    AccountName::new(&format!("tenant-{number}"))
}

fn number(names: &Names, tenant: kubebid_core::units::AccountId) -> u64 {
    names.account(tenant).as_str().trim_start_matches("tenant-").parse().expect("our name")
}

impl Player {
    fn set_up(&mut self, live: usize) {
        let market = MarketName::new(MARKET);
        // A node that starts is reported at once; nothing times out while a million are placed.
        let rules = vec![
            RuleChange::number("start_timeout_us", 86_400_000_000),
            RuleChange::number("min_runtime_us", 900_000_000),
        ];
        self.play(Command::OpenMarket { market: market.clone(), rules });
        for n in 0..live.div_ceil(OFFER) {
            let (provider, market) = (AccountName::new(&format!("provider-{n}")), market.clone());
            let capacity = (live - n * OFFER).min(OFFER) as u64;
            self.play(Command::PutOffer { provider, market, capacity, reserve: Price(TICK) });
        }
        for _ in 0..live {
            self.place();
            self.report();
        }
        // The protection of all ends.
        self.now = self.now.after(Micros::seconds(2000));
        self.play(Command::AdvanceTime);
    }

    fn play(&mut self, command: Command) {
        let command = StampedCommand { at: self.now, ..stamped(command) };
        let answer = self.exchange.apply(&command);
        self.list.push(command);
        self.note(&answer);
    }

    fn note(&mut self, answer: &Answer) {
        for event in &answer.events {
            *self.overloaded.events.entry(event.fact.kind().name()).or_default() += 1;
            let names = self.exchange.names();
            #[expect(
                clippy::wildcard_enum_match_arm,
                reason = "the others bring or take nothing to draw from"
            )]
            match &event.fact {
                Fact::BidPlaced { bidder, .. } => self.bids.insert(bidder.bid, number(names, bidder.tenant)),
                Fact::BidClosed { bidder, .. } => self.bids.remove(bidder.bid),
                Fact::Allocated { node } => {
                    self.nodes.insert(node.allocation, number(names, node.tenant));
                    self.to_report.push(node.allocation);
                }
                Fact::Ended { node, .. } => self.nodes.remove(node.allocation),
                _ => {}
            }
        }
    }

    fn ceiling(&mut self) -> Price {
        let steps = match self.prices {
            Prices::Grid => self.rng.random_range(1..=1000) * 10_000,
            Prices::Distinct => self.rng.random_range(1..=10_000_000),
        };
        Price(steps * TICK)
    }

    fn place(&mut self) {
        let (tenant, ceiling) = (self.rng.random_range(0..TENANTS), self.ceiling());
        self.play(bid(tenant, MARKET, ceiling));
    }

    fn report(&mut self) {
        while let Some(allocation) = self.to_report.pop() {
            self.play(Command::ReportReady { allocation, by: None });
        }
    }

    fn step(&mut self) {
        self.now = self.now.after(PACE);
        self.report();
        match self.rng.random_range(0..10) {
            0..=4 => self.place(),
            5 => {
                let Some((allocation, owner)) = self.nodes.draw(&mut self.rng) else { return };
                self.play(Command::ReleaseAllocation { tenant: tenant(owner), allocation });
            }
            6..=8 => {
                let Some((bid, owner)) = self.bids.draw(&mut self.rng) else { return };
                let Some(view) = self.exchange.view_bid(bid) else { return };
                // To stay, or to get in.
                let ceiling = Some(Price(view.ceiling.0 + self.ceiling().0 / 10 / TICK * TICK));
                self.play(Command::AmendBid { tenant: tenant(owner), bid, ceiling, max_nodes: None });
            }
            _ => {
                let Some((bid, owner)) = self.bids.draw(&mut self.rng) else { return };
                self.play(Command::CancelBid { tenant: tenant(owner), bid, mode: CancelMode::Keep });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_market_is_a_lively_one() {
        let stream = Overloaded::new(5_000, Prices::Grid, 40_000);
        let events = |kind| stream.events.get(kind).copied().unwrap_or(0);
        for kind in ["NoticeStarted", "NoticeRescinded", "Claimed", "Ended", "Allocated", "BidAmended"] {
            assert!(events(kind) > 100, "{kind}: {:?}", stream.events);
        }
        assert_eq!(events("Rejected"), 0, "{:?}", stream.events);
    }
}
