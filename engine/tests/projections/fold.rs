//! Tests that the events alone contain the state (I17): folding them gives what the exchange knows.

use crate::dump::{assert_same, dump};
use crate::market::{Market, projected};
use crate::place::TestPlace;
use crate::tables::compare;
use kubebid_core::event::{CloseReason, NoticeReason};
use kubebid_core::units::{AccountId, MarketId, Names};
use kubebid_core::{Auction, EventKind, Exchange};
use kubebid_engine::Engine;
use kubebid_engine::lifecycle::rebuild::rebuild;
use kubebid_engine::readmodel::queries::EventQuery;
use kubebid_engine::readmodel::rows::EventPlace;
use kubebid_proto::v1::event::Kind;
use kubebid_proto::v1::{Event, PriceNumbers, bid, notice};
use std::collections::BTreeMap;

crate::on_both! {
    events_fold_to_the_state_of_the_exchange
}

/// What a follower of the events knows.
#[derive(Debug, Default, PartialEq)]
struct Known {
    bids: BTreeMap<u64, Bid>,
    /// The nodes that have not ended.
    nodes: BTreeMap<u64, Node>,
    /// True for units that are leaving.
    units: BTreeMap<String, bool>,
    /// The reserves by provider and market, only of offers that have units.
    reserves: BTreeMap<(String, String), u64>,
    numbers: BTreeMap<String, PriceNumbers>,
    /// The states of the markets.
    states: BTreeMap<String, &'static str>,
    debits: u128,
    fees: u128,
}

#[derive(Clone, Debug, PartialEq)]
struct Bid {
    tenant: String,
    ceiling: u64,
    min_nodes: u32,
    max_nodes: u32,
    /// Its place among bids of the same ceiling.
    seq: u64,
    searching: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Node {
    bid: u64,
    tenant: String,
    unit: String,
    ready_at: Option<u64>,
    notice: Option<Notice>,
}

#[derive(Clone, Debug, PartialEq)]
struct Notice {
    reason: i32,
    deadline: u64,
    claimed_by: Option<u64>,
}

impl Known {
    fn fold(&mut self, event: &Event) {
        match event.kind.as_ref().expect("an event is of a kind") {
            Kind::BidPlaced(placed) => {
                assert_eq!(placed.bid, event.seq);
                let bid = Bid {
                    tenant: placed.tenant.clone(),
                    ceiling: placed.ceiling_micros,
                    min_nodes: placed.min_nodes,
                    max_nodes: placed.max_nodes,
                    seq: event.seq,
                    searching: true,
                };
                assert_eq!(self.bids.insert(placed.bid, bid), None);
            }
            Kind::BidAmended(amended) => {
                let bid = self.bid(amended.bid);
                (bid.ceiling, bid.max_nodes) = (amended.ceiling_micros, amended.max_nodes);
                bid.seq = amended.bid_seq;
            }
            Kind::BidClosed(closed) => {
                let bid = self.bid(closed.bid);
                assert!(std::mem::take(&mut bid.searching), "{event:?}");
                bid.max_nodes = closed.max_nodes;
            }
            Kind::Allocated(began) => {
                let node = Node {
                    bid: began.bid.unwrap(),
                    tenant: began.tenant.clone().unwrap(),
                    unit: began.unit.clone(),
                    ready_at: None,
                    notice: None,
                };
                assert_eq!(self.nodes.insert(began.allocation, node), None);
            }
            Kind::Ready(ready) => {
                assert_eq!(self.node(ready.allocation).ready_at.replace(event.at_us), None);
            }
            Kind::NoticeStarted(started) => {
                let notice =
                    Notice { reason: started.reason, deadline: started.deadline_us, claimed_by: None };
                assert_eq!(self.node(started.allocation).notice.replace(notice), None);
                self.bid(started.bid.unwrap()).max_nodes = started.max_nodes.unwrap();
            }
            Kind::NoticeMoved(moved) => {
                let notice = self.node(moved.allocation).notice.as_mut().unwrap();
                assert!(std::mem::replace(&mut notice.deadline, moved.deadline_us) > moved.deadline_us);
            }
            Kind::NoticeRescinded(rescinded) => {
                let notice = self.node(rescinded.allocation).notice.take().expect("it was under notice");
                assert_eq!(notice.claimed_by, None);
                self.bid(rescinded.bid.unwrap()).max_nodes = rescinded.max_nodes.unwrap();
            }
            Kind::Claimed(claimed) => {
                let notice = self.node(claimed.allocation.unwrap()).notice.as_mut().unwrap();
                assert_eq!(std::mem::replace(&mut notice.claimed_by, claimed.bid), claimed.was);
            }
            Kind::ClaimDropped(dropped) => {
                let notice = self.node(dropped.allocation.unwrap()).notice.as_mut().unwrap();
                assert_eq!(notice.claimed_by.take(), dropped.bid);
            }
            Kind::Ended(ended) => {
                self.nodes.remove(&ended.allocation).expect("it had begun");
                self.bid(ended.bid.unwrap()).max_nodes = ended.max_nodes.unwrap();
            }
            Kind::OfferPut(put) => {
                self.reserves.insert((put.provider.clone(), put.market.clone()), put.reserve_micros);
            }
            Kind::UnitAdded(added) => assert_eq!(self.units.insert(added.unit.clone(), false), None),
            Kind::UnitLeaving(leaving) => {
                assert_eq!(self.units.insert(leaving.unit.clone(), true), Some(false));
            }
            Kind::UnitBack(back) => assert_eq!(self.units.insert(back.unit.clone(), false), Some(true)),
            Kind::UnitResting(resting) => assert_eq!(self.units.get(&resting.unit), Some(&false)),
            Kind::UnitResumed(resumed) => assert_eq!(self.units.get(&resumed.unit), Some(&false)),
            Kind::UnitRemoved(removed) => {
                self.units.remove(&removed.unit).expect("it was on offer");
            }
            Kind::Charged(charged) => {
                self.debits += u128::from(charged.debit_micros);
                self.fees += u128::from(charged.fee_micros);
            }
            Kind::PriceChanged(changed) => {
                self.numbers.insert(changed.market.clone(), changed.numbers.unwrap());
            }
            Kind::MarketOpened(opened) => {
                let was = self.states.insert(opened.market.clone(), "OPEN");
                assert_ne!(was, Some("OPEN"), "{event:?}");
            }
            Kind::MarketClosing(closing) => {
                assert_eq!(self.states.insert(closing.market.clone(), "CLOSING"), Some("OPEN"));
            }
            Kind::MarketEnded(ended) => {
                assert_eq!(self.states.insert(ended.market.clone(), "ENDED"), Some("CLOSING"));
            }
            Kind::RulesChanged(_)
            | Kind::Funded(_)
            | Kind::BudgetSet(_)
            | Kind::BudgetRenewed(_)
            | Kind::RenewalSet(_)
            | Kind::Rejected(_)
            | Kind::Repeated(_) => {}
        }
    }

