//! Draws the jobs of a small world and runs them in one market, with the units of one offer.

use super::Variant;
use crate::agenda::{Agenda, Step};
use crate::bid::standing_bid;
use crate::participant::{Participant, run_until};
use kubebid_core::answer::{Answer, Auction};
use kubebid_core::command::{CancelMode, PlaceBid, RuleChange};
use kubebid_core::event::{EndReason, Event, Fact};
use kubebid_core::units::{AccountId, AccountName, AllocationId, BidId, MarketName, Micros};
use kubebid_core::{Command, Exchange, Price, StampedCommand};
use kubebid_model::Model;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp, LogNormal};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// The settings of the worlds of an experiment.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Units on offer.
    pub units: u64,
    /// The reserve of the offer, per node-hour.
    pub reserve: Price,
    /// Hours in which jobs arrive.
    pub hours: u64,
    /// Work that arrives, as a share of what the units could do.
    pub load: f64,
    /// Mean hours of work, exponential; at least a quarter of an hour.
    pub work_hours: f64,
    /// The median worth of a node-hour.
    pub worth: Price,
    /// Standard deviation of the logarithm of the worth.
    pub worth_spread: f64,
    /// A job leaves, done or not, this many times its work after it came.
    pub patience: f64,
    /// Time from a node's award until it works.
    pub boot: Micros,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
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
    /// Time of arrival.
    pub comes: Micros,
    /// Time at which it leaves, done or not.
    pub leaves: Micros,
    /// Time that it takes on one node.
    pub work: Micros,
    /// Worth per node-hour.
    pub worth: Price,
    /// True for the tenth of the jobs that may bid less than the truth.
    pub shades: bool,
}

const TICK: u64 = 100;
const MARKET: &str = "node/lab";

/// Draws the jobs of one world, in the order of their arrival.
pub fn draw(settings: &Settings, seed: u64) -> Vec<Job> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mean_gap = settings.work_hours / (settings.load * settings.units as f64);
    let exponential = |mean: f64| Exp::new(1.0 / mean).expect("a mean above 0");
    let (gaps, works) = (exponential(mean_gap), exponential(settings.work_hours));
    let worths =
        LogNormal::new((settings.worth.0 as f64).ln(), settings.worth_spread).expect("a finite spread");
    let micros = |hours: f64| Micros((hours * Micros::HOUR.0 as f64) as u64);
    let mut jobs = Vec::new();
    let mut at = 0.0;
    loop {
        at += gaps.sample(&mut rng);
        if at >= settings.hours as f64 {
            return jobs;
        }
        let work = works.sample(&mut rng).max(0.25);
        jobs.push(Job {
            comes: micros(at),
            leaves: micros(at + work * settings.patience),
            work: micros(work),
            worth: Price((worths.sample(&mut rng) as u64).next_multiple_of(TICK)),
            shades: rng.random_range(0..10) == 0,
        });
    }
}

/// The result of one run: what happened to each job, and to the market.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunResult {
    /// The result of each job.
    pub jobs: Vec<JobResult>,
    /// Allocations.
    pub allocations: u64,
    /// Allocations that another tenant's bid ended.
    pub evictions: u64,
    /// Micro-dollars charged.
    pub debits_micros: u128,
    /// Job-microseconds without a node.
    pub waited: u128,
    /// The part of `waited` during which a job held a node that is worth less to it.
    pub envied: u128,
}

/// The result of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobResult {
    /// Work done.
    pub done: Micros,
    /// Time for which it held a unit, including boot and notice.
    pub held: Micros,
    /// Time without a node between its arrival and its end.
    pub waited: Micros,
    /// Micro-dollars charged.
    pub paid_micros: u128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Ready(AllocationId),
    Done(usize),
    Leaves(usize),
    Comes(usize),
}

impl Step for Due {
    fn rank(&self, other: &Due) -> Ordering {
        self.cmp(other)
    }
}

#[derive(Clone, Debug, Default)]
struct Run {
    bid: Option<BidId>,
    /// Its nodes, and whether they are ready.
    nodes: BTreeMap<AllocationId, bool>,
    gone: bool,
    done_at: Option<Micros>,
}

/// The implementation under test: the exchange, or the reference model with another rule.
#[derive(Debug)]
enum Book {
    Exchange(Box<Exchange>),
    PassingOver(Box<Model>),
}

struct Play<'a> {
    jobs: &'a [Job],
    variant: &'a Variant,
    book: Book,
    said: u64,
    now: Micros,
    boot: Micros,
    agenda: Agenda<Due>,
    runs: Vec<Run>,
    by_bid: BTreeMap<BidId, usize>,
    by_allocation: BTreeMap<AllocationId, usize>,
    by_account: BTreeMap<AccountId, usize>,
    played: RunResult,
}

