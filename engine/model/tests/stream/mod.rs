//! Random commands from a seed. There are few prices, few accounts and short times, so that the commands
//! affect each other.

use kubebid_core::Price;
use kubebid_core::answer::Answer;
use kubebid_core::command::{
    CancelMode, Command, FundChange, OnPreemption, PlaceBid, RestingUnits, RuleChange, RuleValue,
};
use kubebid_core::command::{StampedCommand, TimeInForce};
use kubebid_core::event::Fact;
use kubebid_core::state_dump::{AllocationState, StateDump};
use kubebid_core::units::{AccountName, BidId, ClientKey, InstanceType, MarketName, Micros, Names, UnitName};
use std::collections::BTreeMap;

pub(crate) const TICK: u64 = 100;
const MARKETS: [&str; 3] = ["h100/eu", "h100/us", "a100/eu"];
const TENANTS: [&str; 5] = ["t1", "t2", "t3", "t4", "p1"];
const PROVIDERS: [&str; 3] = ["p1", "p2", "t4"];

#[derive(Debug)]
pub(crate) struct Stream {
    state: u64,
    now: u64,
    made: u64,
    /// The tenant of each bid.
    tenants: BTreeMap<BidId, AccountName>,
    resting: Vec<UnitName>,
    funds: Treasury,
}

/// What a stream does to the funds of accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treasury {
    Nothing,
    Anything,
    /// Each account is funded before its first bid, and never cut.
    Gifts,
}

/// The first second of a month in UTC.
const MONTH: u64 = 31 * 24 * 3600;

impl Stream {
    pub(crate) fn new(seed: u64) -> Stream {
        Stream {
            state: seed,
            now: 0,
            made: 0,
            tenants: BTreeMap::new(),
            resting: Vec::new(),
            funds: Treasury::Nothing,
        }
    }

    /// Returns a stream in which accounts are funded, and a month begins.
    pub(crate) fn with_funds(seed: u64) -> Stream {
        Stream { now: MONTH - 900, funds: Treasury::Anything, ..Stream::new(seed) }
    }

    /// Returns a stream in which each account is funded from the beginning, and none is cut.
    pub(crate) fn with_gifts(seed: u64) -> Stream {
        Stream { funds: Treasury::Gifts, ..Stream::new(seed) }
    }

    /// Draws a random number (SplitMix64).
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    fn account(&mut self, names: &[&str]) -> AccountName {
        AccountName::new(self.one_of(names))
    }

    fn market(&mut self) -> MarketName {
        MarketName::new(self.one_of(&MARKETS))
    }

    fn ceiling(&mut self) -> Price {
        Price((5 + self.below(35)) * TICK)
    }

    fn rules(&mut self) -> Vec<RuleChange> {
        let second = Micros::SECOND.0;
        let mut rules = vec![
            ("increment_bps", self.one_of(&[0, 500, 2000])),
            ("min_runtime_us", self.one_of(&[0, 0, 60, 300]) * second),
            ("notice_us", self.one_of(&[0, 60, 300]) * second),
            ("start_timeout_us", self.one_of(&[60, 900]) * second),
            ("min_charge_us", self.one_of(&[0, 300]) * second),
            ("fee_bps", self.one_of(&[0, 250])),
        ];
        rules.truncate(1 + self.below(6) as usize);
        let number = |(name, n): (&str, u64)| RuleChange { name: name.into(), value: RuleValue::Number(n) };
        let mut rules: Vec<RuleChange> = rules.into_iter().map(number).collect();
        let pricing = self.one_of(&["HighestLosing", "HighestLosing", "LowestAccepted"]);
        rules.push(RuleChange { name: "pricing".into(), value: RuleValue::Word(pricing.into()) });
        rules
    }

