//! Runs a world: takes what is due, sends commands, and handles events.

use super::agenda::Agenda;
use super::demand::{Drawn, Urgent};
use super::market_sim::MarketSim;
use super::on_events::Role;
use super::outcome::Outcome;
use super::settings::Settings;
use super::tenants::Seen;
use super::work::{JobId, JobTable};
use crate::audit::{Auditor, Disagreement};
use crate::venue::{InProcess, Venue, VenueError};
use foldhash::{HashMap, HashSet};
use kubebid_core::units::{AllocationId, BidId, MarketId, Micros};
use kubebid_core::{Answer, Command, Price, Stamped};
use kubebid_strategy::{Quote, REFERENCE_HOURS, reference_micros};
use std::ops::Range;

/// Monday, 5 January 2015, 00:00 UTC.
pub const START: Micros = Micros(1_420_416_000_000_000);
const TICK: u64 = 100;

#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    #[error(transparent)]
    Venue(#[from] VenueError),
    #[error("{0}")]
    Audit(#[from] Box<Disagreement>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// Nothing of ours: the market may do something then.
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
}

pub(super) struct World<'a> {
    pub(super) settings: &'a Settings,
    pub(super) venue: &'a mut dyn Venue,
    pub(super) auditor: Auditor,
    pub(super) agenda: Agenda<Due>,
    pub(super) now: Micros,
    pub(super) last_wake: Micros,
    /// Nodes under notice that their tenants might keep, once all is heard.
    pub(super) worried: Vec<AllocationId>,
    pub(super) market_sims: Vec<MarketSim>,
    pub(super) jobs: JobTable,
    pub(super) nodes: HashMap<AllocationId, Node>,
    /// Of accounts, by their numbers at the venue.
    pub(super) roles: Vec<Role>,
    /// Bids of jobs that are watched.
    pub(super) watched: HashSet<BidId>,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) job: JobId,
    /// Since when, where it is.
    pub(super) ready: Option<Micros>,
}

/// Plays a world on an empty venue, with the auditor listening. `progress` hears how many market-hours have
/// passed since it last did.
pub fn live(
    settings: &Settings,
    venue: &mut dyn Venue,
    progress: impl Fn(u64),
) -> Result<Outcome, WorldError> {
    live_in(settings, 0..settings.markets, venue, &progress)
}

/// One market in this process, with these jobs instead of a crowd's, in the order in which they come.
pub fn live_with(
    settings: &Settings,
    jobs: impl Iterator<Item = (Micros, Drawn)> + 'static,
) -> Result<Outcome, WorldError> {
    let mut market_sim = MarketSim::new(settings, 0);
    market_sim.jobs = Box::new(jobs);
    live_on(settings, vec![market_sim], &mut InProcess::new(), &|_| {})
}

/// Some of the markets only.
pub(super) fn live_in(
    settings: &Settings,
    markets: Range<u32>,
    venue: &mut dyn Venue,
    progress: &dyn Fn(u64),
) -> Result<Outcome, WorldError> {
    let market_sims = markets.map(|market| MarketSim::new(settings, market)).collect();
    live_on(settings, market_sims, venue, progress)
}

fn live_on(
    settings: &Settings,
    market_sims: Vec<MarketSim>,
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
        market_sims,
        jobs: JobTable::default(),
        nodes: HashMap::default(),
        roles: Vec::new(),
        watched: HashSet::default(),
        outcome: Outcome::new(settings.clone()),
    };
    world.open()?;
    let (_, end) = settings.span();
    let mut hours = 0;
    while let Some((now, due)) = world.agenda.next().filter(|(now, _)| *now <= end) {
        world.now = now;
        world.meet(due)?;
        while let Some(allocation) = world.worried.pop() {
            world.stay_or_go(allocation)?;
        }
        let passed = now.since(START).0 / Micros::HOUR.0;
        if passed > hours {
            progress((passed - hours) * world.market_sims.len() as u64);
            hours = passed;
        }
    }
    world.now = end;
    world.close()
}

/// A share of the on-demand price, on the tick.
pub(super) fn price(share: f64, on_demand: Price) -> Price {
    let ticks = (share * on_demand.0 as f64 / TICK as f64).round() as u64;
    Price(ticks.max(1) * TICK)
}

