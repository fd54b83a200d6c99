//! The stage of a run: an exchange, the truthful rivals and providers of a book or the world around it, and the agent
//! that follows its policy.

mod agent;

use super::book::{BOOT, Book, Need, Outside, Rival};
use super::ledger::{Ledger, Outcome};
use super::policy::{ACCOUNTS, Policy, SLOTS, Trigger};
use crate::agenda::{Agenda, Step};
use crate::bid::standing_bid;
use crate::venue::{Venue, VenueError};
use kubebid_core::command::{CancelMode, PlaceBid, RuleChange};
use kubebid_core::numbers::Supply;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketId, MarketName, Micros, Names};
use kubebid_core::{Answer, Auction, Command, Event, Exchange, Fact, Price, StampedCommand};
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Copy, Debug)]
enum Due {
    Outside(usize),
    Comes(usize),
    Leaves(usize),
    Ready(AllocationId),
    Begin,
    /// The agent leaves.
    End,
    /// The agent goes on with an action of a rule.
    Acts(usize, usize, Context),
    /// A rule of the agent that depends on a node.
    Node(usize, Context),
    /// A rule of the agent that comes again.
    Again(usize),
}

/// Steps of one instant are taken in the order in which they were planned.
impl Step for Due {}

/// The bid and the node that a trigger is about.
#[derive(Clone, Copy, Debug, Default)]
struct Context {
    slot: usize,
    node: Option<AllocationId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    bid: Option<BidId>,
    market: usize,
}

/// The agent's means and needs.
#[derive(Clone, Debug)]
pub(super) struct Means {
    pub(super) need: Need,
    pub(super) machines: u64,
    pub(super) cost: Price,
    pub(super) self_reporting: bool,
    /// Node-hours to which gains are compared.
    pub(super) node_hours: f64,
    pub(super) markets: Vec<MarketName>,
    pub(super) tick: u64,
}

/// An exchange with an agent.
pub(super) struct Stage<'a> {
    exchange: Exchange,
    policy: &'a Policy,
    means: Means,
    accounts: [AccountName; ACCOUNTS],
    slots: [Slot; SLOTS],
    by_bid: BTreeMap<BidId, usize>,
    silent: bool,
    agenda: Agenda<Due>,
    /// Triggers that have not been followed yet.
    triggers: VecDeque<(Trigger, Context)>,
    now: Micros,
    commands: u32,
    commands_at_once: u32,
    acts_since: Micros,
    ledger: Ledger,
    /// The book, or none if a world drives the stage.
    book: Option<Book>,
    rivals: Vec<Option<BidId>>,
    /// True when the agent has left.
    gone: bool,
    /// Events that the world has not seen yet, of one command each.
    unseen: Vec<Vec<Event>>,
    /// Events that come before the world's last command.
    before: Vec<Vec<Event>>,
}

