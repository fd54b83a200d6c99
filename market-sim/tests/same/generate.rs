//! Random stories: commands as a lively market would see them, many of them near the edges of rules.

use kubebid_core::answer::{Answer, Auction};
use kubebid_core::command::{
    CancelMode, FundChange, OnPreemption, PlaceBid, RestingUnits, RuleChange, RuleValue, TimeInForce,
};
use kubebid_core::event::Fact;
use kubebid_core::state_dump::{FundsDump, StateDump};
use kubebid_core::units::{
    AccountName, AllocationId, BidId, ClientKey, InstanceType, MarketName, Micros, Names, UnitName,
};
use kubebid_core::{Command, Exchange, MarketState, Price, StampedCommand};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// What a story is mostly about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Plain,
    Gangs,
    Markets,
    Ties,
    Times,
    Churn,
    Amendments,
    Mixed,
    /// As `Mixed`, with funded accounts, budgets and renewals (R19). Most nodes become ready, and most accounts have
    /// about as much as they need.
    #[allow(dead_code, reason = "only the comparison with the model plays it")]
    Funds,
}

impl Family {
    /// The families without funds.
    pub(crate) const ALL: [Family; 8] = [
        Family::Plain,
        Family::Gangs,
        Family::Markets,
        Family::Ties,
        Family::Times,
        Family::Churn,
        Family::Amendments,
        Family::Mixed,
    ];
}

struct Generator {
    rng: ChaCha8Rng,
    family: Family,
    markets: Vec<&'static str>,
    now: u64,
    tick: u64,
    keys: Vec<StampedCommand>,
    /// The bids that ask for several nodes at once.
    gangs: BTreeSet<BidId>,
    /// The units that rest.
    resting: Vec<UnitName>,
}

const MARKETS: [&str; 3] = ["h100/eu", "h100/us", "a100/eu"];
const TENANTS: [&str; 5] = ["t1", "t2", "t3", "t4", "p1"];
const PROVIDERS: [&str; 3] = ["p1", "p2", "t4"];

/// The first month that begins after the epoch.
const FIRST_MONTH: Micros = Micros(31 * Micros::DAY.0);

/// The same for the same seed. The exchange is asked on the way which bids and nodes there are.
pub(crate) fn story(family: Family, seed: u64, length: u64) -> Vec<StampedCommand> {
    let mut generator = Generator {
        rng: ChaCha8Rng::seed_from_u64(seed),
        family,
        markets: Vec::new(),
        now: if family == Family::Funds { FIRST_MONTH.0 - 3_600_000_000 } else { 0 },
        tick: 10,
        keys: Vec::new(),
        gangs: BTreeSet::new(),
        resting: Vec::new(),
    };
    let mut exchange = Exchange::new();
    let mut story = Vec::new();
    while (story.len() as u64) < length {
        let stamped = generator.next(&exchange);
        // A story whose exchange panics is still told to both.
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| exchange.apply(&stamped)));
        story.push(stamped);
        match told {
            Ok(answer) => generator.see(&answer, exchange.names()),
            Err(_) => break,
        }
    }
    story
}

impl Generator {
    fn one_in(&mut self, n: u32) -> bool {
        self.rng.random_range(0..n) == 0
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        (!items.is_empty()).then(|| items[self.rng.random_range(0..items.len())])
    }

    fn is(&mut self, family: Family, mixed: u32) -> bool {
        self.family == family || matches!(self.family, Family::Mixed | Family::Funds) && self.one_in(mixed)
    }

    fn see(&mut self, answer: &Answer, names: &Names) {
        for event in &answer.events {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only these are remembered")]
            match event.fact {
                Fact::BidPlaced { bidder, min_nodes, .. } if min_nodes > 1 => {
                    self.gangs.insert(bidder.bid);
                }
                Fact::UnitResting { unit } => self.resting.push(names.unit(unit)),
                Fact::UnitResumed { unit } | Fact::UnitRemoved { unit } => {
                    self.resting.retain(|name| *name != names.unit(unit));
                }
                _ => {}
            }
        }
    }

