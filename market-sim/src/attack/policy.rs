//! Policies: programmes of commands that an agent follows. A policy is data, so that it can be mutated, shortened and
//! printed.

use kubebid_core::Price;
use std::fmt;

/// Accounts of an agent, at most: one for honest use, the others for collusion.
pub(super) const ACCOUNTS: usize = 3;
/// Bids that one account of an agent has at the same time, at most.
pub(super) const SLOTS_PER_ACCOUNT: usize = 10;
/// Bids that an agent has at the same time, at most.
pub(super) const SLOTS: usize = ACCOUNTS * SLOTS_PER_ACCOUNT;

/// A programme of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The name in tables.
    pub name: String,
    /// The description, in a sentence.
    pub about: String,
    /// Its rules. At an event, all rules with that trigger are followed in order.
    pub rules: Vec<Rule>,
}

/// Actions that follow a trigger if all conditions hold then.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The trigger.
    pub when: Trigger,
    /// The conditions.
    pub given: Vec<Condition>,
    /// The actions, in order.
    pub acts: Vec<Action>,
}

/// A trigger: a time, or an event that the agent sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// The agent begins.
    Begin,
    /// Some seconds after the beginning.
    At(u32),
    /// Again and again, with this many seconds between.
    Every(u32),
    /// A node of the agent gets a notice.
    Notice,
    /// So many seconds before the deadline of a node of the agent that is still under notice.
    Deadline(u32),
    /// A notice of the agent was rescinded.
    Rescinded,
    /// A bid of the agent got a claim.
    Claimed,
    /// A bid of the agent lost a claim.
    ClaimDropped,
    /// A bid of the agent got a node.
    Got,
    /// A node of the agent is ready.
    Ready,
    /// The protection of a node of the agent ends, or ended so many seconds ago.
    Unprotected(u32),
    /// A node of the agent ended.
    Lost,
    /// The five numbers of a market changed.
    Price,
    /// A unit of the agent was given to another tenant.
    Sold,
}

/// A condition on what the agent can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// A live node of the bid is protected, or none is.
    Protected(bool),
    /// A node of the bid is under notice, or none is.
    UnderNotice(bool),
    /// The bid has a claim, or none.
    Claims(bool),
    /// The bid holds as many nodes as it wants, or fewer.
    Full(bool),
    /// A bid waits in the market, or none does.
    Rivals(bool),
    /// A unit of the market is free, or none is.
    FreeUnits(bool),
    /// The market price is at least this.
    PriceAtLeast(Level),
    /// The entry price is at most this.
    EntryAtMost(Level),
    /// The ceiling of the bid is below this.
    CeilingBelow(Level),
}

/// The bids that an action is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BidChoice {
    /// The bid that the trigger is about; the first one if it is about none.
    This,
    /// The bid in this slot.
    Slot(u8),
    /// The bid in the slot after that of the trigger, among the first so many slots, and the first one after the last.
    Next(u8),
    /// All bids of the agent.
    All,
}

/// The markets of a bid or an offer. In a setting of one market, each of them is that market.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MarketChoice {
    /// The first market.
    First,
    /// The second market.
    Second,
    /// Both, by name.
    Both,
    /// Any region of the instance type.
    AnyRegion,
}

/// A number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Count {
    /// A share of what the agent needs, in percent, rounded up.
    Percent(u8),
    /// So many.
    Nodes(u8),
    /// One node, if the agent needs more nodes than this, else none.
    OneBeyond(u8),
}

/// A price that the agent computes from what it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Level {
    /// The price that it starts from.
    pub base: BasePrice,
    /// The share of it, in percent.
    pub percent: u16,
    /// Ticks that are added.
    pub ticks: i8,
}

/// A price that an agent sees or knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BasePrice {
    /// The worth of a node-hour to the agent.
    Value,
    /// The lowest reserve of the market.
    Floor,
    /// The market price.
    Market,
    /// The entry price.
    Entry,
    /// The highest losing bid.
    Losing,
    /// The lowest accepted bid.
    Lowest,
    /// The price to stay of the bid's nodes under notice.
    Stay,
    /// The bid's present ceiling.
    Ceiling,
}

/// Nodes of a bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeChoice {
    /// The newest.
    Newest,
    /// The oldest.
    Oldest,
    /// The nodes under notice.
    UnderNotice,
    /// The nodes under notice that the agent does not need, because others are ready.
    Surplus,
    /// All of them.
    All,
}

/// The way in which a bid is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Its nodes stay.
    Keep,
    /// Its nodes end.
    Release,
    /// Its nodes end, and the search goes on.
    Regroup,
}

/// The time in force of a bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Force {
    /// Good till cancelled.
    Gtc,
    /// Immediate or cancel.
    Ioc,
    /// Good for some seconds.
    Gtt(u16),
}

