//! Tests of the explanations why a bid waits and why a node was taken away.

use crate::world::{MARKET, SECOND, World, caller};
use kubebid_engine::api::Api;
use kubebid_proto::v1;
use v1::bid::UnfilledReason;
use v1::cancel_bid_request::Mode;
use v1::explain_request::Subject;

async fn explain(api: &Api, who: &str, subject: Subject) -> Result<v1::ExplainResponse, String> {
    let request = v1::ExplainRequest { subject: Some(subject), min_seq: 0 };
    api.explain(&caller(who), request).await.map_err(|error| error.code.word().to_owned())
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all others fail the test")]
fn rules(explained: &v1::ExplainResponse) -> Vec<(&str, &str)> {
    let kind = |step: &v1::explain_response::Step| match step.event.as_ref().unwrap().kind.as_ref().unwrap() {
        v1::event::Kind::BidPlaced(_) => "placed",
        v1::event::Kind::BidAmended(_) => "amended",
        v1::event::Kind::Allocated(_) => "allocated",
        v1::event::Kind::Ready(_) => "ready",
        v1::event::Kind::NoticeStarted(_) => "notice",
        v1::event::Kind::NoticeRescinded(_) => "rescinded",
        v1::event::Kind::Claimed(_) => "claimed",
        v1::event::Kind::ClaimDropped(_) => "dropped",
        v1::event::Kind::Ended(_) => "ended",
        v1::event::Kind::Charged(_) => "charged",
        other => panic!("{other:?} explains nothing"),
    };
    explained.steps.iter().map(|step| (kind(step), step.rule.as_str())).collect()
}

/// The example of the rules, §5.
async fn contested() -> (World, [u64; 3]) {
    let world = World::new().await;
    world.offer("p1", 1, SECOND).await;
    let first = world.bid("t1", 1, 2 * SECOND).await;
    world.ready("t1", 1).await;
    let second = world.bid("t2", 1, 1_500_000).await;
    let third = world.bid("t3", 1, 2_050_000).await;
    (world, [first, second, third])
}

#[tokio::test]
async fn an_explanation_says_what_a_waiting_bid_needs() {
    let (world, [_, second, third]) = contested().await;
    for (who, bid) in [("t2", second), ("t3", third)] {
        let explained = explain(&world.api, who, Subject::Bid(bid)).await.unwrap();
        let obstacle = &explained.obstacles[0];
        assert_eq!((explained.obstacles.len(), obstacle.market.as_str()), (1, MARKET));
        assert_eq!(obstacle.reason(), UnfilledReason::BelowNeededCeiling);
        assert_eq!(obstacle.needed_ceiling_micros, Some(2_100_000));
        assert_eq!(explained.rule, "R4");
        assert!(explained.summary.contains("lacks 1 of 1 node"), "{}", explained.summary);
        assert!(explained.summary.contains("$2.10"), "{}", explained.summary);
        assert_eq!(rules(&explained), [("placed", "R2")]);
    }
}

#[tokio::test]
async fn a_bid_that_is_high_enough_waits_for_the_protection() {
    let (world, [_, _, third]) = contested().await;
    let raise = v1::AmendBidRequest { bid: third, ceiling_micros: Some(3 * SECOND), ..Default::default() };
    world.api.amend_bid(&caller("t3"), raise).await.unwrap();
    let explained = explain(&world.api, "t3", Subject::Bid(third)).await.unwrap();
    let obstacle = &explained.obstacles[0];
    assert_eq!(obstacle.reason(), UnfilledReason::WaitingForProtectedNode);
    assert_eq!(obstacle.protected_until_us, Some(900 * SECOND));
    assert_eq!(obstacle.needed_ceiling_micros, Some(2_100_000));
    assert!(explained.summary.contains("1970-01-01T00:15:00Z"), "{}", explained.summary);
    assert_eq!(rules(&explained), [("placed", "R2"), ("amended", "R2")]);
    // After that bid, the same node takes more than it needs itself.
    let fourth = world.bid("t2", 1, 2_500_000).await;
    let behind = explain(&world.api, "t2", Subject::Bid(fourth)).await.unwrap();
    assert_eq!(behind.obstacles[0].needed_ceiling_micros, Some(3_000_100));
}

#[tokio::test]
async fn a_preemption_is_explained_to_its_tenant_with_the_way_back_and_no_numbers_of_others() {
    let (world, [first, _, third]) = contested().await;
    let raise = v1::AmendBidRequest { bid: third, ceiling_micros: Some(3 * SECOND), ..Default::default() };
    world.api.amend_bid(&caller("t3"), raise).await.unwrap();
    world.at(900).await;
    let explained = explain(&world.api, "t1", Subject::Allocation(1)).await.unwrap();
    assert_eq!(explained.rule, "R4");
    assert!(explained.summary.contains("until 1970-01-01T00:20:00Z"), "{}", explained.summary);
    assert!(explained.summary.contains("at least 5 % above its ceiling"), "{}", explained.summary);
    assert!(explained.summary.contains("$2.8572"), "{}", explained.summary);
    assert!(explained.summary.contains("its price is frozen at $2.00"), "{}", explained.summary);
    let steps = [("placed", "R2"), ("allocated", "R3"), ("ready", "R4"), ("notice", "R4"), ("claimed", "R5")];
    assert_eq!(rules(&explained), steps);
    let seqs: Vec<u64> = explained.steps.iter().map(|step| step.seq).collect();
    assert!(seqs.is_sorted() && seqs[0] == first, "{seqs:?}");
    let told = serde_json::to_string(&explained).unwrap();
    assert!(!told.contains("t3") && !told.contains("t2") && !told.contains("3000000"), "{told}");
    assert!(!told.contains("$3.00") && !told.contains(&format!("\"bid\":\"{third}\"")), "{told}");

    world.at(1200).await;
    let ended = explain(&world.api, "t1", Subject::Allocation(1)).await.unwrap();
    assert!(ended.summary.contains("outbid"), "{}", ended.summary);
    assert_eq!(rules(&ended)[5..], [("ended", "R5"), ("charged", "R15")]);
    let winner = explain(&world.api, "t3", Subject::Bid(third)).await.unwrap();
    assert_eq!(rules(&winner)[2..], [("claimed", "R4"), ("allocated", "R5")]);
    assert!(winner.summary.contains("has all it wants"), "{}", winner.summary);
}

#[tokio::test]
async fn a_claim_that_is_charged_is_explained_with_its_reason() {
    let (world, [_, _, third]) = contested().await;
    let amend = async |ceiling| {
        let amend = v1::AmendBidRequest { bid: third, ceiling_micros: Some(ceiling), ..Default::default() };
        world.api.amend_bid(&caller("t3"), amend).await.unwrap();
    };
    amend(3 * SECOND).await;
    world.at(900).await;
    amend(SECOND).await;
    let explained = explain(&world.api, "t3", Subject::Bid(third)).await.unwrap();
    assert_eq!(
        rules(&explained)[2..],
        [("claimed", "R4"), ("amended", "R2"), ("charged", "R15"), ("dropped", "R2")]
    );
    let [charged, dropped] = &explained.steps[4..] else { panic!("{explained:?}") };
    assert!(
        charged.text.contains("the claim on h100-8x/eu-west:p1#1, the market's minimum charge"),
        "{charged:?}"
    );
    assert!(
        dropped.text.contains("not free of charge (R15): the bid's ceiling is too low for it"),
        "{dropped:?}"
    );
}

#[tokio::test]
async fn a_raise_under_notice_is_explained_with_the_lock_of_the_ceiling() {
    let (world, [first, ..]) = contested().await;
    world.bid("t2", 1, 3 * SECOND).await;
    world.at(900).await;
    let raise = v1::AmendBidRequest { bid: first, ceiling_micros: Some(4 * SECOND), ..Default::default() };
    world.api.amend_bid(&caller("t1"), raise).await.unwrap();
    let locked = explain(&world.api, "t1", Subject::Bid(first)).await.unwrap();
    let words = "Its ceiling was raised under notice, and is not lowered before 1970-01-01T00:30:00Z (R2).";
    assert!(locked.summary.ends_with(words), "{}", locked.summary);
    world.at(1800).await;
    let after = explain(&world.api, "t1", Subject::Bid(first)).await.unwrap();
    assert!(!after.summary.contains("not lowered"), "{}", after.summary);
}

#[tokio::test]
async fn a_regrouped_bid_is_explained_to_its_tenant() {
    let world = World::new().await;
    world.offer("p1", 2, SECOND).await;
    let markets = vec![MARKET.to_owned()];
    let gang = v1::PlaceBidRequest {
        markets,
        ceiling_micros: 2 * SECOND,
        min_nodes: Some(2),
        max_nodes: 2,
        ..Default::default()
    };
    let bid = world.place("t1", gang).await;
    world.ready("t1", 1).await;
    world.offer("p1", 1, SECOND).await;
    let regroup = v1::CancelBidRequest { bid, mode: Mode::Regroup.into(), ..Default::default() };
    world.api.cancel_bid(&caller("t1"), regroup).await.unwrap();
    let explained = explain(&world.api, "t1", Subject::Allocation(1)).await.unwrap();
    assert!(explained.summary.contains("its tenant regrouped the bid"), "{}", explained.summary);
    let charged = explained.steps.last().unwrap();
    assert!(charged.text.ends_with("was charged for node 1, as for a release."), "{charged:?}");
    let waits = explain(&world.api, "t1", Subject::Bid(bid)).await.unwrap();
    assert_eq!(waits.obstacles[0].reason(), UnfilledReason::MinimumNotMet);
}

#[tokio::test]
async fn the_provider_gets_an_explanation_of_its_unit_and_not_of_bids() {
    let (world, _) = contested().await;
    let lower = v1::PutOfferRequest { market: MARKET.to_owned(), capacity: 0, ..Default::default() };
    world.api.put_offer(&caller("p1"), lower).await.unwrap();
    let explained = explain(&world.api, "p1", Subject::Allocation(1)).await.unwrap();
    assert_eq!(explained.rule, "R11");
    assert_eq!(rules(&explained), [("allocated", "R3"), ("ready", "R4"), ("notice", "R11")]);
    let told = serde_json::to_string(&explained).unwrap();
    assert!(!told.contains("t1") && !told.contains("2000000") && !told.contains("$2.00"), "{told}");
}

#[tokio::test]
async fn explanations_of_other_accounts_look_as_if_they_did_not_exist() {
    let (world, [first, ..]) = contested().await;
    assert_eq!(explain(&world.api, "t2", Subject::Bid(first)).await.unwrap_err(), "UNKNOWN_BID");
    assert_eq!(explain(&world.api, "t2", Subject::Allocation(1)).await.unwrap_err(), "UNKNOWN_ALLOCATION");
    assert_eq!(explain(&world.api, "p2", Subject::Allocation(1)).await.unwrap_err(), "UNKNOWN_ALLOCATION");
    assert_eq!(explain(&world.api, "t1", Subject::Allocation(9)).await.unwrap_err(), "UNKNOWN_ALLOCATION");
    assert!(explain(&world.api, "admin", Subject::Allocation(1)).await.is_ok());
}

#[tokio::test]
async fn each_market_has_its_own_obstacle() {
    let world = World::new().await;
    for market in ["h100-8x/empty", "h100-8x/dear", "h100-8x/own", "h100-8x/gang"] {
        let open = v1::OpenMarketRequest { market: market.to_owned(), rules: None };
        world.api.open_market(&world.admin.caller, open).await.unwrap();
    }
    let offer = async |who: &str, market: &str, capacity, reserve_micros| {
        let market = format!("h100-8x/{market}");
        let offer = v1::PutOfferRequest { market, capacity, reserve_micros, ..Default::default() };
        world.api.put_offer(&caller(who), offer).await.unwrap();
    };
    offer("p1", "dear", 5, 9 * SECOND).await;
    offer("t1", "own", 1, SECOND).await;
    offer("p1", "gang", 1, SECOND).await;
    let request = v1::PlaceBidRequest {
        markets: ["empty", "dear", "own", "gang"].map(|region| format!("h100-8x/{region}")).into(),
        ceiling_micros: 2 * SECOND,
        min_nodes: Some(2),
        max_nodes: 2,
        ..Default::default()
    };
    let bid = world.place("t1", request).await;
    let explained = explain(&world.api, "t1", Subject::Bid(bid)).await.unwrap();
    let obstacles: Vec<_> =
        explained.obstacles.iter().map(|o| (o.reason(), o.needed_ceiling_micros)).collect();
    let expected = [
        (UnfilledReason::NoSupply, None),
        (UnfilledReason::BelowFloor, Some(9 * SECOND)),
        (UnfilledReason::OwnSupply, None),
        (UnfilledReason::MinimumNotMet, None),
    ];
    assert_eq!(obstacles, expected);
    assert_eq!(explained.rule, "R12");
    let seen = world.api.get_bid(&caller("t1"), v1::GetBidRequest { bid, min_seq: 0 }).await.unwrap();
    assert_eq!(seen.bid.unwrap().unfilled_reason(), UnfilledReason::MinimumNotMet);
}
