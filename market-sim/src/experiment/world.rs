//! A small world: jobs that want one node each, the units of one offer, and the exchange.

use super::Setting;
use crate::bid::standing_bid;
use kubebid_core::answer::{Answer, Auction};
use kubebid_core::command::{CancelMode, PlaceBid, RuleChange};
use kubebid_core::event::{EndReason, Event, Fact};
use kubebid_core::units::{AccountId, AccountName, AllocationId, BidId, MarketName, Micros};
use kubebid_core::{Command, Exchange, Price, Stamped};
use kubebid_model::Model;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};

/// How the worlds of an experiment are made.
#[derive(Clone, Debug)]
pub struct World {
    pub units: u64,
    pub reserve: Price,
    pub hours: u64,
    /// Work that arrives, as a share of what the units could do.
    pub load: f64,
    /// Mean hours of work, exponential; at least a quarter of an hour.
    pub work_hours: f64,
    /// What a node-hour is worth: the median, and the standard deviation of its logarithm.
    pub worth: Price,
    pub worth_spread: f64,
    /// A job leaves, done or not, this many times its work after it came.
    pub patience: f64,
    /// From its award until a node works.
    pub boot: Micros,
}

impl Default for World {
    fn default() -> World {
        World {
            units: 8,
            reserve: Price(1_000_000),
            hours: 48,
            load: 1.3,
            work_hours: 3.0,
            worth: Price(2_000_000),
            worth_spread: 0.5,
            patience: 3.0,
            boot: Micros::seconds(120),
        }
    }
}

/// One node's work; each job is a tenant of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    pub comes: Micros,
    pub leaves: Micros,
    pub work: Micros,
    /// Per node-hour, to whoever has the job.
    pub worth: Price,
    /// Of the tenth that may bid less than the truth.
    pub shades: bool,
}

const TICK: u64 = 100;
const MARKET: &str = "node/lab";

/// In the order in which they come.
pub fn draw(world: &World, seed: u64) -> Vec<Job> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mean_gap = world.work_hours / (world.load * world.units as f64);
    let exponential = |rng: &mut ChaCha8Rng, mean: f64| -mean * (1.0 - rng.random_range(0.0..1.0_f64)).ln();
    let micros = |hours: f64| Micros((hours * Micros::HOUR.0 as f64) as u64);
    let mut jobs = Vec::new();
    let mut at = 0.0;
    loop {
        at += exponential(&mut rng, mean_gap);
        if at >= world.hours as f64 {
            return jobs;
        }
        let work = exponential(&mut rng, world.work_hours).max(0.25);
        let normal = crate::backtest::standard_normal(&mut rng);
        let worth = world.worth.0 as f64 * (world.worth_spread * normal).exp();
        jobs.push(Job {
            comes: micros(at),
            leaves: micros(at + work * world.patience),
            work: micros(work),
            worth: Price((worth as u64).next_multiple_of(TICK)),
            shades: rng.random_range(0..10) == 0,
        });
    }
}

/// What happened to each job, and to the market.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Played {
    pub jobs: Vec<PlayedJob>,
    pub allocations: u64,
    /// Allocations that somebody else's bid ended.
    pub evictions: u64,
    pub debits_micros: u128,
    /// Job-microseconds without a node; and those of them while somebody had one to whom it is worth less.
    pub waited: u128,
    pub envied: u128,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlayedJob {
    /// Work done.
    pub done: Micros,
    /// Units held, boot and draining too.
    pub held: Micros,
    pub paid_micros: u128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Ready(AllocationId),
    Done(usize),
    Leaves(usize),
    Comes(usize),
}

#[derive(Clone, Debug, Default)]
struct Run {
    bid: Option<BidId>,
    /// Its nodes, and whether they are ready.
    nodes: BTreeMap<AllocationId, bool>,
    gone: bool,
    done_at: Option<Micros>,
}

/// Who plays: the exchange, or the reference model with another rule.
#[derive(Debug)]
enum Book {
    Exchange(Box<Exchange>),
    PassingOver(Box<Model>),
}

