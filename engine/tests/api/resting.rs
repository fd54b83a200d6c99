//! Units that rest because a node on them was not ready in time, and their resumption.

use crate::world::{Caller, MARKET, World, assert_refused, bid};
use kubebid_proto::v1;
use tonic::Code;
use v1::resume_units_request::Units;
use v1::unit::State;

/// The default start time-out.
const START_TIMEOUT: u64 = 900_000_000;

async fn offered(provider: &Caller) -> (v1::Offer, Vec<State>) {
    let request = v1::GetOfferRequest { market: MARKET.to_owned(), ..v1::GetOfferRequest::default() };
    let answer = provider.offers().get_offer(request).await.unwrap().into_inner();
    (answer.offer.unwrap(), answer.units.iter().map(v1::Unit::state).collect())
}

fn one(unit: &str) -> v1::ResumeUnitsRequest {
    v1::ResumeUnitsRequest { client_key: String::new(), units: Some(Units::Unit(unit.to_owned())) }
}

fn all(market: &str) -> v1::ResumeUnitsRequest {
    v1::ResumeUnitsRequest { client_key: String::new(), units: Some(Units::Market(market.to_owned())) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_whose_node_was_not_ready_rests_until_its_provider_resumes_it() {
    let world = World::start().await;
    let (t1, p1) = (world.tenant("t1").await, world.provider("p1").await);
    p1.offer(3, 1_000_000).await;
    let placed = t1.place(v1::PlaceBidRequest { max_nodes: 2, ..bid(2_000_000) }).await.unwrap();
    world.advance(START_TIMEOUT).await;

    // One node of the bid moved to the unit that was free.
    let (offer, states) = offered(&p1).await;
    assert_eq!((offer.capacity, offer.resting, offer.allocated, offer.free), (3, 2, 1, 0));
    assert_eq!(states, [State::Resting, State::Resting, State::Allocated]);
    let price = v1::GetMarketPriceRequest { market: MARKET.to_owned(), ..Default::default() };
    let price = t1.markets().get_market_price(price).await.unwrap().into_inner();
    let supply = price.prices[0].supply.unwrap();
    assert_eq!((supply.total, supply.resting, supply.allocated, supply.free), (3, 2, 1, 0));
    let put = p1.offer(3, 1_000_000).await;
    assert_eq!(t1.bid(placed.bid, put).await.unmet, 1, "a new offer resumes nothing");

    let keyed = v1::ResumeUnitsRequest { client_key: "k".to_owned(), ..one("h100/eu:p1#1") };
    let resumed = p1.offers().resume_units(keyed.clone()).await.unwrap().into_inner();
    assert_eq!(t1.bid(placed.bid, resumed.seq).await.unmet, 0);
    assert!(p1.offers().resume_units(keyed).await.unwrap().into_inner().repeated);
    assert_eq!(offered(&p1).await.1, [State::Allocated, State::Resting, State::Allocated]);
    p1.offers().resume_units(all(MARKET)).await.unwrap();
    assert_eq!(offered(&p1).await.1, [State::Allocated, State::Free, State::Allocated]);
    p1.offers().resume_units(all(MARKET)).await.expect("none rests, which is no mistake");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_providers_own_resting_units_are_resumed() {
    let world = World::start().await;
    let (t1, p1, p2) = (world.tenant("t1").await, world.provider("p1").await, world.provider("p2").await);
    p1.offer(2, 1_000_000).await;
    t1.place(bid(2_000_000)).await.unwrap();
    world.advance(START_TIMEOUT).await;
    let unit = "h100/eu:p1#1";

    let free = p1.offers().resume_units(one("h100/eu:p1#2")).await;
    assert_refused(free, Code::FailedPrecondition, "NOT_RESTING");
    for name in ["h100/eu:p1#9", "nonsense"] {
        assert_refused(p1.offers().resume_units(one(name)).await, Code::NotFound, "UNKNOWN_UNIT");
    }
    assert_refused(p1.offers().resume_units(all("x/y")).await, Code::NotFound, "UNKNOWN_MARKET");
    assert_refused(p2.offers().resume_units(one(unit)).await, Code::NotFound, "UNKNOWN_UNIT");
    p2.offers().resume_units(all(MARKET)).await.expect("it has none there");
    assert_refused(t1.offers().resume_units(one(unit)).await, Code::PermissionDenied, "FORBIDDEN");
    let nothing = p1.offers().resume_units(v1::ResumeUnitsRequest::default()).await;
    assert_refused(nothing, Code::InvalidArgument, "BAD_FIELD");
    assert_eq!(offered(&p1).await.0.resting, 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_told_of_its_resting_units_and_no_tenant_is() {
    let world = World::start().await;
    let (t1, p1) = (world.tenant("t1").await, world.provider("p1").await);
    p1.offer(1, 1_000_000).await;
    t1.place(bid(2_000_000)).await.unwrap();
    world.advance(START_TIMEOUT).await;
    let seq = p1.offers().resume_units(one("h100/eu:p1#1")).await.unwrap().into_inner().seq;
    let kinds = vec!["unit_resting".to_owned(), "unit_resumed".to_owned()];
    let filter = Some(v1::EventFilter { kinds, ..v1::EventFilter::default() });
    let list = v1::ListEventsRequest { filter, min_seq: seq, ..v1::ListEventsRequest::default() };
    let told = p1.events().list_events(list.clone()).await.unwrap().into_inner().events;
    let unit = "h100/eu:p1#1".to_owned();
    let expected = [
        v1::event::Kind::UnitResting(v1::event::UnitResting { unit: unit.clone() }),
        v1::event::Kind::UnitResumed(v1::event::UnitResumed { unit }),
    ];
    assert_eq!(told.into_iter().filter_map(|event| event.kind).collect::<Vec<_>>(), expected);
    assert!(t1.events().list_events(list).await.unwrap().into_inner().events.is_empty());
    world.stop().await;
}
