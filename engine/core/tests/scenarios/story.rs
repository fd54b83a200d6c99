//! A small language for stories of the market, which draws the order book.
//!
//! One command per line; `# remarks` are ignored. `at 900s` or `+300s` before a command, or alone, moves
//! the clock, which starts at 0.
//!
//! | line | what it is |
//! |---|---|
//! | `market a100/us notice=60s tick=0.01` | opens a market; without a name `a100/eu`, which a story that opens none has. A node is protected for 900 s unless `min_runtime=` says otherwise; all other rules have their defaults |
//! | `rules notice=60s` | changes rules |
//! | `close`, `close in a100/us` | closes a market |
//! | `offer p1 2 @ 1.10` | p1's standing offer: 2 units at a reserve of $1.10 per node-hour |
//! | `bid t1 3 @ 1.50` | a bid for 3 nodes; options: `as x` (its name; else the tenant's), `min 2`, `until 600s`, `ioc`, `close`, `type a100` |
//! | `amend t1 to 2 @ 1.60` | either or both |
//! | `cancel t1 keep`, `cancel t1 release`, `cancel t1 regroup` | |
//! | `ready p1/1`, `ready` | the nodes on these units, or all that are starting |
//! | `release p1/1`, `withdraw p1/1`, `lost p1/1` | the node on that unit, or the unit |
//! | `resume p1/1`, `resume p1` | a resting unit, or all that p1 has |
//! | `fund t1 add 0.50`, `fund t1 set 0.50`, `fund t1 unlimited` | t1's funds in dollars, with a key of its own unless `keyless` |
//! | `budget t1 100`, `budget t1 none` | t1's monthly budget; option: `rolls` |
//! | `renewals 60s` | the time between renewals |
//! | `funds` | draws each funded account: its funds, what is reserved and available, its unfunded nodes |
//! | `show` | draws bids and prices; every story that does not end with a drawing ends with this one |
//! | `numbers`, `quote 1 2`, `events`, `bills` | the five numbers; the entry prices for 1 and for 2 nodes; what the last command brought; the charges since they were last drawn |
//!
//! Further options: `in a100/us` (bids: `in a100/us,a100/eu`) if there are several markets, `by p2` for a
//! command in the name of another account, `key k` for a client key. Refusals are drawn where they
//! happen.

mod drawing;
mod words;

use drawing::Cast;
use expect_test::Expect;
use kubebid_core::answer::Outcome;
use kubebid_core::command::{
    CancelMode, FundChange, OnPreemption, PlaceBid, RestingUnits, RuleChange, RuleValue, TimeInForce,
};
use kubebid_core::event::{Event, Fact};
use kubebid_core::state_dump::AllocationState;
use kubebid_core::units::{
    AccountName, AllocationId, ClientKey, InstanceType, MarketId, MarketName, Micros, UnitName,
};
use kubebid_core::{Auction, Command, Exchange, Price, StampedCommand};
use words::Words;

/// The market of a story that opens none.
const MARKET: &str = "a100/eu";
/// A number that no bid and no allocation has.
const NOBODY: u64 = 1_000_000;

/// Plays the story and compares its drawings. Plays it once more with the clock moved in between, which
/// changes nothing (R1). `UPDATE_EXPECT=1` writes the drawings down.
pub(crate) fn check(story: &str, drawn: Expect) {
    let told = narrate(story, Clock::AsWritten);
    drawn.assert_eq(&told);
    assert_eq!(told, narrate(story, Clock::Ticking), "R1: advancing the time in between changed something");
}

