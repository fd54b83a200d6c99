//! Output that nobody reads, or that cannot be written.

use crate::process::{Engine, binary, market_and_tenant, sqlite, token_of};
use kubebid_client::v1::{self, token::Role};
use kubebid_testkit::{assert_copes_without_output, code_without_error_output};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::timeout;

const MARKET: &str = "h100/eu";
/// Longer than any of these commands takes to notice that its reader is gone.
const SOON: Duration = Duration::from_secs(20);

/// Returns a command that no profile and no variable of this machine changes.
fn plain(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(binary());
    command.env("XDG_CONFIG_HOME", folder).env("HOME", folder).args(arguments.split(' '));
    for variable in ["KUBEBID_TOKEN", "KUBEBID_TOKEN_FILE", "KUBEBID_PROFILE", "KUBEBID_CONTEXT"] {
        command.env_remove(variable);
    }
    command
}

#[test]
fn help_version_and_completions_that_cannot_be_written_are_a_failure_and_unread_ones_are_none() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        "--version",
        "--help",
        "-h",
        "help bid place",
        "bid place --help",
        "completions bash",
        "completions zsh",
        "completions fish",
    ] {
        assert_copes_without_output(|| plain(folder.path(), arguments));
    }
    for (arguments, code) in [
        ("no-command", 2),
        ("bid", 2),
        ("bid list --token t --endpoint http://127.0.0.1:1 --timeout 100ms", 6),
        ("context use nowhere", 2),
    ] {
        let ended = code_without_error_output(|| plain(folder.path(), arguments));
        assert_eq!(ended, Some(code), "{arguments}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_written_is_a_failure_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Engine::start(&sqlite(folder.path()), folder.path(), &["--clock", "stepped"]);
    let admin = engine.admin().await;
    let token = market_and_tenant(&admin, MARKET, "t1").await;
    let provider = engine.client(&token_of(&admin, "p1", Role::Provider).await);
    let offer = v1::PutOfferRequest { market: MARKET.into(), capacity: 1, ..Default::default() };
    provider.put_offer(offer).await.expect("an offer");
    let bid = v1::PlaceBidRequest {
        markets: vec![MARKET.into()],
        ceiling_micros: 1_000_000,
        max_nodes: 1,
        // Without a line feed at its end.
        node_config: b"no line feed".to_vec(),
        ..Default::default()
    };
    engine.client(&token).place_bid(bid).await.expect("a bid");
    let endpoint = engine.endpoint();
    let tool = |arguments: &str| {
        let mut command = plain(folder.path(), arguments);
        command.args(["--endpoint", &endpoint, "--token", &token]);
        command
    };
    for format in ["table", "wide", "json", "yaml", "csv", "name"] {
        for list in ["bid list", "alloc list", "market list"] {
            assert_copes_without_output(|| tool(&format!("{list} -o {format}")));
        }
    }
    for arguments in [
        "alloc node-config 1",
        "price",
        "depth h100/eu",
        "explain bid 3",
        "event list",
        "charges statement",
        "whoami",
        "watch events --from-start --count 1",
        "watch events --from-start --count 1 -o json",
        "bid quote h100/eu",
    ] {
        assert_copes_without_output(|| tool(arguments));
    }
    // The store is read without an engine.
    engine.stop();
    let store = engine.store().to_owned();
    for arguments in ["journal verify", "journal replay", "journal export"] {
        assert_copes_without_output(|| plain(folder.path(), &format!("{arguments} --store {store}")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_reader_is_gone_although_nothing_happens() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::start(&sqlite(folder.path()), folder.path(), &["--clock", "stepped"]);
    let token = market_and_tenant(&engine.admin().await, MARKET, "t1").await;
    let tool = |arguments: &str| {
        let mut command = plain(folder.path(), arguments);
        command.args(["--endpoint", &engine.endpoint(), "--token", &token]).stderr(Stdio::piped());
        command
    };
    for arguments in ["watch events --from-start", "watch prices", "price --watch"] {
        let mut watching = tool(arguments).stdout(Stdio::piped()).spawn().expect("the tool runs");
        let mut first = String::new();
        BufReader::new(watching.stdout.take().expect("a pipe")).read_line(&mut first).expect("a line");
        assert!(!first.is_empty(), "{arguments}");
        // The reader is dropped, as that of `head -n 1`.
        let pid = watching.id();
        let ended = tokio::task::spawn_blocking(move || watching.wait_with_output());
        let Ok(ended) = timeout(SOON, ended).await else {
            let _ = Command::new("kill").arg(pid.to_string()).status();
            panic!("{arguments} runs without a reader");
        };
        let ended = ended.expect("it is waited for").expect("it ends");
        assert!(ended.status.success(), "{arguments}: {}", ended.status);
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{arguments}");
    }
    // A file has no reader that could go.
    let file = folder.path().join("events");
    let watched = tool("watch events --from-start --count 1").stdout(File::create(&file).unwrap()).status();
    assert!(watched.expect("the tool runs").success());
    assert!(std::fs::read_to_string(file).unwrap().contains("market_opened"));
}
