//! Permissions: the calls that each role may make, and what callers do not get to see.

use crate::raw;
use crate::world::{Bearer, Caller, MARKET, World, assert_refused, bid, refused};
use kubebid_engine::Roles;
use kubebid_engine::api::ApiOptions;
use kubebid_engine::auth::policy::POLICY;
use kubebid_engine::store;
use kubebid_proto::v1;
use std::time::Duration;
use tonic::Code;
use v1::token::Role;

#[tokio::test(flavor = "multi_thread")]
async fn each_role_may_call_what_the_policy_says() {
    let world = World::start().await;
    for (role, stored) in [
        (Role::Tenant, store::Role::Tenant),
        (Role::Provider, store::Role::Provider),
        (Role::Viewer, store::Role::Viewer),
        (Role::Admin, store::Role::Admin),
    ] {
        let caller = world.caller("someone", &[role]).await;
        let roles: Roles = [stored].into_iter().collect();
        for (method, need) in POLICY {
            // An empty message is enough to be admitted or refused. An admitted watch stays
            // open.
            let allowed = need.allows(roles);
            let wait = Duration::from_secs(if allowed { 1 } else { 60 });
            let answer = tokio::time::timeout(wait, raw::call(&caller, method, Vec::new())).await;
            let forbidden = matches!(&answer, Ok(Err(status)) if status.code() == Code::PermissionDenied);
            assert_eq!(forbidden, !allowed, "{role:?} {method}: {answer:?}");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_without_a_valid_token_is_refused() {
    let mut api = ApiOptions::default();
    api.limits.anonymous_requests_per_second = 1_000_000;
    let world = World::with(api, 64).await;
    let wrong = |secret: &str| Caller { bearer: Bearer(Some(secret.to_owned())), ..world.nobody() };
    let unknown = format!("kb_{}", "0".repeat(64));
    for caller in [world.nobody(), wrong(""), wrong("nonsense"), wrong(&unknown)] {
        for (method, _) in POLICY {
            let answer = raw::call(&caller, method, Vec::new()).await;
            assert_refused(answer, Code::Unauthenticated, "UNAUTHENTICATED");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_is_worthless_at_once_and_its_streams_end() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let request = v1::WatchEventsRequest::default();
    let mut events = t1.events().watch_events(request).await.unwrap().into_inner();
    let (frames, to_send) = tokio::sync::mpsc::channel(1);
    let to_send = tokio_stream::wrappers::ReceiverStream::new(to_send);
    let mut placing = t1.bids().place_bids(to_send).await.unwrap().into_inner();
    frames.send(v1::PlaceBidsRequest { bids: vec![bid(100)] }).await.unwrap();
    placing.message().await.unwrap().unwrap();

    let list = v1::ListTokensRequest { account: "t1".to_owned(), ..v1::ListTokensRequest::default() };
    let tokens = world.admin.admin().list_tokens(list.clone()).await.unwrap().into_inner().tokens;
    let [token] = &tokens[..] else { panic!("{tokens:?}") };
    let revoke = v1::RevokeTokenRequest { token_id: token.token_id.clone() };
    let revoked = world.admin.admin().revoke_token(revoke.clone()).await.unwrap().into_inner().token.unwrap();
    assert!(revoked.revoked_at_us.is_some());
    assert_refused(t1.place(bid(100)).await, Code::Unauthenticated, "UNAUTHENTICATED");
    assert_refused(placing.message().await, Code::Unauthenticated, "UNAUTHENTICATED");
    let end = loop {
        match events.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ends with a status"),
            Err(status) => break refused(&status),
        }
    };
    assert_eq!(end.reason, "UNAUTHENTICATED");

    let again = world.admin.admin().revoke_token(revoke).await.unwrap().into_inner().token.unwrap();
    assert_eq!(again, revoked, "a revoked one stays so");
    assert!(world.admin.admin().list_tokens(list.clone()).await.unwrap().into_inner().tokens.is_empty());
    let list = v1::ListTokensRequest { include_revoked: true, ..list };
    assert_eq!(world.admin.admin().list_tokens(list).await.unwrap().into_inner().tokens, [revoked]);
    for token_id in ["", "x", "999", "18446744073709551615"] {
        let unknown = v1::RevokeTokenRequest { token_id: token_id.to_owned() };
        assert_refused(world.admin.admin().revoke_token(unknown).await, Code::NotFound, "UNKNOWN_TOKEN");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn things_of_other_accounts_look_as_if_they_did_not_exist() {
    let world = World::start().await;
    let (t1, t2) = (world.tenant("t1").await, world.tenant("t2").await);
    let (p1, p2) = (world.provider("p1").await, world.provider("p2").await);
    p1.offer(2, 1_000_000).await;
    let placed = t1.place(v1::PlaceBidRequest { max_nodes: 2, ..bid(2_000_000) }).await.unwrap();
    let release = |allocation| v1::ReleaseAllocationRequest { client_key: String::new(), allocation };
    let ready = |allocation| v1::ReportReadyRequest { allocation, ..Default::default() };
    t1.allocations().release_allocation(release(2)).await.unwrap();

    let get = v1::GetBidRequest { bid: placed.bid, min_seq: 0 };
    let foreign = refused(&t2.bids().get_bid(get).await.unwrap_err());
    let missing = refused(&t2.bids().get_bid(v1::GetBidRequest { bid: 999, min_seq: 0 }).await.unwrap_err());
    assert_eq!((foreign.code, &foreign.reason[..]), (Code::NotFound, "UNKNOWN_BID"));
    assert_eq!(foreign.message.replace(&placed.bid.to_string(), "999"), missing.message);
    let amend = v1::AmendBidRequest { bid: placed.bid, max_nodes: Some(9), ..v1::AmendBidRequest::default() };
    assert_refused(t2.bids().amend_bid(amend).await, Code::NotFound, "UNKNOWN_BID");
    let cancel = v1::CancelBidRequest { bid: placed.bid, mode: 1, ..v1::CancelBidRequest::default() };
    assert_refused(t2.bids().cancel_bid(cancel).await, Code::NotFound, "UNKNOWN_BID");

    for allocation in [1, 2, 3] {
        let get = v1::GetAllocationRequest { allocation, min_seq: 0 };
        assert_refused(t2.allocations().get_allocation(get).await, Code::NotFound, "UNKNOWN_ALLOCATION");
        assert_refused(p2.allocations().get_allocation(get).await, Code::NotFound, "UNKNOWN_ALLOCATION");
        let answer = t2.allocations().release_allocation(release(allocation)).await;
        assert_refused(answer, Code::NotFound, "UNKNOWN_ALLOCATION");
        let answer = p2.allocations().report_ready(ready(allocation)).await;
        assert_refused(answer, Code::NotFound, "UNKNOWN_ALLOCATION");
    }
    assert_refused(p1.allocations().report_ready(ready(2)).await, Code::FailedPrecondition, "ENDED");
    let unit = v1::WithdrawUnitRequest { client_key: String::new(), unit: "h100/eu:p1#1".to_owned() };
    assert_refused(p2.offers().withdraw_unit(unit).await, Code::NotFound, "UNKNOWN_UNIT");

    let others = v1::ListBidsRequest { account: Some("t1".to_owned()), ..v1::ListBidsRequest::default() };
    let everybody = v1::ListBidsRequest { account: Some(String::new()), ..v1::ListBidsRequest::default() };
    for request in [others, everybody] {
        assert_refused(t2.bids().list_bids(request.clone()).await, Code::PermissionDenied, "FORBIDDEN");
        assert_eq!(world.admin.bids().list_bids(request).await.unwrap().into_inner().bids.len(), 1);
    }
    assert!(t2.bids().list_bids(v1::ListBidsRequest::default()).await.unwrap().into_inner().bids.is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn markets_are_public_if_the_option_is_set() {
    let list = v1::ListMarketsRequest::default();
    let world = World::start().await;
    let answer = world.nobody().markets().list_markets(list.clone()).await;
    assert_refused(answer, Code::Unauthenticated, "UNAUTHENTICATED");
    world.stop().await;

    let public = ApiOptions { public_markets: true, ..ApiOptions::default() };
    let world = World::with(public, 16_384).await;
    let seen = world.nobody().markets().list_markets(list).await.unwrap().into_inner();
    assert_eq!(seen.markets[0].market, MARKET);
    let price = v1::GetMarketPriceRequest { market: MARKET.to_owned(), nodes: Some(9), ..Default::default() };
    let price = world.nobody().markets().get_market_price(price).await.unwrap().into_inner();
    assert_eq!(price.prices[0].entry_nodes, 1, "a provider could ask without its token");
    assert_refused(world.nobody().place(bid(100)).await, Code::Unauthenticated, "UNAUTHENTICATED");
    let wrong = Caller { bearer: Bearer(Some("nonsense".to_owned())), ..world.nobody() };
    let answer = wrong.markets().list_markets(v1::ListMarketsRequest::default()).await;
    assert_refused(answer, Code::Unauthenticated, "UNAUTHENTICATED");
    world.stop().await;
}