struct Play<'a> {
    jobs: &'a [Job],
    book: Book,
    said: u64,
    now: Micros,
    boot: Micros,
    agenda: BTreeSet<(Micros, Due)>,
    runs: Vec<Run>,
    by_bid: BTreeMap<BidId, usize>,
    by_allocation: BTreeMap<AllocationId, usize>,
    by_account: BTreeMap<AccountId, usize>,
    played: Played,
}

/// Plays one world by one set of rules, until the last job has left.
pub fn play(jobs: &[Job], world: &World, setting: &Setting) -> Played {
    let mut play = Play {
        jobs,
        book: Book::of(setting),
        said: 0,
        now: Micros(0),
        boot: world.boot,
        agenda: jobs.iter().enumerate().map(|(n, job)| (job.comes, Due::Comes(n))).collect(),
        runs: vec![Run::default(); jobs.len()],
        by_bid: BTreeMap::new(),
        by_allocation: BTreeMap::new(),
        by_account: BTreeMap::new(),
        played: Played { jobs: vec![PlayedJob::default(); jobs.len()], ..Played::default() },
    };
    let tick = RuleChange::number("tick", TICK);
    let rules = std::iter::once(tick).chain(setting.rules.iter().cloned()).collect();
    let (market, provider) = (MarketName::new(MARKET), AccountName::new("provider"));
    play.say(Command::OpenMarket { market: market.clone(), rules });
    play.say(Command::PutOffer { provider, market, capacity: world.units, reserve: world.reserve });
    while let Some(at) = play.next() {
        play.step_to(at);
        while let Some((_, due)) = play.agenda.first().copied().filter(|(time, _)| *time <= at) {
            play.agenda.pop_first();
            play.meet(due, setting);
        }
    }
    play.played
}

impl Book {
    fn of(setting: &Setting) -> Book {
        if setting.waits {
            Book::Exchange(Box::default())
        } else {
            Book::PassingOver(Box::new(Model::passing_over_the_protected()))
        }
    }

    fn apply(&mut self, command: &Stamped) -> Answer {
        match self {
            Book::Exchange(exchange) => exchange.apply(command),
            Book::PassingOver(model) => model.apply(command),
        }
    }

    fn next_due(&self) -> Option<Micros> {
        match self {
            Book::Exchange(exchange) => exchange.next_due(),
            Book::PassingOver(model) => model.next_due(),
        }
    }
}

