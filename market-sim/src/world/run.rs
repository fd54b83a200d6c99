//! The life of a world: what is due, what that asks of the market, what the market says happened.

use super::agenda::Agenda;
use super::chance::chance_of;
use super::demand::{Crowd, RushSource, Urgent};
use super::outcome::{MarketSeries, Outcome};
use super::providers::{Provider, Step, Temper};
use super::settings::Settings;
use super::tenants::{ACCOUNTS, Kind, Seen};
use super::work::{JobId, JobTable};
use crate::audit::{Auditor, Disagreement};
use crate::venue::{Venue, VenueError};
use foldhash::HashMap;
use kubebid_core::units::{AccountId, AccountName, AllocationId, MarketId, MarketName, Micros};
use kubebid_core::{Answer, Command, Event, Fact, Price, Stamped};
use kubebid_strategy::Quote;
use std::collections::{BTreeMap, VecDeque};

/// Monday, 5 January 2015, 00:00 UTC.
pub(super) const START: Micros = Micros(1_420_416_000_000_000);
const TICK: u64 = 100;
const DAY_SAMPLES_SECONDS: u64 = 86_400;

#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    #[error(transparent)]
    Venue(#[from] VenueError),
    #[error("{0}")]
    Audit(#[from] Box<Disagreement>),
}

/// How far a world is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub hours: u64,
    pub commands: u64,
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

pub(super) struct Stage {
    pub(super) name: MarketName,
    pub(super) crowd: Crowd,
    rushes: RushSource,
    providers: Vec<Provider>,
    /// By kind and number.
    pub(super) accounts: Vec<AccountName>,
    units: f64,
    series: MarketSeries,
    /// Market prices at the samples of the last day, and their median, of the last full hour.
    day: VecDeque<u64>,
    pub(super) reference: Option<u64>,
    pub(super) charged: BTreeMap<Kind, u64>,
}

pub(super) struct World<'a> {
    pub(super) settings: &'a Settings,
    pub(super) venue: &'a mut dyn Venue,
    pub(super) auditor: Auditor,
    pub(super) agenda: Agenda<Due>,
    pub(super) now: Micros,
    last_wake: Micros,
    /// Nodes under notice that their tenants might keep, once all is heard.
    pub(super) worried: Vec<AllocationId>,
    pub(super) stages: Vec<Stage>,
    pub(super) jobs: JobTable,
    pub(super) nodes: HashMap<AllocationId, Node>,
    /// Of accounts, by their numbers at the venue.
    roles: Vec<Role>,
    spent: HashMap<AccountName, (u64, u128)>,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) job: JobId,
    pub(super) ready: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Provider(u32),
    Tenant(Kind),
}

/// Plays a world on an empty venue, with the auditor listening.
pub fn live(
    settings: &Settings,
    venue: &mut dyn Venue,
    mut progress: impl FnMut(Progress),
) -> Result<Outcome, WorldError> {
    let stages = (0..settings.markets).map(|market| Stage::new(settings, market)).collect();
    let mut world = World {
        settings,
        venue,
        auditor: Auditor::new(),
        agenda: Agenda::new(),
        now: START,
        last_wake: Micros(0),
        worried: Vec::new(),
        stages,
        jobs: JobTable::default(),
        nodes: HashMap::default(),
        roles: Vec::new(),
        spent: HashMap::default(),
        outcome: Outcome::new(settings.clone()),
    };
    world.open()?;
    let end = START.after(Micros(u64::from(settings.days) * Micros::DAY.0));
    while let Some((now, due)) = world.agenda.next().filter(|(now, _)| *now <= end) {
        world.now = now;
        world.meet(due)?;
        while let Some(allocation) = world.worried.pop() {
            world.stay_or_go(allocation)?;
        }
        if due == Due::Sample {
            progress(Progress {
                hours: now.since(START).0 / Micros::HOUR.0,
                commands: world.outcome.commands,
            });
        }
    }
    world.close()
}

/// A share of the on-demand price, on the tick.
pub(super) fn price(share: f64, on_demand: Price) -> Price {
    let ticks = (share * on_demand.0 as f64 / TICK as f64).round() as u64;
    Price(ticks.max(1) * TICK)
}

