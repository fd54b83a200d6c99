//! Replays a supply trace: a provider changes its offer at every row, bids for some nodes each compete, and the
//! exchange decides who gets and loses nodes.

mod table;

pub use table::{BidTable, MarketTable, SupplyTable};

use crate::agenda::{Agenda, Step};
use crate::bid::standing_bid;
use crate::name_map::NameMap;
use crate::participant::{Participant, run_until};
use crate::trace::{SupplyChange, TraceError};
use kubebid_core::answer::{Answer, Auction};
use kubebid_core::command::{CancelMode, PlaceBid, RuleChange};
use kubebid_core::event::{EndReason, Event, Fact};
use kubebid_core::units::{AccountName, AllocationId, BidId, InstanceType, MarketName, Micros};
use kubebid_core::{Command, Exchange, Price, StampedCommand};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// The settings of a supply replay: all that the trace does not say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bids for each instance type, in any region, as shares of the on-demand price.
    pub shares: Vec<f64>,
    /// Nodes that each of them wants.
    pub nodes: u32,
    /// The on-demand price, per node-hour.
    pub on_demand: Price,
    /// The reserve of all offers, per node-hour.
    pub reserve: Price,
    /// Time from a node's award until it is ready.
    pub boot: Micros,
    /// Time for which a node is protected after it is ready.
    pub min_runtime: Micros,
    /// Time from a notice to its deadline.
    pub notice: Micros,
    /// The age from which the last row of a market is too old: the market offers nothing until the
    /// next, and that time counts for nothing.
    pub longest_gap: Option<Micros>,
}

const TICK: u64 = 100;

/// One bid of one type, and its sums.
#[derive(Debug)]
struct Fleet {
    instance_type: String,
    share: f64,
    ceiling: Price,
    tenant: AccountName,
    bid: BidId,
    /// Its nodes, and whether they are ready.
    nodes: BTreeMap<AllocationId, bool>,
    running: u128,
    lost: u64,
    paid_micros: u128,
}

/// The supply of one market of the trace, and its sums.
#[derive(Debug, Default)]
struct Supply {
    nodes: u64,
    /// The time of its last row; `None` once that is older than `longest_gap`.
    row: Option<Micros>,
    since: Micros,
    span: u128,
    node_time: u128,
    /// Microseconds with at least one node.
    some: u128,
    lost: u64,
}

/// The time for which there was any node of a type in any region.
#[derive(Debug, Default)]
struct Anywhere {
    nodes: u64,
    /// Markets of which something is known.
    known: usize,
    since: Micros,
    span: u128,
    some: u128,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Ready(AllocationId),
    /// The row of this time is too old, if it is still the last one of the market.
    Gap {
        market: (String, String),
        row: Micros,
    },
}

impl Step for Due {
    fn rank(&self, other: &Due) -> Ordering {
        self.cmp(other)
    }
}

struct Replay<'a> {
    settings: &'a Settings,
    exchange: Exchange,
    /// Names of instance types, and of regions.
    names: (NameMap, NameMap),
    now: Micros,
    agenda: Agenda<Due>,
    fleets: Vec<Fleet>,
    by_bid: BTreeMap<BidId, usize>,
    by_allocation: BTreeMap<AllocationId, usize>,
    markets: BTreeMap<(String, String), Supply>,
    types: BTreeMap<String, Anywhere>,
}

/// Reads the trace to its end; holds what the markets hold.
pub fn replay_supply(
    trace: impl Iterator<Item = Result<SupplyChange, TraceError>>,
    settings: &Settings,
) -> Result<SupplyTable, TraceError> {
    let mut replay = Replay {
        settings,
        exchange: Exchange::new(),
        names: Default::default(),
        now: Micros(0),
        agenda: Agenda::new(),
        fleets: Vec::new(),
        by_bid: BTreeMap::new(),
        by_allocation: BTreeMap::new(),
        markets: BTreeMap::new(),
        types: BTreeMap::new(),
    };
    for change in trace {
        replay.change(&change?);
    }
    if replay.markets.is_empty() {
        return Err(TraceError::NoRows);
    }
    replay.end();
    Ok(table::of(&replay))
}

