//! Folds commits into rows. It is pure, apart from what it keeps about running nodes.

mod billing;

pub(crate) use billing::{Correction, Running, SegmentRecord};

use super::rows::{ChargeRow, PricePoint, StoredTimeInForce};
use crate::events::commit::{Commit, Step};
use crate::events::message::EventMessage;
use kubebid_core::command::{Command, TimeInForce};
use kubebid_core::event::{ChargeReason, CloseReason, EndReason, Event, Fact, Node, Scope};
use kubebid_core::money::Price;
use kubebid_core::settlement_details::{ClosedNode, SettlementDetail};
use kubebid_core::units::{AccountName, AllocationId, BidId, ClientKey, MarketName, Micros, Names};
use kubebid_core::views::{AllocationView, BidView};
use kubebid_proto::v1;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The rows of some commits.
#[derive(Debug, Default)]
pub(crate) struct Folded<'a> {
    pub(crate) events: Vec<FoldedEvent<'a>>,
    pub(crate) markets: Vec<MarketRecord<'a>>,
    pub(crate) prices: Vec<(&'a MarketName, PricePoint)>,
    /// Offers by provider and market.
    pub(crate) offers: BTreeMap<(&'a str, &'a str), OfferRecord>,
    /// The bids in the order in which they were first touched.
    pub(crate) bids: Vec<(BidId, BidRecord<'a>)>,
    /// The positions of bids in `bids`.
    positions: HashMap<BidId, usize, foldhash::quality::RandomState>,
    pub(crate) allocations: BTreeMap<AllocationId, AllocationRecord<'a>>,
    pub(crate) charges: Vec<ChargeRow>,
    pub(crate) segments: Vec<SegmentRecord>,
    pub(crate) corrections: Vec<Correction>,
}

/// An event and the word of its reason.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoldedEvent<'a> {
    pub(crate) message: &'a EventMessage,
    pub(crate) reason: Option<&'a str>,
}

#[derive(Debug)]
pub(crate) struct MarketRecord<'a> {
    pub(crate) name: &'a MarketName,
    pub(crate) number: u32,
    pub(crate) opened_at: Micros,
}

/// An offer as it was last put. The key has its provider and market.
#[derive(Debug)]
pub(crate) struct OfferRecord {
    pub(crate) capacity: u64,
    pub(crate) reserve: Price,
    pub(crate) put_at: Micros,
}

/// The markets in which a bid searches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scoped<'a> {
    scope: &'a Scope,
    names: &'a Names,
}

/// A bid that was placed or touched.
#[derive(Debug)]
pub(crate) struct BidRecord<'a> {
    /// Absent for bids that are in the table already.
    pub(crate) placed: Option<Placed<'a>>,
    pub(crate) closed: Option<(Micros, CloseReason)>,
    /// The bid as it is after the last commit that touched it.
    pub(crate) view: &'a BidView,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) at: Micros,
    pub(crate) tenant: &'a AccountName,
    pub(crate) scope: Scoped<'a>,
    pub(crate) client_key: Option<&'a ClientKey>,
    pub(crate) time_in_force: StoredTimeInForce,
}

/// An allocation that began or was touched.
#[derive(Debug)]
pub(crate) struct AllocationRecord<'a> {
    /// Absent for allocations that are in the table already.
    pub(crate) begun: Option<Begun<'a>>,
    pub(crate) notice_started_at: Option<Micros>,
    pub(crate) last: Last<'a>,
}

#[derive(Debug)]
pub(crate) struct Begun<'a> {
    pub(crate) at: Micros,
    pub(crate) bid: BidId,
    pub(crate) tenant: &'a AccountName,
    pub(crate) unit: String,
    pub(crate) market: &'a MarketName,
    pub(crate) provider: &'a AccountName,
}

