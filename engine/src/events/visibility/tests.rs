//! A table of every kind of event and every role.

use super::*;
use crate::events::commit::Step;
use crate::events::message::{EventMessage, event_messages};
use kubebid_core::answer::Outcome;
use kubebid_core::command::{Command, PlaceBid, TimeInForce};
use kubebid_core::event::{
    Bidder, ChargeReason, ClaimCause, CloseReason, DropCause, EndReason, Event, Node, NoticeReason, Scope,
};
use kubebid_core::money::{Amount, Price};
use kubebid_core::numbers::Numbers;
use kubebid_core::units::{AccountId, AllocationId, BidId, MarketId, MarketName, Micros, Names, Seq, UnitId};
use kubebid_core::views::RefusalDetail;
use kubebid_core::{Fact, StampedCommand};
use kubebid_proto::v1::event as wire;

const ANN: AccountId = AccountId(0);
const BOB: AccountId = AccountId(1);
const CY: AccountId = AccountId(2);
const ACME: AccountId = AccountId(3);
const MARKET: MarketId = MarketId(0);
const UNIT: UnitId = UnitId { market: MARKET, provider: ACME, number: 7 };
/// A node that Ann holds.
const NODE: Node = Node { allocation: AllocationId(5), bid: BidId(10), tenant: ANN, unit: UNIT };
const OF_ANN: Bidder = Bidder { bid: BidId(10), tenant: ANN };
const OF_BOB: Bidder = Bidder { bid: BidId(20), tenant: BOB };
const OF_CY: Bidder = Bidder { bid: BidId(30), tenant: CY };

fn names() -> Names {
    Names {
        markets: vec![MarketName::new("gpu/west")],
        accounts: ["ann", "bob", "cy", "acme"].into_iter().map(AccountName::new).collect(),
    }
}

/// Returns a step with these events after a command of Ann.
fn step(facts: Vec<Fact>) -> Step {
    let command = Command::PlaceBid(PlaceBid {
        tenant: AccountName::new("ann"),
        markets: None,
        instance_type: None,
        ceiling: Price(1),
        min_nodes: 1,
        max_nodes: 1,
        time_in_force: TimeInForce::Gtc,
        expire_at: None,
        on_preemption: Default::default(),
    });
    let events = facts.into_iter().map(|fact| Event { at: Micros(1), fact });
    Step {
        refusal_detail: RefusalDetail::None,
        seq: Seq(9),
        at: Micros(1),
        command: StampedCommand { at: Micros(1), key: None, command },
        outcome: Outcome::Accepted,
        events: events.collect(),
        settlement_details: Vec::new(),
        hours: Vec::new(),
    }
}

/// Returns the secret fields of an event that the viewer gets; None if the event does not reach it.
fn seen(message: &EventMessage, viewer: &str) -> Option<String> {
    let viewer = match viewer {
        "all" => Viewer::All,
        account => Viewer::Account(AccountName::new(account)),
    };
    let event = redact(message.event.clone(), &message.parties, &viewer)?;
    let json = serde_json::to_value(&event).unwrap();
    let kind = json[message.kind.word()].as_object().unwrap();
    let secret = ["allocation", "bid", "tenant", "was", "max_nodes", "ceiling_micros", "account"];
    let shown = secret.iter().filter(|field| kind.get(**field).is_some_and(|value| !value.is_null()));
    Some(shown.copied().collect::<Vec<_>>().join(" "))
}

/// Checks what each viewer sees. `expected` is by viewer; every other viewer must not get the event at
/// all.
#[track_caller]
fn check(facts: Vec<Fact>, expected: &[(&str, &str)]) {
    let message = event_messages(&step(facts), &names()).collect::<Vec<_>>();
    for viewer in ["all", "ann", "bob", "cy", "acme", "stranger"] {
        let expected =
            expected.iter().find(|(who, _)| *who == viewer).map(|(_, fields)| (*fields).to_owned());
        assert_eq!(seen(&message[0], viewer), expected, "{} before {viewer}", message[0].kind.word());
    }
}

#[test]
fn events_of_markets_are_for_everyone() {
    for fact in [
        Fact::MarketOpened { market: MARKET },
        Fact::RulesChanged { market: MARKET },
        Fact::MarketClosing { market: MARKET },
        Fact::MarketEnded { market: MARKET },
        Fact::PriceChanged { market: MARKET, numbers: Numbers::default() },
    ] {
        let everyone = ["all", "ann", "bob", "cy", "acme", "stranger"].map(|viewer| (viewer, ""));
        check(vec![fact], &everyone);
    }
}

#[test]
fn events_of_offers_are_for_the_provider() {
    for fact in [
        Fact::OfferPut { provider: ACME, market: MARKET, capacity: 3, reserve: Price(100) },
        Fact::UnitAdded { unit: UNIT, reserve: Price(100) },
        Fact::UnitLeaving { unit: UNIT },
        Fact::UnitBack { unit: UNIT },
        Fact::UnitResting { unit: UNIT },
        Fact::UnitResumed { unit: UNIT },
        Fact::UnitRemoved { unit: UNIT },
    ] {
        check(vec![fact], &[("all", ""), ("acme", "")]);
    }
}