    fn next(&mut self, exchange: &Exchange) -> StampedCommand {
        let wanted = match self.family {
            Family::Markets
            | Family::Gangs
            | Family::Churn
            | Family::Amendments
            | Family::Mixed
            | Family::Funds => 3,
            Family::Plain | Family::Ties | Family::Times => 1,
        };
        if self.markets.is_empty() || self.markets.len() < wanted && self.one_in(3) {
            return self.open_market();
        }
        self.pass_time(exchange);
        if self.family == Family::Funds && self.one_in(7) {
            return self.on_funds(exchange);
        }
        if !self.keys.is_empty() && self.one_in(25) {
            let again = self.rng.random_range(0..self.keys.len());
            let mut again = self.keys[again].clone();
            again.at = Micros(self.now);
            if self.one_in(4) {
                again.command = self.command(exchange, &exchange.dump());
            }
            return again;
        }
        let command = self.command(exchange, &exchange.dump());
        let key = (command.account().is_some() && self.one_in(10))
            .then(|| ClientKey::new(&format!("k{}", self.rng.random_range(0..4))));
        let stamped = StampedCommand { at: Micros(self.now), key, command };
        if stamped.key.is_some() {
            self.keys.push(stamped.clone());
        }
        stamped
    }

    fn on_funds(&mut self, exchange: &Exchange) -> StampedCommand {
        let account = self.tenant();
        let few = self.rng.random_range(0..1500);
        let command = match self.rng.random_range(0..32) {
            0..=4 => Command::Fund { account, change: FundChange::Add(few) },
            5..=8 => Command::Fund { account, change: FundChange::Add(-few / 3) },
            9..=12 => Command::Fund { account, change: FundChange::Set(few) },
            13 => Command::Fund { account, change: FundChange::Unlimited },
            14 => Command::Fund { account, change: FundChange::Set(-1) },
            15..=17 => {
                let monthly = self.pick(&[Some(few), Some(few), None]).flatten();
                Command::SetBudget { account, monthly, roll_over: self.one_in(2) }
            }
            18..=20 => {
                let seconds = self.pick(&[0, 20, 60, 300, 300, 300, 600]).unwrap_or(300);
                Command::SetRenewal { renewal: Micros::seconds(seconds) }
            }
            _ => self.fund_just_enough(exchange),
        };
        let number = self.rng.random_range(0..200);
        let key = (!self.one_in(12)).then(|| ClientKey::new(&format!("f{number}")));
        StampedCommand { at: Micros(self.now), key, command }
    }

    /// Gives the account of a bid what a few more nodes of it reserve, or a micro-dollar more or less.
    fn fund_just_enough(&mut self, exchange: &Exchange) -> Command {
        let dump = exchange.dump();
        let (bid, account) = self.bid(&dump, exchange);
        let view = exchange.view_bid(bid);
        let ceiling = view.as_ref().map_or(500, |bid| bid.ceiling.0);
        let seconds = self.pick(&[300, 300, 300, 60, 20]).unwrap_or(300)
            + self.pick(&[300, 300, 60, 0, 900]).unwrap_or(0);
        let nodes = self.rng.random_range(0..4);
        let stake = (nodes * ceiling * seconds).div_ceil(3600) as i64;
        let tenant = view.map(|bid| bid.tenant);
        let funded = dump.funded.iter().find(|funded| Some(funded.account) == tenant);
        let available = funded.map_or(0, FundsDump::available);
        let difference = self.pick(&[-1, 0, 1]).unwrap_or(0);
        let add = stake + difference - i64::try_from(available).unwrap_or(0);
        Command::Fund { account, change: FundChange::Add(add) }
    }

