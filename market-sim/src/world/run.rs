//! Runs a world: takes what is due, sends commands, and handles events.

use super::demand::{DrawnJob, Urgent};
use super::events::Role;
use super::jobs::{JobId, JobTable};
use super::market::SimMarket;
use super::outcome::Outcome;
use super::settings::Settings;
use super::tenants::Seen;
use crate::agenda::{Agenda, Step};
use crate::audit::{Auditor, Disagreement};
use crate::participant::{Participant, run_until};
use crate::venue::{InProcess, Venue, VenueError};
use foldhash::{HashMap, HashSet};
use kubebid_core::units::{AllocationId, BidId, MarketId, Micros};
use kubebid_core::{Answer, Command, Event, Price, StampedCommand};
use kubebid_strategy::{Quote, REFERENCE_HOURS, reference_micros};
use std::ops::Range;

/// Monday, 5 January 2015, 00:00 UTC.
pub const START: Micros = Micros(1_420_416_000_000_000);
const TICK: u64 = 100;

/// The reason for which a simulation ended early.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The venue could not go on.
    #[error(transparent)]
    Venue(#[from] VenueError),
    /// The auditor found a contradiction.
    #[error("{0}")]
    Audit(#[from] Box<Disagreement>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The market may do something then: only the clock moves.
    Market,
    Sample,
    Ready {
        allocation: AllocationId,
        market: u32,
        provider: u32,
    },
    Done(JobId),
    /// The bid of a job expires, if it is there still.
    Expiry(JobId),
    /// The tenant of a job thinks again.
    Think(JobId),
    Job {
        market: u32,
    },
    Rush {
        market: u32,
    },
    Reserve {
        market: u32,
        provider: u32,
    },
    Supply {
        market: u32,
        provider: u32,
    },
    /// A provider has looked at the machine of a unit that rests.
    Repaired {
        market: u32,
        provider: u32,
        number: u64,
    },
}

/// Steps of one instant are taken in the order in which they were planned.
impl Step for Due {}

pub(super) struct World<'a> {
    pub(super) settings: &'a Settings,
    pub(super) venue: &'a mut dyn Venue,
    pub(super) auditor: Auditor,
    pub(super) agenda: Agenda<Due>,
    pub(super) now: Micros,
    pub(super) last_wake: Micros,
    /// Nodes under notice that their tenants might keep; handled after the step.
    pub(super) worried: Vec<AllocationId>,
    pub(super) markets: Vec<SimMarket>,
    pub(super) jobs: JobTable,
    pub(super) nodes: HashMap<AllocationId, Node>,
    /// Roles of accounts, by their numbers at the venue.
    pub(super) roles: Vec<Role>,
    /// Bids of jobs whose sums are kept apart.
    pub(super) watched: HashSet<BidId>,
    pub(super) outcome: Outcome,
    hours: u64,
    progress: &'a dyn Fn(u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) job: JobId,
    /// The time since which it has been ready, if it is.
    pub(super) ready: Option<Micros>,
}

/// Simulates a world on an empty venue, under the auditor. Calls `progress` with the market-hours that have passed
/// since the last call.
pub fn simulate(
    settings: &Settings,
    venue: &mut dyn Venue,
    progress: impl Fn(u64),
) -> Result<Outcome, WorldError> {
    simulate_range(settings, 0..settings.markets, venue, &progress)
}

/// Simulates one market in this process, with these jobs instead of drawn ones, in the order of their arrival.
pub fn simulate_jobs(
    settings: &Settings,
    jobs: impl Iterator<Item = (Micros, DrawnJob)> + 'static,
) -> Result<Outcome, WorldError> {
    let mut sim_market = SimMarket::new(settings, 0);
    sim_market.jobs = Box::new(jobs);
    simulate_markets(settings, vec![sim_market], &mut InProcess::new(), &|_| {})
}

/// Simulates some of the markets only.
pub(super) fn simulate_range(
    settings: &Settings,
    markets: Range<u32>,
    venue: &mut dyn Venue,
    progress: &dyn Fn(u64),
) -> Result<Outcome, WorldError> {
    let markets = markets.map(|market| SimMarket::new(settings, market)).collect();
    simulate_markets(settings, markets, venue, progress)
}

