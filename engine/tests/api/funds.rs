//! Funds and budgets of accounts (R19): what an administrator gives, and what the account then can and cannot do.

use crate::world::{Caller, World, assert_refused, bid};
use kubebid_proto::v1;
use tonic::Code;
use v1::bid::UnfilledReason;
use v1::fund_account_request::Change;

const SECOND: u64 = 1_000_000;
const CENT: i64 = 10_000;

async fn fund(world: &World, key: &str, change: Change) -> Result<v1::FundAccountResponse, tonic::Status> {
    let (client_key, account) = (key.to_owned(), "t1".to_owned());
    let request = v1::FundAccountRequest { client_key, account, change: Some(change) };
    world.admin.admin().fund_account(request).await.map(tonic::Response::into_inner)
}

async fn funds(caller: &Caller) -> Option<v1::Funds> {
    let account = caller.account().get_account(v1::GetAccountRequest::default()).await;
    account.unwrap().into_inner().funds
}

/// A tenant, and a provider that offers two units for $1.00.
async fn world() -> (World, Caller, Caller) {
    let world = World::start().await;
    let (t1, p1) = (world.tenant("t1").await, world.provider("p1").await);
    p1.offer(2, 1_000_000).await;
    (world, t1, p1)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_unlimited_until_it_has_funds() {
    let (world, t1, _) = world().await;
    assert_eq!(funds(&t1).await, None);
    let given = fund(&world, "k1", Change::AddMicros(50 * CENT)).await.unwrap();
    assert_eq!(given.funds.unwrap().available_micros, 50 * CENT);
    // A retry gives nothing more, and other content under its key is refused.
    let again = fund(&world, "k1", Change::AddMicros(50 * CENT)).await.unwrap();
    assert_eq!((again.seq, again.repeated, again.funds), (given.seq, true, given.funds));
    assert_refused(
        fund(&world, "k1", Change::AddMicros(60 * CENT)).await,
        Code::AlreadyExists,
        "KEY_CONFLICT",
    );
    // The tenant's own keys are others.
    t1.place(v1::PlaceBidRequest { client_key: "k1".to_owned(), ..bid(1_000_000) }).await.unwrap();
    let unlimited = fund(&world, "k2", Change::Unlimited(true)).await.unwrap();
    assert_eq!((unlimited.funds, funds(&t1).await), (None, None));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_administrators_give_funds_and_only_with_a_key() {
    let (world, t1, _) = world().await;
    let change = Some(Change::AddMicros(CENT));
    let request = v1::FundAccountRequest { client_key: "k".to_owned(), account: "t1".to_owned(), change };
    assert_refused(t1.admin().fund_account(request).await, Code::PermissionDenied, "FORBIDDEN");
    assert_refused(fund(&world, "", Change::AddMicros(CENT)).await, Code::InvalidArgument, "KEY_REQUIRED");
    let refusal = fund(&world, "k", Change::AddMicros(i64::MAX)).await;
    let refusal = assert_refused(refusal, Code::InvalidArgument, "BAD_AMOUNT");
    assert_eq!(refusal.field.as_deref(), Some("add_micros"));
    assert_refused(fund(&world, "l", Change::SetMicros(-1)).await, Code::InvalidArgument, "BAD_AMOUNT");
    // Funds are for the account and for administrators.
    fund(&world, "m", Change::AddMicros(CENT)).await.unwrap();
    let of_t1 = v1::GetAccountRequest { account: Some("t1".to_owned()), min_seq: 0 };
    let seen = world.admin.account().get_account(of_t1.clone()).await.unwrap().into_inner();
    assert_eq!((&*seen.name, seen.funds.unwrap().funds_micros), ("t1", CENT));
    let t2 = world.tenant("t2").await;
    assert_refused(t2.account().get_account(of_t1).await, Code::PermissionDenied, "FORBIDDEN");
    assert_eq!(funds(&t2).await, None);
    world.stop().await;
}

/// The example of R19: a ceiling of 2.00, $0.50, and a price of 1.00.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_its_account_cannot_pay_for_longer_gets_notice_in_time() {
    let (world, t1, p1) = world().await;
    fund(&world, "k1", Change::AddMicros(50 * CENT)).await.unwrap();
    let placed = t1.place(bid(2_000_000)).await.unwrap();
    let node = 1;
    assert_eq!(t1.bid(placed.bid, placed.seq).await.held, 1);
    let ready = v1::ReportReadyRequest { allocation: node, ..Default::default() };
    p1.allocations().report_ready(ready).await.unwrap();
    let state = async || {
        let funds = funds(&t1).await.unwrap();
        (funds.reserved_micros, funds.available_micros)
    };
    assert_eq!(state().await, (333_334, 166_666));
    for (second, expected) in [(300, (416_667, 83_333)), (600, (500_000, 0)), (900, (416_667, 83_333))] {
        world.advance(second * SECOND).await;
        assert_eq!(state().await, expected, "{second}");
    }
    // A second node would need a stake; the bid that wants it says why it waits.
    let more = t1.place(bid(2_000_000)).await.unwrap();
    assert_eq!(t1.bid(more.bid, more.seq).await.unfilled_reason(), UnfilledReason::NoFunds);
    let notice = async |caller: &Caller, min_seq: u64| {
        let asked = v1::GetAllocationRequest { allocation: node, min_seq };
        let answer = caller.allocations().get_allocation(asked).await.unwrap().into_inner();
        answer.allocation.unwrap().notice
    };
    let to_tenant = notice(&t1, more.seq).await.expect("it is under notice");
    assert_eq!((to_tenant.reason(), to_tenant.deadline_us), (v1::notice::Reason::Funds, 1200 * SECOND));
    assert_eq!(
        notice(&p1, more.seq).await.unwrap().reason(),
        v1::notice::Reason::Other,
        "whose money it is stays hidden"
    );
    // The answer to "why" names the rule, and more money takes the notice back.
    world.advance(1000 * SECOND).await;
    let given = fund(&world, "k2", Change::AddMicros(15 * CENT)).await.unwrap();
    assert_eq!(notice(&t1, given.seq).await, None);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raise_that_funds_do_not_cover_is_refused() {
    let (world, t1, _) = world().await;
    fund(&world, "k1", Change::AddMicros(50 * CENT)).await.unwrap();
    let placed = t1.place(bid(2_000_000)).await.unwrap();
    let raise = |ceiling| v1::AmendBidRequest {
        bid: placed.bid,
        ceiling_micros: Some(ceiling),
        ..Default::default()
    };
    assert_refused(t1.bids().amend_bid(raise(4_000_000)).await, Code::FailedPrecondition, "NO_FUNDS");
    t1.bids().amend_bid(raise(3_000_000)).await.unwrap();
    assert_eq!(funds(&t1).await.unwrap().available_micros, 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_begins_anew_with_each_month() {
    let (world, t1, _) = world().await;
    let budget = |monthly_micros, roll_over, key: &str| v1::SetBudgetRequest {
        client_key: key.to_owned(),
        account: "t1".to_owned(),
        monthly_micros,
        roll_over,
    };
    let given =
        world.admin.admin().set_budget(budget(Some(100 * CENT), false, "k1")).await.unwrap().into_inner();
    assert_eq!(given.funds.unwrap().available_micros, 100 * CENT);
    fund(&world, "k2", Change::AddMicros(-30 * CENT)).await.unwrap();
    let february = 31 * 86_400 * SECOND;
    world.advance(february - 1).await;
    assert_eq!(funds(&t1).await.unwrap().available_micros, 70 * CENT);
    world.advance(february).await;
    assert_eq!(funds(&t1).await.unwrap().available_micros, 100 * CENT);
    world.admin.admin().set_budget(budget(Some(100 * CENT), true, "k3")).await.unwrap();
    // February of 1970 has 28 days.
    world.advance(february + 28 * 86_400 * SECOND).await;
    assert_eq!(funds(&t1).await.unwrap().available_micros, 200 * CENT);
    let ended = world.admin.admin().set_budget(budget(None, false, "k4")).await.unwrap().into_inner();
    assert_eq!((ended.funds.unwrap().budget, ended.funds.unwrap().available_micros), (None, 200 * CENT));
    world.stop().await;
}
