//! One market of a world: its participants, and what is recorded of it.

use super::demand::{DrawnJob, JobSource, RushSource};
use super::outcome::MarketSeries;
use super::providers::{Provider, Temper};
use super::random::stream_of;
use super::run::START;
use super::settings::Settings;
use super::tenants::{ACCOUNTS, Kind};
use kubebid_core::Price;
use kubebid_core::units::{AccountName, MarketName, Micros};
use std::collections::{BTreeMap, VecDeque};

pub(super) struct SimMarket {
    pub(super) name: MarketName,
    /// The number of the market in the settings.
    pub(super) number: u32,
    pub(super) jobs: Box<dyn Iterator<Item = (Micros, DrawnJob)>>,
    /// The next job.
    pub(super) coming: Option<DrawnJob>,
    pub(super) rushes: RushSource,
    pub(super) providers: Vec<Provider>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) units: f64,
    pub(super) series: MarketSeries,
    /// Market prices at the samples that count for the reference price, and that price as of the last full
    /// hour.
    pub(super) recent: VecDeque<u64>,
    pub(super) reference: Option<u64>,
    pub(super) charged: BTreeMap<Kind, u64>,
}

/// An account that bids, and what it has been charged on a day.
pub(super) struct Tenant {
    pub(super) name: AccountName,
    day: u64,
    spent: u128,
}

impl SimMarket {
    pub(super) fn new(settings: &Settings, market: u32) -> SimMarket {
        let name = format!("gpu-{}/sim", market + 1);
        let random = |who: &str| stream_of(settings, market, who);
        let supply = &settings.supply;
        let units = random("size").lognormal(supply.units, supply.units_sigma);
        let share = (units / f64::from(supply.providers)).max(1.0) as u64;
        let on_demand = Price(settings.on_demand_micros);
        let providers = (0..supply.providers).map(|n| {
            let temper = [Temper::Stable, Temper::Churning, Temper::Faltering][n as usize % 3];
            let who = AccountName::new(&format!("provider-{}-{}", market + 1, n + 1));
            Provider::new((who, temper), supply, share, on_demand, random(&format!("provider {n}")))
        });
        let tenants = Kind::ALL.iter().flat_map(|kind| {
            let name = move |n| AccountName::new(&format!("{}-{}-{}", kind.name(), market + 1, n + 1));
            (0..ACCOUNTS).map(move |n| Tenant { name: name(n), day: 0, spent: 0 })
        });
        SimMarket {
            number: market,
            jobs: Box::new(JobSource::new(settings.jobs.clone(), random("jobs"), settings.span())),
            coming: None,
            rushes: RushSource::new(settings.rushes.clone(), random("rushes"), settings.span()),
            providers: providers.collect(),
            tenants: tenants.collect(),
            units,
            series: MarketSeries::new(&name, settings, START.0),
            name: MarketName::new(&name),
            recent: VecDeque::new(),
            reference: None,
            charged: BTreeMap::new(),
        }
    }

    pub(super) fn tenant(&mut self, kind: Kind, number: u64) -> &mut Tenant {
        let first = Kind::ALL.iter().position(|other| *other == kind).expect("one of all") as u64;
        &mut self.tenants[(first * ACCOUNTS + number % ACCOUNTS) as usize]
    }
}

impl Tenant {
    pub(super) fn charged(&mut self, now: Micros, debit_micros: u128) {
        self.spent = self.spent_today(now) + debit_micros;
        self.day = now.0 / Micros::DAY.0;
    }

    pub(super) fn spent_today(&self, now: Micros) -> u128 {
        if self.day == now.0 / Micros::DAY.0 { self.spent } else { 0 }
    }
}
