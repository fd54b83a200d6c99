//! Writes answers as JSON objects.

use kubebid_core::answer::Answer;
use kubebid_core::event::{Event, Fact, Node, Scope};
use kubebid_core::numbers::Numbers;
use kubebid_core::state_dump::{AllocationDump, BidDump, FundsDump, MarketDump, StateDump};
use kubebid_core::units::{BidId, MarketId, Names, UnitId};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Writes one answer: the number of the command, the time after it, its events in order, and how markets,
/// bids, allocations, money and funded accounts stand afterwards.
pub fn format_answer(answer: &Answer, dump: &StateDump, names: &Names) -> String {
    let line = AnswerLine {
        seq: answer.seq.0,
        at_us: answer.at.0,
        events: answer.events.iter().map(|event| event_line(event, names)).collect(),
        markets: ByName(dump.markets.iter().map(|m| market_line(m, names)).collect()),
        bids: ByName(dump.bids.iter().map(bid_line).collect()),
        allocations: ByName(dump.allocations.iter().map(|a| allocation_line(a, names)).collect()),
        money: MoneyLine {
            debits: dump.totals.debits.0,
            credits: dump.totals.credits.0,
            fees: dump.totals.fees.0,
        },
        accounts: ByName(dump.funded.iter().map(|funds| funds_line(funds, names)).collect()),
    };
    serde_json::to_string(&line).expect("names are strings, values are plain")
}

/// Writes one answer without the state of the market: number, time and events.
pub fn format_events(answer: &Answer, names: &Names) -> String {
    let line = EventsLine {
        seq: answer.seq.0,
        at_us: answer.at.0,
        events: answer.events.iter().map(|event| event_line(event, names)).collect(),
    };
    serde_json::to_string(&line).expect("names are strings, values are plain")
}

#[derive(Serialize)]
struct EventsLine<'a> {
    seq: u64,
    at_us: u64,
    events: Vec<EventLine<'a>>,
}

/// An object whose fields stay in the order of the list.
struct ByName<T>(Vec<(String, T)>);

impl<T> ByName<T> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Serialize> Serialize for ByName<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct AnswerLine<'a> {
    seq: u64,
    at_us: u64,
    events: Vec<EventLine<'a>>,
    markets: ByName<MarketLine>,
    bids: ByName<BidLine>,
    allocations: ByName<AllocationLine>,
    money: MoneyLine,
    #[serde(skip_serializing_if = "ByName::is_empty")]
    accounts: ByName<FundsLine>,
}

#[derive(Serialize)]
struct NumbersLine {
    market_price: u64,
    entry_price: Option<u64>,
    floor: Option<u64>,
    lowest_accepted: Option<u64>,
    highest_losing: u64,
}

#[derive(Serialize)]
struct MarketLine {
    #[serde(flatten)]
    numbers: NumbersLine,
    total: u64,
    free: u64,
    allocated: u64,
    notice: u64,
    claimed: u64,
    resting: u64,
}

#[derive(Serialize)]
struct BidLine {
    held: u32,
    claimed: u32,
    unmet: u32,
    max_nodes: u32,
    ceiling: u64,
    searching: bool,
}

#[derive(Serialize)]
struct AllocationLine {
    bid: u64,
    unit: String,
    state: &'static str,
    deadline_us: Option<u64>,
    claim: Option<u64>,
    billed: u64,
    protected_until_us: u64,
}

#[derive(Serialize)]
struct MoneyLine {
    debits: u128,
    credits: u128,
    fees: u128,
}

#[derive(Serialize)]
struct FundsLine {
    funds: i128,
    reserved: i128,
    available: i128,
}

fn numbers_line(numbers: &Numbers) -> NumbersLine {
    NumbersLine {
        market_price: numbers.market_price.0,
        entry_price: numbers.entry_price.map(|price| price.0),
        floor: numbers.floor.map(|price| price.0),
        lowest_accepted: numbers.lowest_accepted.map(|price| price.0),
        highest_losing: numbers.highest_losing.0,
    }
}

fn market_line(market: &MarketDump, names: &Names) -> (String, MarketLine) {
    let line = MarketLine {
        numbers: numbers_line(&market.numbers),
        total: market.supply.total,
        free: market.supply.free,
        allocated: market.supply.allocated,
        notice: market.supply.notice,
        claimed: market.supply.claimed,
        resting: market.supply.resting,
    };
    (names.market(market.market).to_string(), line)
}

fn bid_line(bid: &BidDump) -> (String, BidLine) {
    let line = BidLine {
        held: bid.held,
        claimed: bid.claimed,
        unmet: bid.unmet,
        max_nodes: bid.max_nodes,
        ceiling: bid.ceiling.0,
        searching: bid.searching,
    };
    (bid.bid.to_string(), line)
}

