//! Runs a replay: jobs, the nodes they rent, and the agenda.
//!
//! A *rental* is a bid and the nodes it holds. A job of several nodes, or of a whole one, has a rental to itself.
//! Smaller jobs of one tenant share a node as long as its GPUs suffice, as pods do. A shared rental bids the most
//! that any of its jobs would pay, and ends with the last of them.

use super::gpus::{Gpus, Share};
use super::history::History;
use super::report::{Prices, Report};
use crate::agenda::{Agenda, Step};
use crate::bid::standing_bid;
use crate::name_map::NameMap;
use crate::participant::{Participant, run_until};
use crate::trace::{Job, Priority};
use crate::venue::{Venue, VenueError};
use kubebid_core::command::{CancelMode, PlaceBid, RuleChange};
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName, Micros};
use kubebid_core::{Answer, Command, Event, Fact, Price, StampedCommand};
use kubebid_report::Page;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The settings of a replay: all that the trace does not say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nodes of each instance class.
    pub capacity: u64,
    /// Number of providers, among which the capacity is divided.
    pub providers: u32,
    /// The reserve of all offers, per node-hour.
    pub reserve: Price,
    /// The on-demand price: a `bid_proxy` of 1.
    pub on_demand: Price,
    /// Time from a node's award until it is ready.
    pub boot: Micros,
    /// Time for which a node is protected after it is ready.
    pub min_runtime: Micros,
    /// Time from a notice to its deadline.
    pub notice: Micros,
    /// Work that was under way on a lost node goes on on the next; else it starts again.
    pub checkpoint: bool,
    /// GPUs of a node, which jobs of one tenant share; without it each job takes whole nodes.
    pub gpus_per_node: Option<u32>,
    /// A job of several nodes works only on all of them, and regroups its bid (R14) when a deadline leaves it fewer; else
    /// it works on whatever it has.
    pub gangs: bool,
    /// A job that cannot make its deadline any more gives up; else deadlines only count as missed.
    pub keep_deadlines: bool,
    /// Seed of the bids of jobs without a `bid_proxy`.
    pub seed: u64,
}

impl Settings {
    /// Returns those of `market-sim replay-demand` where nothing else is said.
    pub fn of(capacity: u64) -> Settings {
        Settings {
            capacity,
            providers: 4,
            reserve: Price(4_000_000),
            on_demand: Price(32_000_000),
            boot: Micros::seconds(120),
            min_runtime: Micros::seconds(3600),
            notice: Micros::seconds(300),
            checkpoint: true,
            gpus_per_node: Some(8),
            gangs: false,
            keep_deadlines: true,
            seed: 1,
        }
    }
}

const TICK: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The market may do something then: only the clock moves.
    Market,
    Ready(AllocationId),
    Done(usize),
    /// A job cannot make its deadline any more.
    GiveUp(usize),
    /// A gang has lost a node.
    Regroup(usize),
    /// The ceiling of a rental may be more than its jobs would pay.
    Lower(usize),
    Submit(usize),
}

impl Step for Due {
    fn rank(&self, other: &Due) -> Ordering {
        self.cmp(other)
    }
}

/// Accounts of rentals for jobs of no tenant: each has one to itself for as long as it runs. A trace may have thousands
/// of them, of which few run at a time.
#[derive(Debug, Default)]
struct AnonymousAccounts {
    idle: Vec<AccountName>,
    made: usize,
}

impl AnonymousAccounts {
    fn take(&mut self, accounts: &mut NameMap) -> AccountName {
        self.idle.pop().unwrap_or_else(|| {
            loop {
                self.made += 1;
                let name = format!("nobody-{}", self.made);
                if accounts.claim(&name) {
                    return AccountName::new(&name);
                }
            }
        })
    }
}

