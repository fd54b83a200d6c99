//! How many commands and bids a second exchanges in this process take, alone and with the auditor: one, and one on each
//! core, as `simulate` plays its markets. `cargo run --release -p market-sim --example throughput`.
//!
//! Bids of one node each come to a market with units for some of them; each is cancelled when as many have
//! come after it as are open at a time. So half of the commands are bids, and half of the bids win.

use kubebid_core::command::{CancelMode, PlaceBid};
use kubebid_core::units::{AccountName, BidId, MarketId, MarketName, Micros};
use kubebid_core::{Auction, Command, Exchange, MarketRules, Price, StampedCommand};
use market_sim::audit::{Auditor, Disagreement};
use std::collections::VecDeque;
use std::thread;
use std::time::Instant;

const BIDS: u64 = 1_000_000;
const OPEN: usize = 10_000;
const UNITS: u64 = 5_000;

fn main() -> Result<(), Box<Disagreement>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for threads in [1, cores] {
        for audited in [false, true] {
            let started = Instant::now();
            let played = thread::scope(|scope| {
                let played: Vec<_> = (0..threads).map(|_| scope.spawn(move || play(audited))).collect();
                played.into_iter().map(|thread| thread.join().expect("no play panics")).collect::<Vec<_>>()
            });
            let commands = played.into_iter().sum::<Result<u64, _>>()?;
            let seconds = started.elapsed().as_secs_f64();
            println!(
                "{threads} at once, {:<18}{:>9.0} commands, {:>9.0} bids a second",
                if audited { "with the auditor" } else { "alone" },
                commands as f64 / seconds,
                (threads as u64 * BIDS) as f64 / seconds
            );
        }
    }
    Ok(())
}

fn play(audited: bool) -> Result<u64, Box<Disagreement>> {
    let mut exchange = Exchange::new();
    let mut auditor = Auditor::new();
    let market = MarketName::new("gpu/lab");
    auditor.set_rules(MarketId(0), &market, MarketRules::default());
    let tenants: Vec<AccountName> = (0..100).map(|n| AccountName::new(&format!("tenant-{n}"))).collect();
    let mut commands = 0;
    let mut say = |at: u64, command: Command| {
        commands += 1;
        let answer = exchange.apply(&StampedCommand { at: Micros(at), key: None, command });
        if audited { auditor.on_events(&answer.events).map(|()| answer.seq.0) } else { Ok(answer.seq.0) }
    };
    say(0, Command::OpenMarket { market: market.clone(), rules: Vec::new() })?;
    let (provider, reserve) = (AccountName::new("provider"), Price(1_000_000));
    say(0, Command::PutOffer { provider, market: market.clone(), capacity: UNITS, reserve })?;
    let mut open = VecDeque::with_capacity(OPEN + 1);
    let markets = vec![market];
    // Any order of ceilings does that is not sorted.
    let mut spread: u64 = 1;
    for n in 0..BIDS {
        spread = spread.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let tenant = tenants[(n % 100) as usize].clone();
        let bid = say(
            n,
            Command::PlaceBid(PlaceBid {
                tenant: tenant.clone(),
                markets: Some(markets.clone()),
                instance_type: None,
                ceiling: Price(1_000_000 + (spread >> 40) % 10_000 * 100),
                min_nodes: 1,
                max_nodes: 1,
                time_in_force: Default::default(),
                expire_at: None,
                on_preemption: Default::default(),
            }),
        )?;
        open.push_back((tenant, BidId(bid)));
        if open.len() > OPEN
            && let Some((tenant, bid)) = open.pop_front()
        {
            say(n, Command::CancelBid { tenant, bid, mode: CancelMode::Release })?;
        }
    }
    Ok(commands)
}
