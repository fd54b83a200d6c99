//! Output that nobody reads, or that cannot be written.

use kubebid_testkit::{assert_copes_without_output, code_without_error_output};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

const OPEN: &str = r#"{"at_us": 0, "command": "OpenMarket", "market": "h100/eu", "rules": {}}"#;

fn tool(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_market-sim"));
    command.args(arguments.split(' '));
    command
}

#[test]
fn results_that_cannot_be_written_are_a_failure_and_unread_ones_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let commands = folder.path().join("commands.jsonl");
    std::fs::write(&commands, OPEN).unwrap();
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces");
    let prices = traces.join("aws-spot-2016q4/prices.csv.gz");
    let replay = format!("replay-prices --trace {} --on-demand m4.4xlarge=1.057", prices.display());
    for arguments in [
        "--version",
        "--help",
        "help play",
        &format!("play {}", commands.display()),
        "simulate --days 1 --markets 1 --threads 1",
        &format!("{replay} --output text"),
        &format!("{replay} --output json"),
        &format!("{replay} --output csv"),
    ] {
        assert_copes_without_output(|| tool(arguments));
    }
}

#[test]
fn a_message_that_cannot_be_written_leaves_the_exit_code_as_it_is() {
    assert_eq!(code_without_error_output(|| tool("no-command")), Some(2));
    assert_eq!(code_without_error_output(|| tool("play /nowhere")), Some(1));
    assert_eq!(code_without_error_output(|| tool("replay-prices --trace /nowhere --on-demand a=1")), Some(1));
}

#[test]
fn play_ends_when_its_reader_is_gone_although_no_command_comes() {
    let mut play =
        tool("play").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the tool starts");
    let mut commands = play.stdin.take().expect("a pipe");
    writeln!(commands, "{OPEN}").expect("it reads");
    let mut first = String::new();
    BufReader::new(play.stdout.take().expect("a pipe")).read_line(&mut first).expect("an answer");
    assert!(first.contains("MarketOpened"), "{first}");
    // Its input is still open.
    assert!(play.wait().expect("it ends").success());
    drop(commands);
}
