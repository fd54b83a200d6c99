//! The command line as a person at work meets it: what lists show, and what is said about mistakes and engines that are
//! away.

use crate::process::{Engine, binary, market_and_tenant, sqlite, token_of};
use crate::standby::until;
use kubebid_client::Client;
use kubebid_client::v1::{self, token::Role};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

const MARKET: &str = "h100-8x/eu-west";

/// The tool of one account.
pub(crate) struct Tool {
    pub(crate) endpoint: String,
    pub(crate) token: String,
}

impl Tool {
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(binary());
        command.args(["--endpoint", &self.endpoint, "--token", &self.token]);
        command.args(arguments.split_whitespace());
        command
    }

    /// Returns the exit code, what it printed, and what it said about it.
    pub(crate) fn run(&self, arguments: &str) -> (Option<i32>, String, String) {
        let done = self.command(arguments).output().expect("the tool runs");
        let [printed, said] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).expect("text"));
        (done.status.code(), printed, said)
    }

    pub(crate) fn prints(&self, arguments: &str) -> String {
        let (code, printed, said) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments}: {said}");
        printed.trim_end().to_owned()
    }

    /// Fails with this code, and says all of this.
    pub(crate) fn fails(&self, arguments: &str, exit: i32, texts: &[&str]) {
        let (code, _, said) = self.run(arguments);
        assert_eq!(code, Some(exit), "{arguments}: {said}");
        for text in texts {
            assert!(said.contains(text), "{arguments} does not say {text}:\n{said}");
        }
    }
}

