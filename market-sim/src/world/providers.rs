//! Providers: their offers, how these change, and the boot times of their nodes.

use super::random::RandomStream;
use super::run::{Due, World, WorldError};
use super::settings::Supply;
use crate::participant::Participant;
use kubebid_core::command::RestingUnits;
use kubebid_core::units::{AccountName, AllocationId, MarketName, Micros, UnitName};
use kubebid_core::{Command, Price};
use std::collections::BTreeSet;

/// The time after which a provider has looked at a machine that did not start, and resumes its unit.
pub(super) const REPAIR: Micros = Micros::HOUR;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Temper {
    Stable,
    /// Some of its units come and go.
    Churning,
    /// Now and then loses many at once.
    Faltering,
}

#[derive(Debug)]
pub(super) struct Provider {
    pub(super) name: AccountName,
    pub(super) temper: Temper,
    settings: Supply,
    random: RandomStream,
    /// Units that it has, and below the units that it offers.
    units: u64,
    pub(super) offered: u64,
    pub(super) reserve: Price,
    pub(super) numbers: BTreeSet<u64>,
    down: bool,
}

/// The next change of a provider's supply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Offer,
    Lose(Vec<UnitName>),
}

impl Provider {
    pub(super) fn new(
        (name, temper): (AccountName, Temper),
        settings: &Supply,
        units: u64,
        on_demand: Price,
        mut random: RandomStream,
    ) -> Provider {
        let reserve = reserve(settings, on_demand, &mut random);
        let settings = settings.clone();
        let numbers = BTreeSet::new();
        Provider { name, temper, settings, random, units, offered: units, reserve, numbers, down: false }
    }

    pub(super) fn boot(&mut self) -> Micros {
        let seconds = self.random.lognormal(self.settings.boot_seconds, self.settings.boot_sigma);
        Micros((seconds * 1e6) as u64)
    }

    /// Thinks its reserve over, once a day. Returns true if it changed.
    pub(super) fn reprice(&mut self, on_demand: Price) -> bool {
        let change = self.random.share() < 0.3;
        let reserve = reserve(&self.settings, on_demand, &mut self.random);
        if change {
            self.reserve = reserve;
        }
        change
    }

    /// Draws the time until its supply changes next. The supply of a stable provider, or at a rate of 0, never does.
    pub(super) fn pause(&mut self) -> Option<Micros> {
        let rate = match self.temper {
            Temper::Stable => 0.0,
            Temper::Churning => self.settings.churn_rate,
            Temper::Faltering => self.settings.outage_rate,
        };
        if rate == 0.0 {
            return None;
        }
        let days = match (self.temper, self.down) {
            (Temper::Stable, _) => return None,
            (Temper::Churning, _) => self.random.exponential(1.0 / self.settings.churn_rate),
            (Temper::Faltering, false) => self.random.exponential(1.0 / self.settings.outage_rate),
            (Temper::Faltering, true) => {
                self.random.lognormal(self.settings.outage_hours, self.settings.outage_sigma) / 24.0
            }
        };
        Some(Micros((days * Micros::DAY.0 as f64) as u64))
    }

    pub(super) fn step(&mut self, market: &MarketName) -> Step {
        match self.temper {
            Temper::Stable => Step::Offer,
            Temper::Churning => {
                let spare = (self.units as f64 * self.settings.churn_share) as u64;
                self.offered = (self.units - self.random.below(spare + 1)).max(1);
                Step::Offer
            }
            Temper::Faltering if self.down => {
                self.down = false;
                self.offered = self.units;
                Step::Offer
            }
            Temper::Faltering => {
                self.down = true;
                let [low, high] = self.settings.outage_share;
                let lost = (self.numbers.len() as f64 * self.random.between(low, high)) as usize;
                // An outage takes a rack, whose units have neighbouring numbers.
                let first = self.random.below((self.numbers.len() - lost) as u64 + 1) as usize;
                let unit = |number: &u64| UnitName {
                    market: market.clone(),
                    provider: self.name.clone(),
                    number: *number,
                };
                Step::Lose(self.numbers.iter().skip(first).take(lost).map(unit).collect())
            }
        }
    }
}

impl World<'_> {
    pub(super) fn offer(&mut self, market: u32, provider: u32) -> Result<(), WorldError> {
        let sim_market = &self.markets[market as usize];
        let Provider { name, offered, reserve, .. } = &sim_market.providers[provider as usize];
        let command = Command::PutOffer {
            provider: name.clone(),
            market: sim_market.name.clone(),
            capacity: *offered,
            reserve: *reserve,
        };
        self.send(command).map(|_| ())
    }

    pub(super) fn pause(&mut self, market: u32, provider: u32) {
        let pause = self.markets[market as usize].providers[provider as usize].pause();
        if let Some(pause) = pause {
            self.agenda.plan(self.now.after(pause), Due::Supply { market, provider });
        }
    }

    pub(super) fn supply_changes(&mut self, market: u32, provider: u32) -> Result<(), WorldError> {
        let sim_market = &mut self.markets[market as usize];
        let seller = &mut sim_market.providers[provider as usize];
        let step = seller.step(&sim_market.name);
        let name = seller.name.clone();
        self.pause(market, provider);
        match step {
            Step::Offer => self.offer(market, provider),
            Step::Lose(units) => {
                for unit in units {
                    self.send(Command::ReportUnitLost { provider: name.clone(), unit })?;
                }
                Ok(())
            }
        }
    }

    /// Resumes a unit, if it rests still.
    pub(super) fn repaired(&mut self, market: u32, provider: u32, number: u64) -> Result<(), WorldError> {
        let sim_market = &self.markets[market as usize];
        let seller = &sim_market.providers[provider as usize];
        if !seller.numbers.contains(&number) {
            return Ok(());
        }
        let name = seller.name.clone();
        let unit = UnitName { market: sim_market.name.clone(), provider: name.clone(), number };
        self.send(Command::ResumeUnits { provider: name, units: RestingUnits::One(unit) }).map(|_| ())
    }

    pub(super) fn ready(
        &mut self,
        allocation: AllocationId,
        market: u32,
        provider: u32,
    ) -> Result<(), WorldError> {
        let Some(node) = self.nodes.get_mut(&allocation) else { return Ok(()) };
        node.ready = Some(self.now);
        let job = node.job;
        let by = Some(self.markets[market as usize].providers[provider as usize].name.clone());
        self.works(self.now, job, 1);
        if self.settings.rules.min_runtime_seconds > 0 {
            // The end of the protection settles the market.
            let end = self.now.after(Micros::seconds(self.settings.rules.min_runtime_seconds));
            self.agenda.plan(end, Due::Market);
        }
        self.send(Command::ReportReady { allocation, by }).map(|_| ())
    }
}

fn reserve(settings: &Supply, on_demand: Price, random: &mut RandomStream) -> Price {
    let [low, high] = settings.reserve;
    super::run::price(random.between(low, high), on_demand)
}
