//! A journal that is exported from an engine and played by `market-sim play` tells what the engine told:
//! the same events, the same numbers, the same end.

use crate::party::{MARKETS, Party};
use crate::process::{Engine, binary, sqlite, token_of};
use kubebid_client::Client;
use kubebid_client::v1::event::Kind;
use kubebid_client::v1::{self, token::Role};
use kubebid_core::Exchange;
use market_sim::jsonl::{PrintDetail, play};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use tokio::task::JoinSet;

const PARTIES: [(&str, Role); 6] = [
    ("t1", Role::Tenant),
    ("t2", Role::Tenant),
    ("t3", Role::Tenant),
    ("t4", Role::Tenant),
    ("p1", Role::Provider),
    ("p2", Role::Provider),
];
const ACTS: usize = 150;
/// An empty name.
const EVERYBODY: Option<String> = Some(String::new());

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_journal_plays_as_it_was_lived() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Engine::start(&sqlite(folder.path()), folder.path(), &[]);
    live(&engine).await;
    // From here on time stands still, so that what is read one after another belongs together.
    engine.restart(&["--clock", "stepped"]);
    let admin = engine.admin().await;
    let seq = admin.advance_time(v1::AdvanceTimeRequest { to_us: 0 }).await.expect("an answer").seq;

    let (played, hash) = played(&run(&["journal", "export", "--store", engine.store()]));
    assert_eq!(played.len() as u64, seq);
    let told = told(&admin, seq).await;
    let mut kinds = BTreeSet::new();
    for answer in &played {
        let seq = answer["seq"].as_u64().expect("a number");
        let events = told.get(&seq).cloned().unwrap_or_default();
        kinds.extend(events.iter().map(|event| event["event"].as_str().expect("a kind").to_owned()));
        assert_eq!(as_told(&answer["events"]), Value::from(events), "command {seq}");
    }
    assert_eq!(kinds.len(), 23, "something of each kind is to happen: {kinds:?}");

    let end = played.last().expect("an answer");
    assert_eq!(end["markets"], markets(&admin, seq).await);
    assert_eq!(end["bids"], bids(&admin, seq).await);
    same_allocations(&end["allocations"], &admin, seq).await;
    assert_eq!(end["money"], money(&admin, seq).await);
    let replayed = run(&["journal", "replay", "--store", engine.store()]);
    assert!(replayed.contains(&format!("state hash {hash:032x}")), "{replayed} but played {hash:032x}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_no_further_ends_a_command_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Engine::start(&sqlite(folder.path()), folder.path(), &[]);
    engine.admin().await;
    engine.stop();
    for command in ["verify", "replay", "export"] {
        let (_, writer) = std::io::pipe().unwrap();
        let tool = Command::new(binary())
            .args(["journal", command, "--store", engine.store()])
            .stdout(writer)
            .output();
        let out = tool.expect("the tool starts");
        assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

/// What a command of the tool prints.
pub(crate) fn run(arguments: &[&str]) -> String {
    let out = Command::new(binary()).args(arguments).output().expect("the tool starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

/// The answers, and the hash of the state behind the last.
pub(crate) fn played(journal: &str) -> (Vec<Value>, u128) {
    let (mut answers, mut exchange) = (Vec::new(), Exchange::new());
    play(journal.as_bytes(), &mut answers, &mut exchange, PrintDetail::Everything)
        .expect("the journal plays");
    let answers = String::from_utf8(answers).expect("text");
    let answers = answers.lines().map(|line| serde_json::from_str(line).expect("an answer")).collect();
    (answers, exchange.state_hash())
}

/// All at once and at random, with times so short that much falls due.
async fn live(engine: &Engine) {
    let admin = engine.admin().await;
    let rules = v1::MarketRules {
        min_runtime_us: Some(0),
        notice_us: Some(50_000),
        start_timeout_us: Some(500_000),
        min_charge_us: Some(1_000_000),
        fee_bps: Some(250),
        ..v1::MarketRules::default()
    };
    for market in MARKETS {
        let open = v1::OpenMarketRequest { market: market.into(), rules: Some(rules) };
        admin.open_market(open).await.expect("the market opens");
    }
    let mut parties = JoinSet::new();
    for (n, (name, role)) in PARTIES.into_iter().enumerate() {
        let client = engine.client(&token_of(&admin, name, role).await);
        let rng = ChaCha8Rng::seed_from_u64(n as u64);
        let mut party = Party::new(name, role, client, rng);
        parties.spawn(async move { party.act(ACTS).await });
    }
    parties.join_all().await;
    let rules = v1::MarketRules { fee_bps: Some(0), ..v1::MarketRules::default() };
    let change = v1::ChangeRulesRequest { market: MARKETS[0].into(), rules: Some(rules) };
    admin.change_rules(change).await.expect("the rules change");
}

/// All events up to a command, by command, as `market-sim play` writes them.
async fn told(admin: &Client, seq: u64) -> BTreeMap<u64, Vec<Value>> {
    let mut told: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    let mut watch = admin.watch_events_from_start(None);
    loop {
        let frame = watch.next().await.expect("the watch goes on").expect("the engine is there");
        for event in frame.events {
            told.entry(event.seq).or_default().push(as_played(event));
        }
        if frame.seq >= seq {
            return told;
        }
    }
}

fn numbers(numbers: v1::PriceNumbers) -> Value {
    json!({
        "market_price": numbers.market_price_micros,
        "entry_price": numbers.entry_price_micros,
        "floor": numbers.floor_micros,
        "lowest_accepted": numbers.lowest_accepted_micros,
        "highest_losing": numbers.highest_losing_micros,
    })
}

/// The fields of both.
fn joined(mut one: Value, mut other: Value) -> Value {
    one.as_object_mut().expect("an object").append(other.as_object_mut().expect("an object"));
    one
}

/// Returns the events of a played command with the reasons that the API gives: a report on an ended allocation is
/// refused as if there were no such allocation.
fn as_told(played: &Value) -> Value {
    let mut told = played.clone();
    for event in told.as_array_mut().expect("a list") {
        if event["event"] == "Rejected" && event["reason"] == "ENDED" {
            event["reason"] = json!("UNKNOWN_ALLOCATION");
        }
    }
    told
}

fn as_played(event: v1::Event) -> Value {
    let (name, fields) = match event.kind.expect("an event says what happened") {
        Kind::MarketOpened(e) => ("MarketOpened", json!({"market": e.market})),
        Kind::RulesChanged(e) => ("RulesChanged", json!({"market": e.market})),
        Kind::MarketClosing(e) => ("MarketClosing", json!({"market": e.market})),
        Kind::MarketEnded(e) => ("MarketEnded", json!({"market": e.market})),
        Kind::OfferPut(e) => (
            "OfferPut",
            json!({"provider": e.provider, "market": e.market, "capacity": e.capacity, "reserve": e.reserve_micros}),
        ),
        Kind::UnitAdded(e) => ("UnitAdded", json!({"unit": e.unit, "reserve": e.reserve_micros})),
        Kind::UnitLeaving(e) => ("UnitLeaving", json!({"unit": e.unit})),
        Kind::UnitBack(e) => ("UnitBack", json!({"unit": e.unit})),
        Kind::UnitResting(e) => ("UnitResting", json!({"unit": e.unit})),
        Kind::UnitResumed(e) => ("UnitResumed", json!({"unit": e.unit})),
        Kind::UnitRemoved(e) => ("UnitRemoved", json!({"unit": e.unit})),
        Kind::BidPlaced(e) => {
            let markets = e.instance_type.is_none().then_some(e.markets);
            let nodes =
                json!({"min_nodes": e.min_nodes, "max_nodes": e.max_nodes, "ceiling": e.ceiling_micros});
            let bid = json!({"bid": e.bid, "tenant": e.tenant, "instance_type": e.instance_type, "markets": markets});
            ("BidPlaced", joined(bid, nodes))
        }
        Kind::BidAmended(e) => (
            "BidAmended",
            json!({"bid": e.bid, "ceiling": e.ceiling_micros, "max_nodes": e.max_nodes, "bid_seq": e.bid_seq}),
        ),
        Kind::BidClosed(e) => {
            let reason = e.reason().as_str_name();
            ("BidClosed", json!({"bid": e.bid, "max_nodes": e.max_nodes, "reason": reason}))
        }
        Kind::Allocated(e) => {
            ("Allocated", json!({"allocation": e.allocation, "bid": e.bid, "unit": e.unit}))
        }
        Kind::Ready(e) => ("Ready", json!({"allocation": e.allocation})),
        Kind::NoticeStarted(e) => {
            let node = json!({"allocation": e.allocation, "bid": e.bid, "max_nodes": e.max_nodes});
            let notice = json!({"deadline_us": e.deadline_us, "reason": e.reason().as_str_name()});
            ("NoticeStarted", joined(node, notice))
        }
        Kind::NoticeRescinded(e) => {
            ("NoticeRescinded", json!({"allocation": e.allocation, "bid": e.bid, "max_nodes": e.max_nodes}))
        }
        Kind::Claimed(e) => {
            let cause = e.cause().as_str_name();
            ("Claimed", json!({"allocation": e.allocation, "bid": e.bid, "was": e.was, "cause": cause}))
        }
        Kind::ClaimDropped(e) => {
            let cause = e.cause().as_str_name();
            ("ClaimDropped", json!({"allocation": e.allocation, "bid": e.bid, "cause": cause}))
        }
        Kind::Ended(e) => {
            let node = json!({"allocation": e.allocation, "bid": e.bid, "max_nodes": e.max_nodes});
            ("Ended", joined(node, json!({"reason": e.reason().as_str_name()})))
        }
        Kind::Charged(e) => {
            let parties = json!({"allocation": e.allocation, "tenant": e.tenant, "provider": e.provider});
            let reason = e.reason().as_str_name();
            (
                "Charged",
                joined(parties, json!({"debit": e.debit_micros, "fee": e.fee_micros, "reason": reason})),
            )
        }
        Kind::PriceChanged(e) => {
            ("PriceChanged", joined(json!({"market": e.market}), numbers(e.numbers.expect("numbers"))))
        }
        Kind::NoticeMoved(e) => {
            ("NoticeMoved", json!({"allocation": e.allocation, "bid": e.bid, "deadline_us": e.deadline_us}))
        }
        Kind::Funded(e) => ("Funded", json!({"account": e.account, "funds": e.funds_micros})),
        Kind::BudgetSet(e) => (
            "BudgetSet",
            json!({"account": e.account, "monthly": e.monthly_micros, "roll_over": e.roll_over, "funds": e.funds_micros}),
        ),
        Kind::BudgetRenewed(e) => ("BudgetRenewed", json!({"account": e.account, "funds": e.funds_micros})),
        Kind::RenewalSet(e) => ("RenewalSet", json!({"renewal_us": e.renewal_us})),
        Kind::Rejected(e) => ("Rejected", json!({"reason": e.reason})),
        Kind::Repeated(e) => ("Repeated", json!({"first": e.first_seq})),
    };
    joined(json!({"at_us": event.at_us, "event": name}), fields)
}

async fn markets(admin: &Client, min_seq: u64) -> Value {
    let list = v1::ListMarketsRequest { min_seq, ..Default::default() };
    let markets = admin.all(list).await.expect("markets").markets;
    let row = |market: v1::Market| {
        let price = market.price.expect("a price");
        let supply = price.supply.expect("supply");
        let units = json!({
            "total": supply.total,
            "free": supply.free,
            "allocated": supply.allocated,
            "notice": supply.notice,
            "claimed": supply.claimed,
            "resting": supply.resting,
        });
        (market.market, joined(numbers(price.numbers.expect("numbers")), units))
    };
    Value::Object(markets.into_iter().map(row).collect())
}

async fn bids(admin: &Client, min_seq: u64) -> Value {
    let list = v1::ListBidsRequest { account: EVERYBODY, min_seq, ..Default::default() };
    let bids = admin.all(list).await.expect("bids").bids;
    let row = |bid: v1::Bid| {
        let row = json!({
            "held": bid.held,
            "claimed": bid.claimed,
            "unmet": bid.unmet,
            "max_nodes": bid.max_nodes,
            "ceiling": bid.ceiling_micros,
            "searching": bid.state() == v1::bid::State::Open,
        });
        (bid.bid.to_string(), row)
    };
    Value::Object(bids.into_iter().map(row).collect())
}

/// Who has a claim is not in a list of allocations.
async fn same_allocations(played: &Value, admin: &Client, min_seq: u64) {
    use v1::allocation::State;
    let states = vec![State::Starting as i32, State::Active as i32];
    let list = v1::ListAllocationsRequest { states, account: EVERYBODY, min_seq, ..Default::default() };
    let nodes = admin.all(list).await.expect("allocations").allocations;
    let row = |node: v1::Allocation| {
        let state = match node.state() {
            _ if node.notice.is_some() => "Notice",
            State::Starting => "Starting",
            State::Active => "Active",
            State::Ended | State::Unspecified => panic!("nobody asked for it: {node:?}"),
        };
        let row = json!({
            "bid": node.bid,
            "unit": node.unit,
            "state": state,
            "deadline_us": node.notice.map(|notice| notice.deadline_us),
            "billed": node.price_micros,
            "protected_until_us": node.protected_until_us,
        });
        (node.allocation.to_string(), row)
    };
    let listed: Map<String, Value> = nodes.into_iter().map(row).collect();
    let mut played = played.as_object().expect("an object").clone();
    for row in played.values_mut() {
        row.as_object_mut().expect("an object").remove("claim");
    }
    assert_eq!(played, listed);
}

/// The sums over everybody's statements.
async fn money(admin: &Client, min_seq: u64) -> Value {
    let (mut debits, mut credits, mut fees) = (0, 0, 0);
    for (name, _) in PARTIES {
        let statement = v1::GetStatementRequest { account: Some(name.into()), min_seq, ..Default::default() };
        let charged = admin.get_statement(statement).await.expect("a statement").charged.expect("sums");
        debits += charged.debit_micros;
        credits += charged.credit_micros;
        fees += charged.fee_micros;
    }
    json!({"debits": debits, "credits": credits, "fees": fees})
}