/// The state of an allocation after the last commit that touched it.
#[derive(Debug)]
pub(crate) enum Last<'a> {
    Unknown,
    Held(&'a AllocationView),
    Ended { at: Micros, reason: EndReason, was: &'a ClosedNode },
}

impl<'a> Folded<'a> {
    /// Adds the rows of a commit.
    pub(crate) fn add(&mut self, commit: &'a Commit, running: &mut Running) {
        let mut places = Vec::new();
        for (step, message) in commit.steps_with_messages() {
            self.pass_hours(step, running);
            self.add_step(step, message, commit, running, &mut places);
        }
        self.take_views(commit, places);
    }

    fn add_step(
        &mut self,
        step: &'a Step,
        message: &'a [Arc<EventMessage>],
        commit: &'a Commit,
        running: &mut Running,
        places: &mut Vec<(BidId, Placed<'a>)>,
    ) {
        let names = &*commit.names;
        let mut settlement_details = step.settlement_details.iter();
        for (message, event) in message.iter().zip(&step.events) {
            match &event.fact {
                Fact::MarketOpened { market } => self.markets.push(MarketRecord {
                    name: names.market(*market),
                    number: market.0,
                    opened_at: event.at,
                }),
                Fact::PriceChanged { market, numbers } => {
                    let (seq, index) = (step.seq, message.event.index);
                    let point = PricePoint { seq, index, at: event.at, numbers: *numbers };
                    self.prices.push((names.market(*market), point));
                }
                Fact::OfferPut { provider, market, capacity, reserve } => {
                    let key = (names.account(*provider).as_str(), names.market(*market).as_str());
                    let put_at = event.at;
                    self.offers.insert(key, OfferRecord { capacity: *capacity, reserve: *reserve, put_at });
                }
                Fact::BidPlaced { bidder, scope, .. } => {
                    let tenant = names.account(bidder.tenant);
                    places.push((bidder.bid, placed(step, event, tenant, scope, names)));
                }
                Fact::BidClosed { bidder, reason, .. } => {
                    self.bid(touched(commit, bidder.bid)).closed = Some((event.at, *reason));
                }
                Fact::Allocated { node } => self.begin(*node, event.at, names),
                Fact::Ready { node } => running.begin(node.allocation, event.at),
                Fact::NoticeStarted { node, .. } => {
                    self.allocation(node.allocation).notice_started_at = Some(event.at);
                }
                Fact::Ended { node, reason, .. } => {
                    let Some(SettlementDetail::Node(was)) = settlement_details.next() else {
                        unreachable!("each end has its closing, in order")
                    };
                    let next = step.events.get(message.event.index as usize + 1);
                    let charged = next.is_some_and(|next| is_charge_of(next, node.allocation));
                    if charged {
                        running.settle(was);
                    } else {
                        self.free(was, event.at, running);
                    }
                    self.allocation(node.allocation).last =
                        Last::Ended { at: event.at, reason: *reason, was };
                }
                Fact::Charged { node, reason, .. } => {
                    let claim =
                        if *reason == ChargeReason::ClaimDropped { settlement_details.next() } else { None };
                    self.charge(step.seq, message, event, *node, claim, running, names);
                }
                Fact::RulesChanged { .. }
                | Fact::MarketClosing { .. }
                | Fact::MarketEnded { .. }
                | Fact::BidAmended { .. }
                | Fact::UnitAdded { .. }
                | Fact::UnitLeaving { .. }
                | Fact::UnitBack { .. }
                | Fact::UnitResting { .. }
                | Fact::UnitResumed { .. }
                | Fact::UnitRemoved { .. }
                | Fact::NoticeRescinded { .. }
                | Fact::Claimed { .. }
                | Fact::ClaimDropped { .. }
                | Fact::NoticeMoved { .. }
                | Fact::Funded { .. }
                | Fact::BudgetSet { .. }
                | Fact::BudgetRenewed { .. }
                | Fact::RenewalSet { .. }
                | Fact::Rejected { .. }
                | Fact::Repeated { .. } => {}
            }
            self.events.push(FoldedEvent { message, reason: reason(&event.fact, message) });
        }
    }

    fn begin(&mut self, node: Node, at: Micros, names: &'a Names) {
        let begun = Begun {
            at,
            bid: node.bid,
            tenant: names.account(node.tenant),
            unit: names.unit(node.unit).to_string(),
            market: names.market(node.unit.market),
            provider: names.account(node.unit.provider),
        };
        let record = AllocationRecord { begun: Some(begun), notice_started_at: None, last: Last::Unknown };
        self.allocations.insert(node.allocation, record);
    }

    fn allocation(&mut self, id: AllocationId) -> &mut AllocationRecord<'a> {
        let touched = AllocationRecord { begun: None, notice_started_at: None, last: Last::Unknown };
        self.allocations.entry(id).or_insert(touched)
    }

    /// Returns the record of a bid, and sets its state to `view`.
    fn bid(&mut self, view: &'a BidView) -> &mut BidRecord<'a> {
        let position = *self.positions.entry(view.bid).or_insert(self.bids.len());
        if position == self.bids.len() {
            self.bids.push((view.bid, BidRecord { placed: None, closed: None, view }));
        }
        let (_, record) = &mut self.bids[position];
        record.view = view;
        record
    }

    /// Takes the state of everything that the commit touched.
    fn take_views(&mut self, commit: &'a Commit, places: Vec<(BidId, Placed<'a>)>) {
        for view in &commit.bids {
            self.bid(view);
        }
        for (bid, placed) in places {
            let position = self.positions[&bid];
            self.bids[position].1.placed = Some(placed);
        }
        for view in &commit.allocations {
            self.allocation(view.allocation).last = Last::Held(view);
        }
    }
}

impl<'a> Scoped<'a> {
    /// Returns the markets in the tenant's order; none for an instance type.
    pub(crate) fn markets(self) -> impl Iterator<Item = &'a str> {
        let markets = match self.scope {
            Scope::Markets(markets) => &markets[..],
            Scope::InstanceType(_) => &[],
        };
        markets.iter().map(move |market| self.names.market(*market).as_str())
    }

    pub(crate) fn instance_type(self) -> Option<&'a str> {
        match self.scope {
            Scope::Markets(_) => None,
            Scope::InstanceType(kind) => Some(kind.as_str()),
        }
    }
}