/// A new bid of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NewBid {
    /// The slot; nothing happens while the bid of this slot searches or holds nodes.
    pub slot: u8,
    /// The ceiling.
    pub level: Level,
    /// `max_nodes`.
    pub count: Count,
    /// `min_nodes`.
    pub least: Count,
    /// The time in force.
    pub force: Force,
    /// True for `CLOSE`, false for `REQUEUE`.
    pub close: bool,
    /// The markets.
    pub market: MarketChoice,
}

/// An action of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Places a bid.
    Bid(NewBid),
    /// Amends ceilings.
    Ceiling(BidChoice, Level),
    /// Amends `max_nodes`.
    Size(BidChoice, Count),
    /// Cancels bids.
    Cancel(BidChoice, Mode),
    /// Releases nodes.
    Release(BidChoice, NodeChoice),
    /// Puts an offer of an account: its capacity, and its reserve.
    Offer(u8, MarketChoice, u8, Level),
    /// Withdraws one unit of an account: one that another tenant holds, if there is one.
    Withdraw(u8),
    /// Reports one unit of an account as lost: one that another tenant holds, if there is one.
    Lose(u8),
    /// Resumes the resting units of an account.
    Resume(u8),
    /// Never reports its own nodes ready, or reports them again.
    Silent(bool),
    /// Waits some seconds before the next action.
    Wait(u16),
}

impl Level {
    /// Returns a share of a price.
    pub const fn of(base: BasePrice, percent: u16) -> Level {
        Level { base, percent, ticks: 0 }
    }

    /// Returns the level with some ticks added.
    pub const fn ticks(self, ticks: i8) -> Level {
        Level { ticks, ..self }
    }

    /// Computes the price, on the tick and at least one tick.
    pub(super) fn of_price(self, base: Price, tick: u64) -> Price {
        let share = u128::from(base.0) * u128::from(self.percent) / 100;
        let ticks = (share as u64 / tick).saturating_add_signed(i64::from(self.ticks));
        Price(ticks.clamp(1, 10_u64.pow(12) / tick) * tick)
    }
}

impl Count {
    /// Computes the number of nodes.
    pub(super) fn of(self, need: u32) -> u32 {
        match self {
            Count::Percent(percent) => (need * u32::from(percent)).div_ceil(100).max(1),
            Count::Nodes(nodes) => u32::from(nodes).max(1),
            Count::OneBeyond(others) => u32::from(need > u32::from(others)),
        }
    }
}

impl MarketChoice {
    /// Returns the number of the market whose prices the agent looks at.
    pub(super) fn market(self, markets: usize) -> usize {
        match self {
            MarketChoice::Second if markets > 1 => 1,
            MarketChoice::First | MarketChoice::Second | MarketChoice::Both | MarketChoice::AnyRegion => 0,
        }
    }
}

impl NewBid {
    /// Returns a bid of the first slot that searches until it is cancelled.
    pub const fn new(level: Level) -> NewBid {
        NewBid {
            slot: 0,
            level,
            count: Count::Percent(100),
            least: Count::Nodes(1),
            force: Force::Gtc,
            close: false,
            market: MarketChoice::AnyRegion,
        }
    }
}

impl Policy {
    /// Returns the number of triggers, conditions and actions.
    pub fn size(&self) -> usize {
        self.rules.iter().map(|rule| 1 + rule.given.len() + rule.acts.len()).sum()
    }
}

/// Writes one line for each rule.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.iter().try_for_each(|rule| writeln!(f, "{rule}"))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.when)?;
        for (n, given) in self.given.iter().enumerate() {
            write!(f, "{} {given}", if n == 0 { ", if" } else { " and" })?;
        }
        for (n, act) in self.acts.iter().enumerate() {
            write!(f, "{} {act}", if n == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trigger::Begin => write!(f, "at the beginning"),
            Trigger::At(seconds) => write!(f, "after {seconds} s"),
            Trigger::Every(seconds) => write!(f, "every {seconds} s"),
            Trigger::Notice => write!(f, "at a notice"),
            Trigger::Deadline(seconds) => write!(f, "{seconds} s before a deadline"),
            Trigger::Rescinded => write!(f, "when a notice is rescinded"),
            Trigger::Claimed => write!(f, "at a claim"),
            Trigger::ClaimDropped => write!(f, "when a claim is lost"),
            Trigger::Got => write!(f, "at an allocation"),
            Trigger::Ready => write!(f, "when a node is ready"),
            Trigger::Unprotected(seconds) => write!(f, "{seconds} s after the end of a protection"),
            Trigger::Lost => write!(f, "when a node ends"),
            Trigger::Price => write!(f, "when a price changes"),
            Trigger::Sold => write!(f, "when a unit is sold"),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Protected(true) => write!(f, "a node is protected"),
            Condition::Protected(false) => write!(f, "no node is protected"),
            Condition::UnderNotice(true) => write!(f, "a node is under notice"),
            Condition::UnderNotice(false) => write!(f, "no node is under notice"),
            Condition::Claims(true) => write!(f, "the bid has a claim"),
            Condition::Claims(false) => write!(f, "the bid has no claim"),
            Condition::Full(true) => write!(f, "the bid lacks no node"),
            Condition::Full(false) => write!(f, "the bid lacks a node"),
            Condition::Rivals(true) => write!(f, "a bid waits"),
            Condition::Rivals(false) => write!(f, "no bid waits"),
            Condition::FreeUnits(true) => write!(f, "a unit is free"),
            Condition::FreeUnits(false) => write!(f, "no unit is free"),
            Condition::PriceAtLeast(level) => write!(f, "the market price is at least {level}"),
            Condition::EntryAtMost(level) => write!(f, "the entry price is at most {level}"),
            Condition::CeilingBelow(level) => write!(f, "the ceiling is below {level}"),
        }
    }
}