struct Replay<'a> {
    jobs: &'a [Job],
    settings: &'a Settings,
    venue: &'a mut dyn Venue,
    rng: ChaCha8Rng,
    now: Micros,
    agenda: Agenda<Due>,
    runs: Vec<Run>,
    rentals: Vec<Rental<'a>>,
    /// Shared rentals, by class and tenant.
    shared: BTreeMap<(&'a str, Option<&'a str>), BTreeSet<usize>>,
    by_bid: BTreeMap<BidId, usize>,
    accounts: NameMap,
    classes: NameMap,
    anonymous_accounts: AnonymousAccounts,
    /// The rental of each node.
    nodes: BTreeMap<AllocationId, usize>,
    prices: Prices,
    history: History,
    report: Report,
    submitted: usize,
    progress: &'a mut dyn FnMut(usize),
}

/// The progress of one job.
#[derive(Clone, Debug, Default)]
struct Run {
    /// The rental of the job, from its submission to its end.
    rental: Option<usize>,
    /// The part of a shared rental that the job uses.
    share: Option<Share>,
    ceiling: Price,
    started: bool,
    /// The time at which it joined its rental.
    joined: Micros,
    /// Node-time done, up to `since`.
    done: u64,
    since: Micros,
    due: Option<Micros>,
    gives_up: Option<Micros>,
    /// Done or given up.
    over: bool,
}

/// A bid and the nodes it holds.
#[derive(Debug)]
struct Rental<'a> {
    class: &'a str,
    tenant: AccountName,
    bid: BidId,
    ceiling: Price,
    nodes: u32,
    jobs: Vec<usize>,
    /// The free GPUs of a shared node.
    free: Option<Gpus>,
    /// Nodes, and since when they are ready.
    held: BTreeMap<AllocationId, Option<Micros>>,
    /// The nodes of `held` that are under notice.
    noticed: BTreeSet<AllocationId>,
}

impl Rental<'_> {
    fn working(&self) -> u32 {
        self.held.values().filter(|ready| ready.is_some()).count() as u32
    }

    /// Returns when the protection of its last live node ends; None while one of them boots.
    fn protected_until(&self, min_runtime: Micros) -> Option<Micros> {
        let live = self.held.iter().filter(|(id, _)| !self.noticed.contains(id));
        let ends: Option<Vec<Micros>> =
            live.map(|(_, ready)| Some(ready.as_ref()?.after(min_runtime))).collect();
        Some(ends?.into_iter().max().unwrap_or(Micros(0)))
    }
}

/// Replays the jobs. Calls `progress` with the number of jobs that have been submitted.
pub fn replay(
    jobs: &[Job],
    settings: &Settings,
    venue: &mut dyn Venue,
    progress: impl FnMut(usize),
) -> Result<Report, VenueError> {
    Ok(replay_and_draw(jobs, settings, venue, progress)?.0)
}

/// Replays the jobs as [`replay`] does, and draws a page of the market over time.
pub fn replay_and_draw(
    jobs: &[Job],
    settings: &Settings,
    venue: &mut dyn Venue,
    mut progress: impl FnMut(usize),
) -> Result<(Report, Page), VenueError> {
    let report = Report::new(venue.name(), jobs.len(), settings);
    let mut replay = Replay {
        jobs,
        settings,
        venue,
        rng: ChaCha8Rng::seed_from_u64(settings.seed),
        now: Micros(0),
        agenda: Agenda::new(),
        submitted: 0,
        progress: &mut progress,
        runs: vec![Run::default(); jobs.len()],
        rentals: Vec::new(),
        shared: BTreeMap::new(),
        by_bid: BTreeMap::new(),
        accounts: NameMap::default(),
        classes: NameMap::default(),
        anonymous_accounts: AnonymousAccounts::default(),
        nodes: BTreeMap::new(),
        prices: Prices::default(),
        history: History::default(),
        report,
    };
    replay.open()?;
    run_until(&mut replay, Micros(u64::MAX))?;
    Ok(replay.finish())
}

