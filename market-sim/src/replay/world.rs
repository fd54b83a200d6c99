//! The world of a replay: jobs, the nodes they have, and what happens when.

use super::report::{Prices, Report};
use super::trails::Trails;
use crate::bid::standing_bid;
use crate::report::Page;
use crate::trace::Job;
use crate::venue::{Venue, VenueError};
use kubebid_core::command::{CancelMode, PlaceBid, RuleChange};
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName, Micros};
use kubebid_core::{Answer, Command, Event, Fact, Price, Stamped};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};

/// What a trace does not say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nodes of each instance class.
    pub capacity: u64,
    /// Among how many providers.
    pub providers: u32,
    pub reserve: Price,
    /// What a bid_proxy of 1 stands for.
    pub on_demand: Price,
    /// From its award until a node is ready.
    pub boot: Micros,
    pub min_runtime: Micros,
    pub notice: Micros,
    /// Work that was under way on a lost node goes on on the next; else it starts again.
    pub checkpoint: bool,
    pub seed: u64,
}

impl Settings {
    /// Those of `market-sim replay-demand` where nothing else is said.
    pub fn of(capacity: u64) -> Settings {
        Settings {
            capacity,
            providers: 4,
            reserve: Price(4_000_000),
            on_demand: Price(32_000_000),
            boot: Micros::seconds(120),
            min_runtime: Micros::seconds(900),
            notice: Micros::seconds(300),
            checkpoint: true,
            seed: 1,
        }
    }
}

const TICK: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// Nothing of ours: the market may do something then.
    Market,
    Ready(AllocationId),
    Done(usize),
    Submit(usize),
}

/// Accounts of jobs that are nobody's: each has one to itself for as long as it runs. A trace may have thousands
/// of them, of which few run at a time.
#[derive(Debug, Default)]
struct Nobodys {
    idle: Vec<AccountName>,
    made: usize,
}

impl Nobodys {
    fn take(&mut self) -> AccountName {
        self.idle.pop().unwrap_or_else(|| {
            self.made += 1;
            AccountName::new(&format!("nobody-{}", self.made))
        })
    }
}

struct World<'a> {
    jobs: &'a [Job],
    settings: &'a Settings,
    venue: &'a mut dyn Venue,
    rng: ChaCha8Rng,
    now: Micros,
    agenda: BTreeSet<(Micros, Due)>,
    runs: Vec<Run>,
    by_bid: BTreeMap<BidId, usize>,
    nobodys: Nobodys,
    nodes: BTreeMap<AllocationId, Node>,
    prices: Prices,
    trails: Trails,
    report: Report,
}

/// How far a job is.
#[derive(Clone, Debug, Default)]
struct Run {
    /// Since it was submitted.
    bid: Option<(AccountName, BidId)>,
    started: bool,
    finished: bool,
    /// Node-time done, up to `since`, and the nodes that have been working since then.
    done: u64,
    since: Micros,
    working: BTreeSet<AllocationId>,
    due: Option<Micros>,
}

struct Node {
    job: usize,
    ready: Option<Micros>,
}

/// Plays the jobs; `progress` hears how many of them have been submitted.
pub fn replay(
    jobs: &[Job],
    settings: &Settings,
    venue: &mut dyn Venue,
    progress: impl FnMut(usize),
) -> Result<Report, VenueError> {
    Ok(replay_and_draw(jobs, settings, venue, progress)?.0)
}

/// The same, and a page of what it looked like over time.
pub fn replay_and_draw(
    jobs: &[Job],
    settings: &Settings,
    venue: &mut dyn Venue,
    mut progress: impl FnMut(usize),
) -> Result<(Report, Page), VenueError> {
    let report = Report::new(venue.name(), jobs.len());
    let mut world = World {
        jobs,
        settings,
        venue,
        rng: ChaCha8Rng::seed_from_u64(settings.seed),
        now: Micros(0),
        agenda: jobs.iter().enumerate().map(|(n, job)| (job.submitted, Due::Submit(n))).collect(),
        runs: vec![Run::default(); jobs.len()],
        by_bid: BTreeMap::new(),
        nobodys: Nobodys::default(),
        nodes: BTreeMap::new(),
        prices: Prices::default(),
        trails: Trails::default(),
        report,
    };
    world.open()?;
    let mut submitted = 0;
    while let Some((now, due)) = world.agenda.pop_first() {
        world.step_to(now)?;
        submitted += usize::from(matches!(due, Due::Submit(_)));
        world.meet(now, due)?;
        progress(submitted);
    }
    Ok(world.finish())
}