impl Stage {
    fn new(settings: &Settings, market: u32) -> Stage {
        let name = format!("gpu-{}/sim", market + 1);
        let chance = |who: &str| chance_of(settings, market, who);
        let supply = &settings.supply;
        let units = chance("size").lognormal(supply.units, supply.units_sigma);
        let share = (units / f64::from(supply.providers)).max(1.0) as u64;
        let on_demand = Price(settings.on_demand_micros);
        let providers = (0..supply.providers).map(|n| {
            let temper = [Temper::Stable, Temper::Churning, Temper::Faltering][n as usize % 3];
            let who = AccountName::new(&format!("provider-{}-{}", market + 1, n + 1));
            Provider::new((who, temper), supply, share, on_demand, chance(&format!("provider {n}")))
        });
        let accounts = Kind::ALL.iter().flat_map(|kind| {
            (0..ACCOUNTS).map(move |n| AccountName::new(&format!("{}-{}-{}", kind.name(), market + 1, n + 1)))
        });
        Stage {
            crowd: Crowd::new(settings.jobs.clone(), chance("crowd"), START),
            rushes: RushSource::new(settings.rushes.clone(), chance("rushes"), START),
            providers: providers.collect(),
            accounts: accounts.collect(),
            units,
            series: MarketSeries::new(&name, settings, START.0),
            name: MarketName::new(&name),
            day: VecDeque::new(),
            reference: None,
            charged: BTreeMap::new(),
        }
    }

    pub(super) fn account(&self, kind: Kind, number: u64) -> &AccountName {
        let first = Kind::ALL.iter().position(|other| *other == kind).expect("one of all") as u64;
        &self.accounts[(first * ACCOUNTS + number % ACCOUNTS) as usize]
    }
}

