//! The stage of a run: an exchange, the truthful rivals and providers of a book or the world around it, and the agent
//! that follows its policy.

use super::book::{BOOT, Book, Need, Outside, Rival};
use super::ledger::{Ledger, Outcome};
use super::policy::{
    ACCOUNTS, Action, BasePrice, BidChoice, Condition, Force, Level, MarketChoice, Mode, NewBid, NodeChoice,
    Policy, SLOTS, SLOTS_PER_ACCOUNT, Trigger,
};
use crate::agenda::{Agenda, Step};
use crate::bid::standing_bid;
use crate::venue::{Venue, VenueError};
use kubebid_core::answer::Outcome as Verdict;
use kubebid_core::command::{CancelMode, OnPreemption, PlaceBid, RestingUnits, RuleChange, TimeInForce};
use kubebid_core::numbers::Supply;
use kubebid_core::units::{
    AccountName, AllocationId, BidId, InstanceType, MarketId, MarketName, Micros, Names, UnitName,
};
use kubebid_core::views::BidView;
use kubebid_core::{Answer, Auction, Command, Event, Exchange, Fact, Price, StampedCommand};
use std::collections::{BTreeMap, VecDeque};

/// Commands of the agent in a run, and at one instant, at most. A policy that wants more loops.
const COMMANDS: u32 = 6000;
const COMMANDS_AT_ONCE: u32 = 120;
/// Nodes of an offer of the agent, at most.
const CAPACITY: u8 = 8;

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

    /// Cancels all bids of the agent, which does nothing more.
    fn leave(&mut self) {
        self.gone = true;
        for slot in 0..SLOTS {
            if let Some(bid) = self.open_bid(slot) {
                let tenant = self.account_of(slot);
                self.send(Command::CancelBid { tenant, bid: bid.bid, mode: CancelMode::Release });
            }
        }
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

    /// Applies a command of the agent, unless it has sent too many. Returns true if it was accepted.
    fn submit(&mut self, command: Command, slot: Option<usize>) -> bool {
        if self.acts_since != self.now {
            (self.acts_since, self.commands_at_once) = (self.now, 0);
        }
        if self.commands >= COMMANDS || self.commands_at_once >= COMMANDS_AT_ONCE {
            return false;
        }
        (self.commands, self.commands_at_once) = (self.commands + 1, self.commands_at_once + 1);
        let answer = self.exchange.apply(&StampedCommand { at: self.now, key: None, command });
        for account in self.accounts.iter().filter_map(|name| self.exchange.account_id(name)) {
            self.ledger.own(account);
        }
        let accepted = answer.outcome == Verdict::Accepted;
        if let Some(slot) = slot.filter(|_| accepted) {
            let bid = BidId(answer.seq.0);
            self.slots[slot].bid = Some(bid);
            self.by_bid.insert(bid, slot);
        }
        if accepted {
            self.ledger.command_accepted();
        }
        self.note(&answer.events);
        accepted
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
            | Fact::Rejected { .. }
            | Fact::Repeated { .. } => {}
        }
    }

    fn trigger(&mut self, when: Trigger, bid: BidId) {
        if let Some(slot) = self.by_bid.get(&bid).copied() {
            self.triggers.push_back((when, Context { slot, node: None }));
        }
    }

    /// Follows the triggers of the last step, and those that the agent's own commands bring about.
    fn follow(&mut self) {
        while let Some((when, context)) = self.triggers.pop_front() {
            for rule in 0..self.policy.rules.len() {
                if self.policy.rules[rule].when == when {
                    self.start(rule, context);
                }
            }
        }
    }

    fn begin(&mut self) {
        for rule in 0..self.policy.rules.len() {
            match self.policy.rules[rule].when {
                Trigger::Begin => self.start(rule, Context::default()),
                Trigger::At(seconds) => {
                    let at = self.now.after(Micros::seconds(seconds.into()));
                    self.agenda.plan(at, Due::Acts(rule, usize::MAX, Context::default()));
                }
                Trigger::Every(seconds) => {
                    let at = self.now.after(Micros::seconds(seconds.max(1).into()));
                    self.agenda.plan(at, Due::Again(rule));
                }
                Trigger::Notice
                | Trigger::Deadline(_)
                | Trigger::Rescinded
                | Trigger::Claimed
                | Trigger::ClaimDropped
                | Trigger::Got
                | Trigger::Ready
                | Trigger::Unprotected(_)
                | Trigger::Lost
                | Trigger::Price
                | Trigger::Sold => {}
            }
        }
    }

    /// Follows a rule that was planned for a node, if it still fits the node.
    fn node_rule(&mut self, rule: usize, context: Context) {
        let node = context.node.and_then(|node| self.exchange.view_allocation(node));
        let Some(node) = node else { return };
        let fits = if let Trigger::Deadline(seconds) = self.policy.rules[rule].when {
            let near = |deadline: Micros| deadline.since(self.now) <= Micros::seconds(seconds.into());
            node.notice.is_some_and(|notice| near(notice.deadline))
        } else {
            node.notice.is_none()
        };
        if fits {
            self.start(rule, context);
        }
    }

    fn start(&mut self, rule: usize, context: Context) {
        self.act(rule, usize::MAX, context);
    }

    /// Does the actions of a rule from one on; from the beginning, if its conditions hold, for `usize::MAX`.
    fn act(&mut self, rule: usize, from: usize, context: Context) {
        let policy = self.policy;
        let Some(rule_of) = policy.rules.get(rule).filter(|_| !self.gone) else { return };
        let from = if from == usize::MAX {
            if !rule_of.given.iter().all(|given| self.holds(*given, context)) {
                return;
            }
            0
        } else {
            from
        };
        for (n, act) in rule_of.acts.iter().enumerate().skip(from) {
            if let Action::Wait(seconds) = act {
                let at = self.now.after(Micros::seconds((*seconds).max(1).into()));
                self.agenda.plan(at, Due::Acts(rule, n + 1, context));
                return;
            }
            self.perform(*act, context);
        }
    }

    fn open_bid(&self, slot: usize) -> Option<BidView> {
        let bid = self.exchange.view_bid(self.slots[slot].bid?)?;
        let holds = [&bid.live, &bid.under_notice, &bid.claims].into_iter().any(|nodes| !nodes.is_empty());
        (bid.searching || holds).then_some(bid)
    }

    fn account_of(&self, slot: usize) -> AccountName {
        self.accounts[slot / SLOTS_PER_ACCOUNT].clone()
    }

    /// Returns the slots that an action is about.
    fn slots_of(&self, who: BidChoice, context: Context) -> Vec<usize> {
        match who {
            BidChoice::This => vec![context.slot],
            BidChoice::Slot(slot) => vec![usize::from(slot) % SLOTS],
            BidChoice::Next(of) => vec![(context.slot + 1) % usize::from(of.max(1)).min(SLOTS)],
            BidChoice::All => (0..SLOTS).filter(|slot| self.slots[*slot].bid.is_some()).collect(),
        }
    }

    fn holds(&self, given: Condition, context: Context) -> bool {
        let bid = self.open_bid(context.slot);
        let bid = bid.as_ref();
        let market = self.slots[context.slot].market;
        let numbers = || self.exchange.market_numbers(MarketId(market as u32));
        let is_protected = |node: &AllocationId| {
            self.exchange.view_allocation(*node).is_some_and(|node| self.now < node.protected_until)
        };
        match given {
            Condition::Protected(yes) => bid.is_some_and(|bid| bid.live.iter().any(is_protected)) == yes,
            Condition::UnderNotice(yes) => bid.is_some_and(|bid| !bid.under_notice.is_empty()) == yes,
            Condition::Claims(yes) => bid.is_some_and(|bid| !bid.claims.is_empty()) == yes,
            Condition::Full(yes) => bid.is_some_and(|bid| bid.unmet == 0) == yes,
            Condition::Rivals(yes) => {
                let own = bid.filter(|bid| bid.unmet > 0).map(|bid| bid.ceiling);
                let losing = numbers().0.highest_losing;
                (losing > Price::ZERO && own != Some(losing)) == yes
            }
            Condition::FreeUnits(yes) => (numbers().1.free > 0) == yes,
            Condition::PriceAtLeast(level) => {
                let price = self.price(level, context.slot, market);
                price.is_some_and(|price| numbers().0.market_price >= price)
            }
            Condition::EntryAtMost(level) => {
                let price = self.price(level, context.slot, market);
                price.zip(numbers().0.entry_price).is_some_and(|(price, entry)| entry <= price)
            }
            Condition::CeilingBelow(level) => {
                let price = self.price(level, context.slot, market);
                price.zip(bid).is_some_and(|(price, bid)| bid.ceiling < price)
            }
        }
    }

    /// Computes a level as the agent sees it; none if what it starts from is not there.
    fn price(&self, level: Level, slot: usize, market: usize) -> Option<Price> {
        let numbers = self.exchange.market_numbers(MarketId(market as u32)).0;
        let base = match level.base {
            BasePrice::Value if self.means.need.nodes > 0 => self.means.need.value,
            BasePrice::Value if self.means.machines > 0 => self.means.cost,
            BasePrice::Value => return None,
            BasePrice::Floor => numbers.floor?,
            BasePrice::Market => numbers.market_price,
            BasePrice::Entry => numbers.entry_price?,
            BasePrice::Losing => Some(numbers.highest_losing).filter(|price| *price > Price::ZERO)?,
            BasePrice::Lowest => numbers.lowest_accepted?,
            BasePrice::Stay => {
                let notices = self.open_bid(slot)?.under_notice.into_iter();
                let stay = |node| self.exchange.view_allocation(node)?.notice?.price_to_stay;
                notices.filter_map(stay).max()?
            }
            BasePrice::Ceiling => self.open_bid(slot)?.ceiling,
        };
        Some(level.of_price(base, self.means.tick))
    }

    fn perform(&mut self, act: Action, context: Context) {
        match act {
            Action::Bid(bid) => self.place(bid),
            Action::Ceiling(who, level) => {
                for slot in self.slots_of(who, context) {
                    let Some(bid) = self.open_bid(slot) else { continue };
                    let price = self.price(level, slot, self.slots[slot].market);
                    let Some(ceiling) = price.filter(|price| *price != bid.ceiling) else { continue };
                    let tenant = self.account_of(slot);
                    let ceiling = Some(ceiling);
                    self.submit(Command::AmendBid { tenant, bid: bid.bid, ceiling, max_nodes: None }, None);
                }
            }
            Action::Size(who, count) => {
                let nodes = count.of(self.means.need.nodes).max(1);
                for slot in self.slots_of(who, context) {
                    let Some(bid) = self.open_bid(slot).filter(|bid| bid.max_nodes != nodes) else {
                        continue;
                    };
                    let tenant = self.account_of(slot);
                    let max_nodes = Some(nodes);
                    self.submit(Command::AmendBid { tenant, bid: bid.bid, ceiling: None, max_nodes }, None);
                }
            }
            Action::Cancel(who, mode) => {
                for slot in self.slots_of(who, context) {
                    let Some(bid) = self.open_bid(slot) else { continue };
                    let mode = match mode {
                        Mode::Keep => CancelMode::Keep,
                        Mode::Release => CancelMode::Release,
                        Mode::Regroup => CancelMode::Regroup,
                    };
                    let tenant = self.account_of(slot);
                    self.submit(Command::CancelBid { tenant, bid: bid.bid, mode }, None);
                }
            }
            Action::Release(who, which) => {
                for slot in self.slots_of(who, context) {
                    for allocation in self.chosen(slot, which) {
                        let tenant = self.account_of(slot);
                        self.submit(Command::ReleaseAllocation { tenant, allocation }, None);
                    }
                }
            }
            Action::Offer(who, place, capacity, level) => {
                let market = place.market(self.means.markets.len());
                let Some(reserve) = self.price(level, context.slot, market) else { return };
                let most = if self.means.machines > 0 { self.means.machines as u8 } else { CAPACITY };
                let provider = self.accounts[usize::from(who) % ACCOUNTS].clone();
                let market = self.means.markets[market].clone();
                let capacity = u64::from(capacity.min(most));
                self.submit(Command::PutOffer { provider, market, capacity, reserve }, None);
            }
            Action::Withdraw(who) => {
                let provider = self.accounts[usize::from(who) % ACCOUNTS].clone();
                if let Some(unit) = self.unit_of(&provider, true) {
                    self.submit(Command::WithdrawUnit { provider, unit }, None);
                }
            }
            Action::Lose(who) => {
                let provider = self.accounts[usize::from(who) % ACCOUNTS].clone();
                if let Some(unit) = self.unit_of(&provider, false) {
                    self.submit(Command::ReportUnitLost { provider, unit }, None);
                }
            }
            Action::Resume(who) => {
                let provider = self.accounts[usize::from(who) % ACCOUNTS].clone();
                let units = RestingUnits::AllIn(self.means.markets[0].clone());
                self.submit(Command::ResumeUnits { provider, units }, None);
            }
            Action::Silent(silent) => self.silent = silent,
            Action::Wait(_) => {}
        }
    }

    fn place(&mut self, bid: NewBid) {
        let slot = usize::from(bid.slot) % SLOTS;
        if self.open_bid(slot).is_some() {
            return;
        }
        let market = bid.market.market(self.means.markets.len());
        let Some(ceiling) = self.price(bid.level, slot, market) else { return };
        let names = &self.means.markets;
        let (instance_type, markets) = match bid.market {
            MarketChoice::AnyRegion => (Some(InstanceType::new(names[0].parts().0)), None),
            MarketChoice::Both => (None, Some(names.clone())),
            MarketChoice::First | MarketChoice::Second => (None, Some(vec![names[market].clone()])),
        };
        let max_nodes = bid.count.of(self.means.need.nodes);
        if max_nodes == 0 {
            return;
        }
        let (time_in_force, expire_at) = match bid.force {
            Force::Gtc => (TimeInForce::Gtc, None),
            Force::Ioc => (TimeInForce::Ioc, None),
            Force::Gtt(seconds) => {
                (TimeInForce::Gtt, Some(self.now.after(Micros::seconds(seconds.max(1).into()))))
            }
        };
        let on_preemption = if bid.close { OnPreemption::Close } else { OnPreemption::Requeue };
        let command = PlaceBid {
            tenant: self.account_of(slot),
            markets,
            instance_type,
            ceiling,
            min_nodes: bid.least.of(self.means.need.nodes).clamp(1, max_nodes),
            max_nodes,
            time_in_force,
            expire_at,
            on_preemption,
        };
        self.slots[slot] = Slot { bid: None, market };
        self.submit(Command::PlaceBid(command), Some(slot));
    }

    /// Returns the nodes of a bid that are to be released.
    fn chosen(&self, slot: usize, which: NodeChoice) -> Vec<AllocationId> {
        let Some(bid) = self.open_bid(slot) else { return Vec::new() };
        match which {
            NodeChoice::Newest => bid.live.iter().max().copied().into_iter().collect(),
            NodeChoice::Oldest => bid.live.iter().min().copied().into_iter().collect(),
            NodeChoice::UnderNotice => bid.under_notice,
            NodeChoice::Surplus => {
                let surplus = self.ledger.ready().saturating_sub(self.means.need.nodes) as usize;
                let is_ready = |node: &AllocationId| {
                    self.exchange.view_allocation(*node).is_some_and(|node| node.ready_at.is_some())
                };
                bid.under_notice.into_iter().filter(is_ready).take(surplus).collect()
            }
            NodeChoice::All => bid.live.into_iter().chain(bid.under_notice).collect(),
        }
    }

    /// Returns a unit of an account: one that another tenant holds, if there is one.
    fn unit_of(&self, provider: &AccountName, stays: bool) -> Option<UnitName> {
        let account = self.exchange.account_id(provider)?;
        let markets = (0..self.means.markets.len()).map(|market| MarketId(market as u32));
        let units: Vec<_> = markets
            .flat_map(|market| self.exchange.view_units(market, account, 0))
            .filter(|unit| !(stays && unit.leaving))
            .collect();
        let theirs = units.iter().find(|unit| {
            let node = unit.allocation.and_then(|node| self.exchange.view_allocation(node));
            node.is_some_and(|node| !self.ledger.is_ours(node.tenant))
        });
        theirs.or(units.first()).map(|unit| self.exchange.names().unit(unit.unit))
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
