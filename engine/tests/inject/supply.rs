//! Tests of units that are taken away on behalf of their providers, and brought back.

use crate::place::TestPlace;
use crate::{Drill, MARKET, SECOND, on_both};
use kubebid_engine::Caller;
use kubebid_engine::store::Role;
use kubebid_proto::v1;

on_both! {
    an_outage_takes_all_that_a_provider_sells_and_its_offers_come_back_as_they_were
}

const OTHER: &str = "a100/eu";

fn loss(market: &str, account: &str, units: Option<u32>) -> v1::InjectLossRequest {
    v1::InjectLossRequest {
        market: market.to_owned(),
        account: account.to_owned(),
        units,
        with_notice: false,
    }
}

fn restore(market: &str, account: &str, capacity: Option<u32>) -> v1::RestoreOffersRequest {
    v1::RestoreOffersRequest { market: market.to_owned(), account: account.to_owned(), capacity }
}

async fn restored(drill: &Drill, market: &str, account: &str) -> Vec<(String, String, u32, u32)> {
    let request = restore(market, account, None);
    let answer = drill.api.restore_offers(&drill.admin, request).await.unwrap();
    let of = |offer: v1::RestoredOffer| (offer.provider, offer.market, offer.capacity, offer.added);
    answer.restored.into_iter().map(of).collect()
}