#[test]
fn events_of_bids_are_for_the_tenant() {
    let scope = Scope::Markets(MARKET.into());
    let placed = Fact::BidPlaced { bidder: OF_ANN, scope, ceiling: Price(1), min_nodes: 1, max_nodes: 2 };
    let fields = "bid tenant max_nodes ceiling_micros";
    check(vec![placed], &[("all", fields), ("ann", fields)]);
    let amended = Fact::BidAmended { bidder: OF_ANN, ceiling: Price(1), max_nodes: 2, bid_seq: Seq(9) };
    check(vec![amended], &[("all", fields), ("ann", fields)]);
    let closed = Fact::BidClosed { bidder: OF_ANN, max_nodes: 2, reason: CloseReason::Done };
    check(vec![closed], &[("all", "bid tenant max_nodes"), ("ann", "bid tenant max_nodes")]);
}

#[test]
fn a_provider_sees_its_nodes_but_not_whose_they_are() {
    let fields = "allocation bid tenant";
    for fact in [Fact::Allocated { node: NODE }, Fact::Ready { node: NODE }] {
        check(vec![fact], &[("all", fields), ("ann", fields), ("acme", "allocation")]);
    }
    let fields = "allocation bid tenant max_nodes";
    let (deadline, max_nodes) = (Micros(2), 2);
    for fact in [
        Fact::NoticeStarted { node: NODE, deadline, max_nodes, reason: NoticeReason::Outbid },
        Fact::NoticeRescinded { node: NODE, max_nodes },
        Fact::Ended { node: NODE, max_nodes, reason: EndReason::Outbid },
    ] {
        check(vec![fact], &[("all", fields), ("ann", fields), ("acme", "allocation")]);
    }
}

#[test]
fn nobody_learns_who_displaced_whom() {
    let (by, was, cause) = (OF_BOB, Some(OF_CY), ClaimCause::ClaimDisplaced);
    check(
        vec![Fact::Claimed { node: NODE, by, was, cause }],
        &[
            ("all", "allocation bid tenant was"),
            ("ann", "allocation"),
            ("bob", "bid tenant"),
            ("cy", "was"),
            ("acme", "allocation"),
        ],
    );
    check(
        vec![Fact::ClaimDropped { node: NODE, by, cause: DropCause::Lowered }],
        &[
            ("all", "allocation bid tenant"),
            ("ann", "allocation"),
            ("bob", "bid tenant"),
            ("acme", "allocation"),
        ],
    );
}

#[test]
fn a_tenant_that_outbids_itself_sees_both_sides() {
    let by = Bidder { bid: BidId(11), tenant: ANN };
    check(
        vec![Fact::Claimed { node: NODE, by, was: None, cause: ClaimCause::Displaced }],
        &[("all", "allocation bid tenant"), ("ann", "allocation bid tenant"), ("acme", "allocation")],
    );
}

fn charged(tenant: AccountId, reason: ChargeReason) -> Fact {
    Fact::Charged { node: NODE, tenant, debit: Amount(100), fee: Amount(1), reason }
}

#[test]
fn a_charge_is_seen_by_its_payer_and_its_payee() {
    check(
        vec![charged(ANN, ChargeReason::Released)],
        &[("all", "allocation bid tenant"), ("ann", "allocation bid tenant"), ("acme", "allocation")],
    );
}

#[test]
fn the_payer_of_a_claim_does_not_see_the_node_nor_its_holder_the_claim() {
    let dropped = Fact::ClaimDropped { node: NODE, by: OF_BOB, cause: DropCause::Cancelled };
    let facts = vec![charged(BOB, ChargeReason::ClaimDropped), dropped];
    let message = event_messages(&step(facts.clone()), &names()).collect::<Vec<_>>();
    let Some(wire::Kind::Charged(charge)) = &message[0].event.kind else { panic!("a charge") };
    assert_eq!((charge.bid, charge.tenant.as_deref()), (Some(20), Some("bob")));
    check(facts, &[("all", "allocation bid tenant"), ("bob", "bid tenant"), ("acme", "allocation")]);
}

#[test]
fn refusals_are_for_the_account_of_the_command() {
    for fact in [Fact::Rejected { reason: Reject::Closed }, Fact::Repeated { first: Seq(3) }] {
        check(vec![fact], &[("all", "account"), ("ann", "account")]);
    }
}

#[test]
fn kinds_are_the_fields_of_the_message() {
    let numbers = Numbers::default();
    let message = event_messages(&step(vec![Fact::PriceChanged { market: MARKET, numbers }]), &names())
        .collect::<Vec<_>>();
    let json = serde_json::to_value(&message[0].event).unwrap();
    assert!(json.get(EventKind::PriceChanged.word()).is_some());
    assert_eq!((message[0].event.seq, message[0].event.index, message[0].event.at_us), (9, 0, 1));
}