fn allocation_line(a: &AllocationDump, names: &Names) -> (String, AllocationLine) {
    let line = AllocationLine {
        bid: a.bid.0,
        unit: names.unit(a.unit).to_string(),
        state: a.state.word(),
        deadline_us: a.deadline.map(|deadline| deadline.0),
        claim: a.claim.map(|bid| bid.0),
        billed: a.billed.0,
        protected_until_us: a.protected_until.0,
    };
    (a.allocation.to_string(), line)
}

fn funds_line(funds: &FundsDump, names: &Names) -> (String, FundsLine) {
    let (reserved, available) = (funds.reserved_amount(), funds.available());
    let line = FundsLine { funds: funds.funds.0, reserved, available };
    (names.account(funds.account).to_string(), line)
}

#[derive(Serialize)]
struct EventLine<'a> {
    at_us: u64,
    #[serde(flatten)]
    fact: FactLine<'a>,
}

#[derive(Serialize)]
#[serde(tag = "event")]
enum FactLine<'a> {
    MarketOpened {
        market: &'a str,
    },
    RulesChanged {
        market: &'a str,
    },
    MarketClosing {
        market: &'a str,
    },
    MarketEnded {
        market: &'a str,
    },
    OfferPut {
        provider: &'a str,
        market: &'a str,
        capacity: u64,
        reserve: u64,
    },
    UnitAdded {
        unit: String,
        reserve: u64,
    },
    UnitLeaving {
        unit: String,
    },
    UnitBack {
        unit: String,
    },
    UnitResting {
        unit: String,
    },
    UnitResumed {
        unit: String,
    },
    UnitRemoved {
        unit: String,
    },
    BidPlaced {
        bid: u64,
        tenant: &'a str,
        markets: Option<Vec<&'a str>>,
        instance_type: Option<&'a str>,
        ceiling: u64,
        min_nodes: u32,
        max_nodes: u32,
    },
    BidAmended {
        bid: u64,
        ceiling: u64,
        max_nodes: u32,
        bid_seq: u64,
    },
    BidClosed {
        bid: u64,
        max_nodes: u32,
        reason: &'static str,
    },
    Allocated {
        allocation: u64,
        bid: u64,
        unit: String,
    },
    Ready {
        allocation: u64,
    },
    NoticeStarted {
        allocation: u64,
        bid: u64,
        deadline_us: u64,
        max_nodes: u32,
        reason: &'static str,
    },
    NoticeRescinded {
        allocation: u64,
        bid: u64,
        max_nodes: u32,
    },
    Claimed {
        allocation: u64,
        bid: u64,
        was: Option<u64>,
        cause: &'static str,
    },
    ClaimDropped {
        allocation: u64,
        bid: u64,
        cause: &'static str,
    },
    Ended {
        allocation: u64,
        bid: u64,
        max_nodes: u32,
        reason: &'static str,
    },
    Charged {
        allocation: u64,
        tenant: &'a str,
        provider: &'a str,
        debit: u128,
        fee: u128,
        reason: &'static str,
    },
    PriceChanged {
        market: &'a str,
        #[serde(flatten)]
        numbers: NumbersLine,
    },
    NoticeMoved {
        allocation: u64,
        bid: u64,
        deadline_us: u64,
    },
    Funded {
        account: &'a str,
        funds: Option<i128>,
    },
    BudgetSet {
        account: &'a str,
        monthly: Option<i64>,
        roll_over: bool,
        funds: Option<i128>,
    },
    BudgetRenewed {
        account: &'a str,
        funds: i128,
    },
    RenewalSet {
        renewal_us: u64,
    },
    Rejected {
        reason: &'static str,
    },
    Repeated {
        first: u64,
    },
}

fn event_line<'a>(event: &'a Event, names: &'a Names) -> EventLine<'a> {
    EventLine { at_us: event.at.0, fact: fact_line(&event.fact, names) }
}