    fn bid(&mut self) -> PlaceBid {
        let min_nodes = self.one_of(&[1, 1, 1, 1, 2, 3]);
        let by_type = self.one_in(6);
        let mut markets: Vec<MarketName> = MARKETS.iter().map(|name| MarketName::new(name)).collect();
        markets.rotate_left(self.below(3) as usize);
        markets.truncate(self.one_of(&[1, 1, 1, 2, 3]));
        let tif = self.below(6);
        PlaceBid {
            tenant: self.account(&TENANTS),
            markets: (!by_type).then_some(markets),
            instance_type: by_type.then(|| InstanceType::new("h100")),
            ceiling: self.ceiling(),
            min_nodes,
            max_nodes: min_nodes + self.below(3) as u32,
            time_in_force: match tif {
                0 => TimeInForce::Ioc,
                1 => TimeInForce::Gtt,
                _ => TimeInForce::Gtc,
            },
            expire_at: (tif == 1).then(|| Micros((self.now + 1 + self.below(900)) * Micros::SECOND.0)),
            on_preemption: if self.one_in(4) { OnPreemption::Close } else { OnPreemption::Requeue },
        }
    }

    /// Returns an account that may send the command, in most cases.
    fn tenant_of(&mut self, bid: BidId) -> AccountName {
        let other = self.account(&TENANTS);
        if self.one_in(20) { other } else { self.tenants[&bid].clone() }
    }

    fn on_a_bid(&mut self, dump: &StateDump) -> Option<Command> {
        let recent = dump.bids.len().min(12);
        if recent == 0 {
            return None;
        }
        let bid = self.one_of(&dump.bids[dump.bids.len() - recent..]);
        let holders: Vec<_> = dump.bids.iter().filter(|bid| bid.searching && bid.held > 1).collect();
        if !holders.is_empty() && self.one_in(5) {
            // One of them may be a gang.
            let bid = self.one_of(&holders).bid;
            return Some(Command::CancelBid { tenant: self.tenant_of(bid), bid, mode: CancelMode::Regroup });
        }
        let tenant = self.tenant_of(bid.bid);
        Some(if self.one_in(3) {
            Command::CancelBid { tenant, bid: bid.bid, mode: self.cancel_mode() }
        } else {
            let ceiling = (!self.one_in(3)).then(|| self.ceiling());
            let max_nodes = self.one_in(2).then(|| self.below(5) as u32);
            Command::AmendBid { tenant, bid: bid.bid, ceiling, max_nodes }
        })
    }

    fn cancel_mode(&mut self) -> CancelMode {
        match self.below(3) {
            0 => CancelMode::Keep,
            1 => CancelMode::Release,
            _ => CancelMode::Regroup,
        }
    }

    /// Returns a command about a node on which a bid has a claim, or one that affects the claim.
    fn around_a_claim(&mut self, dump: &StateDump, names: &Names) -> Option<Command> {
        let mut claimed = dump.allocations.clone();
        claimed.retain(|a| a.claim.is_some());
        let node = *claimed.get(self.below(claimed.len().max(1) as u64) as usize)?;
        let (bid, unit) = (node.claim?, names.unit(node.unit));
        let (tenant, market) = (self.tenants[&bid].clone(), unit.market.clone());
        let (capacity, reserve) = (1 + self.below(4), Price((1 + self.below(20)) * TICK));
        let of = |bid| dump.bids.iter().find(|other| other.bid == bid);
        Some(match self.below(10) {
            0 => Command::CancelBid { tenant, bid, mode: self.cancel_mode() },
            1 => Command::AmendBid {
                tenant,
                bid,
                ceiling: Some(Price((1 + self.below(15)) * TICK)),
                max_nodes: None,
            },
            2 => Command::AmendBid { tenant, bid, ceiling: None, max_nodes: Some(of(bid)?.held) },
            3 => Command::PutOffer { provider: tenant, market, capacity, reserve },
            4 | 5 => Command::PutOffer { provider: self.account(&PROVIDERS), market, capacity, reserve },
            6 => {
                let reserve = Price(of(bid)?.ceiling.0 + (1 + self.below(3)) * TICK);
                Command::PutOffer { provider: unit.provider, market, capacity: 4, reserve }
            }
            7 => Command::WithdrawUnit { provider: unit.provider.clone(), unit },
            8 => Command::ReportUnitLost { provider: unit.provider.clone(), unit },
            _ => {
                let ceiling = Some(Price(of(bid)?.ceiling.0 + self.below(5) * TICK));
                Command::AmendBid {
                    tenant: self.tenants[&node.bid].clone(),
                    bid: node.bid,
                    ceiling,
                    max_nodes: None,
                }
            }
        })
    }