    fn bid(&mut self, number: u64) -> &mut Bid {
        self.bids.get_mut(&number).expect("it was placed")
    }

    fn node(&mut self, number: u64) -> &mut Node {
        self.nodes.get_mut(&number).expect("it had begun")
    }

    /// Returns the counts of a bid: live nodes, those under notice, claims, and what it still wants.
    fn counts(&self, number: u64) -> [usize; 4] {
        let of = |wanted: &dyn Fn(&Node) -> bool| self.nodes.values().filter(|node| wanted(node)).count();
        let live = of(&|node| node.bid == number && node.notice.is_none());
        let under_notice = of(&|node| node.bid == number && node.notice.is_some());
        let claims = of(&|node| node.notice.as_ref().is_some_and(|n| n.claimed_by == Some(number)));
        let bid = &self.bids[&number];
        let room = (bid.max_nodes as usize).saturating_sub(live + claims);
        [live, under_notice, claims, if bid.searching { room } else { 0 }]
    }
}

/// Returns the same from the exchange itself, with its counts for each bid.
fn seen(exchange: &Exchange) -> (Known, BTreeMap<u64, [usize; 4]>) {
    let (mut known, mut counts) = (Known::default(), BTreeMap::new());
    let (names, dump) = (exchange.names(), exchange.dump());
    for bid in &dump.bids {
        let view = exchange.view_bid(bid.bid).unwrap();
        let bid = Bid {
            tenant: names.account(view.tenant).to_string(),
            ceiling: view.ceiling.0,
            min_nodes: view.min_nodes,
            max_nodes: view.max_nodes,
            seq: view.bid_seq.0,
            searching: view.searching,
        };
        known.bids.insert(view.bid.0, bid);
        let [live, under_notice, claims] = [&view.live, &view.under_notice, &view.claims].map(Vec::len);
        counts.insert(view.bid.0, [live, under_notice, claims, view.unmet as usize]);
    }
    for node in &dump.allocations {
        let view = exchange.view_allocation(node.allocation).unwrap();
        let notice = view.notice.map(|notice| Notice {
            reason: reason(notice.reason),
            deadline: notice.deadline.0,
            claimed_by: node.claim.map(|bid| bid.0),
        });
        let node = Node {
            bid: view.bid.0,
            tenant: names.account(view.tenant).to_string(),
            unit: names.unit(view.unit).to_string(),
            ready_at: view.ready_at.map(|at| at.0),
            notice,
        };
        known.nodes.insert(view.allocation.0, node);
    }
    for market in 0..names.markets.len() as u32 {
        see_market(exchange, names, MarketId(market), &mut known);
    }
    let totals = exchange.totals();
    (known.debits, known.fees) = (totals.debits.0, totals.fees.0);
    (known, counts)
}

fn see_market(exchange: &Exchange, names: &Names, market: MarketId, known: &mut Known) {
    let name = names.market(market).to_string();
    for provider in 0..names.accounts.len() as u32 {
        let Some(offer) = exchange.view_offer(market, AccountId(provider)) else { continue };
        let units: Vec<_> = exchange.view_units(market, AccountId(provider), 0).collect();
        let staying = units.iter().filter(|unit| !unit.leaving).count();
        assert_eq!(offer.capacity, staying as u64);
        for unit in &units {
            known.units.insert(names.unit(unit.unit).to_string(), unit.leaving);
        }
        let provider = names.account(AccountId(provider)).to_string();
        known.reserves.insert((provider, name.clone()), offer.reserve.0);
    }
    let numbers = exchange.market_numbers(market).0;
    let numbers = PriceNumbers {
        market_price_micros: numbers.market_price.0,
        entry_price_micros: numbers.entry_price.map(|price| price.0),
        floor_micros: numbers.floor.map(|price| price.0),
        lowest_accepted_micros: numbers.lowest_accepted.map(|price| price.0),
        highest_losing_micros: numbers.highest_losing.0,
    };
    known.states.insert(name.clone(), exchange.market_state(market).word());
    known.numbers.insert(name, numbers);
}

fn reason(reason: NoticeReason) -> i32 {
    let reason = match reason {
        NoticeReason::Outbid => notice::Reason::Outbid,
        NoticeReason::CapacityWithdrawn => notice::Reason::CapacityWithdrawn,
        NoticeReason::ReserveRaised => notice::Reason::ReserveRaised,
        NoticeReason::Funds => notice::Reason::Funds,
    };
    reason.into()
}

/// Folds the events after `place`, which follow each other without a gap.
async fn follow(engine: &Engine, known: &mut Known, place: &mut Option<EventPlace>) {
    loop {
        let query = EventQuery { after: *place, limit: 1000, ..EventQuery::default() };
        let page = engine.read_model().events(&query).await.unwrap();
        let Some(last) = page.last() else { return };
        let end = (last.seq.0, last.index);
        for row in &page {
            let (seq, index) = (row.seq.0, row.index);
            let before = place.unwrap_or_default();
            let next = if seq == before.0 { index == before.1 + 1 } else { seq > before.0 && index == 0 };
            assert!(next, "{seq}.{index} comes behind {}.{}", before.0, before.1);
            assert_eq!((row.event.seq, row.event.index), (seq, index));
            known.fold(&row.event);
            *place = Some((seq, index));
        }
        assert_eq!(*place, Some(end));
    }
}

async fn events_fold_to_the_state_of_the_exchange(place: TestPlace) {
    let (engine, running) = place.start().await;
    let mut market = Market::new(51).closing();
    let (mut known, mut at) = (Known::default(), None);
    market.open(&engine).await;
    for _ in 0..10 {
        market.run(&engine, 350).await;
        projected(&engine).await;
        follow(&engine, &mut known, &mut at).await;
        let (mut wanted, counts) = engine.ask(seen).await.unwrap();
        // The exchange does not list an offer without units. Its last reserve is kept.
        for (of, reserve) in &known.reserves {
            wanted.reserves.entry(of.clone()).or_insert(*reserve);
        }
        assert_eq!(known.bids, wanted.bids);
        assert_eq!(known.nodes, wanted.nodes);
        assert_eq!(known, wanted);
        let folded: BTreeMap<_, _> = known.bids.keys().map(|bid| (*bid, known.counts(*bid))).collect();
        assert_eq!(folded, counts);
    }
    compare(&engine).await;
    let head = engine.applied();
    assert!(head >= 5_000, "{head} commands");
    let closed = |reason: CloseReason| closed_for(&engine, reason);
    for reason in CloseReason::ALL {
        assert!(closed(*reason).await > 0, "none was closed as {}", reason.word());
    }
    drop(engine);
    running.stop().await.unwrap();

    // The tables are such a fold too, and depend on the journal alone.
    let live = dump(&place).await;
    rebuild(&place.options, |_, _| ()).await.unwrap();
    assert_same(&dump(&place).await, &live);
    let (engine, running) = place.start().await;
    let mut commands = 0;
    let mut reader = engine.store().journal().read_from(1);
    loop {
        let batches = reader.next_chunk().await.unwrap();
        if batches.is_empty() {
            break;
        }
        for record in batches.iter().flat_map(|batch| batch.records()) {
            commands += 1;
            assert_eq!(record.seq, commands);
        }
    }
    assert_eq!(commands, head);
    running.stop().await.unwrap();
}

async fn closed_for(engine: &Engine, reason: CloseReason) -> usize {
    let kinds = [EventKind::BidClosed].into();
    let query = EventQuery { kinds, limit: 100_000, ..EventQuery::default() };
    let found = engine.read_model().events(&query).await.unwrap();
    let wire = match reason {
        CloseReason::Expired => bid::CloseReason::Expired,
        CloseReason::Ioc => bid::CloseReason::Ioc,
        CloseReason::Cancelled => bid::CloseReason::Cancelled,
        CloseReason::Done => bid::CloseReason::Done,
        CloseReason::MarketClosed => bid::CloseReason::MarketClosed,
    };
    let is = |kind: &Option<Kind>| matches!(kind, Some(Kind::BidClosed(closed)) if closed.reason == i32::from(wire));
    found.iter().filter(|row| is(&row.event.kind)).count()
}