impl World<'_> {
    fn open(&mut self) -> Result<(), WorldError> {
        let on_demand = Price(self.settings.on_demand_micros);
        for market in 0..self.market_sims.len() as u32 {
            let name = self.market_sims[market as usize].name.clone();
            self.auditor.told(MarketId(market), &name, self.settings.rules.market_rules(on_demand));
            let rules = self.settings.rules.changes(on_demand);
            self.act(Command::OpenMarket { market: name, rules })?;
            for provider in 0..self.settings.supply.providers {
                self.offer(market, provider)?;
                self.pause(market, provider);
                // Each at an hour of its own.
                let hour = u64::from(self.market_sims[market as usize].number * 7 + provider * 5) % 24;
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
        for market in 0..self.market_sims.len() as u32 {
            let theirs = self.venue.supply(MarketId(market))?;
            self.auditor.compare(MarketId(market), theirs)?;
        }
        for job in self.jobs.open() {
            let sums = self.outcome.sums(job.want);
            sums.open += 1;
            sums.finished_us -= u128::from(job.left_at(self.now));
        }
        self.outcome.close(self.auditor.sums());
        self.outcome.markets = self.market_sims.into_iter().map(|market_sim| market_sim.series).collect();
        Ok(self.outcome)
    }

    fn meet(&mut self, due: Due) -> Result<(), WorldError> {
        match due {
            Due::Market => self.act(Command::AdvanceTime).map(|_| ()),
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
                let another =
                    self.market_sims[market as usize].providers[provider as usize].reprice(on_demand);
                if another { self.offer(market, provider) } else { Ok(()) }
            }
            Due::Supply { market, provider } => self.supply_changes(market, provider),
        }
    }

    /// Commands, and what becomes of them.
    pub(super) fn act(&mut self, command: Command) -> Result<Answer, WorldError> {
        let answer = self.apply(command)?;
        self.on_events(&answer.events)?;
        Ok(answer)
    }

    /// The answer, which nobody has heard of but the auditor.
    pub(super) fn apply(&mut self, command: Command) -> Result<Answer, WorldError> {
        if matches!(command, Command::AdvanceTime) {
            self.outcome.clock_steps += 1;
        } else {
            self.outcome.commands += 1;
        }
        let answer = self.venue.apply(&Stamped { at: self.now, key: None, command })?;
        self.auditor.on_events(&answer.events)?;
        Ok(answer)
    }

    pub(super) fn seen(&self, market: u32) -> Seen {
        let numbers = self.auditor.market(MarketId(market)).numbers();
        let quote = Quote {
            reference_micros: self.market_sims[market as usize].reference,
            floor_micros: numbers.floor.map(|floor| floor.0),
            tick_micros: TICK,
        };
        Seen { now: self.now, quote, entry: numbers.entry_price, increment_bps: 500 }
    }

    fn sample(&mut self) -> Result<(), WorldError> {
        self.act(Command::AdvanceTime)?;
        let full_hour = (self.now.0 / 1_000_000).is_multiple_of(3600);
        let samples = (REFERENCE_HOURS * 3600 / self.settings.sample_seconds).max(1) as usize;
        for (market, market_sim) in self.market_sims.iter_mut().enumerate() {
            let books = self.auditor.market(MarketId(market as u32));
            market_sim.series.sample(books, &mut market_sim.charged, self.settings.kept);
            market_sim.recent.push_back(books.numbers().market_price.0);
            if market_sim.recent.len() > samples {
                market_sim.recent.pop_front();
            }
            if full_hour {
                let mut recent: Vec<u64> = market_sim.recent.iter().copied().collect();
                let middle = recent.len() / 2;
                market_sim.reference = Some(reference_micros(*recent.select_nth_unstable(middle).1));
            }
        }
        self.agenda.plan(self.now.after(Micros::seconds(self.settings.sample_seconds)), Due::Sample);
        Ok(())
    }

    fn plan_job(&mut self, market: u32) {
        let market_sim = &mut self.market_sims[market as usize];
        let Some((at, drawn)) = market_sim.jobs.next() else { return };
        market_sim.coming = Some(drawn);
        self.agenda.plan(at, Due::Job { market });
    }

    fn job_comes(&mut self, market: u32) -> Result<(), WorldError> {
        let drawn = self.market_sims[market as usize].coming.take();
        self.plan_job(market);
        drawn.map_or(Ok(()), |drawn| self.start_job(market, drawn))
    }

    fn plan_rush(&mut self, market: u32) {
        if let Some(at) = self.market_sims[market as usize].rushes.advance() {
            self.agenda.plan(at, Due::Rush { market });
        }
    }

    fn rush_comes(&mut self, market: u32) -> Result<(), WorldError> {
        let urgent = self.market_sims[market as usize].rushes.draw();
        self.plan_rush(market);
        for (number, Urgent { size, hold, worth }) in urgent.into_iter().enumerate() {
            let nodes = (size * self.market_sims[market as usize].units).round().clamp(1.0, 1000.0) as u32;
            self.start_rush(market, number as u64, (nodes, hold, worth))?;
        }
        Ok(())
    }

    pub(super) fn on_demand(&self) -> Price {
        Price(self.settings.on_demand_micros)
    }
}