fn simulate_markets(
    settings: &Settings,
    markets: Vec<SimMarket>,
    venue: &mut dyn Venue,
    progress: &dyn Fn(u64),
) -> Result<Outcome, WorldError> {
    let mut world = World {
        settings,
        venue,
        auditor: Auditor::new(),
        agenda: Agenda::new(),
        now: START,
        last_wake: Micros(0),
        worried: Vec::new(),
        markets,
        jobs: JobTable::default(),
        nodes: HashMap::default(),
        roles: Vec::new(),
        watched: HashSet::default(),
        outcome: Outcome::new(settings.clone()),
        hours: 0,
        progress,
    };
    world.open()?;
    let (_, end) = settings.span();
    run_until(&mut world, end)?;
    world.now = end;
    world.close()
}

/// Converts a share of the on-demand price to a price on the tick.
pub(super) fn price(share: f64, on_demand: Price) -> Price {
    let ticks = (share * on_demand.0 as f64 / TICK as f64).round() as u64;
    Price(ticks.max(1) * TICK)
}

impl World<'_> {
    fn open(&mut self) -> Result<(), WorldError> {
        let on_demand = Price(self.settings.on_demand_micros);
        for market in 0..self.markets.len() as u32 {
            let name = self.markets[market as usize].name.clone();
            self.auditor.set_rules(MarketId(market), &name, self.settings.rules.market_rules(on_demand));
            let rules = self.settings.rules.changes(on_demand);
            self.send(Command::OpenMarket { market: name, rules })?;
            for provider in 0..self.settings.supply.providers {
                self.offer(market, provider)?;
                self.pause(market, provider);
                // Each provider reprices at an hour of its own.
                let hour = u64::from(self.markets[market as usize].number * 7 + provider * 5) % 24;
                self.agenda
                    .plan(self.now.after(Micros(hour * Micros::HOUR.0)), Due::Reserve { market, provider });
            }
            self.plan_job(market);
            self.plan_rush(market);
        }
        self.agenda.plan(START, Due::Sample);
        Ok(())
    }

    fn close(mut self) -> Result<Outcome, WorldError> {
        for market in 0..self.markets.len() as u32 {
            let theirs = self.venue.supply(MarketId(market))?;
            self.auditor.compare(MarketId(market), theirs)?;
        }
        for job in self.jobs.open() {
            let sums = self.outcome.sums(job.want);
            sums.open += 1;
            sums.finished_us -= u128::from(job.left_at(self.now));
        }
        self.outcome.close(self.auditor.sums());
        self.outcome.markets = self.markets.into_iter().map(|sim_market| sim_market.series).collect();
        Ok(self.outcome)
    }

    fn meet(&mut self, due: Due) -> Result<(), WorldError> {
        match due {
            Due::Market => self.send(Command::AdvanceTime).map(|_| ()),
            Due::Sample => self.sample(),
            Due::Ready { allocation, market, provider } => self.ready(allocation, market, provider),
            Due::Done(job) => self.done(job),
            Due::Expiry(job) => self.expiry(job),
            Due::Think(job) => self.think(job),
            Due::Job { market } => self.job_comes(market),
            Due::Rush { market } => self.rush_comes(market),
            Due::Reserve { market, provider } => {
                self.agenda.plan(self.now.after(Micros::DAY), due);
                let on_demand = Price(self.settings.on_demand_micros);
                let another = self.markets[market as usize].providers[provider as usize].reprice(on_demand);
                if another { self.offer(market, provider) } else { Ok(()) }
            }
            Due::Supply { market, provider } => self.supply_changes(market, provider),
            Due::Repaired { market, provider, number } => self.repaired(market, provider, number),
        }
    }

    pub(super) fn seen(&self, market: u32) -> Seen {
        let numbers = self.auditor.market(MarketId(market)).numbers();
        let quote = Quote {
            reference_micros: self.markets[market as usize].reference,
            floor_micros: numbers.floor.map(|floor| floor.0),
            tick_micros: TICK,
        };
        Seen { now: self.now, quote, entry: numbers.entry_price, increment_bps: 500 }
    }

    fn sample(&mut self) -> Result<(), WorldError> {
        self.send(Command::AdvanceTime)?;
        let full_hour = (self.now.0 / 1_000_000).is_multiple_of(3600);
        let samples = (REFERENCE_HOURS * 3600 / self.settings.sample_seconds).max(1) as usize;
        for (market, sim_market) in self.markets.iter_mut().enumerate() {
            let books = self.auditor.market(MarketId(market as u32));
            sim_market.series.sample(books, &mut sim_market.charged, self.settings.kept);
            sim_market.recent.push_back(books.numbers().market_price.0);
            if sim_market.recent.len() > samples {
                sim_market.recent.pop_front();
            }
            if full_hour {
                let mut recent: Vec<u64> = sim_market.recent.iter().copied().collect();
                let middle = recent.len() / 2;
                sim_market.reference = Some(reference_micros(*recent.select_nth_unstable(middle).1));
            }
        }
        self.agenda.plan(self.now.after(Micros::seconds(self.settings.sample_seconds)), Due::Sample);
        Ok(())
    }

    fn plan_job(&mut self, market: u32) {
        let sim_market = &mut self.markets[market as usize];
        let Some((at, drawn)) = sim_market.jobs.next() else { return };
        sim_market.coming = Some(drawn);
        self.agenda.plan(at, Due::Job { market });
    }

    fn job_comes(&mut self, market: u32) -> Result<(), WorldError> {
        let drawn = self.markets[market as usize].coming.take();
        self.plan_job(market);
        drawn.map_or(Ok(()), |drawn| self.start_job(market, drawn))
    }

    fn plan_rush(&mut self, market: u32) {
        if let Some(at) = self.markets[market as usize].rushes.advance() {
            self.agenda.plan(at, Due::Rush { market });
        }
    }

    fn rush_comes(&mut self, market: u32) -> Result<(), WorldError> {
        let urgent = self.markets[market as usize].rushes.draw();
        self.plan_rush(market);
        for (number, Urgent { size, hold, worth }) in urgent.into_iter().enumerate() {
            let nodes = (size * self.markets[market as usize].units).round().clamp(1.0, 1000.0) as u32;
            self.start_rush(market, number as u64, (nodes, hold, worth))?;
        }
        Ok(())
    }

    pub(super) fn on_demand(&self) -> Price {
        Price(self.settings.on_demand_micros)
    }
}

