//! Draws the order book of a story with the names of its bids.

use super::NOBODY;
use super::words::decimal;
use kubebid_core::event::{Event, Fact, Node, Scope};
use kubebid_core::numbers::{Numbers, Supply};
use kubebid_core::state_dump::{AllocationDump, AllocationState, BidDump, MarketDump, StateDump};
use kubebid_core::units::{AccountName, BidId, MarketId, Micros, UnitId};
use kubebid_core::{Auction, Exchange, Funds, MarketState, Price};
use std::collections::BTreeMap;

/// The names of the bids, and their tenants.
#[derive(Default)]
pub(super) struct Cast {
    bids: BTreeMap<BidId, (String, AccountName)>,
    /// The name that the next bid gets.
    pub(super) next: String,
}

impl Cast {
    pub(super) fn enter(&mut self, bid: BidId, tenant: AccountName) {
        let name = std::mem::take(&mut self.next);
        assert!(self.bids.values().all(|(other, _)| *other != name), "two bids named {name}: say `as`");
        self.bids.insert(bid, (name, tenant));
    }

    pub(super) fn bid_named(&self, name: &str) -> (BidId, AccountName) {
        let found = self.bids.iter().find(|(_, (other, _))| other == name);
        found.map_or((BidId(NOBODY), AccountName::new(name)), |(bid, (_, tenant))| (*bid, tenant.clone()))
    }

    pub(super) fn tenant_of(&self, bid: BidId) -> AccountName {
        self.bids[&bid].1.clone()
    }

    fn name(&self, bid: BidId) -> &str {
        &self.bids[&bid].0
    }

    /// Checks what holds after every command of every story (I2, I3, I5).
    pub(super) fn balance(&self, exchange: &Exchange) {
        let StateDump { bids, allocations, totals, .. } = exchange.dump();
        assert_eq!(totals.debits.0, totals.credits.0 + totals.fees.0, "I5");
        let ceilings: BTreeMap<BidId, Price> = bids.iter().map(|bid| (bid.bid, bid.ceiling)).collect();
        for bid in &bids {
            assert!(bid.held + bid.claimed <= bid.max_nodes, "I2: {}", self.name(bid.bid));
        }
        for node in allocations.iter().filter(|node| node.state != AllocationState::Notice) {
            assert!(node.billed <= ceilings[&node.bid], "I3: {}", self.name(node.bid));
        }
    }

    /// Draws the bids that search or hold anything, in the order in which they were placed, and then
    /// the markets.
    pub(super) fn show(&self, exchange: &Exchange) -> String {
        let dump = exchange.dump();
        let bids = dump.bids.iter().map(|bid| self.bid(exchange, bid, &dump.allocations));
        let markets = dump.markets.iter().map(|market| {
            let MarketDump { market, state, numbers, supply } = market;
            let free = if supply.free > 0 { format!(", {} free", supply.free) } else { String::new() };
            let resting = resting(supply);
            let closed = match state {
                MarketState::Open => "",
                MarketState::Closing(_) => ", closing",
                MarketState::Ended => ", ended",
            };
            format!("{}{free}{resting}{closed}\n", prices(exchange, *market, numbers))
        });
        bids.chain(markets).collect()
    }

    fn bid(&self, exchange: &Exchange, bid: &BidDump, allocations: &[AllocationDump]) -> String {
        let mut parts: Vec<String> = Vec::new();
        for node in allocations.iter().filter(|node| node.bid == bid.bid) {
            parts.push(self.node(exchange, node));
        }
        for node in allocations.iter().filter(|node| node.claim == Some(bid.bid)) {
            parts.push(format!("claims {}", unit(exchange, node.unit)));
        }
        if bid.unmet > 0 {
            parts.push(format!("wants {}", bid.unmet));
        }
        if parts.is_empty() && !bid.searching {
            return String::new();
        }
        let closed = if bid.searching { "" } else { " (closed)" };
        let BidDump { bid, max_nodes, ceiling, .. } = bid;
        format!("{} {max_nodes} @ {}{closed}: {}\n", self.name(*bid), price(*ceiling), parts.join(", "))
    }

