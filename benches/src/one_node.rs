//! One-node bids as commands: half are placed and wait below the reserve of the one unit that is free, four in
//! ten of those that wait are cancelled, one in ten takes the free unit, and the oldest holder releases one.

use crate::{bid, stamped};
use kubebid_core::answer::Auction;
use kubebid_core::command::CancelMode;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName};
use kubebid_core::{Command, Exchange, Price, StampedCommand};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

const RESERVE: u64 = 1_000_000;
const HELD: u64 = 100;
const TENANTS: u64 = 1000;

/// Commands that make markets in which bids wait, and the stream that goes on from there.
#[derive(Debug, Default)]
pub struct OneNode {
    pub setup: Vec<StampedCommand>,
    pub commands: Vec<StampedCommand>,
}

struct Market {
    name: String,
    waiting: Vec<(BidId, u64)>,
    /// The oldest first.
    holding: VecDeque<(AllocationId, u64)>,
}

/// Counts as the exchange does.
struct Script {
    rng: ChaCha8Rng,
    commands: Vec<StampedCommand>,
    bids: u64,
    nodes: u64,
}

impl OneNode {
    /// `waiting` bids in each of `markets`, and `commands` that follow.
    pub fn new(markets: usize, waiting: usize, commands: usize) -> OneNode {
        let rng = ChaCha8Rng::seed_from_u64(1);
        let mut script = Script { rng, commands: Vec::new(), bids: 0, nodes: 0 };
        let mut all: Vec<Market> = (0..markets).map(|n| script.open(n)).collect();
        for n in 0..markets * waiting {
            script.place(&mut all[n % markets]);
        }
        let setup = std::mem::take(&mut script.commands);
        while script.commands.len() < commands {
            let at = script.rng.random_range(0..markets);
            let market = &mut all[at];
            match script.rng.random_range(0..10) {
                0..=4 => script.place(market),
                5..=8 => script.cancel(market),
                _ => script.change_hands(market),
            }
        }
        OneNode { setup, commands: script.commands }
    }

    /// The markets in which the bids wait.
    pub fn exchange(&self) -> Exchange {
        let mut exchange = Exchange::new();
        for command in &self.setup {
            exchange.apply(command);
        }
        exchange
    }
}

impl Script {
    fn push(&mut self, command: Command) -> BidId {
        self.commands.push(stamped(command));
        self.bids += 1;
        BidId(self.bids)
    }

    fn open(&mut self, n: usize) -> Market {
        let name = format!("type-{n}/eu-west");
        let market = MarketName::new(&name);
        self.push(Command::OpenMarket { market: market.clone(), rules: Vec::new() });
        let (provider, capacity) = (AccountName::new("provider"), HELD + 1);
        self.push(Command::PutOffer { provider, market, capacity, reserve: Price(RESERVE) });
        let mut market = Market { name, waiting: Vec::new(), holding: VecDeque::new() };
        for _ in 0..HELD {
            self.take(&mut market);
        }
        market
    }

    fn take(&mut self, market: &mut Market) {
        let tenant = self.rng.random_range(0..TENANTS);
        self.push(bid(tenant, &market.name, Price(RESERVE)));
        self.nodes += 1;
        market.holding.push_back((AllocationId(self.nodes), tenant));
    }

    fn place(&mut self, market: &mut Market) {
        let tenant = self.rng.random_range(0..TENANTS);
        let ceiling = self.rng.random_range(1..1000) * (RESERVE / 1000);
        let id = self.push(bid(tenant, &market.name, Price(ceiling)));
        market.waiting.push((id, tenant));
    }

    fn cancel(&mut self, market: &mut Market) {
        if market.waiting.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..market.waiting.len());
        let (bid, tenant) = market.waiting.swap_remove(at);
        let tenant = AccountName::new(&format!("tenant-{tenant}"));
        self.push(Command::CancelBid { tenant, bid, mode: CancelMode::Keep });
    }

    fn change_hands(&mut self, market: &mut Market) {
        self.take(market);
        let (allocation, tenant) = market.holding.pop_front().expect("a hundred hold nodes");
        let tenant = AccountName::new(&format!("tenant-{tenant}"));
        self.push(Command::ReleaseAllocation { tenant, allocation });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_stream_is_refused() {
        let stream = OneNode::new(3, 100, 5_000);
        let mut exchange = stream.exchange();
        for command in &stream.commands {
            let answer = exchange.apply(command);
            assert_eq!(answer.outcome, kubebid_core::answer::Outcome::Accepted, "{command:?}");
        }
    }
}
