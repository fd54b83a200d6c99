//! Random commands with funds (R19). After each command the exchange itself compares its sums of reservations with the
//! nodes and claims that it has, and checks that each covers what can be billed (I24, I25); here are the books of the
//! accounts, the clock that is told more often, and the snapshots.
//!
//! `KUBEBID_STORIES` sets how many stories (100 by default), `KUBEBID_SEED` where to begin.

use kubebid_core::answer::Answer;
use kubebid_core::command::{
    CancelMode, FundChange, OnPreemption, PlaceBid, RuleChange, RuleValue, TimeInForce,
};
use kubebid_core::event::{Fact, NoticeReason};
use kubebid_core::units::{
    AccountId, AccountName, AllocationId, BidId, ClientKey, InstanceType, MarketName, Micros, UnitName,
};
use kubebid_core::views::Unfilled;
use kubebid_core::{Amount, Auction, Command, Exchange, Funds, Price, StampedCommand};
use std::collections::BTreeMap;

/// The commands of one story: after each of them the exchange checks itself.
const COMMANDS: u64 = 250;
/// The number of commands from one snapshot to the next.
const SNAPSHOTS: u64 = 5;

#[expect(clippy::disallowed_methods, reason = "how long a run is to be, not what it does")]
fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Draws numbers below its argument.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        // Knuth's linear congruential generator; its low bits are poor.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}

/// Makes up commands.
struct Author {
    random: Random,
    now: Micros,
    seq: u64,
    bids: Vec<(BidId, AccountName)>,
}

impl Author {
    fn new(seed: u64) -> Author {
        // Some stories begin shortly before a month.
        let month = Micros::seconds(2_678_400);
        let now = if seed.is_multiple_of(3) { Micros(month.0 - 2_000_000_000) } else { Micros::seconds(7) };
        Author { random: Random(seed), now, seq: 0, bids: Vec::new() }
    }

    fn tenant(&mut self) -> AccountName {
        AccountName::new(self.random.one_of(&["t1", "t1", "t2", "t3", "p1"]))
    }

    fn market(&mut self) -> MarketName {
        MarketName::new(self.random.one_of(&["a/eu", "a/eu", "a/us"]))
    }

    fn ceiling(&mut self) -> Price {
        Price(100_000 * (5 + self.random.below(20)))
    }

    fn span(&mut self) -> u64 {
        1_000_000 * self.random.one_of(&[0, 60, 100, 300, 301, 600])
    }

    fn next(&mut self, exchange: &Exchange) -> StampedCommand {
        self.seq += 1;
        self.now = self.now.after(match self.random.below(6) {
            0 => Micros::seconds(self.random.below(400)),
            1 => Micros(self.random.below(100_000_000)),
            2 => Micros::seconds(60 * self.random.below(6)),
            _ => Micros(0),
        });
        let command = match self.seq {
            1 | 2 => {
                let market = MarketName::new(if self.seq == 1 { "a/eu" } else { "a/us" });
                let min_runtime = RuleChange::number("min_runtime_us", self.span());
                Command::OpenMarket { market, rules: vec![min_runtime] }
            }
            _ => self.command(exchange),
        };
        let key = Some(ClientKey::new(&format!("{}", self.seq)));
        StampedCommand { at: self.now, key, command }
    }

