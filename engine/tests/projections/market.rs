//! A random but repeatable market, hour after hour.

use kubebid_core::command::{
    CancelMode, Command, OnPreemption, PlaceBid, RestingUnits, RuleChange, RuleValue, TimeInForce,
};
use kubebid_core::state_dump::StateDump;
use kubebid_core::units::{AccountName, ClientKey, InstanceType, MarketName, Micros, Names, UnitName};
use kubebid_core::{Auction, Price};
use kubebid_engine::{Engine, Submission};

pub(crate) const MARKETS: [&str; 3] = ["gpu/east", "gpu/west", "cpu/east"];
pub(crate) const ACCOUNTS: [&str; 6] = ["ann", "bob", "cy", "p1", "p2", "both"];

/// The accounts that sell.
const SELLERS: [&str; 3] = ["p1", "p2", "both"];

pub(crate) struct Market {
    seed: u64,
    now: u64,
    /// True if markets are closed and opened again.
    closes: bool,
    /// True if the operator's fee is changed.
    changes_fees: bool,
}

impl Market {
    pub(crate) fn new(seed: u64) -> Market {
        // After the epoch, and not at a full hour.
        Market { seed, now: 1_700_000_123_456_789, closes: false, changes_fees: false }
    }

    /// Also closes markets, and opens them again.
    pub(crate) fn closing(self) -> Market {
        Market { closes: true, ..self }
    }

    /// Also changes the operator's fee, and loses more nodes.
    pub(crate) fn changing_fees(self) -> Market {
        Market { changes_fees: true, ..self }
    }

    /// Begins at this time, in microseconds since 1970.
    pub(crate) fn beginning_at(self, now: u64) -> Market {
        Market { now, ..self }
    }

