//! Bids that are regrouped, units that are resumed, and own bids that are outbid, on the command line.

use crate::lists::Tool;
use crate::process::{Engine, market_and_tenant, sqlite, token_of};
use kubebid_client::Client;
use kubebid_client::v1::allocation::EndReason;
use kubebid_client::v1::event::Kind;
use kubebid_client::v1::{self, token::Role};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

const MARKET: &str = "h100-8x/eu-west";
const SECOND: u64 = 1_000_000;

/// An engine on the stepped clock, with a market without protection and a provider of some units.
struct Market {
    engine: Engine,
    admin: Client,
    tenant: Tool,
    provider: Tool,
    _folder: tempfile::TempDir,
}

impl Market {
    async fn with_units(capacity: u32) -> Market {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::start(&sqlite(folder.path()), folder.path(), &["--clock", "stepped"]);
        let admin = engine.admin().await;
        let tenant = market_and_tenant(&admin, MARKET, "t1").await;
        let rules = v1::MarketRules { min_runtime_us: Some(0), ..Default::default() };
        let change = v1::ChangeRulesRequest { market: MARKET.into(), rules: Some(rules) };
        admin.change_rules(change).await.expect("the rules change");
        let provider = token_of(&admin, "p1", Role::Provider).await;
        let tool = |token| Tool { endpoint: engine.endpoint(), token };
        let (tenant, provider) = (tool(tenant), tool(provider));
        provider.prints(&format!("offer put {MARKET} --capacity {capacity} --reserve 1.50"));
        Market { engine, admin, tenant, provider, _folder: folder }
    }

    async fn at(&self, seconds: u64) {
        let to = v1::AdvanceTimeRequest { to_us: seconds * SECOND };
        self.admin.advance_time(to).await.expect("time moves");
    }