/// Runs one world under one variant of the rules, until the last job has left.
pub fn play(jobs: &[Job], settings: &Settings, variant: &Variant) -> RunResult {
    let mut play = Play {
        jobs,
        variant,
        book: Book::of(variant),
        said: 0,
        now: Micros(0),
        boot: settings.boot,
        agenda: Agenda::new(),
        runs: vec![Run::default(); jobs.len()],
        by_bid: BTreeMap::new(),
        by_allocation: BTreeMap::new(),
        by_account: BTreeMap::new(),
        played: RunResult { jobs: vec![JobResult::default(); jobs.len()], ..RunResult::default() },
    };
    let tick = RuleChange::number("tick", TICK);
    let rules = std::iter::once(tick).chain(variant.rules.iter().cloned()).collect();
    let (market, provider) = (MarketName::new(MARKET), AccountName::new("provider"));
    play.say(Command::OpenMarket { market: market.clone(), rules });
    play.say(Command::PutOffer { provider, market, capacity: settings.units, reserve: settings.reserve });
    for (n, job) in jobs.iter().enumerate() {
        play.agenda.plan(job.comes, Due::Comes(n));
    }
    let Ok(()) = run_until(&mut play, Micros(u64::MAX));
    play.played
}

impl Book {
    fn of(variant: &Variant) -> Book {
        if variant.waits {
            Book::Exchange(Box::default())
        } else {
            Book::PassingOver(Box::new(Model::passing_over_the_protected()))
        }
    }

    fn apply(&mut self, command: &StampedCommand) -> Answer {
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
                job.waited.0 += passed.0;
                self.played.waited += u128::from(passed.0);
                let envies = least.is_some_and(|least| least < self.jobs[n].worth);
                self.played.envied += u128::from(if envies { passed.0 } else { 0 });
            }
        }
        self.now = at;
        self.say(Command::AdvanceTime);
    }

    fn meet(&mut self, due: Due) {
        match due {
            Due::Comes(n) => self.comes(n),
            Due::Ready(id) => self.ready(id),
            Due::Done(n) if self.runs[n].done_at == Some(self.now) => self.leave(n),
            Due::Done(_) => {}
            Due::Leaves(n) => self.leave(n),
        }
    }

    fn comes(&mut self, n: usize) {
        let job = &self.jobs[n];
        let share = if job.shades { self.variant.shade } else { 1.0 };
        let ceiling = Price(((job.worth.0 as f64 * share) as u64 / TICK * TICK).max(TICK));
        self.agenda.plan(job.leaves, Due::Leaves(n));
        // The events of the answer name the bid, so it has to be known first.
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
        // A job that has moved lets go of the node under notice.
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
        let Ok(answer) = self.send(command);
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
                self.agenda.plan(event.at.after(self.boot), Due::Ready(node.allocation));
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
            | Fact::MarketClosing { .. }
            | Fact::MarketEnded { .. }
            | Fact::OfferPut { .. }
            | Fact::UnitAdded { .. }
            | Fact::UnitLeaving { .. }
            | Fact::UnitBack { .. }
            | Fact::UnitResting { .. }
            | Fact::UnitResumed { .. }
            | Fact::UnitRemoved { .. }
            | Fact::BidAmended { .. }
            | Fact::BidClosed { .. }
            | Fact::Ready { .. }
            | Fact::NoticeStarted { .. }
            | Fact::NoticeRescinded { .. }
            | Fact::Claimed { .. }
            | Fact::ClaimDropped { .. }
            | Fact::PriceChanged { .. }
            | Fact::NoticeMoved { .. }
            | Fact::Funded { .. }
            | Fact::BudgetSet { .. }
            | Fact::BudgetRenewed { .. }
            | Fact::RenewalSet { .. }
            | Fact::Repeated { .. } => {}
        }
    }

    /// Plans when the job will be done, if nothing changes.
    fn reschedule(&mut self, n: usize) {
        let works = self.runs[n].nodes.values().any(|ready| *ready);
        let left = self.jobs[n].work.since(self.played.jobs[n].done);
        self.runs[n].done_at = works.then(|| self.now.after(left));
        if let Some(at) = self.runs[n].done_at {
            self.agenda.plan(at, Due::Done(n));
        }
    }
}

impl Participant for Play<'_> {
    type Error = Infallible;

    fn apply(&mut self, command: Command) -> Result<Answer, Infallible> {
        self.said += 1;
        Ok(self.book.apply(&StampedCommand { at: self.now, key: None, command }))
    }

    fn on_events(&mut self, events: &[Event]) {
        events.iter().for_each(|event| self.on_event(event));
    }

    /// Returns no instant after the last step of a job, whatever the market has still to do.
    fn next_at(&self) -> Option<Micros> {
        let ours = self.agenda.next_at()?;
        Some(self.book.next_due().map_or(ours, |due| due.min(ours)))
    }

    fn act(&mut self, now: Micros) -> Result<(), Infallible> {
        self.step_to(now);
        while let Some(due) = self.agenda.take_due(now) {
            self.meet(due);
        }
        Ok(())
    }
}

fn tenant(n: usize) -> AccountName {
    AccountName::new(&format!("tenant-{n}"))
}