fn fact_line<'a>(fact: &'a Fact, names: &'a Names) -> FactLine<'a> {
    let market_name = |market: MarketId| names.market(market).as_str();
    let unit_name = |unit: UnitId| names.unit(unit).to_string();
    let ids = |node: &Node| (node.allocation.0, node.bid.0);
    let number = |bid: BidId| bid.0;
    match fact {
        Fact::MarketOpened { market } => FactLine::MarketOpened { market: market_name(*market) },
        Fact::RulesChanged { market } => FactLine::RulesChanged { market: market_name(*market) },
        Fact::MarketClosing { market } => FactLine::MarketClosing { market: market_name(*market) },
        Fact::MarketEnded { market } => FactLine::MarketEnded { market: market_name(*market) },
        Fact::OfferPut { provider, market, capacity, reserve } => FactLine::OfferPut {
            provider: names.account(*provider).as_str(),
            market: market_name(*market),
            capacity: *capacity,
            reserve: reserve.0,
        },
        Fact::UnitAdded { unit, reserve } => {
            FactLine::UnitAdded { unit: unit_name(*unit), reserve: reserve.0 }
        }
        Fact::UnitLeaving { unit } => FactLine::UnitLeaving { unit: unit_name(*unit) },
        Fact::UnitBack { unit } => FactLine::UnitBack { unit: unit_name(*unit) },
        Fact::UnitResting { unit } => FactLine::UnitResting { unit: unit_name(*unit) },
        Fact::UnitResumed { unit } => FactLine::UnitResumed { unit: unit_name(*unit) },
        Fact::UnitRemoved { unit } => FactLine::UnitRemoved { unit: unit_name(*unit) },
        Fact::BidPlaced { bidder, scope, ceiling, min_nodes, max_nodes } => {
            let (markets, instance_type) = match scope {
                Scope::Markets(ids) => (Some(ids.iter().map(|id| market_name(*id)).collect()), None),
                Scope::InstanceType(kind) => (None, Some(kind.as_str())),
            };
            FactLine::BidPlaced {
                bid: bidder.bid.0,
                tenant: names.account(bidder.tenant).as_str(),
                markets,
                instance_type,
                ceiling: ceiling.0,
                min_nodes: *min_nodes,
                max_nodes: *max_nodes,
            }
        }
        Fact::BidAmended { bidder, ceiling, max_nodes, bid_seq } => FactLine::BidAmended {
            bid: bidder.bid.0,
            ceiling: ceiling.0,
            max_nodes: *max_nodes,
            bid_seq: bid_seq.0,
        },
        Fact::BidClosed { bidder, max_nodes, reason } => {
            FactLine::BidClosed { bid: bidder.bid.0, max_nodes: *max_nodes, reason: reason.word() }
        }
        Fact::Allocated { node } => {
            let (allocation, bid) = ids(node);
            FactLine::Allocated { allocation, bid, unit: unit_name(node.unit) }
        }
        Fact::Ready { node } => FactLine::Ready { allocation: node.allocation.0 },
        Fact::NoticeStarted { node, deadline, max_nodes, reason } => {
            let (allocation, bid) = ids(node);
            let (deadline_us, reason) = (deadline.0, reason.word());
            FactLine::NoticeStarted { allocation, bid, deadline_us, max_nodes: *max_nodes, reason }
        }
        Fact::NoticeRescinded { node, max_nodes } => {
            let (allocation, bid) = ids(node);
            FactLine::NoticeRescinded { allocation, bid, max_nodes: *max_nodes }
        }
        Fact::Claimed { node, by, was, cause } => FactLine::Claimed {
            allocation: node.allocation.0,
            bid: by.bid.0,
            was: was.map(|was| number(was.bid)),
            cause: cause.word(),
        },
        Fact::ClaimDropped { node, by, cause } => {
            FactLine::ClaimDropped { allocation: node.allocation.0, bid: by.bid.0, cause: cause.word() }
        }
        Fact::Ended { node, max_nodes, reason } => {
            let (allocation, bid) = ids(node);
            FactLine::Ended { allocation, bid, max_nodes: *max_nodes, reason: reason.word() }
        }
        Fact::Charged { node, tenant, debit, fee, reason } => FactLine::Charged {
            allocation: node.allocation.0,
            tenant: names.account(*tenant).as_str(),
            provider: names.account(node.unit.provider).as_str(),
            debit: debit.0,
            fee: fee.0,
            reason: reason.word(),
        },
        Fact::PriceChanged { market, numbers } => {
            FactLine::PriceChanged { market: market_name(*market), numbers: numbers_line(numbers) }
        }
        Fact::NoticeMoved { node, deadline } => {
            let (allocation, bid) = ids(node);
            FactLine::NoticeMoved { allocation, bid, deadline_us: deadline.0 }
        }
        Fact::Funded { account, funds } => {
            FactLine::Funded { account: names.account(*account).as_str(), funds: funds.map(|funds| funds.0) }
        }
        Fact::BudgetSet { account, monthly, roll_over, funds } => FactLine::BudgetSet {
            account: names.account(*account).as_str(),
            monthly: *monthly,
            roll_over: *roll_over,
            funds: funds.map(|funds| funds.0),
        },
        Fact::BudgetRenewed { account, funds } => {
            FactLine::BudgetRenewed { account: names.account(*account).as_str(), funds: funds.0 }
        }
        Fact::RenewalSet { renewal } => FactLine::RenewalSet { renewal_us: renewal.0 },
        Fact::Rejected { reason } => FactLine::Rejected { reason: reason.code() },
        Fact::Repeated { first } => FactLine::Repeated { first: first.0 },
    }
}
