//! From what commits brought to the rows that tell it. Pure but for what it remembers of running nodes.

mod billing;

pub(crate) use billing::{Running, SegmentRecord};

use super::rows::{ChargeRow, OfferRow, PricePoint, Tif};
use crate::chunk::{Chunk, Step};
use crate::store::Fault;
use crate::wire::event::Told;
use kubebid_core::closing::{ClosedNode, Closing};
use kubebid_core::command::{Command, TimeInForce};
use kubebid_core::event::{ChargeReason, CloseReason, EndReason, Event, Fact, Node, Scope};
use kubebid_core::units::{AllocationId, BidId, Micros, Names};
use kubebid_core::views::{AllocationView, BidView};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// The rows that some chunks come to.
#[derive(Debug, Default)]
pub(crate) struct Folded {
    pub(crate) events: Vec<Arc<Told>>,
    /// Of the bids among the events that name no single market.
    pub(crate) scopes: BTreeMap<BidId, Scoped>,
    pub(crate) markets: Vec<MarketRecord>,
    pub(crate) prices: Vec<(String, PricePoint)>,
    /// By provider and market.
    pub(crate) offers: BTreeMap<(String, String), OfferRow>,
    pub(crate) bids: BTreeMap<BidId, BidRecord>,
    pub(crate) allocations: BTreeMap<AllocationId, AllocationRecord>,
    pub(crate) charges: Vec<ChargeRow>,
    pub(crate) segments: Vec<SegmentRecord>,
    /// Ended free of charge: what they had accrued is forgotten.
    pub(crate) free: Vec<AllocationId>,
}

#[derive(Debug)]
pub(crate) struct MarketRecord {
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) opened_at: Micros,
}

/// Where a bid looks that names several markets, or an instance type.
#[derive(Debug)]
pub(crate) struct Scoped {
    /// Empty with an instance type.
    pub(crate) markets: Vec<String>,
    pub(crate) instance_type: Option<String>,
}

/// A bid that was placed or touched.
#[derive(Debug)]
pub(crate) struct BidRecord {
    /// Absent for bids that are in the table already.
    pub(crate) placed: Option<Placed>,
    pub(crate) closed: Option<(Micros, CloseReason)>,
    /// As it is behind the last chunk that touched it.
    pub(crate) view: BidView,
}

#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) at: Micros,
    pub(crate) tenant: String,
    pub(crate) markets: Vec<String>,
    pub(crate) client_key: Option<String>,
    pub(crate) time_in_force: Tif,
}

/// An allocation that began or was touched.
#[derive(Debug)]
pub(crate) struct AllocationRecord {
    /// Absent for allocations that are in the table already.
    pub(crate) begun: Option<Begun>,
    pub(crate) notice_started_at: Option<Micros>,
    pub(crate) last: Last,
}

#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) at: Micros,
    pub(crate) bid: BidId,
    pub(crate) tenant: String,
    pub(crate) unit: String,
    pub(crate) market: String,
    pub(crate) provider: String,
}

/// How an allocation is behind the last chunk that touched it.
#[derive(Debug)]
pub(crate) enum Last {
    Unknown,
    Held(AllocationView),
    Ended { at: Micros, reason: EndReason, was: ClosedNode },
}

impl Folded {
    /// Adds what a chunk brought.
    ///
    /// # Errors
    /// An amount that the tables cannot hold.
    pub(crate) fn add(&mut self, chunk: &Chunk, running: &mut Running) -> Result<(), Fault> {
        let mut places = Vec::new();
        for (step, told) in chunk.told() {
            self.pass_hours(step, running)?;
            self.add_step(step, told, chunk, running, &mut places)?;
        }
        self.take_views(chunk, places);
        Ok(())
    }