impl<'a> Replay<'a> {
    fn open(&mut self) -> Result<(), VenueError> {
        self.step_to(self.jobs.first().map_or(Micros(0), |job| job.submitted))?;
        for (n, job) in self.jobs.iter().enumerate() {
            self.agenda.plan(job.submitted, Due::Submit(n));
        }
        let classes: BTreeSet<&str> = self.jobs.iter().map(|job| job.class.as_str()).collect();
        let Settings { capacity, providers, reserve, min_runtime, notice, .. } = *self.settings;
        let provider = |n: u32| format!("provider-{}", n + 1);
        for n in 0..providers {
            self.accounts.claim(&provider(n));
        }
        for class in classes {
            let market = self.market_of(class);
            let rules = vec![
                RuleChange::number("min_runtime_us", min_runtime.0),
                RuleChange::number("notice_us", notice.0),
            ];
            self.say(Command::OpenMarket { market: market.clone(), rules })?;
            for n in 0..providers {
                let share = capacity / u64::from(providers)
                    + u64::from(u64::from(n) < capacity % u64::from(providers));
                if share > 0 {
                    let provider = AccountName::new(&provider(n));
                    let market = market.clone();
                    self.say(Command::PutOffer { provider, market, capacity: share, reserve })?;
                }
            }
        }
        Ok(())
    }

    fn market_of(&mut self, class: &str) -> MarketName {
        MarketName::new(&format!("{}/trace", self.classes.market_name(class)))
    }

    /// Moves the clock, if `now` is later. The same instant twice brings nothing (I9).
    fn step_to(&mut self, now: Micros) -> Result<(), VenueError> {
        if now > self.now {
            self.now = now;
            self.say(Command::AdvanceTime)?;
        }
        Ok(())
    }

    fn say(&mut self, command: Command) -> Result<(), VenueError> {
        self.send(command).map(|_| ())
    }

    fn meet(&mut self, now: Micros, due: Due) -> Result<(), VenueError> {
        match due {
            Due::Market => Ok(()),
            Due::Submit(n) => self.submit(n),
            Due::Ready(id) => self.ready(now, id),
            Due::Done(n) if !self.runs[n].over && self.runs[n].due == Some(now) => self.done(now, n),
            Due::GiveUp(n) if !self.runs[n].over && self.runs[n].gives_up == Some(now) => self.give_up(n),
            Due::Done(_) | Due::GiveUp(_) => Ok(()),
            Due::Regroup(rental) => self.regroup(rental),
            Due::Lower(rental) => self.lower(rental),
        }
    }

    /// Returns the share of the on-demand price that a job would pay: its `bid_proxy`, else one drawn by its priority.
    fn share_of(&mut self, job: &Job) -> f64 {
        let drawn: f64 = self.rng.random_range(0.0..1.0);
        let (low, high) = match job.priority {
            None => (0.25, 1.0),
            Some(Priority::Low) => (0.25, 0.5),
            Some(Priority::Normal) => (0.5, 0.75),
            Some(Priority::High) => (0.75, 1.0),
        };
        job.bid_proxy.unwrap_or(low + (high - low) * drawn)
    }

    fn submit(&mut self, n: usize) -> Result<(), VenueError> {
        let job = &self.jobs[n];
        let ticks = (self.share_of(job) * self.settings.on_demand.0 as f64 / TICK as f64) as u64;
        let run = &mut self.runs[n];
        run.ceiling = Price(ticks.max(1) * TICK);
        (run.since, run.joined) = (self.now, self.now);
        // A job whose bid is below the reserve would have no node to share.
        let gpus = self.gpus_to_share(job).filter(|_| self.runs[n].ceiling >= self.settings.reserve);
        let room = gpus.and_then(|gpus| self.node_with_room(job, gpus));
        let boots = room.as_ref().is_none_or(|(rental, _)| self.rentals[*rental].working() == 0);
        let boot = if boots { self.settings.boot } else { Micros(0) };
        if self.deadline_of(n).is_some_and(|deadline| self.now.after(boot).after(job.duration) > deadline) {
            self.report.hopeless += 1;
            return self.give_up(n);
        }
        match (room, gpus) {
            (Some((rental, share)), _) => self.join(n, rental, share),
            (None, Some(gpus)) => {
                let mut free = Gpus::of_node(self.settings.gpus_per_node.unwrap_or_default());
                self.runs[n].share = free.room_for(gpus);
                free.take(self.runs[n].share.as_ref().expect("less than a node"));
                self.bid(n, Some(free))
            }
            (None, None) => self.bid(n, None),
        }
    }