impl Replay<'_> {
    fn change(&mut self, change: &SupplyChange) {
        let Ok(()) = run_until(self, change.at);
        self.advance(change.at);
        let key = (change.instance_type.clone(), change.region.clone());
        if !self.types.contains_key(&change.instance_type) {
            self.types
                .insert(change.instance_type.clone(), Anywhere { since: self.now, ..Anywhere::default() });
            self.place_bids(&change.instance_type);
        }
        if !self.markets.contains_key(&key) {
            self.open(change);
            self.markets.insert(key.clone(), Supply { since: self.now, ..Supply::default() });
        }
        self.offer(&key, change.nodes, Some(change.at));
        if let Some(gap) = self.settings.longest_gap {
            self.agenda.plan(change.at.after(gap), Due::Gap { market: key, row: change.at });
        }
    }

    /// Sets the nodes of a market, as its row says; without a row nothing is known of it any more.
    fn offer(&mut self, key: &(String, String), nodes: u64, row: Option<Micros>) {
        let market = self.markets.get_mut(key).expect("opened");
        market.pass(self.now);
        let anywhere = self.types.get_mut(&key.0).expect("known");
        anywhere.pass(self.now);
        anywhere.nodes = anywhere.nodes - market.nodes + nodes;
        anywhere.known = anywhere.known - usize::from(market.row.is_some()) + usize::from(row.is_some());
        market.lost += if row.is_some() { market.nodes.saturating_sub(nodes) } else { 0 };
        market.row = row;
        // The exchange refuses to withdraw an offer that was never put, so a market without nodes sends nothing.
        if std::mem::replace(&mut market.nodes, nodes) != nodes {
            let market = self.market_name(&key.0, &key.1);
            self.say(Command::PutOffer {
                provider: AccountName::new("provider"),
                market,
                capacity: nodes,
                reserve: self.settings.reserve,
            });
        }
    }

    fn open(&mut self, change: &SupplyChange) {
        let rule = RuleChange::number;
        let rules = vec![
            rule("tick", TICK),
            rule("min_runtime_us", self.settings.min_runtime.0),
            rule("notice_us", self.settings.notice.0),
        ];
        let market = self.market_name(&change.instance_type, &change.region);
        self.say(Command::OpenMarket { market, rules });
    }

    fn market_name(&mut self, instance_type: &str, region: &str) -> MarketName {
        let (types, regions) = &mut self.names;
        MarketName::new(&format!("{}/{}", types.market_name(instance_type), regions.market_name(region)))
    }

    fn place_bids(&mut self, instance_type: &str) {
        let wanted = InstanceType::new(self.names.0.market_name(instance_type));
        for share in &self.settings.shares {
            let ticks = (share * self.settings.on_demand.0 as f64 / TICK as f64).round() as u64;
            let ceiling = Price(ticks.max(1) * TICK);
            let tenant = AccountName::new(&format!("{instance_type} at {share}"));
            let bid = BidId(self.exchange.seq().0 + 1);
            self.by_bid.insert(bid, self.fleets.len());
            self.fleets.push(Fleet {
                instance_type: instance_type.to_owned(),
                share: *share,
                ceiling,
                tenant: tenant.clone(),
                bid,
                nodes: BTreeMap::new(),
                running: 0,
                lost: 0,
                paid_micros: 0,
            });
            self.say(Command::PlaceBid(PlaceBid {
                instance_type: Some(wanted.clone()),
                ..standing_bid(tenant, ceiling, self.settings.nodes)
            }));
        }
    }

    /// Moves the clock, and lets the exchange do what is due.
    fn advance(&mut self, at: Micros) {
        self.pass(at);
        self.say(Command::AdvanceTime);
    }

    fn meet(&mut self, due: Due) {
        match due {
            Due::Ready(allocation) => {
                if let Some(fleet) = self.by_allocation.get(&allocation) {
                    self.fleets[*fleet].nodes.insert(allocation, true);
                    self.say(Command::ReportReady { allocation, by: None });
                }
            }
            Due::Gap { market, row } => {
                if self.markets[&market].row == Some(row) {
                    self.offer(&market, 0, None);
                }
            }
        }
    }

    fn pass(&mut self, at: Micros) {
        let passed = u128::from(at.since(self.now).0);
        for fleet in self.fleets.iter_mut().filter(|fleet| self.types[&fleet.instance_type].known > 0) {
            fleet.running += passed * fleet.nodes.values().filter(|ready| **ready).count() as u128;
        }
        self.now = self.now.max(at);
    }

    fn end(&mut self) {
        self.markets.values_mut().for_each(|market| market.pass(self.now));
        self.types.values_mut().for_each(|anywhere| anywhere.pass(self.now));
        let bids: Vec<(AccountName, BidId)> =
            self.fleets.iter().map(|fleet| (fleet.tenant.clone(), fleet.bid)).collect();
        for (tenant, bid) in bids {
            self.say(Command::CancelBid { tenant, bid, mode: CancelMode::Release });
        }
    }

    fn say(&mut self, command: Command) {
        let Ok(_) = self.send(command);
    }

    fn on_event(&mut self, event: &Event) {
        match &event.fact {
            Fact::Allocated { node } => {
                let fleet = self.by_bid[&node.bid];
                self.by_allocation.insert(node.allocation, fleet);
                self.fleets[fleet].nodes.insert(node.allocation, false);
                self.agenda.plan(event.at.after(self.settings.boot), Due::Ready(node.allocation));
            }
            Fact::Ended { node, reason, .. } => {
                self.by_allocation.remove(&node.allocation);
                let fleet = &mut self.fleets[self.by_bid[&node.bid]];
                fleet.nodes.remove(&node.allocation);
                fleet.lost += u64::from(!matches!(reason, EndReason::Released | EndReason::Regrouped));
            }
            Fact::Charged { node, debit, .. } => {
                self.fleets[self.by_bid[&node.bid]].paid_micros += debit.0;
            }
            Fact::Rejected { reason } => panic!("the exchange refused: {}", reason.code()),
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
            | Fact::Ready { .. }
            | Fact::NoticeStarted { .. }
            | Fact::NoticeRescinded { .. }
            | Fact::Claimed { .. }
            | Fact::ClaimDropped { .. }
            | Fact::PriceChanged { .. }
            | Fact::NoticeMoved { .. }
            | Fact::Funded { .. }
            | Fact::BudgetSet { .. }
            | Fact::BudgetRenewed { .. }
            | Fact::RenewalSet { .. }
            | Fact::Repeated { .. } => {}
        }
    }
}