impl World<'_> {
    fn open(&mut self) -> Result<(), VenueError> {
        self.step_to(self.jobs.first().map_or(Micros(0), |job| job.submitted))?;
        let classes: BTreeSet<&str> = self.jobs.iter().map(|job| job.class.as_str()).collect();
        let Settings { capacity, providers, reserve, min_runtime, notice, .. } = *self.settings;
        for class in classes {
            let market = market_of(class);
            let rules = vec![
                RuleChange::number("min_runtime_us", min_runtime.0),
                RuleChange::number("notice_us", notice.0),
            ];
            self.act(Command::OpenMarket { market: market.clone(), rules })?;
            for n in 0..providers {
                let share = capacity / u64::from(providers)
                    + u64::from(u64::from(n) < capacity % u64::from(providers));
                if share > 0 {
                    let provider = AccountName::new(&format!("provider-{}", n + 1));
                    let market = market.clone();
                    self.act(Command::PutOffer { provider, market, capacity: share, reserve })?;
                }
            }
        }
        Ok(())
    }

    /// Time that has come brings nothing when it comes again (I9).
    fn step_to(&mut self, now: Micros) -> Result<(), VenueError> {
        if now > self.now {
            self.now = now;
            self.act(Command::AdvanceTime)?;
        }
        Ok(())
    }

    fn act(&mut self, command: Command) -> Result<(), VenueError> {
        let answer = self.answer(command)?;
        self.hear(&answer.events);
        Ok(())
    }

    fn answer(&mut self, command: Command) -> Result<Answer, VenueError> {
        self.venue.apply(&Stamped { at: self.now, key: None, command })
    }

    fn meet(&mut self, now: Micros, due: Due) -> Result<(), VenueError> {
        match due {
            Due::Market => Ok(()),
            Due::Submit(n) => self.submit(n),
            Due::Ready(id) => self.ready(now, id),
            Due::Done(n) => self.done(now, n),
        }
    }

    /// Bids for all nodes of the job, at its share of the on-demand price.
    fn submit(&mut self, n: usize) -> Result<(), VenueError> {
        let job = &self.jobs[n];
        let drawn = self.rng.random_range(0.25..1.0);
        let share = job.bid_proxy.unwrap_or(drawn);
        let ticks = (share * self.settings.on_demand.0 as f64 / TICK as f64) as u64;
        let ceiling = Price(ticks.max(1) * TICK);
        let tenant = match &job.tenant {
            Some(name) => AccountName::new(name),
            None => self.nobodys.take(),
        };
        let answer = self.answer(Command::PlaceBid(PlaceBid {
            markets: Some(vec![market_of(&job.class)]),
            min_nodes: job.nodes,
            ..standing_bid(tenant.clone(), ceiling, job.nodes)
        }))?;
        let bid = BidId(answer.seq.0);
        self.report.bids += 1;
        self.runs[n].bid = Some((tenant, bid));
        self.by_bid.insert(bid, n);
        self.trails.change(self.now, &market_of(&job.class).to_string(), i64::from(job.nodes), 0);
        self.hear(&answer.events);
        Ok(())
    }

    fn ready(&mut self, now: Micros, id: AllocationId) -> Result<(), VenueError> {
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        node.ready = Some(now);
        let job = node.job;
        self.wake_at(now.after(self.settings.min_runtime));
        self.work_until(job, now);
        self.runs[job].working.insert(id);
        self.reschedule(job, now);
        let by = self.runs[job].bid.as_ref().map(|(tenant, _)| tenant.clone());
        self.act(Command::ReportReady { allocation: id, by })
    }

    fn done(&mut self, now: Micros, n: usize) -> Result<(), VenueError> {
        let run = &mut self.runs[n];
        if run.finished || run.due != Some(now) {
            return Ok(());
        }
        run.finished = true;
        let (tenant, bid) = run.bid.clone().expect("a job that works has a bid");
        self.report.jobs_done += 1;
        let nodes = i64::from(self.jobs[n].nodes);
        self.trails.change(now, &market_of(&self.jobs[n].class).to_string(), -nodes, 0);
        self.report.wait_and_run += now.since(self.jobs[n].submitted).0 as f64 / 1e6;
        self.act(Command::CancelBid { tenant: tenant.clone(), bid, mode: CancelMode::Release })?;
        if self.jobs[n].tenant.is_none() {
            self.nobodys.idle.push(tenant);
        }
        Ok(())
    }

    fn wake_at(&mut self, at: Micros) {
        self.agenda.insert((at, Due::Market));
    }

    fn hear(&mut self, events: &[Event]) {
        for Event { at, fact } in events {
            match fact {
                Fact::Allocated { node } => self.allocated(*at, node.allocation, node.bid),
                Fact::NoticeStarted { deadline, .. } => {
                    self.report.preemptions += 1;
                    self.trails.notice(*at);
                    self.wake_at(*deadline);
                }
                Fact::NoticeRescinded { .. } => {
                    self.report.rescinded += 1;
                    self.wake_at(*at);
                }
                Fact::Ended { node, .. } => self.ended(*at, node.allocation),
                Fact::Charged { debit, fee, .. } => {
                    self.report.charge(*debit, *fee);
                    self.trails.charge(*at, debit.0);
                }
                Fact::PriceChanged { market, numbers } => {
                    let market = self.venue.names().market(*market).to_string();
                    let price = numbers.floor.map(|_| numbers.market_price);
                    self.trails.price(*at, &market, price);
                    self.prices.change(*at, market, price);
                }
                Fact::Rejected { reason } => self.report.refuse(reason.code().to_owned()),
                Fact::MarketOpened { .. }
                | Fact::RulesChanged { .. }
                | Fact::OfferPut { .. }
                | Fact::UnitAdded { .. }
                | Fact::UnitLeaving { .. }
                | Fact::UnitBack { .. }
                | Fact::UnitRemoved { .. }
                | Fact::BidPlaced { .. }
                | Fact::BidAmended { .. }
                | Fact::BidClosed { .. }
                | Fact::Ready { .. }
                | Fact::Claimed { .. }
                | Fact::ClaimDropped { .. }
                | Fact::Repeated { .. } => {}
            }
        }
    }

    fn allocated(&mut self, at: Micros, id: AllocationId, bid: BidId) {
        let job = self.by_bid[&bid];
        self.report.nodes_served += 1;
        self.trails.change(at, &market_of(&self.jobs[job].class).to_string(), 0, 1);
        if !self.runs[job].started {
            self.runs[job].started = true;
            self.report.waited += at.since(self.jobs[job].submitted).0 as f64 / 1e6;
            self.report.jobs_started += 1;
        }
        self.nodes.insert(id, Node { job, ready: None });
        self.agenda.insert((at.after(self.settings.boot), Due::Ready(id)));
    }

    fn ended(&mut self, at: Micros, id: AllocationId) {
        let Some(node) = self.nodes.remove(&id) else { return };
        let job = node.job;
        self.trails.change(at, &market_of(&self.jobs[job].class).to_string(), 0, -1);
        self.work_until(job, at);
        self.runs[job].working.remove(&id);
        if let (false, false, Some(ready)) = (self.settings.checkpoint, self.runs[job].finished, node.ready) {
            let lost = at.since(ready).0;
            self.runs[job].done = self.runs[job].done.saturating_sub(lost);
            self.report.work_lost += lost as f64 / 3.6e9;
        }
        self.reschedule(job, at);
    }

    /// Counts what the nodes of a job have done up to `now`.
    fn work_until(&mut self, n: usize, now: Micros) {
        let run = &mut self.runs[n];
        run.done += now.since(run.since).0 * run.working.len() as u64;
        run.since = now;
    }

    /// When the job will be done, if nothing changes. Its work is its duration on each of its nodes.
    fn reschedule(&mut self, n: usize, now: Micros) {
        let run = &mut self.runs[n];
        let workers = run.working.len() as u64;
        run.due = None;
        if workers > 0 && !run.finished {
            let work = self.jobs[n].duration.0 * u64::from(self.jobs[n].nodes);
            let due = now.after(Micros(work.saturating_sub(run.done).div_ceil(workers)));
            run.due = Some(due);
            self.agenda.insert((due, Due::Done(n)));
        }
    }

    fn finish(mut self) -> (Report, Page) {
        self.report.jobs_unfinished = self.runs.iter().filter(|run| !run.finished).count();
        self.report.prices = self.prices.quantiles();
        let page = self.trails.page(&self.report, self.settings);
        (self.report, page)
    }
}

fn market_of(class: &str) -> MarketName {
    MarketName::new(&format!("{class}/trace"))
}