    fn open_market(&mut self) -> StampedCommand {
        let market = MARKETS[self.markets.len()];
        self.markets.push(market);
        let rule = |name: &str, value: u64| RuleChange { name: name.into(), value: RuleValue::Number(value) };
        let second = 1_000_000;
        let start_timeouts = if self.family == Family::Funds { [900, 3600, 3600] } else { [60, 300, 900] };
        let mut rules = vec![
            rule("tick", self.tick),
            rule("increment_bps", self.pick(&[0, 500, 500, 1000, 2000]).unwrap_or(500)),
            rule("min_runtime_us", self.pick(&[0, 100, 900]).unwrap_or(0) * second),
            rule("notice_us", self.pick(&[0, 60, 300, 300, 900]).unwrap_or(0) * second),
            rule("start_timeout_us", self.pick(&start_timeouts).unwrap_or(60) * second),
            rule("min_charge_us", self.pick(&[0, 300]).unwrap_or(0) * second),
            rule("fee_bps", self.pick(&[0, 250]).unwrap_or(0)),
        ];
        if self.one_in(4) {
            rules
                .push(RuleChange { name: "pricing".into(), value: RuleValue::Word("LowestAccepted".into()) });
        }
        if self.one_in(6) {
            rules.push(rule("ceiling_max", 1200));
        }
        let command = Command::OpenMarket { market: MarketName::new(market), rules };
        StampedCommand { at: Micros(self.now), key: None, command }
    }

    /// Often not at all, often just to where something falls due, sometimes a long way.
    fn pass_time(&mut self, exchange: &Exchange) {
        let second = 1_000_000;
        let due = exchange.next_due().map_or(self.now, |due| due.0);
        if self.family == Family::Funds {
            let soon = due <= self.now + 3_600 * second || self.one_in(50);
            self.now = match self.rng.random_range(0..10) {
                0..=4 => self.now,
                5..=6 => self.now + self.rng.random_range(1..30) * second,
                7..=8 if soon => self.now.max(due),
                _ => self.now + self.rng.random_range(1..200) * second,
            };
            return;
        }
        let still = self.family == Family::Ties && self.one_in(2);
        self.now = match self.rng.random_range(0..10) {
            _ if still => self.now,
            0..=3 => self.now,
            4..=5 => self.now + self.rng.random_range(1..30) * second,
            6..=7 => self.now.max(due),
            8 => self.now + 100 * second,
            _ => self.now + self.rng.random_range(1..2000) * second,
        };
        if self.one_in(400) {
            self.now += Micros::DAY.0;
        }
    }

    fn market(&mut self) -> MarketName {
        MarketName::new(self.pick(&self.markets.clone()).expect("one is open"))
    }

    fn tenant(&mut self) -> AccountName {
        let few = if self.family == Family::Ties { 2 } else { TENANTS.len() };
        let likely = if self.one_in(12) { few } else { few.min(4) };
        AccountName::new(TENANTS[self.rng.random_range(0..likely)])
    }

    fn provider(&mut self) -> AccountName {
        let likely = if self.one_in(12) { PROVIDERS.len() } else { 2 };
        AccountName::new(PROVIDERS[self.rng.random_range(0..likely)])
    }

    fn reserve(&mut self) -> Price {
        let on_tick = self.pick(&[0, 100, 100, 200, 300, 300, 500, 900]).unwrap_or(100);
        Price(if self.one_in(100) { on_tick + 3 } else { on_tick })
    }

    fn ceiling(&mut self) -> Price {
        let steps = if self.family == Family::Ties {
            self.rng.random_range(1..6) * 10
        } else {
            self.rng.random_range(1..110)
        };
        Price(if self.one_in(100) { steps * self.tick + 3 } else { steps * self.tick })
    }

    fn command(&mut self, exchange: &Exchange, dump: &StateDump) -> Command {
        let (bids, supply, amend) = match self.family {
            Family::Churn => (30, 30, 6),
            Family::Amendments => (26, 8, 30),
            Family::Plain | Family::Gangs | Family::Markets | Family::Ties | Family::Times => (40, 12, 8),
            Family::Mixed => (30, 18, 16),
            Family::Funds => (24, 12, 20),
        };
        // Without this, a market in which nodes do not start would have nothing to sell after a while.
        if !self.resting.is_empty() && self.one_in(12) {
            return self.resume();
        }
        if self.family == Family::Funds && self.one_in(4) {
            return match self.rng.random_range(0..4) {
                0 => self.around_a_claim(dump, exchange),
                1 => self.around_the_lock(dump, exchange),
                _ => self.ready_at_last(dump, exchange),
            };
        }
        let choice = self.rng.random_range(0..100);
        if choice < bids {
            return self.place_bid();
        }
        if choice < bids + supply {
            return self.supply(dump, exchange);
        }
        if choice < bids + supply + amend {
            return self.amend(dump, exchange);
        }
        match self.rng.random_range(0..27) {
            0..=7 => self.ready(dump, exchange),
            8..=10 => self.release(dump, exchange),
            11..=13 => self.cancel(dump, exchange),
            14 => self.change_rules(),
            15 if self.one_in(4) => Command::CloseMarket { market: self.market() },
            16 => self.reopen_market(exchange),
            17..=20 => self.around_a_claim(dump, exchange),
            21..=22 => self.around_the_lock(dump, exchange),
            23 => self.resume(),
            _ => Command::AdvanceTime,
        }
    }