impl<'a> Stage<'a> {
    /// Makes the stage of a small book, in which everybody's next steps are planned.
    pub(super) fn of_book(book: Book, policy: &'a Policy, rules: &[RuleChange]) -> Stage<'a> {
        let hours = book.end.0 as f64 / Micros::HOUR.0 as f64;
        let node_hours = match (book.agent.nodes, book.machines) {
            (0, 0) => book.rivals.iter().map(|rival| rival.need.node_hours()).sum(),
            (0, machines) => machines as f64 * hours,
            _ => book.agent.node_hours(),
        };
        let names = ["node/a", "node/b"].map(MarketName::new);
        let means = Means {
            need: book.agent,
            machines: book.machines,
            cost: book.cost,
            self_reporting: book.self_reporting,
            node_hours,
            markets: names[..book.markets].to_vec(),
            tick: super::book::TICK,
        };
        let mut stage = Stage::new(means, policy);
        for market in stage.means.markets.clone() {
            let tick = RuleChange::number("tick", super::book::TICK);
            let rules = std::iter::once(tick).chain(rules.iter().cloned()).collect();
            stage.send(Command::OpenMarket { market, rules });
        }
        for (n, (at, _)) in book.outside.iter().enumerate() {
            stage.agenda.plan(*at, Due::Outside(n));
        }
        for (n, Rival { need, .. }) in book.rivals.iter().enumerate() {
            stage.agenda.plan(need.from, Due::Comes(n));
            stage.agenda.plan(need.to, Due::Leaves(n));
        }
        stage.rivals = vec![None; book.rivals.len()];
        stage.book = Some(book);
        stage
    }

    /// Makes the stage of a world, which opens its market and drives the stage as its venue.
    pub(super) fn of_world(means: Means, policy: &'a Policy) -> Stage<'a> {
        let end = means.need.to;
        let mut stage = Stage::new(means, policy);
        stage.agenda.plan(end, Due::End);
        stage
    }

    fn new(means: Means, policy: &'a Policy) -> Stage<'a> {
        let mut agenda = Agenda::new();
        agenda.plan(means.need.from, Due::Begin);
        let ledger = Ledger::new(means.need, means.cost, means.node_hours);
        Stage {
            exchange: Exchange::new(),
            policy,
            means,
            accounts: [1, 2, 3].map(|n| AccountName::new(&format!("agent-{n}"))),
            slots: [Slot::default(); SLOTS],
            by_bid: BTreeMap::new(),
            silent: false,
            agenda,
            triggers: VecDeque::new(),
            now: Micros(0),
            commands: 0,
            commands_at_once: 0,
            acts_since: Micros(0),
            ledger,
            book: None,
            rivals: Vec::new(),
            gone: false,
            unseen: Vec::new(),
            before: Vec::new(),
        }
    }

    /// Takes all steps up to and at `end`.
    pub(super) fn run_until(&mut self, end: Micros) {
        loop {
            let due = self.exchange.next_due().filter(|due| *due <= end);
            let step = self.agenda.next_at().filter(|at| *at <= end);
            match (due, step) {
                (Some(due), step) if step.is_none_or(|step| due <= step) => {
                    self.now = self.now.max(due);
                    self.send(Command::AdvanceTime);
                }
                (_, Some(step)) => {
                    self.now = self.now.max(step);
                    let due = self.agenda.take_due(step).expect("a step is due");
                    self.meet(due);
                }
                (_, None) => return,
            }
            self.follow();
        }
    }

    /// Ends the run: the agent leaves, and the accounts of the others are drawn up.
    pub(super) fn finish(mut self, end: Micros) -> Outcome {
        self.run_until(end);
        self.now = end;
        self.send(Command::AdvanceTime);
        self.leave();
        for id in self.exchange.held_allocations() {
            let node = self.exchange.view_allocation(id).expect("it is held");
            self.ledger.charged(node.tenant, node.unit.provider, node.accrued.0 as f64 / 1e6, 0.0);
        }
        self.ledger.close(end)
    }

    fn meet(&mut self, due: Due) {
        match due {
            Due::Outside(n) => self.outside(n),
            Due::Comes(n) => self.comes(n),
            Due::Leaves(n) => self.leaves(n),
            Due::Ready(node) => self.ready(node),
            Due::Begin => self.begin(),
            Due::End => self.leave(),
            Due::Acts(rule, action, context) => self.act(rule, action, context),
            Due::Node(rule, context) => self.node_rule(rule, context),
            Due::Again(rule) => {
                if let Trigger::Every(seconds) = self.policy.rules[rule].when {
                    self.agenda.plan(self.now.after(Micros::seconds(seconds.max(1).into())), due);
                }
                self.start(rule, Context::default());
            }
        }
    }

    fn outside(&mut self, n: usize) {
        let book = self.book.as_ref().expect("a small book");
        let market = |market: usize| self.means.markets[market].clone();
        let command = match book.outside[n].1 {
            Outside::Offer(provider, at, capacity, reserve) => Command::PutOffer {
                provider: AccountName::new(&format!("provider-{}", provider + 1)),
                market: market(at),
                capacity,
                reserve,
            },
            Outside::Close(at) => Command::CloseMarket { market: market(at) },
        };
        self.send(command);
    }

    fn comes(&mut self, n: usize) {
        let Rival { need, markets } = &self.book.as_ref().expect("a small book").rivals[n];
        let markets = markets.iter().map(|market| self.means.markets[*market].clone()).collect();
        let bid = PlaceBid { markets: Some(markets), ..standing_bid(rival(n), need.value, need.nodes) };
        let answer = self.send(Command::PlaceBid(bid));
        self.rivals[n] = Some(BidId(answer.seq.0));
    }

    fn leaves(&mut self, n: usize) {
        let end = self.book.as_ref().expect("a small book").end;
        if let Some(bid) = self.rivals[n].filter(|_| self.now < end) {
            self.send(Command::CancelBid { tenant: rival(n), bid, mode: CancelMode::Release });
        }
    }

    fn ready(&mut self, allocation: AllocationId) {
        let Some(node) = self.exchange.view_allocation(allocation) else { return };
        let silent = self.silent && self.means.self_reporting && self.ledger.is_ours(node.tenant);
        if node.ready_at.is_none() && !silent {
            self.send(Command::ReportReady { allocation, by: None });
        }
    }

    /// Applies a command of anybody, and notes its events.
    fn send(&mut self, command: Command) -> Answer {
        let answer = self.exchange.apply(&StampedCommand { at: self.now, key: None, command });
        self.note(&answer.events);
        answer
    }

    /// Notes events: in the ledger, in the agenda and as triggers of the agent.
    fn note(&mut self, events: &[Event]) {
        for event in events {
            self.ledger.on_event(event);
            self.on_event(event);
        }
        if self.book.is_none() && !events.is_empty() {
            self.unseen.push(events.to_vec());
        }
    }

    fn on_event(&mut self, Event { at, fact }: &Event) {
        let slot_of = |bid: &BidId| self.by_bid.get(bid).copied();
        match fact {
            Fact::Allocated { node } => {
                let (ours, sold) =
                    (self.ledger.is_ours(node.tenant), self.ledger.is_ours(node.unit.provider));
                // Tenants find no machine behind a unit that the agent only pretends to have.
                let real = ours || !sold || self.means.machines > 0;
                if real && (ours || sold || self.book.is_some()) {
                    self.agenda.plan(at.after(BOOT), Due::Ready(node.allocation));
                }
                match slot_of(&node.bid) {
                    Some(slot) => {
                        self.triggers.push_back((Trigger::Got, Context { slot, node: Some(node.allocation) }))
                    }
                    None if sold => self.triggers.push_back((Trigger::Sold, Context::default())),
                    None => {}
                }
            }
            Fact::Ready { node } => {
                let Some(slot) = slot_of(&node.bid) else { return };
                let context = Context { slot, node: Some(node.allocation) };
                self.triggers.push_back((Trigger::Ready, context));
                let end = self.exchange.view_allocation(node.allocation).map(|node| node.protected_until);
                for (n, rule) in self.policy.rules.iter().enumerate() {
                    if let (Trigger::Unprotected(seconds), Some(end)) = (rule.when, end) {
                        let at = end.after(Micros::seconds(seconds.into()));
                        self.agenda.plan(at, Due::Node(n, context));
                    }
                }
            }
            Fact::NoticeStarted { node, deadline, .. } => {
                let Some(slot) = slot_of(&node.bid) else { return };
                let context = Context { slot, node: Some(node.allocation) };
                self.triggers.push_back((Trigger::Notice, context));
                for (n, rule) in self.policy.rules.iter().enumerate() {
                    if let Trigger::Deadline(seconds) = rule.when {
                        let at = Micros(deadline.0.saturating_sub(u64::from(seconds) * 1_000_000));
                        self.agenda.plan(at.max(self.now), Due::Node(n, context));
                    }
                }
            }
            Fact::NoticeRescinded { node, .. } => self.trigger(Trigger::Rescinded, node.bid),
            Fact::Ended { node, .. } => self.trigger(Trigger::Lost, node.bid),
            Fact::Claimed { by, .. } => self.trigger(Trigger::Claimed, by.bid),
            Fact::ClaimDropped { by, .. } => self.trigger(Trigger::ClaimDropped, by.bid),
            Fact::PriceChanged { .. } => self.triggers.push_back((Trigger::Price, Context::default())),
            Fact::MarketOpened { .. }
            | Fact::RulesChanged { .. }
            | Fact::MarketClosing { .. }
            | Fact::MarketEnded { .. }
            | Fact::OfferPut { .. }
            | Fact::UnitAdded { .. }
            | Fact::UnitLeaving { .. }
            | Fact::UnitBack { .. }
            | Fact::UnitResting { .. }
            | Fact::UnitResumed { .. }
            | Fact::UnitRemoved { .. }
            | Fact::BidPlaced { .. }
            | Fact::BidAmended { .. }
            | Fact::BidClosed { .. }
            | Fact::Charged { .. }
            | Fact::NoticeMoved { .. }
            | Fact::Funded { .. }
            | Fact::BudgetSet { .. }
            | Fact::BudgetRenewed { .. }
            | Fact::RenewalSet { .. }
            | Fact::Rejected { .. }
            | Fact::Repeated { .. } => {}
        }
    }

    fn trigger(&mut self, when: Trigger, bid: BidId) {
        if let Some(slot) = self.by_bid.get(&bid).copied() {
            self.triggers.push_back((when, Context { slot, node: None }));
        }
    }
}

fn rival(n: usize) -> AccountName {
    AccountName::new(&format!("rival-{}", n + 1))
}

/// A world sends its commands through the stage. The agent acts between them.
impl Venue for Stage<'_> {
    fn apply(&mut self, command: &StampedCommand) -> Result<Answer, VenueError> {
        self.run_until(command.at);
        self.now = self.now.max(command.at);
        let answer = self.exchange.apply(&StampedCommand { at: self.now, ..command.clone() });
        self.before.append(&mut self.unseen);
        self.note(&answer.events);
        // The world gets these from the answer.
        self.unseen.clear();
        self.follow();
        Ok(answer)
    }

    fn take_others(&mut self) -> Vec<Vec<Event>> {
        std::mem::take(&mut self.before)
    }

    fn names(&self) -> &Names {
        self.exchange.names()
    }

    fn price_to_stay(&mut self, node: AllocationId) -> Result<Option<Price>, VenueError> {
        let notice = self.exchange.view_allocation(node).and_then(|node| node.notice);
        Ok(notice.and_then(|notice| notice.price_to_stay))
    }

    fn supply(&mut self, market: MarketId) -> Result<Supply, VenueError> {
        Ok(self.exchange.market_numbers(market).1)
    }

    fn name(&self) -> String {
        "with an agent".to_owned()
    }
}