    /// Returns a command that raises the bid of a node under notice, or that lowers a bid that was raised so.
    fn around_the_lock(&mut self, dump: &StateDump) -> Option<Command> {
        let locked = dump.bids.iter().filter(|bid| bid.ceiling_locked_until > Micros(0));
        let noticed = |bid: &BidId| dump.allocations.iter().any(|a| a.bid == *bid && a.deadline.is_some());
        let under_notice = dump.bids.iter().filter(|bid| noticed(&bid.bid));
        let lowers = self.one_in(2);
        let bids: Vec<_> = if lowers { locked.collect() } else { under_notice.collect() };
        let bid = *bids.get(self.below(bids.len().max(1) as u64) as usize)?;
        let step = (1 + self.below(4)) * TICK;
        let ceiling = if lowers { bid.ceiling.0.saturating_sub(step) } else { bid.ceiling.0 + step };
        let tenant = self.tenants[&bid.bid].clone();
        Some(Command::AmendBid { tenant, bid: bid.bid, ceiling: Some(Price(ceiling)), max_nodes: None })
    }

    /// Returns a command that resumes units, most often those that rest.
    fn resume(&mut self) -> Command {
        let place = self.below(self.resting.len().max(1) as u64) as usize;
        let resting = self.resting.get(place).cloned();
        let unit = resting.filter(|_| !self.one_in(8)).unwrap_or_else(|| UnitName {
            market: self.market(),
            provider: self.account(&PROVIDERS),
            number: 1 + self.below(6),
        });
        let provider = if self.one_in(12) { self.account(&TENANTS) } else { unit.provider.clone() };
        let all = self.one_in(3);
        let units = if all { RestingUnits::AllIn(unit.market) } else { RestingUnits::One(unit) };
        Command::ResumeUnits { provider, units }
    }

    fn on_a_node(&mut self, dump: &StateDump) -> Option<Command> {
        if dump.allocations.is_empty() {
            return None;
        }
        let node = self.one_of(&dump.allocations);
        let starting = dump.allocations.iter().find(|a| a.state == AllocationState::Starting);
        Some(match (starting, self.below(8)) {
            (Some(starting), 0..=5) => Command::ReportReady { allocation: starting.allocation, by: None },
            (None, 0..=3) | (_, 7) => {
                Command::ReleaseAllocation { tenant: self.tenant_of(node.bid), allocation: node.allocation }
            }
            _ => Command::ReportReady { allocation: node.allocation, by: None },
        })
    }

    fn on_a_unit(&mut self) -> Command {
        let (market, provider) = (self.market(), self.account(&PROVIDERS));
        let unit = UnitName { market, provider, number: 1 + self.below(6) };
        let resting = self.resting.first().filter(|_| self.made.is_multiple_of(3)).cloned();
        let unit = resting.unwrap_or(unit);
        let provider = unit.provider.clone();
        if self.one_in(2) {
            Command::WithdrawUnit { provider, unit }
        } else {
            Command::ReportUnitLost { provider, unit }
        }
    }

    /// Notes which units rest.
    pub(crate) fn see(&mut self, answer: &Answer, names: &Names) {
        for event in &answer.events {
            match event.fact {
                Fact::UnitResting { unit } => self.resting.push(names.unit(unit)),
                Fact::UnitResumed { unit } | Fact::UnitRemoved { unit } => {
                    self.resting.retain(|name| *name != names.unit(unit));
                }
                _ => {}
            }
        }
    }