    /// Returns the GPUs of a job that needs less than a node, if nodes are shared.
    fn gpus_to_share(&self, job: &Job) -> Option<f64> {
        let node = f64::from(self.settings.gpus_per_node?);
        // A part of a GPU beside whole ones takes a whole one.
        let shares = |gpus: &f64| *gpus > 0.0 && (*gpus < 1.0 || gpus.ceil() < node);
        job.gpus.filter(|gpus| job.nodes == 1 && shares(gpus))
    }

    /// Returns the fullest node of its tenant with room for the job; a node that works comes before one that is
    /// waited for.
    fn node_with_room(&self, job: &'a Job, gpus: f64) -> Option<(usize, Share)> {
        let rentals = self.shared.get(&(job.class.as_str(), job.tenant.as_deref()))?;
        let with_room = rentals.iter().filter_map(|id| {
            let rental = &self.rentals[*id];
            let free = rental.free.as_ref().filter(|_| rental.noticed.is_empty())?;
            Some((rental.working() == 0, free.free(), *id, free.room_for(gpus)?))
        });
        let best = with_room.min_by_key(|(waits, free, id, _)| (*waits, *free, *id));
        best.map(|(.., id, share)| (id, share))
    }

    /// Bids for all nodes of a job, or for one that it shares.
    fn bid(&mut self, n: usize, free: Option<Gpus>) -> Result<(), VenueError> {
        let job = &self.jobs[n];
        let ceiling = self.runs[n].ceiling;
        let tenant = match &job.tenant {
            Some(name) => AccountName::new(self.accounts.market_name(name)),
            None => self.anonymous_accounts.take(&mut self.accounts),
        };
        let market = self.market_of(&job.class);
        let answer = self.apply(Command::PlaceBid(PlaceBid {
            markets: Some(vec![market]),
            min_nodes: job.nodes,
            ..standing_bid(tenant.clone(), ceiling, job.nodes)
        }))?;
        let bid = BidId(answer.seq.0);
        self.report.bids += 1;
        let id = self.rentals.len();
        if free.is_some() {
            self.shared.entry((&job.class, job.tenant.as_deref())).or_default().insert(id);
        }
        let (held, noticed) = (BTreeMap::new(), BTreeSet::new());
        let (class, nodes, jobs) = (job.class.as_str(), job.nodes, vec![n]);
        self.rentals.push(Rental { class, tenant, bid, ceiling, nodes, jobs, free, held, noticed });
        self.runs[n].rental = Some(id);
        self.by_bid.insert(bid, id);
        self.history.change(self.now, &series_name(&job.class), i64::from(job.nodes), 0);
        self.reschedule(n, self.now);
        self.on_events(&answer.events);
        Ok(())
    }

    /// Lets a job work on a node that other jobs of its tenant hold or wait for.
    fn join(&mut self, n: usize, id: usize, share: Share) -> Result<(), VenueError> {
        let rental = &mut self.rentals[id];
        rental.free.as_mut().expect("a shared rental").take(&share);
        rental.jobs.push(n);
        let ceiling = rental.ceiling;
        let holds = !rental.held.is_empty();
        let run = &mut self.runs[n];
        (run.rental, run.share) = (Some(id), Some(share));
        self.report.jobs_joined += 1;
        if holds {
            self.starts(n, self.now);
        }
        self.reschedule(n, self.now);
        if self.runs[n].ceiling > ceiling { self.amend(id, self.runs[n].ceiling) } else { Ok(()) }
    }