    fn command(&mut self, exchange: &Exchange) -> Command {
        match self.random.below(34) {
            0..=3 => {
                let provider = AccountName::new(self.random.one_of(&["p1", "p2", "p2"]));
                let reserve = Price(100_000 * (3 + self.random.below(12)));
                Command::PutOffer { provider, market: self.market(), capacity: self.random.below(5), reserve }
            }
            4..=11 => self.bid(),
            12..=15 => {
                let (bid, tenant) = self.any_bid();
                let ceiling = (self.random.below(4) > 0).then(|| self.ceiling());
                let max_nodes = (self.random.below(4) == 0).then(|| 1 + self.random.below(4) as u32);
                Command::AmendBid { tenant, bid, ceiling, max_nodes }
            }
            16 | 17 => {
                let (bid, tenant) = self.any_bid();
                let modes = [CancelMode::Keep, CancelMode::Release, CancelMode::Regroup];
                Command::CancelBid { tenant, bid, mode: self.random.one_of(&modes) }
            }
            18 | 19 => {
                self.node_of(exchange, |allocation, tenant| Command::ReleaseAllocation { allocation, tenant })
            }
            20..=23 => self.node_of(exchange, |allocation, _| Command::ReportReady { allocation, by: None }),
            24 => {
                let unit = self.unit();
                Command::WithdrawUnit { provider: unit.provider.clone(), unit }
            }
            25 => {
                let unit = self.unit();
                Command::ReportUnitLost { provider: unit.provider.clone(), unit }
            }
            26 => {
                let name = self.random.one_of(&["notice_us", "min_charge_us", "min_runtime_us"]);
                let value = RuleValue::Number(self.span());
                Command::ChangeRules {
                    market: self.market(),
                    rules: vec![RuleChange { name: name.into(), value }],
                }
            }
            27..=31 => {
                let account = self.tenant();
                let amount = self.random.below(700_000) as i64;
                let change = match self.random.below(12) {
                    0 => FundChange::Unlimited,
                    1..=3 => FundChange::Set(amount),
                    4 => FundChange::Add(-amount),
                    _ => FundChange::Add(amount),
                };
                Command::Fund { account, change }
            }
            32 => {
                let monthly = (self.random.below(4) > 0).then(|| self.random.below(900_000) as i64);
                Command::SetBudget { account: self.tenant(), monthly, roll_over: self.random.below(2) == 0 }
            }
            _ if self.random.below(3) == 0 => {
                Command::SetRenewal { renewal: Micros::seconds(self.random.one_of(&[30, 100, 300, 600])) }
            }
            _ => Command::AdvanceTime,
        }
    }

    fn bid(&mut self) -> Command {
        let (tenant, max_nodes) = (self.tenant(), 1 + self.random.below(4) as u32);
        self.bids.push((BidId(self.seq), tenant.clone()));
        let (markets, instance_type) = match self.random.below(3) {
            0 => (None, Some(InstanceType::new("a"))),
            _ => (Some(vec![self.market()]), None),
        };
        let (time_in_force, expire_at) = match self.random.below(6) {
            0 => (TimeInForce::Ioc, None),
            1 => (TimeInForce::Gtt, Some(self.now.after(Micros::seconds(1 + self.random.below(900))))),
            _ => (TimeInForce::Gtc, None),
        };
        Command::PlaceBid(PlaceBid {
            tenant,
            markets,
            instance_type,
            ceiling: self.ceiling(),
            min_nodes: if self.random.below(4) == 0 { max_nodes } else { 1 },
            max_nodes,
            time_in_force,
            expire_at,
            on_preemption: self.random.one_of(&[OnPreemption::Requeue, OnPreemption::Close]),
        })
    }

    fn any_bid(&mut self) -> (BidId, AccountName) {
        let none = (BidId(9_999), AccountName::new("t1"));
        if self.bids.is_empty() { none } else { self.random.one_of(&self.bids.clone()) }
    }

    fn node_of(
        &mut self,
        exchange: &Exchange,
        command: impl Fn(AllocationId, AccountName) -> Command,
    ) -> Command {
        let nodes = exchange.held_allocations();
        if nodes.is_empty() {
            return Command::AdvanceTime;
        }
        let id = self.random.one_of(&nodes);
        let tenant = exchange.view_allocation(id).unwrap().tenant;
        command(id, exchange.names().account(tenant).clone())
    }

    fn unit(&mut self) -> UnitName {
        let provider = AccountName::new(self.random.one_of(&["p1", "p2"]));
        UnitName { market: self.market(), provider, number: 1 + self.random.below(8) }
    }
}

/// The funds of all accounts by what the events say, and what was seen.
#[derive(Default)]
struct Books {
    funds: BTreeMap<AccountId, Funds>,
    available: BTreeMap<AccountId, Funds>,
    notices: u64,
    refused: u64,
    back: u64,
    moved: u64,
}

