//! The agent of a stage: it follows the rules of its policy. Their conditions, prices and actions.

use super::{Context, Due, Slot, Stage};
use crate::attack::policy::{
    ACCOUNTS, Action, BasePrice, BidChoice, Condition, Force, Level, MarketChoice, Mode, NewBid, NodeChoice,
    SLOTS, SLOTS_PER_ACCOUNT, Trigger,
};
use kubebid_core::answer::Outcome as Verdict;
use kubebid_core::command::{CancelMode, OnPreemption, PlaceBid, RestingUnits, TimeInForce};
use kubebid_core::units::{AccountName, AllocationId, BidId, InstanceType, MarketId, Micros, UnitName};
use kubebid_core::views::BidView;
use kubebid_core::{Auction, Command, Price, StampedCommand};

/// Commands of the agent in a run, and at one instant, at most. A policy that wants more loops.
const COMMANDS: u32 = 6000;
const COMMANDS_AT_ONCE: u32 = 120;
/// Nodes of an offer of the agent, at most.
const CAPACITY: u8 = 8;

impl Stage<'_> {
    /// Follows the triggers of the last step, and those that the agent's own commands bring about.
    pub(super) fn follow(&mut self) {
        while let Some((when, context)) = self.triggers.pop_front() {
            for rule in 0..self.policy.rules.len() {
                if self.policy.rules[rule].when == when {
                    self.start(rule, context);
                }
            }
        }
    }

    pub(super) fn begin(&mut self) {
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
    pub(super) fn node_rule(&mut self, rule: usize, context: Context) {
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

    pub(super) fn start(&mut self, rule: usize, context: Context) {
        self.act(rule, usize::MAX, context);
    }

    /// Does the actions of a rule from one on; from the beginning, if its conditions hold, for `usize::MAX`.
    pub(super) fn act(&mut self, rule: usize, from: usize, context: Context) {
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

    /// Cancels all bids of the agent, which does nothing more.
    pub(super) fn leave(&mut self) {
        self.gone = true;
        for slot in 0..SLOTS {
            if let Some(bid) = self.open_bid(slot) {
                let tenant = self.account_of(slot);
                self.send(Command::CancelBid { tenant, bid: bid.bid, mode: CancelMode::Release });
            }
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