    fn place_bid(&mut self) -> Command {
        let gang = self.is(Family::Gangs, 3) && self.one_in(2);
        let many = self.is(Family::Markets, 2);
        let max_nodes = self.rng.random_range(1..=3) + u32::from(gang);
        let min_nodes = if gang { self.rng.random_range(1..=max_nodes) } else { 1 };
        let (mut markets, mut instance_type) = (Some(vec![self.market()]), None);
        if many && self.one_in(2) {
            if self.one_in(2) {
                (markets, instance_type) = (None, Some(InstanceType::new("h100")));
            } else {
                let mut all = self.markets.clone();
                let from = self.rng.random_range(0..all.len());
                all.rotate_left(from);
                all.truncate(self.rng.random_range(1..=all.len()));
                markets = Some(all.into_iter().map(MarketName::new).collect());
            }
        }
        let time_in_force = match self.rng.random_range(0..10) {
            0..=1 => TimeInForce::Ioc,
            2..=3 => TimeInForce::Gtt,
            _ => TimeInForce::Gtc,
        };
        let expire_at = (time_in_force == TimeInForce::Gtt)
            .then(|| Micros(self.now + self.rng.random_range(0..1500) * 1_000_000));
        let on_preemption = if self.one_in(4) { OnPreemption::Close } else { OnPreemption::Requeue };
        Command::PlaceBid(PlaceBid {
            tenant: self.tenant(),
            markets,
            instance_type,
            ceiling: self.ceiling(),
            min_nodes,
            max_nodes,
            time_in_force,
            expire_at,
            on_preemption,
        })
    }

    fn supply(&mut self, dump: &StateDump, exchange: &Exchange) -> Command {
        let unit = self.pick(&dump.allocations).map(|a| exchange.names().unit(a.unit));
        let unit = match unit {
            _ if !self.resting.is_empty() && self.one_in(6) => self.resting[0].clone(),
            Some(unit) if !self.one_in(5) => unit,
            Some(_) | None => UnitName {
                market: self.market(),
                provider: self.provider(),
                number: self.rng.random_range(1..8),
            },
        };
        let owner = if self.one_in(15) { self.provider() } else { unit.provider.clone() };
        match self.rng.random_range(0..10) {
            0 => Command::WithdrawUnit { provider: owner, unit },
            1 => Command::ReportUnitLost { provider: owner, unit },
            _ => Command::PutOffer {
                provider: self.provider(),
                market: self.market(),
                capacity: if self.family == Family::Funds && !self.one_in(4) {
                    self.rng.random_range(1..4)
                } else {
                    self.rng.random_range(0..5)
                },
                reserve: self.reserve(),
            },
        }
    }

    fn bid(&mut self, dump: &StateDump, exchange: &Exchange) -> (BidId, AccountName) {
        let open: Vec<_> = dump.bids.iter().filter(|bid| bid.searching || bid.held > 0).copied().collect();
        let all = if open.is_empty() || self.one_in(10) { &dump.bids } else { &open };
        let Some(bid) = self.pick(all) else { return (BidId(1), self.tenant()) };
        if self.one_in(25) {
            return (bid.bid, self.tenant());
        }
        let view = exchange.view_bid(bid.bid).expect("a bid of the dump");
        (bid.bid, exchange.names().account(view.tenant).clone())
    }