/// The provider sells `capacity` nodes from $1.50.
async fn offer(provider: &Client, capacity: u32) {
    let request = v1::PutOfferRequest {
        market: MARKET.into(),
        capacity,
        reserve_micros: 1_500_000,
        ..Default::default()
    };
    provider.put_offer(request).await.expect("an offer");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_show_what_is_live_and_all_of_it_where_asked() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::start(&sqlite(folder.path()), folder.path(), &["--clock", "stepped"]);
    let admin = engine.admin().await;
    let tool = |token: &str| Tool { endpoint: engine.endpoint(), token: token.to_owned() };
    let tenant = tool(&market_and_tenant(&admin, MARKET, "acme").await);
    let seller = token_of(&admin, "moon", Role::Provider).await;
    offer(&engine.client(&seller), 1).await;

    // One bid searches, one is closed and holds a node, one is over.
    let holding = tenant.prints(&format!("bid place {MARKET} --max 3 --nodes 1 -q"));
    let searching = tenant.prints(&format!("bid place {MARKET} --max 2 --nodes 1 -q"));
    let over = tenant.prints(&format!("bid place {MARKET} --max 2 --nodes 1 --ioc -q"));
    let kept = tenant.prints(&format!("bid cancel {holding} --keep"));
    assert_eq!(kept, format!("cancelled bid {holding}\nit holds 1 node (allocation 1)"), "no command number");
    assert_eq!(tenant.prints("bid list -o name"), format!("{holding}\n{searching}"));
    assert_eq!(
        tenant.prints(&format!("bid list --market {MARKET} -o name")),
        format!("{holding}\n{searching}")
    );
    assert_eq!(tenant.prints("bid list --market a100/eu -o name"), "");
    assert_eq!(tenant.prints("bid list --all -o name"), format!("{holding}\n{searching}\n{over}"));
    assert_eq!(tenant.prints("bid list --state closed -o name"), format!("{holding}\n{over}"));

    let mode = format!("bid {holding} holds 1 node: say --keep, --release or --regroup");
    tenant.fails(&format!("bid cancel {holding}"), 2, &[&mode, "are billed, until outbid"]);
    let release = format!("give back its nodes: kubebid bid cancel {holding} --release");
    tenant.fails(&format!("bid cancel {holding} --keep"), 3, &["CLOSED", &release]);
    tenant.prints(&format!("bid cancel {holding} --release"));
    tenant.fails(&format!("bid cancel {holding} --keep"), 3, &["nothing is left to do"]);
    let next = tenant.prints("alloc list -q");
    assert_ne!(next, "1", "the node went to the bid that searches");
    assert_eq!(tenant.prints("alloc list --all -q"), format!("1\n{next}"));

    let provider = tool(&seller);
    assert_eq!(provider.prints("offer list -o name"), MARKET);
    tenant.prints(&format!("bid cancel {searching} --release"));
    offer(&engine.client(&seller), 0).await;
    assert_eq!(provider.prints("offer list -o name"), "");

    let administrator = tool(&engine.admin_token().await);
    administrator.prints("token revoke 2");
    assert!(!administrator.prints("token list -o name").contains('2'));
    assert!(administrator.prints("token list --all -o name").contains('2'));
    let statements = administrator.prints("charges statement --all-accounts -o csv");
    let accounts: Vec<_> =
        statements.lines().map(|line| line.split(',').next().unwrap_or_default()).collect();
    assert_eq!(accounts, ["account", "acme", "admin", "moon"], "{statements}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_market_opened_by_mistake_is_closed_and_leaves_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::start(&sqlite(folder.path()), folder.path(), &["--clock", "stepped"]);
    let admin = engine.admin().await;
    let tool = |token: &str| Tool { endpoint: engine.endpoint(), token: token.to_owned() };
    let tenant = tool(&market_and_tenant(&admin, MARKET, "acme").await);
    let seller = token_of(&admin, "moon", Role::Provider).await;
    offer(&engine.client(&seller), 1).await;
    let administrator = tool(&engine.admin_token().await);
    let typo = "h100-8x/eu-wets";
    administrator.prints(&format!("market open {typo}"));
    tenant.fails(&format!("market close {typo}"), 5, &["FORBIDDEN"]);
    let closed = administrator.prints(&format!("market close {typo}"));
    assert_eq!(closed, format!("closed {typo}: it was empty, and has ended"));
    let names = |list: &str| -> Vec<String> {
        let lines = tenant.prints(list);
        lines.lines().skip(1).map(|line| line.split(',').take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(names("market list -o csv"), [format!("{MARKET} OPEN")]);
    assert_eq!(names("market list --all -o csv"), [format!("{MARKET} OPEN"), format!("{typo} ENDED")]);
    assert!(tenant.prints(&format!("market show {typo}")).contains("ENDED"));

    let closed = administrator.prints(&format!("market close {MARKET}"));
    assert_eq!(closed, format!("closed {MARKET}: it ends when it is empty"));
    assert_eq!(names("market list -o csv"), [format!("{MARKET} CLOSING")]);
    tenant.fails(
        &format!("bid place {MARKET} --max 3 --nodes 1"),
        3,
        &["MARKET_CLOSED", "takes no new bids"],
    );
    administrator.fails(&format!("market close {MARKET}"), 3, &["MARKET_CLOSED", "is closed already"]);
    administrator.prints(&format!("market open {MARKET}"));
    assert_eq!(names("market list -o csv"), [format!("{MARKET} OPEN")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_is_told_in_the_words_of_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::start(&sqlite(folder.path()), folder.path(), &["--clock", "stepped"]);
    let admin = engine.admin().await;
    let token = market_and_tenant(&admin, MARKET, "acme").await;
    let tenant = Tool { endpoint: engine.endpoint(), token: token.clone() };
    let administrator = Tool { endpoint: engine.endpoint(), token: engine.admin_token().await };

    let meant = format!("did you mean {MARKET}?");
    tenant.fails("bid place h100-8x/eu-wst --max 2 --nodes 1", 4, &["UNKNOWN_MARKET", &meant]);
    tenant.fails("price h100-8x/us-west", 4, &[&meant]);
    tenant.fails("market show h100-8x/eu-wets", 4, &[&meant]);
    administrator.fails("token create acne --role tenant", 4, &["did you mean acme?", "account put NAME"]);
    let (_, _, said) = tenant.run("bid place --type h100-8 --max 2 --nodes 1");
    assert!(said.contains("no market is open for the instance type h100-8; did you mean h100-8x?"), "{said}");

    let high = "--max $99999999.00 is above the highest ceiling $1000000.00 of h100-8x/eu-west";
    tenant.fails(&format!("bid place {MARKET} --max 99999999 --nodes 1"), 3, &["CEILING_TOO_HIGH", high]);
    let rules = format!("market rules {MARKET}");
    administrator.fails(&format!("{rules} --tick 0"), 3, &["the rule --tick is from $0.000001 to"]);
    administrator.fails(&format!("{rules} --tick 0.5"), 3, &["the tick of an open market never changes"]);
    administrator.prints("account put acme --max-ceiling 10 --nodes-wanted 3");
    let raise =
        "ask for a lower --max; an administrator raises the limit: kubebid account put NAME --max-ceiling N";
    tenant.fails(&format!("bid place {MARKET} --max 11 --nodes 1"), 3, &["LIMIT: --max $11.00", raise]);
    tenant.fails(&format!("bid place {MARKET} --max 9 --nodes 4"), 3, &["ask for fewer --nodes"]);

    let secure = Tool { endpoint: engine.endpoint().replace("http:", "https:"), token };
    secure.fails("price", 6, &["write http:// in place of https://"]);
    let rows = tenant.prints("event list --kind market_opened -o csv");
    assert!(rows.starts_with("event,time,kind,market,bid,allocation,unit,other_fields\n1.0,"), "{rows}");
    assert_eq!(tenant.prints("event list --kind market_opened -o name"), "1.0");
}

/// Killed when dropped.
struct Watching(Child);

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_waits_for_an_engine_that_is_away_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Engine::start(&sqlite(folder.path()), folder.path(), &[]);
    let admin = engine.admin().await;
    let token = market_and_tenant(&admin, MARKET, "acme").await;
    let tenant = Tool { endpoint: engine.endpoint(), token };

    let mut watch = tenant.command("price --watch -o json").stdout(Stdio::piped()).spawn().expect("it runs");
    let prices = BufReader::new(watch.stdout.take().expect("it is piped"));
    let watch = Watching(watch);
    let frame = prices.lines().next().expect("a frame").expect("text");
    let frame: serde_json::Value = serde_json::from_str(&frame).expect("one object a line");
    assert_eq!(frame["prices"][0]["market"], MARKET);
    drop(watch);

    engine.kill();
    tenant.fails("--timeout 5s price", 6, &["no engine answers at", "trying again for 5s"]);
    let mut placing = tenant.command(&format!("--timeout 5m bid place {MARKET} --max 2 --nodes 1 -q"));
    let placing = placing.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut placing = Watching(placing.spawn().expect("it runs"));
    let mut said = BufReader::new(placing.0.stderr.take().expect("it is piped"));
    let mut note = String::new();
    said.read_line(&mut note).expect("text");
    assert!(note.contains("trying again for 5m"), "{note}");
    engine.restart(&[]);
    assert!(placing.0.wait().expect("it ends").success(), "{said:?}");
    // The lists follow the commands.
    until("one bid is listed", || tenant.prints("bid list -o name").lines().count() == 1).await;
}