    fn amend(&mut self, id: usize, ceiling: Price) -> Result<(), VenueError> {
        let rental = &mut self.rentals[id];
        rental.ceiling = ceiling;
        let (tenant, bid) = (rental.tenant.clone(), rental.bid);
        self.say(Command::AmendBid { tenant, bid, ceiling: Some(ceiling), max_nodes: None })
    }

    /// Lowers the ceiling of a rental to what its jobs would pay, as soon as no node of it is protected (R2).
    fn lower(&mut self, id: usize) -> Result<(), VenueError> {
        let rental = &self.rentals[id];
        let wanted = rental.jobs.iter().map(|n| self.runs[*n].ceiling).max();
        let Some(wanted) = wanted.filter(|wanted| *wanted < rental.ceiling) else { return Ok(()) };
        match rental.protected_until(self.settings.min_runtime) {
            Some(end) if end > self.now => {
                self.agenda.plan(end, Due::Lower(id));
                Ok(())
            }
            Some(_) => self.amend(id, wanted),
            // The step `Ready` looks at it again.
            None => Ok(()),
        }
    }

    /// Gives up all nodes of a gang, if it still lacks some: it waits for all of them again.
    fn regroup(&mut self, id: usize) -> Result<(), VenueError> {
        let rental = &self.rentals[id];
        let has = rental.held.len() as u32;
        if rental.jobs.is_empty() || has == 0 || has >= rental.nodes {
            return Ok(());
        }
        self.report.regroupings += 1;
        let (tenant, bid) = (rental.tenant.clone(), rental.bid);
        self.say(Command::CancelBid { tenant, bid, mode: CancelMode::Regroup })
    }

    fn ready(&mut self, now: Micros, id: AllocationId) -> Result<(), VenueError> {
        let Some(rental) = self.nodes.get(&id).copied() else { return Ok(()) };
        let protected_until = now.after(self.settings.min_runtime);
        self.wake_at(protected_until);
        self.agenda.plan(protected_until, Due::Lower(rental));
        self.change_nodes(rental, now, |rental| {
            rental.held.insert(id, Some(now));
        });
        let by = Some(self.rentals[rental].tenant.clone());
        self.say(Command::ReportReady { allocation: id, by })
    }

