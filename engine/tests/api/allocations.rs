//! Nodes and offers as both parties see them.

use crate::world::{MARKET, World, assert_refused, bid};
use kubebid_proto::v1;
use tonic::Code;
use v1::allocation::{EndReason, State};
use v1::notice::Reason;
use v1::unit::State as UnitState;

const HOUR: u64 = 3_600_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_lives_from_its_allocation_to_its_end() {
    let world = World::start().await;
    let (t1, t2, p1) = (world.tenant("t1").await, world.tenant("t2").await, world.provider("p1").await);
    p1.offer(1, 1_000_000).await;
    let labels = [("team".to_owned(), "a".to_owned())].into();
    let placed = t1.place(v1::PlaceBidRequest { labels, ..bid(2_000_000) }).await.unwrap();
    let get = async |caller: &crate::world::Caller, min_seq| {
        let request = v1::GetAllocationRequest { allocation: 1, min_seq };
        caller
            .allocations()
            .get_allocation(request)
            .await
            .map(|answer| answer.into_inner().allocation.unwrap())
    };
    let seen = get(&t1, placed.seq).await.unwrap();
    assert_eq!((seen.state(), seen.bid, seen.tenant()), (State::Starting, Some(placed.bid), "t1"));
    assert_eq!((&seen.unit[..], &seen.provider[..], &seen.market[..]), ("h100/eu:p1#1", "p1", MARKET));
    assert_eq!((seen.price_micros, seen.ceiling_micros), (1_000_000, Some(2_000_000)));
    assert_eq!((seen.labels.len(), seen.start_by_us.is_some()), (1, true));

    let seen = get(&p1, 0).await.unwrap();
    assert_eq!((seen.bid, seen.tenant, seen.ceiling_micros, seen.labels.len()), (None, None, None, 0));
    assert_eq!((seen.price_micros, &seen.unit[..]), (1_000_000, "h100/eu:p1#1"));

    let ready = v1::ReportReadyRequest { client_key: "r".to_owned(), allocation: 1, access: None };
    p1.allocations().report_ready(ready.clone()).await.unwrap();
    assert!(p1.allocations().report_ready(ready.clone()).await.unwrap().into_inner().repeated);
    let again = v1::ReportReadyRequest { client_key: String::new(), ..ready };
    assert_refused(t1.allocations().report_ready(again).await, Code::FailedPrecondition, "ALREADY_READY");

    world.advance(HOUR).await;
    let challenger = t2.place(bid(3_000_000)).await.unwrap();
    let seen = get(&t1, challenger.seq).await.unwrap();
    let notice = seen.notice.unwrap();
    assert_eq!((seen.price_micros, notice.reason(), notice.started_at_us), (1_000_000, Reason::Outbid, HOUR));
    assert_eq!((notice.deadline_us, notice.rescindable), (HOUR + 300_000_000, true));
    assert_eq!(notice.price_to_stay_micros, Some(2_857_200));
    let notice = get(&p1, challenger.seq).await.unwrap().notice.unwrap();
    assert_eq!((notice.price_to_stay_micros, notice.rescindable), (None, true));
    let listed =
        v1::ListAllocationsRequest { under_notice_only: true, ..v1::ListAllocationsRequest::default() };
    let listed = p1.allocations().list_allocations(listed).await.unwrap().into_inner();
    assert_eq!((listed.allocations.len(), listed.allocations[0].allocation), (1, 1));

    let release = v1::ReleaseAllocationRequest { client_key: String::new(), allocation: 1 };
    let released = t1.allocations().release_allocation(release.clone()).await.unwrap().into_inner();
    let seen = get(&t1, released.seq).await.unwrap();
    assert_eq!((seen.state(), seen.ended_at_us, seen.notice), (State::Ended, Some(HOUR), None));
    assert_eq!(seen.end_reason, Some(EndReason::Released.into()));
    assert_eq!((seen.price_micros, seen.ceiling_micros), (1_000_000, Some(2_000_000)));
    assert_refused(t1.allocations().release_allocation(release).await, Code::FailedPrecondition, "ENDED");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_sees_its_offer_and_its_units() {
    let world = World::start().await;
    let (t1, p1, p2) = (world.tenant("t1").await, world.provider("p1").await, world.provider("p2").await);
    world.open("h100/us", v1::MarketRules::default()).await;
    p1.offer(3, 1_000_000).await;
    let elsewhere = v1::PutOfferRequest {
        market: "h100/us".to_owned(),
        capacity: 1,
        reserve_micros: 500_000,
        ..v1::PutOfferRequest::default()
    };
    let seq = p1.offers().put_offer(elsewhere).await.unwrap().into_inner().seq;
    t1.place(bid(2_000_000)).await.unwrap();
    let get =
        v1::GetOfferRequest { market: MARKET.to_owned(), page_size: 2, ..v1::GetOfferRequest::default() };
    let seen = p1.offers().get_offer(get.clone()).await.unwrap().into_inner();
    let offer = seen.offer.unwrap();
    assert_eq!((offer.capacity, offer.reserve_micros, offer.free, offer.allocated), (3, 1_000_000, 2, 1));
    let units: Vec<_> =
        seen.units.iter().map(|unit| (&unit.unit[..], unit.state(), unit.allocation)).collect();
    assert_eq!(
        units,
        [("h100/eu:p1#1", UnitState::Allocated, Some(1)), ("h100/eu:p1#2", UnitState::Free, None)]
    );
    let next = v1::GetOfferRequest { page_token: seen.next_page_token, ..get.clone() };
    let next = p1.offers().get_offer(next).await.unwrap().into_inner();
    assert_eq!((next.units.len(), &next.next_page_token[..]), (1, ""));

    assert_refused(p2.offers().get_offer(get.clone()).await, Code::NotFound, "UNKNOWN_OFFER");
    let nowhere = v1::GetOfferRequest { market: "x/y".to_owned(), ..get };
    assert_refused(p1.offers().get_offer(nowhere).await, Code::NotFound, "UNKNOWN_MARKET");

    let mut list = v1::ListOffersRequest { page_size: 1, min_seq: seq, ..v1::ListOffersRequest::default() };
    let page = p1.offers().list_offers(list.clone()).await.unwrap().into_inner();
    assert_eq!(page.offers[0].market, MARKET);
    list.page_token = page.next_page_token;
    let page = p1.offers().list_offers(list).await.unwrap().into_inner();
    assert_eq!((&page.offers[0].market[..], &page.next_page_token[..]), ("h100/us", ""));

    let unit = |unit: &str| v1::WithdrawUnitRequest { client_key: String::new(), unit: unit.to_owned() };
    p1.offers().withdraw_unit(unit("h100/eu:p1#1")).await.unwrap();
    let leaving = p1.offers().withdraw_unit(unit("h100/eu:p1#1")).await;
    assert_refused(leaving, Code::FailedPrecondition, "ALREADY_LEAVING");
    for name in ["h100/eu:p1#9", "nonsense", ""] {
        assert_refused(p1.offers().withdraw_unit(unit(name)).await, Code::NotFound, "UNKNOWN_UNIT");
    }
    let lost = v1::ReportUnitLostRequest { client_key: String::new(), unit: "h100/eu:p1#1".to_owned() };
    let seq = p1.offers().report_unit_lost(lost).await.unwrap().into_inner().seq;
    let get = v1::GetAllocationRequest { allocation: 1, min_seq: seq };
    let seen = t1.allocations().get_allocation(get).await.unwrap().into_inner().allocation.unwrap();
    assert_eq!(seen.end_reason, Some(EndReason::UnitLost.into()));
    world.stop().await;
}
