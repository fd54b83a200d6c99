//! A tenant's command line: waits, formats, the past, and names of tokens.

use crate::process::{Engine, binary, market_and_tenant, sqlite, token_of};
use kubebid_client::v1::{self, token::Role};
use std::collections::BTreeSet;
use std::process::{Command, Output};

const MARKET: &str = "h100/eu";

fn tool(engine: &Engine, token: &str, arguments: &str) -> Command {
    let mut command = Command::new(binary());
    command.args(["--endpoint", &engine.endpoint(), "--token", token]).args(arguments.split(' '));
    command
}

fn said(output: &Output) -> &str {
    assert!(output.status.success(), "{output:?}");
    str::from_utf8(&output.stdout).unwrap().trim_end()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_waits_for_nodes_and_reads_the_past_in_any_format() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::start(&sqlite(folder.path()), folder.path(), &["--clock", "stepped"]);
    let admin = engine.admin().await;
    let token = market_and_tenant(&admin, MARKET, "t1").await;
    let tool = |arguments: &str| tool(&engine, &token, arguments);
    let run = |arguments: &str| tool(arguments).output().expect("the tool runs");

    // Nobody offers: the bid stays, and the wait ends.
    let late = run("bid place h100/eu --max 2 --nodes 1 --wait --wait-timeout 100ms");
    assert_eq!(late.status.code(), Some(7), "{late:?}");
    let text = String::from_utf8(late.stderr).unwrap();
    assert!(text.contains("has 0 of 1 nodes allocated after 100ms"), "{text}");
    let closed = run("bid place h100/eu --max 2 --nodes 1 --ioc --wait");
    assert_eq!(closed.status.code(), Some(3), "{closed:?}");

    // The wait ends when the node that an offer brings was reported ready.
    let waiting = tool("bid place h100/eu --max 3 --nodes 2 --wait=ready -q").spawn().expect("the tool runs");
    let offer = v1::PutOfferRequest {
        market: MARKET.into(),
        capacity: 3,
        reserve_micros: 1_500_000,
        ..Default::default()
    };
    let provider = engine.client(&token_of(&admin, "p1", Role::Provider).await);
    provider.put_offer(offer).await.expect("an offer");
    let tenant = engine.client(&token);
    // The list may lag behind the reports, so it does not say which ones were made.
    let mut reported = BTreeSet::new();
    while reported.len() < 3 {
        let all = tenant.all(v1::ListAllocationsRequest::default()).await.expect("allocations").allocations;
        for allocation in all.into_iter().map(|it| it.allocation) {
            if reported.insert(allocation) {
                let ready = v1::ReportReadyRequest { allocation, ..Default::default() };
                tenant.report_ready(ready).await.expect("a report");
            }
        }
    }
    let waited = waiting.wait_with_output().expect("it ends");
    assert!(waited.status.success(), "{waited:?}");

    let names = run("bid ls --all -o name");
    let bids: Vec<_> = said(&names).lines().collect();
    assert_eq!(bids.len(), 3, "{bids:?}");
    let csv = run("bid list -o csv");
    let lines: Vec<_> = said(&csv).lines().collect();
    assert!(lines[0].starts_with("bid,tenant,where,max,state,held"), "{lines:?}");
    assert!(lines[1].starts_with(&format!("{},t1,h100/eu,2.00,OPEN,1", bids[0])), "{lines:?}");
    let yaml = run(&format!("bid get {} -o yaml", bids[2]));
    assert!(said(&yaml).contains("max_nodes: 2"), "{yaml:?}");
    assert_eq!(said(&run("event list --kind allocated --newest-first --limit 2")).lines().count(), 2);
    let unknown = String::from_utf8(run("event list --kind alocated").stderr).unwrap();
    assert!(unknown.contains("a similar value exists: 'allocated'"), "{unknown}");
    let me = run("whoami");
    assert!(said(&me).starts_with("account:            t1\nroles:              tenant\n"), "{me:?}");
    assert!(said(&me).contains("bids that search:   2 of 10000000"), "{me:?}");
    let history = run("price history h100/eu -o csv");
    assert!(said(&history).starts_with("time,price,entry,floor,accepted,losing\n"), "{history:?}");
    assert!(said(&run("price h100/eu")).contains("highest losing:   -"), "{:?}", run("price h100/eu"));
}

#[tokio::test]
async fn the_environment_names_a_token_of_the_profile() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::start(&sqlite(folder.path()), folder.path(), &[]);
    let admin = engine.admin_token().await;
    let profile = folder.path().join("profile.toml");
    let text = format!("endpoint = '{}'\n[tokens]\nroot = '{admin}'\n", engine.endpoint());
    std::fs::write(&profile, text).unwrap();
    let list = |name: &str| {
        let mut command = Command::new(binary());
        command.args(["account", "list"]).env("KUBEBID_PROFILE", &profile).env("KUBEBID_AS", name);
        command.output().expect("the tool runs")
    };
    said(&list("root"));
    // Another endpoint does not get the token of the profile, and a person is told so.
    let text =
        std::fs::read_to_string(&profile).unwrap().replacen("[tokens]", "default = 'root'\n[tokens]", 1);
    std::fs::write(&profile, text).unwrap();
    let mut elsewhere = Command::new(binary());
    let other = engine.endpoint().replace("127.0.0.1", "localhost");
    elsewhere.args(["--endpoint", &other, "account", "list"]).env("KUBEBID_PROFILE", &profile);
    let denied = elsewhere.output().expect("the tool runs");
    assert_eq!(denied.status.code(), Some(5), "{denied:?}");
    let why = String::from_utf8(denied.stderr).unwrap();
    assert!(why.contains("send it with --as root"), "{why}");
    let unknown = String::from_utf8(list("nobody").stderr).unwrap();
    assert!(unknown.contains("it has: root"), "{unknown}");
}