    /// Counts the work of the jobs of a rental up to `now`, changes its nodes, and says when they will be done.
    fn change_nodes(&mut self, id: usize, now: Micros, change: impl FnOnce(&mut Rental<'_>)) {
        let jobs = self.rentals[id].jobs.clone();
        jobs.iter().for_each(|n| self.work_until(*n, now));
        change(&mut self.rentals[id]);
        jobs.iter().for_each(|n| self.reschedule(*n, now));
    }

    fn done(&mut self, now: Micros, n: usize) -> Result<(), VenueError> {
        let job = &self.jobs[n];
        self.report.jobs_done += 1;
        self.report.jobs_late += u64::from(job.deadline.is_some_and(|deadline| now > deadline));
        self.report.wait_and_run += now.since(job.submitted).0 as f64 / 1e6;
        self.leave(n)
    }

    fn give_up(&mut self, n: usize) -> Result<(), VenueError> {
        self.report.jobs_gave_up += 1;
        self.leave(n)
    }

    /// Ends a job; its rental ends with its last job.
    fn leave(&mut self, n: usize) -> Result<(), VenueError> {
        self.runs[n].over = true;
        let Some(id) = self.runs[n].rental.take() else { return Ok(()) };
        let rental = &mut self.rentals[id];
        rental.jobs.retain(|other| *other != n);
        if let (Some(free), Some(share)) = (&mut rental.free, self.runs[n].share.take()) {
            free.give_back(&share);
        }
        if !rental.jobs.is_empty() {
            return self.lower(id);
        }
        let (tenant, bid, nodes) = (rental.tenant.clone(), rental.bid, rental.nodes);
        let job = &self.jobs[n];
        if let Some(shared) = self.shared.get_mut(&(job.class.as_str(), job.tenant.as_deref())) {
            shared.remove(&id);
        }
        self.history.change(self.now, &series_name(&job.class), -i64::from(nodes), 0);
        self.say(Command::CancelBid { tenant: tenant.clone(), bid, mode: CancelMode::Release })?;
        if job.tenant.is_none() {
            self.anonymous_accounts.idle.push(tenant);
        }
        Ok(())
    }

    fn wake_at(&mut self, at: Micros) {
        self.agenda.plan(at, Due::Market);
    }

    fn allocated(&mut self, at: Micros, id: AllocationId, bid: BidId) {
        let rental = self.by_bid[&bid];
        self.report.nodes_served += 1;
        self.history.change(at, &series_name(self.rentals[rental].class), 0, 1);
        self.change_nodes(rental, at, |rental| {
            rental.held.insert(id, None);
        });
        for n in self.rentals[rental].jobs.clone() {
            self.starts(n, at);
        }
        self.nodes.insert(id, rental);
        self.agenda.plan(at.after(self.settings.boot), Due::Ready(id));
    }

    /// Counts a job that has its first node.
    fn starts(&mut self, n: usize, at: Micros) {
        if !std::mem::replace(&mut self.runs[n].started, true) {
            self.report.waited += at.since(self.jobs[n].submitted).0 as f64 / 1e6;
            self.report.jobs_started += 1;
        }
    }

    fn ended(&mut self, at: Micros, id: AllocationId) {
        let Some(rental) = self.nodes.remove(&id) else { return };
        self.history.change(at, &series_name(self.rentals[rental].class), 0, -1);
        let ready = self.rentals[rental].held.get(&id).copied().flatten();
        let jobs = self.rentals[rental].jobs.clone();
        if let (false, Some(ready)) = (self.settings.checkpoint, ready) {
            for n in jobs {
                self.work_until(n, at);
                let run = &mut self.runs[n];
                let lost = at.since(ready.max(run.joined)).0.min(run.done);
                run.done -= lost;
                self.report.work_lost += lost as f64 / 3.6e9;
            }
        }
        self.change_nodes(rental, at, |rental| {
            rental.held.remove(&id);
            rental.noticed.remove(&id);
        });
        if self.settings.gangs {
            self.agenda.plan(at, Due::Regroup(rental));
        }
    }

    /// Nodes that work for a job: while one of its nodes is under notice it may hold one more than it wants.
    fn workers(&self, n: usize) -> u64 {
        let Some(rental) = self.runs[n].rental.map(|id| &self.rentals[id]) else { return 0 };
        let working = rental.working().min(rental.nodes);
        if self.settings.gangs && working < rental.nodes { 0 } else { u64::from(working) }
    }

    /// Counts what a job has done up to `now`.
    fn work_until(&mut self, n: usize, now: Micros) {
        let workers = self.workers(n);
        let run = &mut self.runs[n];
        run.done += now.since(run.since).0 * workers;
        run.since = now;
    }

    fn deadline_of(&self, n: usize) -> Option<Micros> {
        self.jobs[n].deadline.filter(|_| self.settings.keep_deadlines)
    }

    /// Plans when the job will be done, if nothing changes, and when it cannot make its deadline any more. Its work is
    /// its duration on each of its nodes.
    fn reschedule(&mut self, n: usize, now: Micros) {
        if self.runs[n].over {
            return;
        }
        let workers = self.workers(n);
        let nodes = u64::from(self.jobs[n].nodes);
        let left = (self.jobs[n].duration.0 * nodes).saturating_sub(self.runs[n].done);
        let due = (workers > 0).then(|| now.after(Micros(left.div_ceil(workers))));
        self.runs[n].due = due;
        if let Some(due) = due {
            self.agenda.plan(due, Due::Done(n));
        }
        let holds = self.runs[n].rental.is_some_and(|id| !self.rentals[id].held.is_empty());
        let boot = if holds { Micros(0) } else { self.settings.boot };
        let gives_up = self.deadline_of(n).and_then(|deadline| {
            // The end of the work, if the job has all its nodes from here on.
            let soonest = now.after(boot).after(Micros(left.div_ceil(nodes)));
            if soonest > deadline {
                return Some(now);
            }
            // A job that has some of its nodes uses up its spare time more slowly.
            let spare = u128::from(deadline.since(soonest).0) * u128::from(nodes);
            let missing = u128::from(nodes.saturating_sub(workers));
            let span = u64::try_from(spare.checked_div(missing)?).unwrap_or(u64::MAX);
            Some(now.after(Micros(span)).after(Micros(1)))
        });
        self.runs[n].gives_up = gives_up;
        if let Some(at) = gives_up {
            self.agenda.plan(at, Due::GiveUp(n));
        }
    }

    fn finish(mut self) -> (Report, Page) {
        self.report.jobs_unfinished = self.runs.iter().filter(|run| !run.over).count();
        self.report.prices = self.prices.quantiles();
        let page = self.history.page(&self.report, self.settings);
        (self.report, page)
    }
}

impl Participant for Replay<'_> {
    type Error = VenueError;

