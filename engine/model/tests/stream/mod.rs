//! Random commands from a seed. There are few prices, few accounts and short times, so that the commands
//! affect each other.

use kubebid_core::Price;
use kubebid_core::command::{CancelMode, Command, OnPreemption, PlaceBid, RuleChange, RuleValue};
use kubebid_core::command::{StampedCommand, TimeInForce};
use kubebid_core::state_dump::{AllocationState, StateDump};
use kubebid_core::units::{AccountName, BidId, ClientKey, InstanceType, MarketName, Micros, UnitName};
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
}

impl Stream {
    pub(crate) fn new(seed: u64) -> Stream {
        Stream { state: seed, now: 0, made: 0, tenants: BTreeMap::new() }
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
        let tenant = self.tenant_of(bid.bid);
        Some(if self.one_in(3) {
            let mode = if self.one_in(2) { CancelMode::Keep } else { CancelMode::Release };
            Command::CancelBid { tenant, bid: bid.bid, mode }
        } else {
            let ceiling = (!self.one_in(3)).then(|| self.ceiling());
            let max_nodes = self.one_in(2).then(|| self.below(5) as u32);
            Command::AmendBid { tenant, bid: bid.bid, ceiling, max_nodes }
        })
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
        let unit = UnitName { market, provider: provider.clone(), number: 1 + self.below(6) };
        if self.one_in(2) {
            Command::WithdrawUnit { provider, unit }
        } else {
            Command::ReportUnitLost { provider, unit }
        }
    }

    pub(crate) fn next(&mut self, dump: &StateDump) -> StampedCommand {
        self.made += 1;
        if let Some(market) = MARKETS.get(self.made as usize - 1) {
            let market = MarketName::new(market);
            let command = Command::OpenMarket { market, rules: self.rules() };
            return StampedCommand { at: Micros(0), key: None, command };
        }
        self.now += self.one_of(&[0, 0, 1, 1, 10, 30, 100]);
        let command = match self.below(20) {
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