/// Returns the word for why an event happened, if it has one.
fn reason<'a>(fact: &Fact, message: &'a EventMessage) -> Option<&'a str> {
    match fact {
        Fact::BidClosed { reason, .. } => Some(reason.word()),
        Fact::NoticeStarted { reason, .. } => Some(reason.word()),
        Fact::Claimed { cause, .. } => Some(cause.word()),
        Fact::ClaimDropped { cause, .. } => Some(cause.word()),
        Fact::Ended { reason, .. } => Some(reason.word()),
        Fact::Charged { reason, .. } => Some(reason.word()),
        // The message says no more than its viewers may know.
        Fact::Rejected { .. } => match &message.event.kind {
            Some(v1::event::Kind::Rejected(rejected)) => Some(&rejected.reason),
            _ => None,
        },
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
        | Fact::Allocated { .. }
        | Fact::Ready { .. }
        | Fact::NoticeRescinded { .. }
        | Fact::NoticeMoved { .. }
        | Fact::PriceChanged { .. }
        | Fact::Funded { .. }
        | Fact::BudgetSet { .. }
        | Fact::BudgetRenewed { .. }
        | Fact::RenewalSet { .. }
        | Fact::Repeated { .. } => None,
    }
}

/// Returns a bid that has an event in the commit.
fn touched(commit: &Commit, bid: BidId) -> &BidView {
    commit.bid(bid).expect("a bid with an event was touched")
}

fn placed<'a>(
    step: &'a Step,
    event: &Event,
    tenant: &'a AccountName,
    scope: &'a Scope,
    names: &'a Names,
) -> Placed<'a> {
    let Command::PlaceBid(command) = &step.command.command else { unreachable!("only PlaceBid places bids") };
    Placed {
        at: event.at,
        tenant,
        scope: Scoped { scope, names },
        client_key: step.command.key.as_ref(),
        time_in_force: match command.time_in_force {
            TimeInForce::Gtc => StoredTimeInForce::Gtc,
            TimeInForce::Gtt => StoredTimeInForce::Gtt,
            TimeInForce::Ioc => StoredTimeInForce::Ioc,
            TimeInForce::Unknown(_) => unreachable!("such a bid is refused"),
        },
    }
}

fn is_charge_of(event: &Event, allocation: AllocationId) -> bool {
    matches!(&event.fact, Fact::Charged { node, reason, .. }
        if node.allocation == allocation && *reason != ChargeReason::ClaimDropped)
}