    /// Reports the nodes of a bid ready.
    async fn report_ready(&self, bid: u64) {
        let provider = self.engine.client(&self.provider.token);
        let request = v1::ListAllocationsRequest { min_seq: bid, ..Default::default() };
        let nodes = provider.all(request).await.expect("nodes").allocations;
        for node in nodes.into_iter().filter(|node| node.start_by_us.is_some()) {
            let ready = v1::ReportReadyRequest { allocation: node.allocation, ..Default::default() };
            provider.report_ready(ready).await.expect("a report");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_stays_regroups_a_bid_after_the_deadline_and_says_why() {
    let market = Market::with_units(3).await;
    let place =
        format!("bid place {MARKET} --max 3 --nodes 3 --min-nodes 3 --regroup after-deadline --key train -q");
    let mut staying = market.tenant.command(&place);
    let mut staying = staying.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool runs");
    let mut printed = BufReader::new(staying.stdout.take().expect("it is piped")).lines();
    let number = printed.next().expect("the number of the bid").expect("a line");
    let bid: u64 = number.parse().expect("a number");
    market.report_ready(bid).await;

    // A rival takes one of the three nodes, and nothing comes in its place.
    let rival = token_of(&market.admin, "t2", Role::Tenant).await;
    let rival = Tool { endpoint: market.engine.endpoint(), token: rival };
    rival.prints(&format!("bid place {MARKET} --max 9 --nodes 1 -q"));
    market.at(300).await;
    let client = market.engine.client(&market.tenant.token);
    let filter = v1::EventFilter { kinds: vec!["ended".to_owned()], ..Default::default() };
    let mut watch = client.watch_events_from_start(Some(filter));
    let mut ended = Vec::new();
    while ended.len() < 3 {
        let frame = watch.next().await.expect("the watch goes on").expect("the engine is there");
        for event in frame.events {
            let Some(Kind::Ended(of)) = &event.kind else { continue };
            ended.push(of.reason());
        }
    }
    assert_eq!(ended, [EndReason::Outbid, EndReason::Regrouped, EndReason::Regrouped]);
    let waits = client.get_bid(v1::GetBidRequest { bid, min_seq: 0 }).await.expect("the bid").bid.unwrap();
    assert_eq!((waits.state(), waits.held, waits.unmet), (v1::bid::State::Open, 0, 3));

    market.tenant.prints(&format!("bid cancel {bid} --release"));
    assert!(staying.wait().expect("it ends").success());
    let mut said = String::new();
    staying.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
    let why = "was taken away (OUTBID) and 2 live nodes and 0 claims are fewer than its minimum of 3";
    assert!(said.contains(why), "{said}");
    assert_eq!(said.matches("regrouped, because").count(), 1, "{said}");
    assert!(said.trim_end().ends_with("its search is over, so that it is not regrouped any more"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_started_again_regroups_what_broke_while_it_was_away() {
    let market = Market::with_units(2).await;
    let bid = format!("bid place {MARKET} --max 3 --nodes 2 --min-nodes 2 --key train -q");
    let number = market.tenant.prints(&bid);
    market.report_ready(number.parse().expect("a number")).await;
    market.provider.prints(&format!("offer unit-lost {MARKET}:p1#1"));
    let again = format!("{bid} --regroup after-deadline");
    let mut staying = market.tenant.command(&again);
    let mut staying = staying.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool runs");
    let said = BufReader::new(staying.stderr.take().expect("it is piped"));
    let why =
        format!("bid {number}: regrouped, because 1 live node and 0 claims are fewer than its minimum of 2");
    assert!(said.lines().map_while(Result::ok).any(|line| line == why));
    market.tenant.prints(&format!("bid cancel {number} --release"));
    assert!(staying.wait().expect("it ends").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bid_is_regrouped_by_hand_and_one_without_a_minimum_is_not() {
    let market = Market::with_units(3).await;
    let (tenant, provider) = (&market.tenant, &market.provider);
    let gang = tenant.prints(&format!("bid place {MARKET} --max 3 --nodes 3 --min-nodes 3 -q"));
    provider.prints(&format!("offer put {MARKET} --capacity 2 --reserve 1.50"));
    let said = tenant.prints(&format!("bid regroup {gang}"));
    assert!(said.starts_with(&format!("regrouped bid {gang}\nit holds no node; 3 still wanted")), "{said}");
    tenant.prints(&format!("bid cancel {gang} --regroup"));
    let plain = tenant.prints(&format!("bid place {MARKET} --max 3 --nodes 2 -q"));
    tenant.fails(&format!("bid regroup {plain}"), 3, &["NOT_A_GANG", "a minimum above 1"]);
    let bids = tenant.prints("bid list -o name");
    let place = format!("bid place {MARKET} --max 3 --nodes 2 --min-nodes 1 --regroup after-deadline");
    tenant.fails(&place, 2, &["this one waits for 1", "--min-nodes N with N of 2 or more"]);
    tenant.fails(&format!("{place} --ioc"), 2, &["cannot be used with"]);
    assert_eq!(tenant.prints("bid list -o name"), bids, "no bid was placed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bid_that_takes_a_node_of_an_own_lower_bid_says_so() {
    let market = Market::with_units(1).await;
    let lower = market.tenant.prints(&format!("bid place {MARKET} --max 2 --nodes 1 -q"));
    market.report_ready(lower.parse().expect("a number")).await;
    let place = format!("bid place {MARKET} --max 3 --nodes 1");
    let (code, _, said) = market.tenant.run(&place);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(&format!("it takes node 1 of your own bid {lower}, whose ceiling is lower")),
        "{said}"
    );
    let rival = token_of(&market.admin, "t2", Role::Tenant).await;
    let rival = Tool { endpoint: market.engine.endpoint(), token: rival };
    let (_, _, said) = rival.run(&format!("bid place {MARKET} --max 9 --nodes 1"));
    assert!(!said.contains("your own bid"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_sees_which_units_rest_and_resumes_them() {
    let market = Market::with_units(2).await;
    let (tenant, provider) = (&market.tenant, &market.provider);
    let bid = tenant.prints(&format!("bid place {MARKET} --max 3 --nodes 2 -q"));
    market.at(900).await;
    tenant.prints(&format!("bid cancel {bid} --release"));
    let shown = provider.prints(&format!("offer show {MARKET}"));
    assert!(shown.contains("0 free, 0 allocated, 0 under notice, 0 leaving, 2 resting"), "{shown}");
    assert!(shown.contains(&format!("kubebid offer resume --all --market {MARKET}")), "{shown}");
    assert!(provider.prints(&format!("price {MARKET}")).contains("2 resting"));
    let unit = format!("{MARKET}:p1#1");
    assert_eq!(provider.prints(&format!("offer resume {unit}")), format!("{unit} is free"));
    provider.fails(&format!("offer resume {unit}"), 3, &["NOT_RESTING", "kubebid offer show"]);
    let all = format!("offer resume --all --market {MARKET}");
    assert_eq!(provider.prints(&all), format!("no unit rests in {MARKET}"));
    assert!(provider.prints("offer list -o csv").contains(",2,2,0,0,0,0"));
    for wrong in
        ["offer resume", "offer resume --all", &format!("offer resume {unit} --all --market {MARKET}")]
    {
        assert_eq!(provider.run(wrong).0, Some(2), "{wrong}");
    }
}
