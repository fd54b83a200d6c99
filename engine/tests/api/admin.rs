//! Accounts, tokens, instance types, the clock, and the first administrator.

use crate::world::{World, assert_refused, bid};
use kubebid_engine::auth::{BootstrapError, bootstrap_admin};
use kubebid_proto::v1;
use std::os::unix::fs::PermissionsExt;
use tonic::Code;
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
    let account = acme.account().get_account(v1::GetAccountRequest {}).await.unwrap().into_inner();
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
    let revoked = bootstrap_admin(world.engine.store(), &path).await;
    assert!(matches!(revoked, Err(BootstrapError::Revoked(_))), "{revoked:?}");
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