impl fmt::Display for BidChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BidChoice::This => write!(f, "this bid"),
            BidChoice::Slot(slot) => write!(f, "{}", Slot(*slot)),
            BidChoice::Next(of) => write!(f, "the next of {of} bids"),
            BidChoice::All => write!(f, "all bids"),
        }
    }
}

struct Slot(u8);

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = usize::from(self.0) % SLOTS;
        write!(f, "bid {}{}", ["a", "b", "c"][slot / SLOTS_PER_ACCOUNT], slot % SLOTS_PER_ACCOUNT + 1)
    }
}

impl fmt::Display for MarketChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MarketChoice::First => write!(f, "in the first market"),
            MarketChoice::Second => write!(f, "in the second market"),
            MarketChoice::Both => write!(f, "in both markets"),
            MarketChoice::AnyRegion => write!(f, "in any region"),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count::Percent(100) => write!(f, "all nodes"),
            Count::Percent(percent) => write!(f, "{percent} % of the nodes"),
            Count::Nodes(1) => write!(f, "1 node"),
            Count::Nodes(nodes) => write!(f, "{nodes} nodes"),
            Count::OneBeyond(others) => write!(f, "1 node if more than {others} are needed"),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.percent != 100 {
            write!(f, "{} % of ", self.percent)?;
        }
        write!(f, "{}", self.base)?;
        match self.ticks {
            0 => Ok(()),
            ticks if ticks > 0 => write!(f, " + {ticks} ticks"),
            ticks => write!(f, " - {} ticks", -i16::from(ticks)),
        }
    }
}

impl fmt::Display for BasePrice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BasePrice::Value => "the value",
            BasePrice::Floor => "the floor",
            BasePrice::Market => "the market price",
            BasePrice::Entry => "the entry price",
            BasePrice::Losing => "the highest losing bid",
            BasePrice::Lowest => "the lowest accepted bid",
            BasePrice::Stay => "the price to stay",
            BasePrice::Ceiling => "its ceiling",
        })
    }
}

impl fmt::Display for NodeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeChoice::Newest => "the newest node",
            NodeChoice::Oldest => "the oldest node",
            NodeChoice::UnderNotice => "the nodes under notice",
            NodeChoice::Surplus => "the nodes under notice that others replace",
            NodeChoice::All => "all nodes",
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = |account: u8| ["a", "b", "c"][usize::from(account) % ACCOUNTS];
        match self {
            Action::Bid(bid) => {
                write!(f, "place {} for {} at {} {}", Slot(bid.slot), bid.count, bid.level, bid.market)?;
                if bid.least != Count::Nodes(1) {
                    write!(f, ", at least {}", bid.least)?;
                }
                match bid.force {
                    Force::Gtc => {}
                    Force::Ioc => write!(f, ", IOC")?,
                    Force::Gtt(seconds) => write!(f, ", for {seconds} s")?,
                }
                if bid.close { write!(f, ", CLOSE") } else { Ok(()) }
            }
            Action::Ceiling(who, level) => write!(f, "set the ceiling of {who} to {level}"),
            Action::Size(who, count) => write!(f, "set the size of {who} to {count}"),
            Action::Cancel(who, mode) => {
                let mode = match mode {
                    Mode::Keep => "KEEP",
                    Mode::Release => "RELEASE",
                    Mode::Regroup => "REGROUP",
                };
                write!(f, "cancel {who} with {mode}")
            }
            Action::Release(who, which) => write!(f, "release {which} of {who}"),
            Action::Offer(who, market, capacity, level) => {
                write!(f, "account {} offers {capacity} at {level} {market}", account(*who))
            }
            Action::Withdraw(who) => write!(f, "account {} withdraws a unit", account(*who)),
            Action::Lose(who) => write!(f, "account {} reports a unit lost", account(*who)),
            Action::Resume(who) => write!(f, "account {} resumes its units", account(*who)),
            Action::Silent(true) => write!(f, "report no node ready from here on"),
            Action::Silent(false) => write!(f, "report nodes ready again"),
            Action::Wait(seconds) => write!(f, "wait {seconds} s"),
        }
    }
}