    pub(crate) fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random(100) < percent
    }

    pub(crate) async fn open(&mut self, engine: &Engine) {
        self.advance(engine).await;
        for (n, market) in MARKETS.into_iter().enumerate() {
            let rule =
                |name: &str, value: u64| RuleChange { name: name.into(), value: RuleValue::Number(value) };
            let rules = vec![
                rule("tick", 100),
                rule("fee_bps", 250 * n as u64),
                rule("min_runtime_us", 1_200_000_000),
                rule("notice_us", 300_000_000),
                rule("min_charge_us", 600_000_000),
            ];
            let open = Command::OpenMarket { market: MarketName::new(market), rules };
            engine.submit(Submission::new(None, open), |_| ()).await.unwrap();
        }
    }

    /// Sends `commands` more random commands.
    pub(crate) async fn run(&mut self, engine: &Engine, commands: u32) {
        for n in 0..commands {
            let (dump, names) =
                engine.ask(|exchange| (exchange.dump(), exchange.names().clone())).await.unwrap();
            // Some commands come together, so that commits and chunks have more than one.
            let together = if self.chance(20) { 3 } else { 1 };
            let mut waiting = Vec::new();
            for m in 0..together {
                let command = self.command(&dump, &names);
                let key = self.chance(50).then(|| ClientKey::new(&format!("key {} {n} {m}", self.seed)));
                waiting.push(engine.submit(Submission::new(key, command), |_| ()));
            }
            for answer in futures_util::future::join_all(waiting).await {
                answer.unwrap();
            }
            if self.chance(45) {
                self.advance(engine).await;
            }
        }
    }

    /// Lets this many days pass.
    pub(crate) async fn skip_days(&mut self, engine: &Engine, days: u64) {
        self.now += days * 86_400_000_000;
        self.advance(engine).await;
    }

    async fn advance(&mut self, engine: &Engine) {
        self.now += match self.random(10) {
            0..5 => self.random(60_000_000),
            5..8 => self.random(900_000_000),
            8 => self.random(5_000_000_000),
            // Exactly to a full hour.
            _ => 3_600_000_000 - self.now % 3_600_000_000,
        };
        let submission =
            Submission { at: Some(Micros(self.now)), ..Submission::new(None, Command::AdvanceTime) };
        engine.submit(submission, |_| ()).await.unwrap();
        if self.chance(60) {
            for (provider, market) in SELLERS.into_iter().flat_map(|it| MARKETS.map(|market| (it, market))) {
                let units = RestingUnits::AllIn(MarketName::new(market));
                let resume = Command::ResumeUnits { provider: AccountName::new(provider), units };
                engine.submit(Submission::new(None, resume), |_| ()).await.unwrap();
            }
        }
    }

    fn command(&mut self, dump: &StateDump, names: &Names) -> Command {
        if self.changes_fees && self.chance(10) {
            return match self.allocation(dump) {
                Some((_, unit)) if self.chance(70) => {
                    let unit: UnitName = names.unit(unit);
                    Command::ReportUnitLost { provider: unit.provider.clone(), unit }
                }
                _ => self.change_fee(),
            };
        }
        match self.random(100) {
            0..12 => self.put_offer(),
            12..22 => {
                let provider = AccountName::new(SELLERS[self.random(3) as usize]);
                Command::ResumeUnits { provider, units: RestingUnits::AllIn(self.market()) }
            }
            22..42 => self.place_bid(),
            42..56 => match self.open_bid(dump) {
                Some(bid) => Command::AmendBid {
                    tenant: self.tenant(),
                    bid,
                    ceiling: self.chance(70).then(|| self.price()),
                    max_nodes: self.chance(40).then(|| 1 + self.random(5) as u32),
                },
                None => self.place_bid(),
            },
            56..64 => match self.open_bid(dump) {
                Some(bid) => {
                    let mode = match self.random(3) {
                        0 => CancelMode::Keep,
                        1 => CancelMode::Release,
                        _ => CancelMode::Regroup,
                    };
                    Command::CancelBid { tenant: self.tenant(), bid, mode }
                }
                None => self.place_bid(),
            },
            64..88 => match self.allocation(dump) {
                Some((allocation, _)) => Command::ReportReady { allocation, by: None },
                None => self.put_offer(),
            },
            88..93 => match self.allocation(dump) {
                Some((allocation, _)) => Command::ReleaseAllocation { tenant: self.tenant(), allocation },
                None => self.place_bid(),
            },
            93..96 => match self.allocation(dump) {
                Some((_, unit)) => {
                    let unit: UnitName = names.unit(unit);
                    Command::ReportUnitLost { provider: unit.provider.clone(), unit }
                }
                None => self.put_offer(),
            },
            96..98 => match self.allocation(dump) {
                Some((_, unit)) => {
                    let unit: UnitName = names.unit(unit);
                    Command::WithdrawUnit { provider: unit.provider.clone(), unit }
                }
                None => self.put_offer(),
            },
            98 if self.closes => match self.random(4) {
                0 => Command::CloseMarket { market: self.market() },
                1 | 2 => Command::OpenMarket { market: self.market(), rules: Vec::new() },
                _ => Command::AdvanceTime,
            },
            _ => Command::ChangeRules {
                market: self.market(),
                rules: vec![RuleChange {
                    name: "min_charge_us".into(),
                    value: RuleValue::Number(self.random(1_200) * 1_000_000),
                }],
            },
        }
    }

    fn change_fee(&mut self) -> Command {
        let value = RuleValue::Number(self.random(20) * 500);
        Command::ChangeRules {
            market: self.market(),
            rules: vec![RuleChange { name: "fee_bps".into(), value }],
        }
    }

    fn put_offer(&mut self) -> Command {
        let provider = ["p1", "p2", "both"][self.random(3) as usize];
        Command::PutOffer {
            provider: AccountName::new(provider),
            market: if provider == "both" { MarketName::new(MARKETS[2]) } else { self.market() },
            capacity: self.random(6),
            reserve: Price(100 * (1 + self.random(8))),
        }
    }

    fn place_bid(&mut self) -> Command {
        let tenant = self.tenant();
        let (markets, instance_type) = match self.random(10) {
            0..6 => (Some(vec![self.market()]), None),
            6..8 => (Some(vec![MarketName::new(MARKETS[2]), MarketName::new(MARKETS[0])]), None),
            _ => (None, Some(InstanceType::new("gpu"))),
        };
        let max_nodes = 1 + self.random(4) as u32;
        let min_nodes = if self.chance(20) { max_nodes } else { 1 };
        let time_in_force = match self.random(10) {
            0..7 => TimeInForce::Gtc,
            7..9 => TimeInForce::Gtt,
            _ => TimeInForce::Ioc,
        };
        let expire_at =
            (time_in_force == TimeInForce::Gtt).then(|| Micros(self.now + 1 + self.random(7_200_000_000)));
        let on_preemption = if self.chance(30) { OnPreemption::Close } else { OnPreemption::Requeue };
        let ceiling = self.price();
        Command::PlaceBid(PlaceBid {
            tenant,
            markets,
            instance_type,
            ceiling,
            min_nodes,
            max_nodes,
            time_in_force,
            expire_at,
            on_preemption,
        })
    }

    fn tenant(&mut self) -> AccountName {
        AccountName::new(["ann", "bob", "cy", "both"][self.random(4) as usize])
    }

    fn market(&mut self) -> MarketName {
        MarketName::new(MARKETS[self.random(3) as usize])
    }

    /// Returns a price that is rarely off the tick, in which case it is refused.
    fn price(&mut self) -> Price {
        Price(100 * (1 + self.random(24)) + u64::from(self.chance(3)))
    }

    fn open_bid(&mut self, dump: &StateDump) -> Option<kubebid_core::units::BidId> {
        let open: Vec<_> = dump.bids.iter().filter(|bid| bid.searching || bid.held > 0).collect();
        (!open.is_empty()).then(|| open[self.random(open.len() as u64) as usize].bid)
    }

    fn allocation(
        &mut self,
        dump: &StateDump,
    ) -> Option<(kubebid_core::units::AllocationId, kubebid_core::units::UnitId)> {
        let all = &dump.allocations;
        let pick = (!all.is_empty()).then(|| &all[self.random(all.len() as u64) as usize]);
        pick.map(|found| (found.allocation, found.unit))
    }
}

/// Waits until the tables have everything.
pub(crate) async fn projected(engine: &Engine) {
    let seq = engine.ask(|exchange| exchange.seq().0).await.unwrap();
    engine.wait_projected(seq).await;
    engine.wait_applied(seq).await;
}