    /// Returns a command about funds. What an account gets pays for a few nodes for some minutes.
    fn on_funds(&mut self) -> Command {
        let account = self.account(&TENANTS);
        let few = self.below(1500) as i64;
        let kinds = if self.funds == Treasury::Gifts { 9 } else { 24 };
        let change = match self.below(kinds) {
            0 => {
                let renewal = Micros::seconds(self.one_of(&[0, 20, 60, 60, 300, 600]));
                return Command::SetRenewal { renewal };
            }
            1..=8 => FundChange::Add(few),
            9..=12 => FundChange::Add(-few / 3),
            13..=16 => FundChange::Set(few),
            17 => FundChange::Unlimited,
            18 => FundChange::Add(i64::MAX),
            19 => FundChange::Set(-1),
            _ => {
                let monthly = self.one_of(&[Some(few), Some(few), None, Some(-1)]);
                return Command::SetBudget { account, monthly, roll_over: self.one_in(2) };
            }
        };
        Command::Fund { account, change }
    }

    pub(crate) fn next(&mut self, dump: &StateDump, names: &Names) -> StampedCommand {
        self.made += 1;
        if let Some(market) = MARKETS.get(self.made as usize - 1) {
            let market = MarketName::new(market);
            let command = Command::OpenMarket { market, rules: self.rules() };
            return StampedCommand { at: Micros(0), key: None, command };
        }
        self.now += self.one_of(&[0, 0, 1, 1, 10, 30, 100]);
        let first = self.made as usize - MARKETS.len() - 1;
        if let (Treasury::Gifts, Some(tenant)) = (self.funds, TENANTS.get(first)) {
            let command = Command::Fund {
                account: AccountName::new(tenant),
                change: FundChange::Add(self.below(3000) as i64),
            };
            let key = Some(ClientKey::new("first"));
            return StampedCommand { at: Micros(self.now * Micros::SECOND.0), key, command };
        }
        if self.funds != Treasury::Nothing && self.one_in(7) {
            let key = (!self.one_in(12)).then(|| ClientKey::new(&format!("f{}", self.below(4 * self.made))));
            return StampedCommand { at: Micros(self.now * Micros::SECOND.0), key, command: self.on_funds() };
        }
        let command = match self.below(25) {
            _ if !self.resting.is_empty() && self.one_in(8) => Some(self.resume()),
            0..=6 => Some(Command::PlaceBid(self.bid())),
            7..=9 => Some(Command::PutOffer {
                provider: self.account(&PROVIDERS),
                market: self.market(),
                capacity: self.one_of(&[0, 1, 1, 2, 2, 3, 4]),
                reserve: Price((1 + self.below(20)) * TICK),
            }),
            10..=13 => self.on_a_bid(dump),
            14..=17 => self.on_a_node(dump),
            18 => Some(self.on_a_unit()),
            19 | 20 => self.around_a_claim(dump, names),
            21 | 22 => self.around_the_lock(dump),
            23 => Some(self.resume()),
            _ => match self.below(12) {
                0..=2 => Some(Command::ChangeRules { market: self.market(), rules: self.rules() }),
                3 => Some(Command::CloseMarket { market: self.market() }),
                4 | 5 => Some(Command::OpenMarket { market: self.market(), rules: Vec::new() }),
                _ => None,
            },
        };
        if let Some(Command::PlaceBid(bid)) = &command {
            self.tenants.insert(BidId(self.made), bid.tenant.clone());
        }
        let key = self.one_in(10).then(|| ClientKey::new(if self.one_in(2) { "k1" } else { "k2" }));
        StampedCommand {
            at: Micros(self.now * Micros::SECOND.0),
            key,
            command: command.unwrap_or(Command::AdvanceTime),
        }
    }
}