impl Books {
    /// Adds the events of an answer, and compares the funds. What is available falls below 0 only by a cut.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events concern no funds")]
    fn check(&mut self, exchange: &Exchange, answer: &Answer) -> Result<(), String> {
        let mut given = Vec::new();
        for event in &answer.events {
            match event.fact {
                Fact::Funded { account, funds } | Fact::BudgetSet { account, funds, .. } => {
                    given.push(account);
                    match funds {
                        Some(funds) => self.funds.insert(account, funds),
                        None => self.funds.remove(&account),
                    };
                }
                Fact::BudgetRenewed { account, funds } => {
                    given.push(account);
                    self.funds.insert(account, funds);
                }
                Fact::Charged { tenant, debit, .. } => {
                    if let Some(funds) = self.funds.get_mut(&tenant) {
                        funds.0 -= i128::try_from(debit.0).unwrap();
                    }
                }
                Fact::NoticeStarted { reason: NoticeReason::Funds, .. } => self.notices += 1,
                Fact::NoticeRescinded { .. } => self.back += 1,
                Fact::NoticeMoved { .. } => self.moved += 1,
                Fact::Rejected { reason: kubebid_core::Reject::NoFunds } => self.refused += 1,
                _ => {}
            }
        }
        for (name, id) in exchange.names().accounts.iter().zip((0..).map(AccountId)) {
            let view = exchange.account_funds(name);
            if view.map(|view| view.funds) != self.funds.get(&id).copied() {
                return Err(format!("{name} should have {:?}: {view:?}", self.funds.get(&id)));
            }
            let Some(view) = view else { continue };
            let before = self.available.insert(id, view.available);
            let was_cut = given.contains(&id) || before.is_some_and(|before| before < Funds(0));
            if view.available < Funds(0) && !was_cut {
                return Err(format!("{name} is overspent: {view:?}, before {before:?}"));
            }
        }
        Ok(())
    }
}

/// The number of commands that are told for each one.
const TOLD: u64 = 4;

/// Applies a command after some that only advance the time. Returns all events, with the numbers that the bids would
/// have without those.
fn tell_more(exchange: &mut Exchange, command: &StampedCommand) -> Vec<String> {
    let (now, ahead) = (exchange.now(), command.at.since(exchange.now()).0);
    let mut events = Vec::new();
    for part in 1..TOLD {
        let at = now.after(Micros(ahead / (TOLD - 1) * part));
        let tick = StampedCommand { at, key: None, command: Command::AdvanceTime };
        events.extend(told(&exchange.apply(&tick), TOLD));
    }
    let mut command = command.clone();
    if let Command::AmendBid { bid, .. } | Command::CancelBid { bid, .. } = &mut command.command {
        bid.0 *= TOLD;
    }
    events.extend(told(&exchange.apply(&command), TOLD));
    events
}

/// Returns the events of an answer as text. Each number of a bid and of a command is divided by `factor`.
fn told(answer: &Answer, factor: u64) -> Vec<String> {
    let divided = |text: &str| {
        let (number, rest) = text.split_once(')').unwrap();
        format!("{}){rest}", number.parse::<u64>().unwrap() / factor)
    };
    let renumbered = |text: String, name: &str| {
        let mut parts = text.split(name);
        let first = parts.next().unwrap().to_owned();
        parts.fold(first, |told, part| told + name + &divided(part))
    };
    let events = answer.events.iter().map(|event| format!("{event:?}"));
    events.map(|text| renumbered(renumbered(text, "BidId("), "Seq(")).collect()
}

#[test]
fn random_commands_keep_every_book() {
    let mut seen = Books::default();
    let first = from_env("KUBEBID_SEED", 1);
    for seed in first..first + from_env("KUBEBID_STORIES", 100) {
        let (mut plain, mut told_more, mut restored) = (Exchange::new(), Exchange::new(), Exchange::new());
        let (mut author, mut books) = (Author::new(seed), Books::default());
        let mut story = Vec::new();
        for n in 0..COMMANDS {
            let command = author.next(&plain);
            story.push(format!("{command:?}"));
            let answer = plain.apply(&command);
            if let Err(wrong) = books.check(&plain, &answer) {
                panic!("{wrong} in story {seed}, command {n}:\n{}\n{:#?}", story.join("\n"), answer.events);
            }
            let more = tell_more(&mut told_more, &command);
            assert_eq!(more, told(&answer, 1), "R1 in story {seed}, command {n}:\n{}", story.join("\n"));
            if n.is_multiple_of(SNAPSHOTS) {
                restored = Exchange::restore(&restored.snapshot()).unwrap();
            }
            assert_eq!(
                restored.apply(&command),
                answer,
                "the snapshot in story {seed}, command {n}:\n{}",
                story.join("\n")
            );
            assert_eq!(restored.dump(), plain.dump(), "story {seed}, command {n}");
            if n.is_multiple_of(SNAPSHOTS) {
                assert_eq!(restored.state_hash(), plain.state_hash(), "story {seed}, command {n}");
            }
        }
        seen.notices += books.notices;
        seen.refused += books.refused;
        seen.back += books.back;
        seen.moved += books.moved;
    }
    let counts = [seen.notices, seen.refused, seen.back, seen.moved];
    assert!(counts.into_iter().all(|count| count > 20), "{counts:?}");
}