fn narrate(story: &str, clock: Clock) -> String {
    let mut teller = Teller { clock, ..Teller::default() };
    let lines = story.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    for line in &lines {
        teller.line(line);
    }
    let drawings = ["show", "numbers", "quote", "events", "bills", "funds"];
    if lines.last().is_none_or(|line| !drawings.iter().any(|word| line.starts_with(word))) {
        teller.line("show");
    }
    teller.pages
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Clock {
    /// The clock moves only with the commands.
    #[default]
    AsWritten,
    /// The clock moves by itself too: `AdvanceTime` comes before every command.
    Ticking,
}

#[derive(Default)]
struct Teller {
    exchange: Exchange,
    clock: Clock,
    cast: Cast,
    /// The events of the last line.
    events: Vec<Event>,
    /// The charges that were not drawn yet.
    charges: Vec<Event>,
    pages: String,
    /// The number of client keys that were made up.
    keys: u64,
}

impl Teller {
    fn line(&mut self, line: &str) {
        let mut words = Words::new(line);
        let at = words.time(self.exchange.now());
        let Some(verb) = words.next() else {
            self.events.clear();
            return self.send(line, at, None, Command::AdvanceTime);
        };
        match verb {
            "show" => self.draw(Cast::show),
            "funds" => self.draw(Cast::funds),
            "numbers" => self.draw(Cast::numbers),
            "events" => {
                let page = self.cast.events(&self.exchange, &self.events);
                self.page(&page);
            }
            "bills" => {
                let charges = std::mem::take(&mut self.charges);
                let page = self.cast.events(&self.exchange, &charges);
                self.page(&page);
            }
            "quote" => {
                let market = self.market_id(&mut words);
                let mut page = String::new();
                while let Some(nodes) = words.next().map(words::number) {
                    let entry = drawing::price(self.exchange.entry_price(market, nodes));
                    page.push_str(&format!("entry for {nodes}: {entry}\n"));
                }
                self.page(&page);
            }
            verb => self.act(line, verb, &mut words, at),
        }
        words.end();
    }

    fn draw(&mut self, drawing: fn(&Cast, &Exchange) -> String) {
        let page = drawing(&self.cast, &self.exchange);
        self.page(&page);
    }

    /// Adds a drawing. Drawings are separated by an empty line; refusals are drawn where they happen.
    fn page(&mut self, page: &str) {
        if !self.pages.is_empty() {
            self.pages.push('\n');
        }
        self.pages.push_str(if page.is_empty() { "nothing\n" } else { page });
    }

    fn act(&mut self, line: &str, verb: &str, words: &mut Words, at: Micros) {
        self.events.clear();
        if self.exchange.names().markets.is_empty() && verb != "market" {
            let market = MarketName::new(MARKET);
            let rules = vec![short_protection()];
            self.send("market", self.exchange.now(), None, Command::OpenMarket { market, rules });
            self.events.clear();
        }
        let key = words.after("key").map(ClientKey::new);
        let key = key.or_else(|| (verb == "fund").then(|| self.next_key()));
        let key = key.filter(|_| !words.flag("keyless"));
        let by = words.after("by").map(AccountName::new);
        for command in self.commands(verb, words, by) {
            self.send(line, at, key.clone(), command);
        }
    }

    fn commands(&mut self, verb: &str, words: &mut Words, by: Option<AccountName>) -> Vec<Command> {
        vec![match verb {
            "market" => {
                let market = MarketName::new(words.name_with('/').unwrap_or(MARKET));
                let is_new = self.exchange.market_id(&market).is_none();
                let rules = is_new.then(short_protection).into_iter().chain(words.rules()).collect();
                Command::OpenMarket { market, rules }
            }
            "rules" => {
                let named = words.name_with('/').map(MarketName::new);
                let market = named.unwrap_or_else(|| self.only_market());
                Command::ChangeRules { market, rules: words.rules() }
            }
            "close" => Command::CloseMarket { market: self.market_in(words) },
            "offer" => Command::PutOffer {
                market: self.market_in(words),
                reserve: words.price_at().expect("a reserve"),
                provider: AccountName::new(words.must()),
                capacity: words.number(),
            },
            "bid" => Command::PlaceBid(self.bid(words)),
            "amend" => {
                let (bid, tenant) = self.cast.bid_named(words.must());
                let max_nodes = words.after("to").map(words::number);
                Command::AmendBid { tenant: by.unwrap_or(tenant), bid, ceiling: words.price_at(), max_nodes }
            }
            "cancel" => {
                let (bid, tenant) = self.cast.bid_named(words.must());
                let mode = match words.must() {
                    "keep" => CancelMode::Keep,
                    "release" => CancelMode::Release,
                    "regroup" => CancelMode::Regroup,
                    other => CancelMode::Unknown(other.into()),
                };
                Command::CancelBid { tenant: by.unwrap_or(tenant), bid, mode }
            }
            "release" => {
                let (allocation, tenant) = self.node_on(words.must());
                Command::ReleaseAllocation { tenant: by.or(tenant).expect("whose node"), allocation }
            }
            "ready" => {
                let mut nodes: Vec<AllocationId> = Vec::new();
                while let Some(unit) = words.next() {
                    nodes.push(self.node_on(unit).0);
                }
                if nodes.is_empty() {
                    nodes = self.starting();
                }
                return nodes
                    .into_iter()
                    .map(|allocation| Command::ReportReady { allocation, by: by.clone() })
                    .collect();
            }
            "withdraw" => {
                let unit = self.unit(words.must());
                Command::WithdrawUnit { provider: by.unwrap_or(unit.provider.clone()), unit }
            }
            "resume" => {
                let market = self.market_in(words);
                let named = words.must();
                let (provider, units) = if named.contains('/') {
                    let unit = self.unit(named);
                    (unit.provider.clone(), RestingUnits::One(unit))
                } else {
                    (AccountName::new(named), RestingUnits::AllIn(market))
                };
                Command::ResumeUnits { provider: by.unwrap_or(provider), units }
            }
            "fund" => {
                let account = AccountName::new(words.must());
                let change = match words.must() {
                    "add" => FundChange::Add(words.amount()),
                    "set" => FundChange::Set(words.amount()),
                    "unlimited" => FundChange::Unlimited,
                    other => panic!("no story knows how to fund with {other:?}"),
                };
                Command::Fund { account, change }
            }
            "budget" => {
                let roll_over = words.flag("rolls");
                let account = AccountName::new(words.must());
                let monthly = (!words.flag("none")).then(|| words.amount());
                Command::SetBudget { account, monthly, roll_over }
            }
            "renewals" => Command::SetRenewal { renewal: words::span(words.must()) },
            "lost" => {
                let unit = self.unit(words.must());
                Command::ReportUnitLost { provider: by.unwrap_or(unit.provider.clone()), unit }
            }
            other => panic!("no story knows what {other:?} is"),
        }]
    }

    fn bid(&mut self, words: &mut Words) -> PlaceBid {
        let instance_type = words.after("type").map(InstanceType::new);
        let named = words.after("in").map(|names| names.split(',').map(MarketName::new).collect());
        let markets = match (named, &instance_type) {
            (None, None) => Some(vec![self.only_market()]),
            (named, _) => named,
        };
        let name = words.after("as");
        let min_nodes = words.after("min").map_or(1, words::number);
        let expire_at = words.after("until").map(words::span);
        let time_in_force = match (words.flag("ioc"), expire_at) {
            (true, _) => TimeInForce::Ioc,
            (false, Some(_)) => TimeInForce::Gtt,
            (false, None) => TimeInForce::Gtc,
        };
        let on_preemption = if words.flag("close") { OnPreemption::Close } else { OnPreemption::Requeue };
        let ceiling = words.price_at().expect("a ceiling");
        let tenant = words.must();
        let max_nodes = words.number();
        self.cast.next = name.unwrap_or(tenant).to_owned();
        PlaceBid {
            tenant: AccountName::new(tenant),
            markets,
            instance_type,
            ceiling,
            min_nodes,
            max_nodes,
            time_in_force,
            expire_at,
            on_preemption,
        }
    }

    fn send(&mut self, line: &str, at: Micros, key: Option<ClientKey>, command: Command) {
        if self.clock == Clock::Ticking {
            let now = self.exchange.now();
            let ahead = at.since(now).0;
            for part in 0..=3 {
                self.apply(now.after(Micros(ahead / 3 * part)), None, Command::AdvanceTime);
            }
            self.apply(now.max(at), None, Command::AdvanceTime);
        }
        match self.apply(at, key, command) {
            Outcome::Accepted => {}
            Outcome::Rejected(reject) => self.pages.push_str(&format!("{line}: {reject}\n")),
            Outcome::Repeated { refusal, .. } => {
                let first = refusal.map_or("ACCEPTED", |reject| reject.code());
                self.pages.push_str(&format!("{line}: REPEATED, {first}\n"));
            }
        }
    }

    fn apply(&mut self, at: Micros, key: Option<ClientKey>, command: Command) -> Outcome {
        let answer = self.exchange.apply(&StampedCommand { at, key, command });
        for event in answer.events {
            if let Fact::BidPlaced { bidder, .. } = &event.fact {
                let tenant = self.exchange.names().account(bidder.tenant).clone();
                self.cast.enter(bidder.bid, tenant);
            }
            if let Fact::Charged { .. } = &event.fact {
                self.charges.push(event.clone());
            }
            self.events.push(event);
        }
        self.cast.balance(&self.exchange);
        answer.outcome
    }

    fn only_market(&self) -> MarketName {
        let [market] = &self.exchange.names().markets[..] else { panic!("say in which market") };
        market.clone()
    }

    fn market_in(&self, words: &mut Words) -> MarketName {
        words.after("in").map_or_else(|| self.only_market(), MarketName::new)
    }

    fn market_id(&self, words: &mut Words) -> MarketId {
        let name = self.market_in(words);
        let at = self.exchange.names().markets.iter().position(|market| *market == name);
        MarketId(at.expect("a market") as u32)
    }

    /// Parses `p1/1`, or `a100/us:p1/1` if there are several markets.
    fn unit(&self, text: &str) -> UnitName {
        let (market, unit) = match text.split_once(':') {
            Some((market, unit)) => (MarketName::new(market), unit),
            None => (self.only_market(), text),
        };
        let (provider, number) = unit.split_once('/').expect("a unit is provider/number");
        UnitName { market, provider: AccountName::new(provider), number: words::number(number) }
    }

    /// Returns the node on a unit, or the one with a number, `node-3`, and its tenant.
    fn node_on(&self, text: &str) -> (AllocationId, Option<AccountName>) {
        if let Some(number) = text.strip_prefix("node-") {
            return (AllocationId(words::number(number)), None);
        }
        let unit = self.unit(text);
        let dump = self.exchange.dump();
        let node = dump.allocations.iter().find(|a| self.exchange.names().unit(a.unit) == unit);
        let Some(node) = node else { return (AllocationId(NOBODY), None) };
        (node.allocation, Some(self.cast.tenant_of(node.bid)))
    }

    /// Returns a client key that no other command has.
    fn next_key(&mut self) -> ClientKey {
        self.keys += 1;
        ClientKey::new(&format!("fund {}", self.keys))
    }

    fn starting(&self) -> Vec<AllocationId> {
        let dump = self.exchange.dump();
        let starting = dump.allocations.iter().filter(|a| a.state == AllocationState::Starting);
        starting.map(|a| a.allocation).collect()
    }
}

/// Returns the minimum runtime of a story's market: shorter than the default, so that a story is soon told.
fn short_protection() -> RuleChange {
    RuleChange::number("min_runtime_us", 900 * 1_000_000)
}

impl Words<'_> {
    fn rules(&mut self) -> Vec<RuleChange> {
        let mut rules = Vec::new();
        while let Some((name, value)) = self.pair() {
            let name = match name {
                "increment" | "fee" => format!("{name}_bps"),
                "min_runtime" | "notice" | "start_timeout" | "min_charge" => format!("{name}_us"),
                other => other.to_owned(),
            };
            let value = match words::measure(value) {
                Some(number) => RuleValue::Number(number),
                None => RuleValue::Word(value.into()),
            };
            rules.push(RuleChange { name: name.into(), value });
        }
        rules
    }

    /// Parses what follows `@`.
    fn price_at(&mut self) -> Option<Price> {
        self.after("@").map(|price| Price(words::dollars(price)))
    }
}