    fn node(&self, exchange: &Exchange, node: &AllocationDump) -> String {
        let (unit, billed) = (unit(exchange, node.unit), price(node.billed));
        match node.state {
            AllocationState::Starting => format!("{unit} starting at {billed}"),
            AllocationState::Active => format!("{unit} at {billed}"),
            AllocationState::Notice => {
                let deadline = seconds(node.deadline.expect("a notice has a deadline"));
                let claim = node.claim.map_or(String::new(), |bid| format!(" for {}", self.name(bid)));
                format!("{unit} at {billed} until {deadline}{claim}")
            }
        }
    }

    /// Draws the five numbers and the supply of each market.
    pub(super) fn numbers(&self, exchange: &Exchange) -> String {
        let markets = exchange.dump().markets.into_iter().map(|market| {
            let MarketDump { market, numbers, supply, .. } = market;
            let prices = prices(exchange, market, &numbers);
            let (floor, lowest) = (price(numbers.floor), price(numbers.lowest_accepted));
            let losing = price(numbers.highest_losing);
            format!(
                "{prices}, floor {floor}, lowest {lowest}, losing {losing}\n\
                 units {}: {} free, {} allocated, {} notice, {} claimed{}\n",
                supply.total,
                supply.free,
                supply.allocated,
                supply.notice,
                supply.claimed,
                resting(&supply)
            )
        });
        markets.collect()
    }

    /// Draws the funds of each funded account.
    pub(super) fn funds(&self, exchange: &Exchange) -> String {
        let names = exchange.names().accounts.iter();
        let lines = names.filter_map(|name| {
            let view = exchange.account_funds(name)?;
            let reserved = funds_of(Some(Funds(view.reserved.0.cast_signed())));
            let [funds, available] = [view.funds, view.available].map(|amount| funds_of(Some(amount)));
            let unfunded =
                if view.unfunded > 0 { format!(", {} unfunded", view.unfunded) } else { String::new() };
            Some(format!("{name} {funds}: {reserved} reserved, {available} available{unfunded}\n"))
        });
        lines.collect()
    }

    pub(super) fn events(&self, exchange: &Exchange, events: &[Event]) -> String {
        let lines = events
            .iter()
            .map(|event| format!("{} {}\n", seconds(event.at), self.fact(exchange, &event.fact)));
        lines.collect()
    }