async fn an_outage_takes_all_that_a_provider_sells_and_its_offers_come_back_as_they_were(place: TestPlace) {
    let drill = Drill::new(&place).await;
    drill.open(OTHER).await;
    drill.offer("p1", MARKET, 2, 1_000_000).await;
    drill.offer("p1", OTHER, 3, 500_000).await;
    drill.offer("p2", MARKET, 1, 2_000_000).await;
    let t1 = drill.bid("t1", 2, 4_000_000).await;

    let out = drill.api.inject_loss(&drill.admin, loss("", "p1", None)).await.unwrap();
    assert_eq!((out.free, out.taken.len()), (3, 2));
    for taken in &out.taken {
        assert_eq!((&taken.tenant[..], taken.bid, taken.ends_at_us), ("t1", t1, out.at_us));
        assert!(drill.node(taken.allocation).await.is_none(), "it is gone at once, protected or not");
    }
    assert_eq!(drill.view(t1).await.live.len(), 1, "what p2 has is all there is");
    assert_eq!((drill.offered("p1", MARKET).await, drill.offered("p1", OTHER).await), (None, None));
    let refusal = drill.api.inject_loss(&drill.admin, loss("", "p1", None)).await.unwrap_err();
    assert_eq!((refusal.code.word(), &refusal.message[..]), ("UNKNOWN_OFFER", "nothing is offered by p1"));

    let hash = drill.stop().await;
    let drill = Drill::again(&place).await;
    assert_eq!(drill.ask(kubebid_core::Exchange::state_hash).await, hash);
    let mut back = restored(&drill, "", "p1").await;
    back.sort();
    let offer = |market: &str, units| ("p1".to_owned(), market.to_owned(), units, units);
    assert_eq!(back, [offer(OTHER, 3), offer(MARKET, 2)]);
    assert_eq!(drill.offered("p1", MARKET).await, Some((2, 1_000_000)));
    assert_eq!(drill.offered("p1", OTHER).await, Some((3, 500_000)));
    assert_eq!(drill.view(t1).await.live.len(), 2);
    assert!(restored(&drill, "", "p1").await.is_empty(), "again changes nothing");
    drill.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_takes_free_units_first_then_the_lowest_ceilings() {
    let place = TestPlace::sqlite();
    let drill = Drill::new(&place).await;
    drill.offer("p1", MARKET, 2, 1_000_000).await;
    drill.offer("p2", MARKET, 2, 1_000_000).await;
    let dear = drill.bid("t1", 1, 9_000_000).await;
    let cheap = drill.bid("t2", 2, 3_000_000).await;
    let taken = drill.api.inject_loss(&drill.admin, loss(MARKET, "", Some(2))).await.unwrap();
    assert_eq!(taken.free, 1);
    let [node] = &taken.taken[..] else { panic!("{taken:?}") };
    assert_eq!((node.bid, node.allocation), (cheap, 3), "the newest of its level");
    assert_eq!(node.protected_until_us, Some(1800 * SECOND), "which does not help");
    assert_eq!((drill.view(dear).await.live.len(), drill.view(cheap).await.live.len()), (1, 1));

    let with_notice = v1::InjectLossRequest { with_notice: true, ..loss(MARKET, "", Some(2)) };
    let taken = drill.api.inject_loss(&drill.admin, with_notice).await.unwrap();
    let ends: Vec<_> = taken.taken.iter().map(|node| (node.bid, node.ends_at_us / SECOND)).collect();
    assert_eq!(ends, [(cheap, 1800), (dear, 1800)], "notice, but not before the protection ends");
    assert_eq!(drill.view(dear).await.under_notice.len(), 1);
    assert_eq!(restored(&drill, MARKET, "").await.len(), 2);
    assert_eq!(drill.view(dear).await.live.len(), 1, "its unit stays after all");
    drill.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn units_missing_before_a_drill_are_not_restored_if_that_is_asked_for() {
    let place = TestPlace::sqlite();
    let drill = Drill::new(&place).await;
    drill.offer("p1", MARKET, 4, 1_000_000).await;
    let p1 = Caller::new("p1", [Role::Provider]);
    let broken = v1::ReportUnitLostRequest { unit: format!("{MARKET}:p1#2"), ..Default::default() };
    drill.api.report_unit_lost(&p1, broken).await.unwrap();
    drill.bid("t1", 1, 2_000_000).await;
    let request = v1::PreemptAllocationRequest { allocation: 1, at_once: true };
    let before = drill.api.preempt_allocation(&drill.admin, request).await.unwrap().before.unwrap();
    let of = (&before.provider[..], &before.market[..], before.capacity);
    assert_eq!(of, ("p1", MARKET, 3));
    let lost = drill.api.inject_loss(&drill.admin, loss(MARKET, "", Some(1))).await.unwrap();
    assert_eq!(lost.before.iter().map(|offer| offer.capacity).collect::<Vec<_>>(), [2]);
    for _ in 0..2 {
        drill.api.restore_offers(&drill.admin, restore(MARKET, "p1", Some(3))).await.unwrap();
        assert_eq!(drill.offered("p1", MARKET).await, Some((3, 1_000_000)));
    }
    drill.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_says_what_it_cannot_take() {
    let place = TestPlace::sqlite();
    let drill = Drill::new(&place).await;
    drill.offer("p1", MARKET, 2, 1_000_000).await;
    for (request, code, field) in [
        (loss("", "", Some(1)), "BAD_FIELD", "market"),
        (loss(MARKET, "", None), "BAD_FIELD", "units"),
        (loss(MARKET, "", Some(0)), "BAD_FIELD", "units"),
        (loss(MARKET, "", Some(3)), "BAD_FIELD", "units"),
        (loss("a/b", "", Some(1)), "UNKNOWN_MARKET", "market"),
        (loss(MARKET, "p2", None), "UNKNOWN_OFFER", "market"),
        (loss("", "with space", None), "BAD_FIELD", "account"),
    ] {
        let refusal = drill.api.inject_loss(&drill.admin, request).await.unwrap_err();
        assert_eq!((refusal.code.word(), refusal.field.as_deref()), (code, Some(field)), "{refusal}");
    }
    for (market, account, code) in
        [("", "", "BAD_FIELD"), ("a/b", "", "UNKNOWN_MARKET"), (MARKET, "p2", "UNKNOWN_OFFER")]
    {
        let request = restore(market, account, None);
        let refusal = drill.api.restore_offers(&drill.admin, request).await.unwrap_err();
        assert_eq!(refusal.code.word(), code, "{refusal}");
    }
    assert_eq!(drill.offered("p1", MARKET).await, Some((2, 1_000_000)));
    drill.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preempted_node_ends_after_its_notice_or_its_protection() {
    let place = TestPlace::sqlite();
    let drill = Drill::new(&place).await;
    drill.offer("p1", MARKET, 3, 1_000_000).await;
    let bid = drill.bid("t1", 3, 2_000_000).await;
    drill.ready("t1", 1).await;
    drill.ready("t1", 2).await;
    let preempt = async |allocation, at_once| {
        let request = v1::PreemptAllocationRequest { allocation, at_once };
        drill.api.preempt_allocation(&drill.admin, request).await
    };
    drill.at(100).await;
    let protected = preempt(1, false).await.unwrap().taken.unwrap();
    assert_eq!((protected.protected_until_us, protected.ends_at_us), (Some(900 * SECOND), 900 * SECOND));
    drill.at(800).await;
    let nearly = preempt(2, false).await.unwrap().taken.unwrap();
    assert_eq!((nearly.ends_at_us, &nearly.unit[..]), (1100 * SECOND, "h100/eu:p1#2"));
    let at_once = preempt(3, true).await.unwrap();
    assert_eq!((at_once.at_us, at_once.taken.unwrap().ends_at_us), (800 * SECOND, 800 * SECOND));
    assert!(drill.node(3).await.is_none());
    let again = preempt(2, false).await.unwrap_err();
    assert_eq!((again.code.word(), again.seq.is_some()), ("ALREADY_LEAVING", true));
    assert_eq!(preempt(3, false).await.unwrap_err().code.word(), "UNKNOWN_ALLOCATION");
    drill.at(1100).await;
    assert!(drill.view(bid).await.live.is_empty());
    assert_eq!(drill.offered("p1", MARKET).await, None);
    drill.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_under_notice_keeps_its_deadline_and_loses_its_claim() {
    let place = TestPlace::sqlite();
    let drill = Drill::new(&place).await;
    drill.offer("p1", MARKET, 1, 1_000_000).await;
    drill.bid("t1", 1, 2_000_000).await;
    drill.ready("t1", 1).await;
    drill.at(1000).await;
    let t2 = drill.bid("t2", 1, 9_000_000).await;
    assert_eq!(drill.view(t2).await.claims.len(), 1);
    drill.at(1100).await;
    let request = v1::PreemptAllocationRequest { allocation: 1, at_once: false };
    let taken = drill.api.preempt_allocation(&drill.admin, request).await.unwrap().taken.unwrap();
    assert_eq!((taken.ends_at_us, &taken.tenant[..]), (1300 * SECOND, "t1"));
    assert!(drill.view(t2).await.claims.is_empty());
    drill.stop().await;
}