impl Play<'_> {
    fn next(&self) -> Option<Micros> {
        let ours = self.agenda.first().map(|(at, _)| *at)?;
        Some(self.book.next_due().map_or(ours, |due| due.min(ours)))
    }

    /// Counts what holds up to then, and lets the market do what is due.
    fn step_to(&mut self, at: Micros) {
        let passed = at.since(self.now);
        let running = self.runs.iter().zip(self.jobs).filter(|(run, _)| !run.nodes.is_empty());
        let least = running.map(|(_, job)| job.worth).min();
        for (n, run) in self.runs.iter().enumerate().filter(|(_, run)| run.bid.is_some()) {
            let job = &mut self.played.jobs[n];
            job.held.0 += passed.0 * run.nodes.len() as u64;
            if run.nodes.values().any(|ready| *ready) && !run.gone {
                job.done.0 += passed.0;
            }
            if run.nodes.is_empty() && !run.gone {
                self.played.waited += u128::from(passed.0);
                let envies = least.is_some_and(|least| least < self.jobs[n].worth);
                self.played.envied += u128::from(if envies { passed.0 } else { 0 });
            }
        }
        self.now = at;
        self.say(Command::AdvanceTime);
    }

    fn meet(&mut self, due: Due, setting: &Setting) {
        match due {
            Due::Comes(n) => self.comes(n, setting),
            Due::Ready(id) => self.ready(id),
            Due::Done(n) if self.runs[n].done_at == Some(self.now) => self.leave(n),
            Due::Done(_) => {}
            Due::Leaves(n) => self.leave(n),
        }
    }

    fn comes(&mut self, n: usize, setting: &Setting) {
        let job = &self.jobs[n];
        let share = if job.shades { setting.shade } else { 1.0 };
        let ceiling = Price(((job.worth.0 as f64 * share) as u64 / TICK * TICK).max(TICK));
        self.agenda.insert((job.leaves, Due::Leaves(n)));
        // The answer's events are about a bid that has to be known first.
        self.by_bid.insert(BidId(self.said + 1), n);
        let markets = Some(vec![MarketName::new(MARKET)]);
        let bid = PlaceBid { markets, ..standing_bid(tenant(n), ceiling, 1) };
        let seq = self.say(Command::PlaceBid(bid));
        self.runs[n].bid = Some(BidId(seq));
    }

    fn ready(&mut self, id: AllocationId) {
        let Some(n) = self.by_allocation.get(&id).copied() else { return };
        self.runs[n].nodes.insert(id, true);
        self.say(Command::ReportReady { allocation: id, by: None });
        // Whoever has moved lets go of the node under notice.
        let others: Vec<AllocationId> =
            self.runs[n].nodes.keys().copied().filter(|other| *other != id).collect();
        for allocation in others {
            self.say(Command::ReleaseAllocation { tenant: tenant(n), allocation });
        }
        self.reschedule(n);
    }

    fn leave(&mut self, n: usize) {
        if let (Some(bid), false) = (self.runs[n].bid, self.runs[n].gone) {
            self.runs[n].gone = true;
            self.say(Command::CancelBid { tenant: tenant(n), bid, mode: CancelMode::Release });
        }
    }

    fn say(&mut self, command: Command) -> u64 {
        self.said += 1;
        let answer = self.book.apply(&Stamped { at: self.now, key: None, command });
        for event in &answer.events {
            self.on_event(event);
        }
        answer.seq.0
    }

    fn on_event(&mut self, event: &Event) {
        match &event.fact {
            Fact::BidPlaced { bidder, .. } => {
                self.by_account.insert(bidder.tenant, self.by_bid[&bidder.bid]);
            }
            Fact::Allocated { node } => {
                let n = self.by_bid[&node.bid];
                self.played.allocations += 1;
                self.by_allocation.insert(node.allocation, n);
                self.runs[n].nodes.insert(node.allocation, false);
                self.agenda.insert((event.at.after(self.boot), Due::Ready(node.allocation)));
            }
            Fact::Ended { node, reason, .. } => {
                let n = self.by_bid[&node.bid];
                self.by_allocation.remove(&node.allocation);
                self.runs[n].nodes.remove(&node.allocation);
                self.played.evictions += u64::from(*reason == EndReason::Outbid);
                self.reschedule(n);
            }
            Fact::Charged { tenant, debit, .. } => {
                self.played.jobs[self.by_account[tenant]].paid_micros += debit.0;
                self.played.debits_micros += debit.0;
            }
            Fact::Rejected { reason } => panic!("the exchange refused: {}", reason.code()),
            Fact::MarketOpened { .. }
            | Fact::RulesChanged { .. }
            | Fact::OfferPut { .. }
            | Fact::UnitAdded { .. }
            | Fact::UnitLeaving { .. }
            | Fact::UnitBack { .. }
            | Fact::UnitRemoved { .. }
            | Fact::BidAmended { .. }
            | Fact::BidClosed { .. }
            | Fact::Ready { .. }
            | Fact::NoticeStarted { .. }
            | Fact::NoticeRescinded { .. }
            | Fact::Claimed { .. }
            | Fact::ClaimDropped { .. }
            | Fact::PriceChanged { .. }
            | Fact::Repeated { .. } => {}
        }
    }

    /// When the job will be done, if nothing changes.
    fn reschedule(&mut self, n: usize) {
        let works = self.runs[n].nodes.values().any(|ready| *ready);
        let left = self.jobs[n].work.since(self.played.jobs[n].done);
        self.runs[n].done_at = works.then(|| self.now.after(left));
        if let Some(at) = self.runs[n].done_at {
            self.agenda.insert((at, Due::Done(n)));
        }
    }
}

fn tenant(n: usize) -> AccountName {
    AccountName::new(&format!("tenant-{n}"))
}