    fn amend(&mut self, dump: &StateDump, exchange: &Exchange) -> Command {
        let (bid, tenant) = self.bid(dump, exchange);
        let ceiling = (!self.one_in(3)).then(|| match exchange.view_bid(bid) {
            // Near where it stands, to be a little above or below others.
            Some(view) if self.one_in(2) => Price(view.ceiling.0 + self.rng.random_range(0..8) * self.tick),
            Some(_) | None => self.ceiling(),
        });
        let max_nodes = self.one_in(2).then(|| self.rng.random_range(0..5));
        Command::AmendBid { tenant, bid, ceiling, max_nodes }
    }

    fn cancel(&mut self, dump: &StateDump, exchange: &Exchange) -> Command {
        let (bid, tenant) = self.bid(dump, exchange);
        Command::CancelBid { tenant, bid, mode: self.cancel_mode(bid) }
    }

    fn cancel_mode(&mut self, bid: BidId) -> CancelMode {
        let regroup = if self.gangs.contains(&bid) { 2 } else { 20 };
        match (self.one_in(regroup), self.one_in(2)) {
            (true, _) => CancelMode::Regroup,
            (false, true) => CancelMode::Keep,
            (false, false) => CancelMode::Release,
        }
    }

    /// Ends a claim in one of the ways of R15, or nearly.
    fn around_a_claim(&mut self, dump: &StateDump, exchange: &Exchange) -> Command {
        let claimed: Vec<_> = dump.allocations.iter().filter(|a| a.claim.is_some()).copied().collect();
        let Some((node, bid)) = self.pick(&claimed).and_then(|node| Some((node, node.claim?))) else {
            return self.place_bid();
        };
        let tenant_of = |bid| {
            let view = exchange.view_bid(bid).expect("a bid of the dump");
            exchange.names().account(view.tenant).clone()
        };
        let of = |bid| dump.bids.iter().find(|other| other.bid == bid).expect("a bid of the dump");
        let (tenant, unit) = (tenant_of(bid), exchange.names().unit(node.unit));
        let (provider, market, reserve) = (unit.provider.clone(), unit.market.clone(), self.reserve());
        let capacity = self.rng.random_range(1..5);
        match self.rng.random_range(0..12) {
            0..=1 => Command::CancelBid { tenant, bid, mode: self.cancel_mode(bid) },
            2 => {
                let ceiling = Some(Price(self.rng.random_range(1..40) * self.tick));
                Command::AmendBid { tenant, bid, ceiling, max_nodes: None }
            }
            3 => Command::AmendBid { tenant, bid, ceiling: None, max_nodes: Some(of(bid).held) },
            4 => Command::PutOffer { provider: tenant, market, capacity, reserve },
            5..=6 => {
                Command::PutOffer { provider: self.provider(), market: self.market(), capacity, reserve }
            }
            7 => Command::PutOffer { provider, market, capacity: 5, reserve },
            8 => Command::WithdrawUnit { provider, unit },
            9 => Command::ReportUnitLost { provider, unit },
            10 => Command::PutOffer {
                provider,
                market,
                capacity,
                reserve: Price(of(bid).ceiling.0 + self.tick),
            },
            _ => {
                let ceiling = Some(Price(of(bid).ceiling.0 + self.rng.random_range(0..4) * self.tick));
                Command::AmendBid { tenant: tenant_of(node.bid), bid: node.bid, ceiling, max_nodes: None }
            }
        }
    }

    /// Raises a bid of which a node is under notice, or lowers one that was raised so.
    fn around_the_lock(&mut self, dump: &StateDump, exchange: &Exchange) -> Command {
        let noticed = |bid: BidId| dump.allocations.iter().any(|a| a.bid == bid && a.deadline.is_some());
        let lowers = self.one_in(2);
        let fits = |bid: &BidId, locked: Micros| if lowers { locked > Micros(0) } else { noticed(*bid) };
        let bids = dump.bids.iter().filter(|bid| fits(&bid.bid, bid.ceiling_locked_until));
        let bids: Vec<_> = bids.copied().collect();
        let Some(bid) = self.pick(&bids) else { return self.amend(dump, exchange) };
        let step = self.rng.random_range(1..10) * self.tick;
        let ceiling = if lowers { bid.ceiling.0.saturating_sub(step) } else { bid.ceiling.0 + step };
        let view = exchange.view_bid(bid.bid).expect("a bid of the dump");
        let tenant = exchange.names().account(view.tenant).clone();
        Command::AmendBid { tenant, bid: bid.bid, ceiling: Some(Price(ceiling)), max_nodes: None }
    }