#[test]
fn queries_say_what_funds_pay_for() {
    let (market, tenant) = (MarketName::new("a/eu"), AccountName::new("t1"));
    let mut exchange = Exchange::new();
    let mut apply = |at: u64, command: Command| {
        let key = Some(ClientKey::new(&format!("{at} {command:?}")));
        exchange.apply(&StampedCommand { at: Micros::seconds(at), key, command });
    };
    apply(0, Command::OpenMarket { market: market.clone(), rules: Vec::new() });
    let provider = AccountName::new("p1");
    apply(0, Command::PutOffer { provider, market: market.clone(), capacity: 5, reserve: Price(1_000_000) });
    let fund = |amount| Command::Fund { account: tenant.clone(), change: FundChange::Set(amount) };
    apply(0, fund(500_000));
    let bid = PlaceBid {
        tenant: tenant.clone(),
        markets: Some(vec![market.clone()]),
        instance_type: None,
        ceiling: Price(1_000_000),
        min_nodes: 1,
        max_nodes: 5,
        time_in_force: TimeInForce::Gtc,
        expire_at: None,
        on_preemption: OnPreemption::Requeue,
    };
    let id = exchange.market_id(&market).unwrap();
    let quote = exchange.quote_market(id, &tenant, Some(bid.ceiling), bid.max_nodes);
    assert_eq!((quote.nodes, quote.affordable, quote.unfilled), (Some(3), Some(3), Some(Unfilled::NoFunds)));
    let of_other = exchange.quote_market(id, &AccountName::new("t2"), Some(bid.ceiling), bid.max_nodes);
    assert_eq!((of_other.nodes, of_other.affordable, of_other.unfilled), (Some(5), None, None));

    let mut apply = |at: u64, command: Command| {
        let key = Some(ClientKey::new(&format!("{at} {command:?}")));
        exchange.apply(&StampedCommand { at: Micros::seconds(at), key, command }).seq
    };
    let placed = BidId(apply(0, Command::PlaceBid(bid)).0);
    for allocation in (1..=3).map(AllocationId) {
        apply(0, Command::ReportReady { allocation, by: None });
    }
    apply(299, Command::AdvanceTime);
    assert_eq!(exchange.unfilled(placed), Some(Unfilled::NoFunds));
    assert_eq!(exchange.obstacles(placed)[0].needed_ceiling, None);
    let view = exchange.account_funds(&tenant).unwrap();
    assert_eq!((view.funds, view.reserved, view.available), (Funds(500_000), Amount(500_000), Funds(0)));
    assert_eq!((view.cost_so_far, view.cost_per_hour), (Amount(249_166), Amount(3_000_000)));
    assert_eq!(view.runway, Some(Micros(0)), "the next renewal is not covered");
    assert_eq!(view.next_renewal, Some(Micros::seconds(300)));

    let more = Command::Fund { account: tenant.clone(), change: FundChange::Add(1_500_000) };
    let key = Some(ClientKey::new("more"));
    exchange.apply(&StampedCommand { at: Micros::seconds(299), key, command: more });
    let view = exchange.account_funds(&tenant).unwrap();
    assert_eq!(
        (view.funds, view.reserved, view.available),
        (Funds(2_000_000), Amount(833_334), Funds(1_166_666))
    );
    // Five nodes reserve 833,333 and a third, and three of them have cost 249,166 and two thirds.
    assert_eq!(view.runway, Some(Micros::seconds(1_101)));
    assert_eq!(exchange.account_funds(&AccountName::new("t2")), None);
}
