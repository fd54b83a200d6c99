//! Accounts, tokens, instance types, the clock, and the first administrator.

use crate::world::{Caller, MARKET, World, assert_refused, bid};
use kubebid_engine::auth::{BootstrapError, bootstrap_admin};
use kubebid_proto::v1;
use std::os::unix::fs::PermissionsExt;
use tonic::Code;
use v1::bid::CloseReason;
use v1::market::State;
use v1::token::Role;

#[tokio::test(flavor = "multi_thread")]
async fn accounts_are_made_and_listed() {
    let world = World::start().await;
    let limits = v1::AccountLimits { open_bids: Some(3), ..v1::AccountLimits::default() };
    world.limit("acme", limits).await;
    world.limit("zeta", v1::AccountLimits::default()).await;
    let mut list = v1::ListAccountsRequest { page_size: 2, page_token: String::new() };
    let page = world.admin.admin().list_accounts(list.clone()).await.unwrap().into_inner();
    assert_eq!(page.accounts.iter().map(|account| &account.name[..]).collect::<Vec<_>>(), ["acme", "admin"]);
    assert_eq!(page.accounts[0].limits, Some(limits));
    list.page_token = page.next_page_token;
    let page = world.admin.admin().list_accounts(list).await.unwrap().into_inner();
    assert_eq!((&page.accounts[0].name[..], &page.next_page_token[..]), ("zeta", ""));

    for name in ["", "with space", "a#b", &"x".repeat(64), "ünï"] {
        let request = v1::PutAccountRequest { name: name.to_owned(), limits: None };
        let refusal = world.admin.admin().put_account(request).await;
        let refusal = assert_refused(refusal, Code::InvalidArgument, "BAD_FIELD");
        assert_eq!(refusal.field.as_deref(), Some("name"));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_reads_its_account_and_what_counts_against_its_limits() {
    let world = World::start().await;
    let limits = v1::AccountLimits { open_bids: Some(3), ..v1::AccountLimits::default() };
    let acme = world.limited("acme", &[Role::Tenant, Role::Provider], limits).await;
    acme.place(v1::PlaceBidRequest { max_nodes: 4, ..bid(1_000_000) }).await.unwrap();
    acme.offer(2, 2_000_000).await;
    let account = acme.account().get_account(v1::GetAccountRequest::default()).await.unwrap().into_inner();
    assert_eq!(
        (&account.name[..], account.roles().collect::<Vec<_>>()),
        ("acme", vec![Role::Tenant, Role::Provider])
    );
    assert_eq!((account.open_bids, account.nodes_wanted, account.units_offered), (1, 4, 2));
    let limits = account.limits.unwrap();
    assert_eq!((limits.open_bids, limits.units_per_command), (Some(3), Some(1000)));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_shown_once_and_speaks_for_an_account() {
    let world = World::start().await;
    world.limit("acme", v1::AccountLimits::default()).await;
    let request = |account: &str, roles: &[i32]| v1::CreateTokenRequest {
        account: account.to_owned(),
        roles: roles.to_vec(),
        description: "the laptop".to_owned(),
    };
    let both = [Role::Tenant.into(), Role::Provider.into()];
    let made = world.admin.admin().create_token(request("acme", &both)).await.unwrap().into_inner();
    assert!(made.secret.starts_with("kb_"));
    let token = made.token.unwrap();
    assert_eq!((&token.account[..], &token.roles[..]), ("acme", &both[..]));
    assert_eq!((&token.description[..], token.revoked_at_us), ("the laptop", None));

    let unknown = world.admin.admin().create_token(request("nobody", &both)).await;
    assert_refused(unknown, Code::NotFound, "UNKNOWN_ACCOUNT");
    for roles in [&[][..], &[0], &[1, 99]] {
        let refusal = world.admin.admin().create_token(request("acme", roles)).await;
        let refusal = assert_refused(refusal, Code::InvalidArgument, "BAD_FIELD");
        assert_eq!(refusal.field.as_deref(), Some("roles"));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_types_are_kept() {
    let world = World::start().await;
    let allocatable = [("cpu", "192"), ("memory", "2Ti"), ("nvidia.com/gpu", "8")];
    let instance_type = v1::InstanceType {
        name: "h100".to_owned(),
        allocatable: allocatable.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        node_labels: [("gpu".to_owned(), "h100".to_owned())].into(),
        on_demand_price_micros: Some(55_000_000),
    };
    let request = v1::PutInstanceTypeRequest { instance_type: Some(instance_type.clone()) };
    let kept = world.admin.admin().put_instance_type(request).await.unwrap().into_inner();
    assert_eq!(kept.instance_type, Some(instance_type.clone()));
    for broken in [
        None,
        Some(v1::InstanceType { name: "a/b".to_owned(), ..instance_type.clone() }),
        Some(v1::InstanceType { on_demand_price_micros: Some(u64::MAX), ..instance_type }),
    ] {
        let request = v1::PutInstanceTypeRequest { instance_type: broken };
        let answer = world.admin.admin().put_instance_type(request).await;
        assert_refused(answer, Code::InvalidArgument, "BAD_FIELD");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stepped_clock_is_moved_and_never_back() {
    let world = World::start().await;
    let advance = async |to_us| {
        let request = v1::AdvanceTimeRequest { to_us };
        world.admin.admin().advance_time(request).await.map(tonic::Response::into_inner)
    };
    assert_eq!(advance(5_000).await.unwrap().at_us, 5_000);
    assert_eq!(advance(4_000).await.unwrap().at_us, 5_000);
    assert_refused(advance(u64::MAX).await, Code::InvalidArgument, "BAD_FIELD");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_that_would_be_moved_too_far_is_refused_and_not_journaled() {
    let world = World::start().await;
    let advance = async |to_us| {
        let request = v1::AdvanceTimeRequest { to_us };
        world.admin.admin().advance_time(request).await.map(tonic::Response::into_inner)
    };
    let before = advance(0).await.unwrap();
    let thousand_years = 1000 * 366 * 24 * 3_600_000_000;
    for to_us in [before.at_us + thousand_years + 1, 1 << 62, i64::MAX as u64] {
        let refusal = assert_refused(advance(to_us).await, Code::InvalidArgument, "BAD_FIELD");
        assert_eq!(refusal.field.as_deref(), Some("to_us"));
    }
    let after = advance(before.at_us + thousand_years).await.unwrap();
    assert_eq!((after.seq, after.at_us), (before.seq + 1, before.at_us + thousand_years));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_administrator_is_made_once_and_a_token_that_others_can_read_is_refused() {
    let world = World::start().await;
    let path = world.folder().join("another.token");
    bootstrap_admin(world.engine.store(), &path).await.unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = std::fs::read_to_string(&path).unwrap();
    bootstrap_admin(world.engine.store(), &path).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), secret, "a file that is there is kept");

    let list = v1::ListTokensRequest { account: "admin".to_owned(), ..v1::ListTokensRequest::default() };
    let tokens = world.admin.admin().list_tokens(list).await.unwrap().into_inner().tokens;
    assert_eq!(tokens.len(), 2);
    let revoke = v1::RevokeTokenRequest { token_id: tokens[1].token_id.clone() };
    world.admin.admin().revoke_token(revoke).await.unwrap();
    bootstrap_admin(world.engine.store(), &path)
        .await
        .expect("an engine starts with a file whose token was revoked");
    let list = v1::ListTokensRequest {
        account: "admin".to_owned(),
        include_revoked: true,
        ..v1::ListTokensRequest::default()
    };
    let tokens = world.admin.admin().list_tokens(list).await.unwrap().into_inner().tokens;
    assert!(tokens[1].revoked_at_us.is_some(), "it stays revoked");
    for mode in [0o644, 0o604, 0o620] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let exposed = bootstrap_admin(world.engine.store(), &path).await;
        assert!(matches!(exposed, Err(BootstrapError::Exposed { .. })), "{mode:o}: {exposed:?}");
    }
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    std::fs::write(&path, "no token").unwrap();
    let broken = bootstrap_admin(world.engine.store(), &path).await;
    assert!(matches!(broken, Err(BootstrapError::NoToken(_))), "{broken:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_market_ends_when_it_is_empty_and_is_opened_again() {
    let world = World::start().await;
    let (ann, acme) = (world.tenant("ann").await, world.provider("acme").await);
    acme.offer(2, 1_000_000).await;
    let held = ann.place(bid(2_000_000)).await.unwrap().bid;
    let close = || async {
        let request = v1::CloseMarketRequest { market: MARKET.to_owned() };
        world.admin.admin().close_market(request).await
    };
    let tenant = ann.admin().close_market(v1::CloseMarketRequest { market: MARKET.to_owned() }).await;
    assert_refused(tenant, Code::PermissionDenied, "FORBIDDEN");
    let unknown = v1::CloseMarketRequest { market: "h100/typo".to_owned() };
    let unknown = world.admin.admin().close_market(unknown).await;
    assert_refused(unknown, Code::NotFound, "UNKNOWN_MARKET");

    let seq = close().await.unwrap().into_inner().seq;
    assert_eq!(states(&ann, false, seq).await, [State::Closing]);
    let refused = assert_refused(ann.place(bid(9_000_000)).await, Code::FailedPrecondition, "MARKET_CLOSED");
    assert_eq!(refused.field.as_deref(), Some("markets"));
    let quote = v1::QuoteBidRequest { markets: vec![MARKET.to_owned()], ..Default::default() };
    assert_refused(ann.bids().quote_bid(quote).await, Code::FailedPrecondition, "MARKET_CLOSED");
    assert_refused(acme.put(3, 1_000_000).await, Code::FailedPrecondition, "MARKET_CLOSED");
    assert_refused(close().await, Code::FailedPrecondition, "MARKET_CLOSED");
    assert_eq!(ann.bid(held, seq).await.allocations.len(), 1, "nobody loses a node");

    acme.offer(1, 1_000_000).await;
    let lost = v1::ReportUnitLostRequest { unit: format!("{MARKET}:acme#1"), ..Default::default() };
    let seq = acme.offers().report_unit_lost(lost).await.unwrap().into_inner().seq;
    assert_eq!(states(&ann, false, seq).await, []);
    assert_eq!(states(&ann, true, seq).await, [State::Ended]);
    let closed = ann.bid(held, seq).await;
    assert_eq!((closed.state(), closed.close_reason()), (v1::bid::State::Closed, CloseReason::MarketClosed));
    let price = v1::GetMarketPriceRequest { market: MARKET.to_owned(), ..Default::default() };
    ann.markets().get_market_price(price).await.expect("its history stays");
    let filter = v1::EventFilter {
        kinds: ["market_opened", "market_closing", "market_ended"].map(str::to_owned).to_vec(),
        ..Default::default()
    };
    let list = v1::ListEventsRequest { filter: Some(filter), min_seq: seq, ..Default::default() };
    let told = ann.events().list_events(list).await.unwrap().into_inner().events;
    assert_eq!(told.len(), 3, "everybody sees them: {told:?}");

    let rules = v1::MarketRules { tick_micros: Some(7), ..Default::default() };
    let open = |rules| v1::OpenMarketRequest { market: MARKET.to_owned(), rules };
    let refused = world.admin.admin().open_market(open(Some(rules))).await;
    assert_refused(refused, Code::InvalidArgument, "BAD_RULE");
    let seq = world.admin.admin().open_market(open(None)).await.unwrap().into_inner().seq;
    assert_eq!(states(&ann, false, seq).await, [State::Open]);
    acme.offer(1, 1_000_000).await;
    let placed = ann.place(bid(2_000_000)).await.unwrap();
    assert_eq!(ann.bid(placed.bid, placed.seq.max(seq)).await.held, 1);
    world.stop().await;
}

/// Returns the states of the listed markets.
async fn states(caller: &Caller, include_ended: bool, min_seq: u64) -> Vec<State> {
    let list = v1::ListMarketsRequest { include_ended, min_seq, ..Default::default() };
    let listed = caller.markets().list_markets(list).await.unwrap().into_inner().markets;
    listed.iter().map(v1::Market::state).collect()
}