impl Participant for World<'_> {
    type Error = WorldError;

    /// Passes the events of the answer to the auditor only. The answer also has those of other commands before it.
    fn apply(&mut self, command: Command) -> Result<Answer, WorldError> {
        if matches!(command, Command::AdvanceTime) {
            self.outcome.clock_steps += 1;
        } else {
            self.outcome.commands += 1;
        }
        let mut answer = self.venue.apply(&StampedCommand { at: self.now, key: None, command })?;
        let mut others = Vec::new();
        for events in self.venue.take_others() {
            self.auditor.on_events(&events)?;
            others.extend(events);
        }
        self.auditor.on_events(&answer.events)?;
        if !others.is_empty() {
            answer.events.splice(0..0, others);
        }
        Ok(answer)
    }

    fn on_events(&mut self, events: &[Event]) {
        events.iter().for_each(|event| self.on_event(event));
    }

    fn next_at(&self) -> Option<Micros> {
        self.agenda.next_at()
    }

    fn act(&mut self, now: Micros) -> Result<(), WorldError> {
        let Some(due) = self.agenda.take_due(now) else { return Ok(()) };
        self.now = now;
        self.meet(due)?;
        while let Some(allocation) = self.worried.pop() {
            self.stay_or_go(allocation)?;
        }
        let passed = now.since(START).0 / Micros::HOUR.0;
        if passed > self.hours {
            (self.progress)((passed - self.hours) * self.markets.len() as u64);
            self.hours = passed;
        }
        Ok(())
    }
}
