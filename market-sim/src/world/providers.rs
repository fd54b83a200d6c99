//! Providers: their offers, how these change, and the boot times of their nodes.

use super::chance::Chance;
use super::run::{Due, World, WorldError};
use super::settings::Supply;
use kubebid_core::units::{AccountName, AllocationId, MarketName, Micros, UnitName};
use kubebid_core::{Command, Price};
use std::collections::BTreeSet;

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
    chance: Chance,
    /// What it has, and what it offers of that.
    units: u64,
    pub(super) offered: u64,
    pub(super) reserve: Price,
    pub(super) numbers: BTreeSet<u64>,
    down: bool,
}

/// What a provider does next.
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
        mut chance: Chance,
    ) -> Provider {
        let reserve = reserve(settings, on_demand, &mut chance);
        let settings = settings.clone();
        let numbers = BTreeSet::new();
        Provider { name, temper, settings, chance, units, offered: units, reserve, numbers, down: false }
    }

    pub(super) fn boot(&mut self) -> Micros {
        let seconds = self.chance.lognormal(self.settings.boot_seconds, self.settings.boot_sigma);
        Micros((seconds * 1e6) as u64)
    }

    /// Thinks its reserve over, once a day; whether it is another.
    pub(super) fn reprice(&mut self, on_demand: Price) -> bool {
        let change = self.chance.share() < 0.3;
        let reserve = reserve(&self.settings, on_demand, &mut self.chance);
        if change {
            self.reserve = reserve;
        }
        change
    }

    /// Until its supply changes next; the supply of a stable provider, or at a rate of 0, never does.
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
            (Temper::Churning, _) => self.chance.exponential(1.0 / self.settings.churn_rate),
            (Temper::Faltering, false) => self.chance.exponential(1.0 / self.settings.outage_rate),
            (Temper::Faltering, true) => {
                self.chance.lognormal(self.settings.outage_hours, self.settings.outage_sigma) / 24.0
            }
        };
        Some(Micros((days * Micros::DAY.0 as f64) as u64))
    }

    pub(super) fn step(&mut self, market: &MarketName) -> Step {
        match self.temper {
            Temper::Stable => Step::Offer,
            Temper::Churning => {
                let spare = (self.units as f64 * self.settings.churn_share) as u64;
                self.offered = (self.units - self.chance.below(spare + 1)).max(1);
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
                let lost = (self.numbers.len() as f64 * self.chance.between(low, high)) as usize;
                // Neighbours in a rack have neighbouring numbers.
                let first = self.chance.below((self.numbers.len() - lost) as u64 + 1) as usize;
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
        let market_sim = &self.market_sims[market as usize];
        let Provider { name, offered, reserve, .. } = &market_sim.providers[provider as usize];
        let command = Command::PutOffer {
            provider: name.clone(),
            market: market_sim.name.clone(),
            capacity: *offered,
            reserve: *reserve,
        };
        self.act(command).map(|_| ())
    }

    pub(super) fn pause(&mut self, market: u32, provider: u32) {
        let pause = self.market_sims[market as usize].providers[provider as usize].pause();
        if let Some(pause) = pause {
            self.agenda.plan(self.now.after(pause), Due::Supply { market, provider });
        }
    }

    pub(super) fn supply_changes(&mut self, market: u32, provider: u32) -> Result<(), WorldError> {
        let market_sim = &mut self.market_sims[market as usize];
        let seller = &mut market_sim.providers[provider as usize];
        let step = seller.step(&market_sim.name);
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

    pub(super) fn ready(
        &mut self,
        allocation: AllocationId,
        market: u32,
        provider: u32,
    ) -> Result<(), WorldError> {
        let Some(node) = self.nodes.get_mut(&allocation) else { return Ok(()) };
        node.ready = Some(self.now);
        let job = node.job;
        let by = Some(self.market_sims[market as usize].providers[provider as usize].name.clone());
        self.works(self.now, job, 1);
        if self.settings.rules.min_runtime_seconds > 0 {
            // The end of the protection settles the market.
            let end = self.now.after(Micros::seconds(self.settings.rules.min_runtime_seconds));
            self.agenda.plan(end, Due::Market);
        }
        self.act(Command::ReportReady { allocation, by }).map(|_| ())
    }
}

fn reserve(settings: &Supply, on_demand: Price, chance: &mut Chance) -> Price {
    let [low, high] = settings.reserve;
    super::run::price(chance.between(low, high), on_demand)
}