    fn add_step(
        &mut self,
        step: &Step,
        told: &[Arc<Told>],
        chunk: &Chunk,
        running: &mut Running,
        places: &mut Vec<(BidId, Placed)>,
    ) -> Result<(), Fault> {
        let names = &*chunk.names;
        let mut closings = step.closings.iter();
        for (told, event) in told.iter().zip(&step.events) {
            match &event.fact {
                Fact::MarketOpened { market } => self.markets.push(MarketRecord {
                    name: names.market(*market).to_string(),
                    number: market.0,
                    opened_at: event.at,
                }),
                Fact::PriceChanged { market, numbers } => {
                    let (seq, index) = (step.seq, told.event.index);
                    let point = PricePoint { seq, index, at: event.at, numbers: *numbers };
                    self.prices.push((names.market(*market).to_string(), point));
                }
                Fact::OfferPut { provider, market, capacity, reserve } => {
                    let provider = names.account(*provider).to_string();
                    let market = names.market(*market).to_string();
                    let key = (provider.clone(), market.clone());
                    let put_at = event.at;
                    let offer = OfferRow { provider, market, capacity: *capacity, reserve: *reserve, put_at };
                    self.offers.insert(key, offer);
                }
                Fact::BidPlaced { bidder, scope, .. } => {
                    places.push((bidder.bid, placed(step, event, scope, names)));
                }
                Fact::BidClosed { bidder, reason, .. } => {
                    places_closed(&mut self.bids, chunk, bidder.bid).closed = Some((event.at, *reason));
                }
                Fact::Allocated { node } => self.begin(*node, event.at, names),
                Fact::Ready { node } => running.begin(node.allocation, event.at),
                Fact::NoticeStarted { node, .. } => {
                    self.allocation(node.allocation).notice_started_at = Some(event.at);
                }
                Fact::Ended { node, reason, .. } => {
                    let Some(Closing::Node(was)) = closings.next() else {
                        unreachable!("each end has its closing, in order")
                    };
                    let next = step.events.get(told.event.index as usize + 1);
                    let charged = next.is_some_and(|next| is_charge_of(next, node.allocation));
                    if charged {
                        running.settle(was);
                    } else {
                        self.free(was, running);
                    }
                    self.allocation(node.allocation).last =
                        Last::Ended { at: event.at, reason: *reason, was: *was };
                }
                Fact::Charged { node, reason, .. } => {
                    let claim = if *reason == ChargeReason::ClaimDropped { closings.next() } else { None };
                    self.charge(step.seq, told, event, *node, claim, running, names)?;
                }
                Fact::RulesChanged { .. }
                | Fact::BidAmended { .. }
                | Fact::UnitAdded { .. }
                | Fact::UnitLeaving { .. }
                | Fact::UnitBack { .. }
                | Fact::UnitRemoved { .. }
                | Fact::NoticeRescinded { .. }
                | Fact::Claimed { .. }
                | Fact::ClaimDropped { .. }
                | Fact::Rejected { .. }
                | Fact::Repeated { .. } => {}
            }
            if let (None, Some(holder)) = (&told.market, &told.parties.holder) {
                let bid = chunk.bid(holder.bid).expect("a bid with an event was touched");
                self.scopes.entry(holder.bid).or_insert_with(|| Scoped::of(&bid.scope, names));
            }
            self.events.push(told.clone());
        }
        Ok(())
    }

    fn begin(&mut self, node: Node, at: Micros, names: &Names) {
        let begun = Begun {
            at,
            bid: node.bid,
            tenant: names.account(node.tenant).to_string(),
            unit: names.unit(node.unit).to_string(),
            market: names.market(node.unit.market).to_string(),
            provider: names.account(node.unit.provider).to_string(),
        };
        let record = AllocationRecord { begun: Some(begun), notice_started_at: None, last: Last::Unknown };
        self.allocations.insert(node.allocation, record);
    }

    fn allocation(&mut self, id: AllocationId) -> &mut AllocationRecord {
        let touched = AllocationRecord { begun: None, notice_started_at: None, last: Last::Unknown };
        self.allocations.entry(id).or_insert(touched)
    }

    /// How things are behind the chunk.
    fn take_views(&mut self, chunk: &Chunk, places: Vec<(BidId, Placed)>) {
        for view in &chunk.bids {
            match self.bids.entry(view.bid) {
                Entry::Occupied(mut known) => known.get_mut().view = view.clone(),
                Entry::Vacant(vacant) => {
                    vacant.insert(BidRecord { placed: None, closed: None, view: view.clone() });
                }
            }
        }
        for (bid, placed) in places {
            self.bids.get_mut(&bid).expect("a bid that was placed was touched").placed = Some(placed);
        }
        for view in &chunk.allocations {
            self.allocation(view.allocation).last = Last::Held(view.clone());
        }
    }
}

impl Scoped {
    fn of(scope: &Scope, names: &Names) -> Scoped {
        match scope {
            Scope::Markets(markets) => Scoped {
                markets: markets.iter().map(|market| names.market(*market).to_string()).collect(),
                instance_type: None,
            },
            Scope::InstanceType(kind) => {
                Scoped { markets: Vec::new(), instance_type: Some(kind.to_string()) }
            }
        }
    }
}

/// The record of a bid that closed, which the chunk touched.
fn places_closed<'a>(
    bids: &'a mut BTreeMap<BidId, BidRecord>,
    chunk: &Chunk,
    bid: BidId,
) -> &'a mut BidRecord {
    bids.entry(bid).or_insert_with(|| {
        let view = chunk.bid(bid).expect("a bid that closed was touched").clone();
        BidRecord { placed: None, closed: None, view }
    })
}

fn placed(step: &Step, event: &Event, scope: &Scope, names: &Names) -> Placed {
    let Command::PlaceBid(command) = &step.command.command else { unreachable!("only PlaceBid places bids") };
    Placed {
        at: event.at,
        tenant: command.tenant.to_string(),
        markets: Scoped::of(scope, names).markets,
        client_key: step.command.key.as_ref().map(|key| key.to_string()),
        time_in_force: match command.time_in_force {
            TimeInForce::Gtc => Tif::Gtc,
            TimeInForce::Gtt => Tif::Gtt,
            TimeInForce::Ioc => Tif::Ioc,
            TimeInForce::Unknown(_) => unreachable!("such a bid is refused"),
        },
    }
}

fn is_charge_of(event: &Event, allocation: AllocationId) -> bool {
    matches!(&event.fact, Fact::Charged { node, reason, .. }
        if node.allocation == allocation && *reason != ChargeReason::ClaimDropped)
}