    /// Resumes a unit or all units of an offer, most often units that rest.
    fn resume(&mut self) -> Command {
        let resting = self.rng.random_range(0..self.resting.len().max(1));
        let unit = match self.resting.get(resting).cloned() {
            Some(unit) if !self.one_in(8) => unit,
            Some(_) | None => UnitName {
                market: self.market(),
                provider: self.provider(),
                number: self.rng.random_range(1..8),
            },
        };
        let provider = if self.one_in(15) { self.provider() } else { unit.provider.clone() };
        let all = self.one_in(3);
        let units = if all { RestingUnits::AllIn(unit.market) } else { RestingUnits::One(unit) };
        Command::ResumeUnits { provider, units }
    }

    fn node(&mut self, dump: &StateDump, exchange: &Exchange) -> (AllocationId, AccountName, AccountName) {
        match self.pick(&dump.allocations) {
            Some(node) if !self.one_in(12) => {
                let view = exchange.view_allocation(node.allocation).expect("a node of the dump");
                let names = exchange.names();
                (
                    node.allocation,
                    names.account(view.tenant).clone(),
                    names.account(view.unit.provider).clone(),
                )
            }
            Some(_) | None => (AllocationId(self.rng.random_range(0..12)), self.tenant(), self.provider()),
        }
    }

    fn ready(&mut self, dump: &StateDump, exchange: &Exchange) -> Command {
        let (allocation, tenant, provider) = self.node(dump, exchange);
        let by = match self.rng.random_range(0..4) {
            0 => Some(tenant),
            1 => Some(provider),
            2 if self.one_in(4) => Some(self.tenant()),
            _ => None,
        };
        Command::ReportReady { allocation, by }
    }

    /// Reports a node ready that is not, if there is one.
    fn ready_at_last(&mut self, dump: &StateDump, exchange: &Exchange) -> Command {
        let is_ready = |id| exchange.view_allocation(id).is_none_or(|view| view.ready_at.is_some());
        let starting: Vec<_> = dump.allocations.iter().filter(|a| !is_ready(a.allocation)).copied().collect();
        match self.pick(&starting) {
            Some(node) => Command::ReportReady { allocation: node.allocation, by: None },
            None => self.place_bid(),
        }
    }

    fn release(&mut self, dump: &StateDump, exchange: &Exchange) -> Command {
        let (allocation, tenant, _) = self.node(dump, exchange);
        Command::ReleaseAllocation { tenant, allocation }
    }

    /// Opens the first market that is closed, or one that is open, which is refused.
    fn reopen_market(&mut self, exchange: &Exchange) -> Command {
        let closed = exchange.dump().markets.into_iter().find(|market| market.state != MarketState::Open);
        let market = match closed {
            Some(market) => exchange.names().market(market.market).clone(),
            None => self.market(),
        };
        let Command::ChangeRules { rules, .. } = self.change_rules() else {
            unreachable!("it changes rules")
        };
        Command::OpenMarket { market, rules: if self.one_in(2) { rules } else { Vec::new() } }
    }

    fn change_rules(&mut self) -> Command {
        let rule = |name: &str, value: u64| RuleChange { name: name.into(), value: RuleValue::Number(value) };
        let second = 1_000_000;
        let change = match self.rng.random_range(0..6) {
            0 => rule("notice_us", self.rng.random_range(0..400) * second),
            1 => rule("min_runtime_us", self.rng.random_range(0..900) * second),
            2 => rule("increment_bps", self.rng.random_range(0..2000)),
            3 => rule("start_timeout_us", self.rng.random_range(0..500) * second),
            4 => rule("min_charge_us", self.rng.random_range(0..400) * second),
            _ => rule("fee_bps", self.rng.random_range(0..400)),
        };
        Command::ChangeRules { market: self.market(), rules: vec![change] }
    }
}