    fn apply(&mut self, command: Command) -> Result<Answer, VenueError> {
        self.venue.apply(&StampedCommand { at: self.now, key: None, command })
    }

    fn next_at(&self) -> Option<Micros> {
        self.agenda.next_at()
    }

    fn act(&mut self, now: Micros) -> Result<(), VenueError> {
        let Some(due) = self.agenda.take_due(now) else { return Ok(()) };
        self.step_to(now)?;
        self.submitted += usize::from(matches!(due, Due::Submit(_)));
        self.meet(now, due)?;
        (self.progress)(self.submitted);
        Ok(())
    }

    fn on_events(&mut self, events: &[Event]) {
        for Event { at, fact } in events {
            match fact {
                Fact::Allocated { node } => self.allocated(*at, node.allocation, node.bid),
                Fact::NoticeStarted { node, deadline, .. } => {
                    self.report.preemptions += 1;
                    self.history.notice(*at);
                    self.wake_at(*deadline);
                    self.rentals[self.by_bid[&node.bid]].noticed.insert(node.allocation);
                }
                Fact::NoticeRescinded { node, .. } => {
                    self.report.rescinded += 1;
                    self.wake_at(*at);
                    let rental = self.by_bid[&node.bid];
                    self.rentals[rental].noticed.remove(&node.allocation);
                    self.agenda.plan(*at, Due::Lower(rental));
                }
                Fact::Ended { node, .. } => self.ended(*at, node.allocation),
                Fact::Charged { debit, fee, .. } => {
                    self.report.charge(*debit, *fee);
                    self.history.charge(*at, debit.0);
                }
                Fact::PriceChanged { market, numbers } => {
                    let (class, _) = self.venue.names().market(*market).parts();
                    let market = series_name(self.classes.trace_name(class));
                    let price = numbers.floor.map(|_| numbers.market_price);
                    self.history.price(*at, &market, price);
                    self.prices.change(*at, market, price);
                }
                Fact::Rejected { reason } => self.report.refuse(reason.code().to_owned()),
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
                | Fact::BidPlaced { .. }
                | Fact::BidAmended { .. }
                | Fact::BidClosed { .. }
                | Fact::Ready { .. }
                | Fact::Claimed { .. }
                | Fact::ClaimDropped { .. }
                | Fact::NoticeMoved { .. }
                | Fact::Funded { .. }
                | Fact::BudgetSet { .. }
                | Fact::BudgetRenewed { .. }
                | Fact::RenewalSet { .. }
                | Fact::Repeated { .. } => {}
            }
        }
    }
}

/// Returns what a market is called in reports: by the trace's own name.
fn series_name(class: &str) -> String {
    format!("{class}/trace")
}
