//! Streams of commands that benches and load share: random, but the same for the same seed.

use kubebid_core::answer::Auction;
use kubebid_core::command::{CancelMode, PlaceBid};
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName, Micros};
use kubebid_core::{Command, Exchange, Price, Stamped};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const MARKET: &str = "h100-8x/eu-west";
const TICK: u64 = 100;
/// The price at which all units are held; bids of the stream wait below.
const LADDER: u64 = 1_000_000;

/// One-node bids as they come to a market of which every unit is held: half are placed and wait
/// below the ladder, four in ten are cancelled, one in ten takes a free unit and releases an older.
#[derive(Debug)]
pub struct Bids {
    rng: ChaCha8Rng,
    waiting: Vec<BidId>,
    holding: Vec<(BidId, AllocationId)>,
    next: Vec<Command>,
}

fn bid(tenant: u64, ceiling: u64) -> Command {
    Command::PlaceBid(PlaceBid {
        tenant: AccountName::new(&format!("tenant-{tenant}")),
        markets: Some(vec![MarketName::new(MARKET)]),
        instance_type: None,
        ceiling: Price(ceiling),
        min_nodes: 1,
        max_nodes: 1,
        time_in_force: Default::default(),
        expire_at: None,
        on_preemption: Default::default(),
    })
}

/// As stamped at the beginning: nothing falls due in these streams.
pub fn stamped(command: Command) -> Stamped {
    Stamped { at: Micros(0), key: None, command }
}

impl Bids {
    /// An exchange with `waiting` bids behind 100 held nodes and one that is free, and the stream that
    /// goes on from there.
    pub fn with_waiting(waiting: usize, seed: u64) -> (Exchange, Bids) {
        let mut exchange = Exchange::new();
        let market = MarketName::new(MARKET);
        exchange.apply(&stamped(Command::OpenMarket { market: market.clone(), rules: Vec::new() }));
        let provider = AccountName::new("provider");
        exchange.apply(&stamped(Command::PutOffer { provider, market, capacity: 101, reserve: Price(TICK) }));
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bids = Bids { rng, waiting: Vec::new(), holding: Vec::new(), next: Vec::new() };
        for n in 0..100 {
            let answer = exchange.apply(&stamped(bid(n, LADDER)));
            bids.holding.push((BidId(answer.seq.0), AllocationId(n + 1)));
        }
        let hold = exchange.apply(&stamped(bid(100, LADDER)));
        for _ in 0..waiting {
            let command = bids.place();
            let answer = exchange.apply(&stamped(command));
            bids.waiting.push(BidId(answer.seq.0));
        }
        bids.holding.push((BidId(hold.seq.0), AllocationId(101)));
        (exchange, bids)
    }

    fn place(&mut self) -> Command {
        let ceiling = self.rng.random_range(1..LADDER / TICK / 2) * TICK;
        bid(self.rng.random_range(0..1000), ceiling)
    }

    /// The next command, and the exchange's answer to it.
    pub fn step(&mut self, exchange: &mut Exchange) {
        if let Some(command) = self.next.pop() {
            exchange.apply(&stamped(command));
            return;
        }
        match self.rng.random_range(0..10) {
            0..=4 => {
                let command = self.place();
                let answer = exchange.apply(&stamped(command));
                self.waiting.push(BidId(answer.seq.0));
            }
            5..=8 if !self.waiting.is_empty() => {
                let at = self.rng.random_range(0..self.waiting.len());
                let id = self.waiting.swap_remove(at);
                let tenant = exchange.view_bid(id).map(|bid| exchange.names().account(bid.tenant).clone());
                let tenant = tenant.expect("a bid of ours");
                exchange.apply(&stamped(Command::CancelBid { tenant, bid: id, mode: CancelMode::Keep }));
            }
            _ => self.change_hands(exchange),
        }
    }

    /// Releases the oldest node; a bid above the ladder takes it before anybody who waits.
    fn change_hands(&mut self, exchange: &mut Exchange) {
        let tenant = self.rng.random_range(0..1000);
        let answer = exchange.apply(&stamped(bid(tenant, LADDER)));
        let placed = BidId(answer.seq.0);
        let (old, node) = self.holding.remove(0);
        let owner = exchange.view_bid(old).map(|bid| exchange.names().account(bid.tenant).clone());
        let tenant = owner.expect("a bid of ours");
        exchange.apply(&stamped(Command::ReleaseAllocation { tenant, allocation: node }));
        let taken = exchange.view_bid(placed).and_then(|bid| bid.live.first().copied());
        self.holding.push((placed, taken.expect("the best bid gets the node")));
    }
}