impl World<'_> {
    fn open(&mut self) -> Result<(), WorldError> {
        let on_demand = Price(self.settings.on_demand_micros);
        for market in 0..self.stages.len() as u32 {
            self.auditor.told(MarketId(market), self.settings.rules.market_rules(on_demand));
            let rules = self.settings.rules.changes(on_demand);
            self.act(Command::OpenMarket { market: self.stages[market as usize].name.clone(), rules })?;
            for provider in 0..self.settings.supply.providers {
                self.offer(market, provider)?;
                self.pause(market, provider);
                // Each at an hour of its own.
                let hour = u64::from(market * 7 + provider * 5) % 24;
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
        for market in 0..self.stages.len() as u32 {
            let theirs = self.venue.supply(MarketId(market))?;
            self.auditor.compare(MarketId(market), theirs)?;
        }
        self.outcome.close(self.auditor.sums());
        self.outcome.markets = self.stages.into_iter().map(|stage| stage.series).collect();
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
                let another = self.stages[market as usize].providers[provider as usize].reprice(on_demand);
                if another { self.offer(market, provider) } else { Ok(()) }
            }
            Due::Supply { market, provider } => self.supply_changes(market, provider),
        }
    }

    /// Commands, and what becomes of them.
    pub(super) fn act(&mut self, command: Command) -> Result<Answer, WorldError> {
        let answer = self.apply(command)?;
        self.hear(&answer.events)?;
        Ok(answer)
    }

    /// The answer, which nobody has heard of but the auditor.
    pub(super) fn apply(&mut self, command: Command) -> Result<Answer, WorldError> {
        self.outcome.commands += 1;
        let answer = self.venue.apply(&Stamped { at: self.now, key: None, command })?;
        self.auditor.hear(&answer.events)?;
        Ok(answer)
    }

    pub(super) fn hear(&mut self, events: &[Event]) -> Result<(), WorldError> {
        for Event { at, fact } in events {
            match fact {
                Fact::UnitAdded { unit, .. } => {
                    if let Role::Provider(provider) = self.role(unit.provider) {
                        let stage = &mut self.stages[unit.market.0 as usize];
                        stage.providers[provider as usize].numbers.insert(unit.number);
                    }
                }
                Fact::UnitRemoved { unit } => {
                    if let Role::Provider(provider) = self.role(unit.provider) {
                        let stage = &mut self.stages[unit.market.0 as usize];
                        stage.providers[provider as usize].numbers.remove(&unit.number);
                    }
                }
                Fact::Allocated { node } => {
                    let (market, provider) = (node.unit.market.0, self.role(node.unit.provider));
                    if let (Role::Provider(provider), Some(job)) = (provider, self.jobs.of(node.bid)) {
                        let boot = self.stages[market as usize].providers[provider as usize].boot();
                        let allocation = node.allocation;
                        self.agenda.plan(at.after(boot), Due::Ready { allocation, market, provider });
                        self.nodes.insert(allocation, Node { job, ready: false });
                        self.jobs.get_mut(job).expect("its bid is known").held += 1;
                    }
                }
                Fact::NoticeStarted { node, deadline, .. } => {
                    if *deadline != self.last_wake {
                        self.last_wake = *deadline;
                        self.agenda.plan(*deadline, Due::Market);
                    }
                    self.noticed(node.allocation);
                }
                Fact::Ended { node, .. } => self.node_ended(*at, node.allocation)?,
                Fact::BidClosed { bidder, .. } => self.bid_closed(bidder.bid)?,
                Fact::Charged { node, tenant, debit, .. } => {
                    if let Role::Tenant(kind) = self.role(*tenant) {
                        self.charged(node.unit.market, (*tenant, kind), debit.0);
                    }
                }
                Fact::Rejected { reason } => *self.outcome.refused.entry(reason.code()).or_default() += 1,
                Fact::PriceChanged { .. }
                | Fact::NoticeRescinded { .. }
                | Fact::MarketOpened { .. }
                | Fact::RulesChanged { .. }
                | Fact::OfferPut { .. }
                | Fact::UnitLeaving { .. }
                | Fact::UnitBack { .. }
                | Fact::BidPlaced { .. }
                | Fact::BidAmended { .. }
                | Fact::Ready { .. }
                | Fact::Claimed { .. }
                | Fact::ClaimDropped { .. }
                | Fact::Repeated { .. } => {}
            }
        }
        Ok(())
    }

    /// Who an account is, once looked up by its name.
    pub(super) fn role(&mut self, account: AccountId) -> Role {
        let names = &self.venue.names().accounts;
        for name in &names[self.roles.len()..] {
            let (kind, number) = name.as_str().rsplit_once('-').unwrap_or((name.as_str(), "1"));
            let kind = kind.rsplit_once('-').map_or(kind, |(kind, _)| kind);
            let tenant = Kind::ALL.into_iter().find(|other| other.name() == kind);
            let provider = Role::Provider(number.parse::<u32>().unwrap_or(1) - 1);
            self.roles.push(tenant.map_or(provider, Role::Tenant));
        }
        self.roles[account.0 as usize]
    }

    fn charged(&mut self, market: MarketId, (account, kind): (AccountId, Kind), debit: u128) {
        *self.stages[market.0 as usize].charged.entry(kind).or_default() += debit as u64;
        self.outcome.kinds.entry(kind).or_default().cost_micros += debit;
        let day = self.now.0 / Micros::DAY.0;
        let spent = self.spent.entry(self.venue.names().account(account).clone()).or_insert((day, 0));
        *spent = if spent.0 == day { (day, spent.1 + debit) } else { (day, debit) };
    }

    pub(super) fn spent_today(&self, account: &AccountName) -> u128 {
        let today = self.now.0 / Micros::DAY.0;
        self.spent.get(account).filter(|(day, _)| *day == today).map_or(0, |(_, spent)| *spent)
    }

    pub(super) fn seen(&self, market: u32) -> Seen {
        let numbers = self.auditor.market(MarketId(market)).numbers();
        let quote = Quote {
            reference_micros: self.stages[market as usize].reference,
            floor_micros: numbers.floor.map(|floor| floor.0),
            tick_micros: TICK,
        };
        Seen { now: self.now, quote, entry: numbers.entry_price, increment_bps: 500 }
    }

    fn sample(&mut self) -> Result<(), WorldError> {
        self.act(Command::AdvanceTime)?;
        let full_hour = (self.now.0 / 1_000_000).is_multiple_of(3600);
        let day_samples = (DAY_SAMPLES_SECONDS / self.settings.sample_seconds).max(1) as usize;
        for (market, stage) in self.stages.iter_mut().enumerate() {
            let books = self.auditor.market(MarketId(market as u32));
            stage.series.sample(books, &mut stage.charged);
            stage.day.push_back(books.numbers().market_price.0);
            if stage.day.len() > day_samples {
                stage.day.pop_front();
            }
            if full_hour {
                let mut day: Vec<u64> = stage.day.iter().copied().collect();
                let middle = day.len() / 2;
                stage.reference = Some(*day.select_nth_unstable(middle).1);
            }
        }
        self.agenda.plan(self.now.after(Micros::seconds(self.settings.sample_seconds)), Due::Sample);
        Ok(())
    }

    fn plan_job(&mut self, market: u32) {
        let at = self.stages[market as usize].crowd.advance();
        self.agenda.plan(at, Due::Job { market });
    }

    fn job_comes(&mut self, market: u32) -> Result<(), WorldError> {
        let drawn = self.stages[market as usize].crowd.draw();
        self.plan_job(market);
        self.start_job(market, drawn)
    }

    fn plan_rush(&mut self, market: u32) {
        let at = self.stages[market as usize].rushes.advance();
        self.agenda.plan(at, Due::Rush { market });
    }

    fn rush_comes(&mut self, market: u32) -> Result<(), WorldError> {
        let urgent = self.stages[market as usize].rushes.draw();
        self.plan_rush(market);
        for (number, Urgent { size, hold, worth }) in urgent.into_iter().enumerate() {
            let nodes = (size * self.stages[market as usize].units).round().clamp(1.0, 1000.0) as u32;
            self.start_rush(market, number as u64, (nodes, hold, worth))?;
        }
        Ok(())
    }

    fn offer(&mut self, market: u32, provider: u32) -> Result<(), WorldError> {
        let stage = &self.stages[market as usize];
        let Provider { name, offered, reserve, .. } = &stage.providers[provider as usize];
        let command = Command::PutOffer {
            provider: name.clone(),
            market: stage.name.clone(),
            capacity: *offered,
            reserve: *reserve,
        };
        self.act(command).map(|_| ())
    }

    fn pause(&mut self, market: u32, provider: u32) {
        let pause = self.stages[market as usize].providers[provider as usize].pause();
        if let Some(pause) = pause {
            self.agenda.plan(self.now.after(pause), Due::Supply { market, provider });
        }
    }

    fn supply_changes(&mut self, market: u32, provider: u32) -> Result<(), WorldError> {
        let stage = &mut self.stages[market as usize];
        let seller = &mut stage.providers[provider as usize];
        let step = seller.step(&stage.name);
        let name = seller.name.clone();
        self.pause(market, provider);
        match step {
            Step::Offer => self.offer(market, provider),
            Step::Lose(units) => {
                for unit in units {
                    self.act(Command::ReportUnitLost { provider: name.clone(), unit })?;
                }
                Ok(())
            }
        }
    }

    fn ready(&mut self, allocation: AllocationId, market: u32, provider: u32) -> Result<(), WorldError> {
        let Some(node) = self.nodes.get_mut(&allocation) else { return Ok(()) };
        node.ready = true;
        let job = node.job;
        let by = Some(self.stages[market as usize].providers[provider as usize].name.clone());
        self.works(self.now, job, 1);
        if self.settings.rules.min_runtime_seconds > 0 {
            // The end of the protection settles the market.
            let end = self.now.after(Micros::seconds(self.settings.rules.min_runtime_seconds));
            self.agenda.plan(end, Due::Market);
        }
        self.act(Command::ReportReady { allocation, by }).map(|_| ())
    }

    pub(super) fn on_demand(&self) -> Price {
        Price(self.settings.on_demand_micros)
    }
}