impl Participant for Replay<'_> {
    type Error = Infallible;

    fn apply(&mut self, command: Command) -> Result<Answer, Infallible> {
        Ok(self.exchange.apply(&StampedCommand { at: self.now, key: None, command }))
    }

    fn on_events(&mut self, events: &[Event]) {
        events.iter().for_each(|event| self.on_event(event));
    }

    fn next_at(&self) -> Option<Micros> {
        self.agenda.next_at().into_iter().chain(self.exchange.next_due()).min()
    }

    fn act(&mut self, now: Micros) -> Result<(), Infallible> {
        self.advance(now);
        while let Some(due) = self.agenda.take_due(now) {
            self.meet(due);
        }
        Ok(())
    }
}

impl Supply {
    fn pass(&mut self, at: Micros) {
        let passed = if self.row.is_some() { u128::from(at.since(self.since).0) } else { 0 };
        self.span += passed;
        self.node_time += passed * u128::from(self.nodes);
        self.some += if self.nodes > 0 { passed } else { 0 };
        self.since = at;
    }
}

impl Anywhere {
    fn pass(&mut self, at: Micros) {
        let passed = if self.known > 0 { u128::from(at.since(self.since).0) } else { 0 };
        self.span += passed;
        self.some += if self.nodes > 0 { passed } else { 0 };
        self.since = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::SupplyTrace;

    fn played(rows: &str, gap_hours: Option<u64>) -> SupplyTable {
        let text = format!("timestamp,instance_type,region,available\n{rows}");
        let settings = Settings {
            shares: vec![0.2, 1.0],
            nodes: 1,
            on_demand: Price(1_000_000),
            reserve: Price(100_000),
            boot: Micros(0),
            min_runtime: Micros(0),
            notice: Micros::seconds(300),
            longest_gap: gap_hours.map(|hours| Micros(hours * Micros::HOUR.0)),
        };
        let trace = SupplyTrace::of(Box::new(std::io::Cursor::new(text))).expect("a trace");
        replay_supply(trace, &settings).expect("sound rows")
    }

    #[test]
    fn the_dear_bid_keeps_what_there_is_and_both_run_when_there_is_more() {
        // One node for 5 hours, two for 5 hours.
        let rows = "1970-01-01T00:00:00Z,v,a,1\n1970-01-01T05:00:00Z,v,a,2\n1970-01-01T10:00:00Z,v,a,2\n";
        let table = played(rows, None);
        let bids: Vec<(f64, u64)> = table.bids.iter().map(|bid| (bid.availability, bid.lost)).collect();
        assert_eq!(bids, [(0.5, 0), (1.0, 0)], "{table}");
        assert_eq!((table.markets[0].mean_nodes, table.markets[0].available), (1.5, 1.0));
        // Against the cheap bid's 0.20 for 5 hours, then alone at the reserve.
        assert!((table.bids[1].mean_paid_usd.unwrap() - 0.15).abs() < 1e-6, "{table}");
    }

    #[test]
    fn a_bid_for_any_region_moves_where_there_is_a_node() {
        let rows = "1970-01-01T00:00:00Z,v,a,1\n1970-01-01T00:00:00Z,v,b,0\n\
            1970-01-01T05:00:00Z,v,a,0\n1970-01-01T05:00:00Z,v,b,1\n1970-01-01T10:00:00Z,v,b,1\n";
        let table = played(rows, None);
        assert_eq!((table.markets[0].available, table.markets[1].available), (0.5, 0.5));
        assert_eq!(table.markets[0].lost_per_node_hour, Some(0.2));
        assert_eq!(table.anywhere, [("v".to_owned(), 1.0)]);
        let best = &table.bids[1];
        assert!(best.availability > 0.99 && best.lost == 1, "{table}");
    }

    #[test]
    fn a_slash_in_a_type_or_a_region_changes_no_figure() {
        let rows = "1970-01-01T00:00:00Z,v,a,1\n1970-01-01T00:00:00Z,v,b,0\n\
            1970-01-01T05:00:00Z,v,a,0\n1970-01-01T05:00:00Z,v,b,1\n1970-01-01T10:00:00Z,v,b,1\n";
        let plain = played(rows, None);
        let table = played(&rows.replace(",v,a,", ",v/8 x,a/1,").replace(",v,b,", ",v/8 x,,"), None);
        let figures = |table: &SupplyTable| {
            let bids = table.bids.iter().map(|bid| (bid.availability, bid.lost, bid.mean_paid_usd));
            bids.collect::<Vec<_>>()
        };
        assert_eq!(figures(&table), figures(&plain), "{table}");
        assert!(table.bids.iter().all(|bid| bid.instance_type == "v/8 x"), "{table}");
        let regions: Vec<&str> = table.markets.iter().map(|market| market.region.as_str()).collect();
        assert_eq!(regions, ["", "a/1"]);
    }

    #[test]
    fn in_a_gap_nothing_is_offered_and_nothing_counted() {
        let rows = "1970-01-01T00:00:00Z,v,a,1\n1970-01-09T00:00:00Z,v,a,1\n1970-01-09T01:00:00Z,v,a,1\n";
        let table = played(rows, Some(3));
        assert_eq!((table.markets[0].hours, table.markets[0].available), (4.0, 1.0));
        let best = &table.bids[1];
        assert!(best.availability == 1.0 && best.lost == 1, "{table}");
    }
}