    fn fact(&self, exchange: &Exchange, fact: &Fact) -> String {
        let on = |node: &Node| unit(exchange, node.unit);
        let holder = |node: &Node| self.name(node.bid);
        let account = |id| exchange.names().account(id);
        match fact {
            Fact::MarketOpened { market } => format!("{} opens", exchange.names().market(*market)),
            Fact::RulesChanged { market } => format!("{} has other rules", exchange.names().market(*market)),
            Fact::MarketClosing { market } => format!("{} is closing", exchange.names().market(*market)),
            Fact::MarketEnded { market } => format!("{} has ended", exchange.names().market(*market)),
            Fact::OfferPut { provider, capacity, reserve, .. } => {
                format!("{} offers {capacity} @ {}", account(*provider), price(*reserve))
            }
            Fact::UnitAdded { unit: id, .. } => format!("{} is added", unit(exchange, *id)),
            Fact::UnitLeaving { unit: id } => format!("{} is leaving", unit(exchange, *id)),
            Fact::UnitBack { unit: id } => format!("{} is back", unit(exchange, *id)),
            Fact::UnitResting { unit: id } => format!("{} rests", unit(exchange, *id)),
            Fact::UnitResumed { unit: id } => format!("{} is resumed", unit(exchange, *id)),
            Fact::UnitRemoved { unit: id } => format!("{} is removed", unit(exchange, *id)),
            Fact::BidPlaced { bidder, scope, ceiling, max_nodes, .. } => {
                let scope = match scope {
                    Scope::Markets(_) => String::new(),
                    Scope::InstanceType(kind) => format!(" for any {kind}"),
                };
                format!("{} bids {max_nodes} @ {}{scope}", self.name(bidder.bid), price(*ceiling))
            }
            Fact::BidAmended { bidder, ceiling, max_nodes, .. } => {
                format!("{} bids now {max_nodes} @ {}", self.name(bidder.bid), price(*ceiling))
            }
            Fact::BidClosed { bidder, max_nodes, reason } => {
                format!("{} closes at {max_nodes}: {}", self.name(bidder.bid), reason.word())
            }
            Fact::Allocated { node } => format!("{} gets {}", holder(node), on(node)),
            Fact::Ready { node } => format!("{} has {} ready", holder(node), on(node)),
            Fact::NoticeStarted { node, deadline, reason, .. } => {
                let deadline = seconds(*deadline);
                format!("{} must leave {} by {deadline}: {}", holder(node), on(node), reason.word())
            }
            Fact::NoticeRescinded { node, .. } => format!("{} keeps {}", holder(node), on(node)),
            Fact::Claimed { node, by, was, cause } => {
                let was = was.map_or(String::new(), |was| format!(" instead of {}", self.name(was.bid)));
                format!("{} claims {}{was}: {}", self.name(by.bid), on(node), cause.word())
            }
            Fact::ClaimDropped { node, by, cause } => {
                format!("{} drops its claim on {}: {}", self.name(by.bid), on(node), cause.word())
            }
            Fact::Ended { node, reason, .. } => {
                format!("{} leaves {}: {}", holder(node), on(node), reason.word())
            }
            Fact::Charged { node, tenant, debit, fee, reason } => {
                let fee = match fee.0 {
                    0 => String::new(),
                    fee => format!(" of which {} fee", decimal(fee, 2)),
                };
                let (tenant, debit) = (account(*tenant), decimal(debit.0, 2));
                format!("{tenant} pays {debit}{fee} for {}: {}", on(node), reason.word())
            }
            Fact::PriceChanged { market, numbers } => prices(exchange, *market, numbers),
            Fact::NoticeMoved { node, deadline } => {
                format!("{} must leave {} by {} already", holder(node), on(node), seconds(*deadline))
            }
            Fact::Funded { account: id, funds } => format!("{} has {}", account(*id), funds_of(*funds)),
            Fact::BudgetSet { account: id, monthly: Some(monthly), roll_over, funds } => {
                let kept = if *roll_over { ", rolled over" } else { "" };
                let monthly = funds_of(Some(Funds((*monthly).into())));
                format!("{} has {}, and {monthly} each month{kept}", account(*id), funds_of(*funds))
            }
            Fact::BudgetSet { account: id, monthly: None, funds, .. } => {
                format!("{} has {}, and no budget", account(*id), funds_of(*funds))
            }
            Fact::BudgetRenewed { account: id, funds } => {
                format!("{} has {} from this month on", account(*id), funds_of(Some(*funds)))
            }
            Fact::RenewalSet { renewal } => format!("renewals are {} apart", seconds(*renewal)),
            Fact::Rejected { reason } => format!("refused: {reason}"),
            Fact::Repeated { .. } => "repeated".to_owned(),
        }
    }
}

/// Formats funds in dollars.
fn funds_of(funds: Option<Funds>) -> String {
    let Some(Funds(micros)) = funds else { return "unlimited funds".to_owned() };
    let sign = if micros < 0 { "-" } else { "" };
    format!("{sign}{}", decimal(micros.unsigned_abs(), 2))
}

fn resting(supply: &Supply) -> String {
    if supply.resting > 0 { format!(", {} resting", supply.resting) } else { String::new() }
}

/// Draws the prices of a market, which is called `market` if there is only one.
fn prices(exchange: &Exchange, id: MarketId, numbers: &Numbers) -> String {
    let names = exchange.names();
    let name = if names.markets.len() > 1 { names.market(id).as_str() } else { "market" };
    format!("{name} {}, entry {}", price(numbers.market_price), price(numbers.entry_price))
}

fn unit(exchange: &Exchange, id: UnitId) -> String {
    let names = exchange.names();
    let market =
        if names.markets.len() > 1 { format!("{}:", names.market(id.market)) } else { String::new() };
    format!("{market}{}/{}", names.account(id.provider), id.number)
}

/// Formats a price in dollars; `-` if there is none.
pub(super) fn price(price: impl Into<Option<Price>>) -> String {
    price.into().map_or("-".to_owned(), |price| decimal(price.0.into(), 2))
}

fn seconds(time: Micros) -> String {
    format!("{}s", decimal(time.0.into(), 0))
}
