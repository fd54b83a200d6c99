//! `market-sim … | head`: who reads no further is no fault.

use std::io::{Write as _, pipe};
use std::process::{Command, Output, Stdio};

/// With a standard output that nobody reads.
fn unread(arguments: &[&str], input: &str) -> Output {
    let (_, writer) = pipe().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_market-sim"));
    command.args(arguments).stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped());
    let mut tool = command.spawn().expect("the tool starts");
    tool.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    tool.wait_with_output().expect("it ends")
}

#[test]
fn who_reads_no_further_ends_the_tool_without_a_word() {
    let command = r#"{"at_us": 0, "command": "OpenMarket", "market": "h100/eu", "rules": {}}"#;
    for (arguments, input) in
        [(&["simulate", "--days", "1", "--markets", "1", "--threads", "1"][..], ""), (&["play"][..], command)]
    {
        let out = unread(arguments, input);
        assert!(out.status.success(), "{arguments:?}: {}", out.status);
        assert_eq!(String::from_utf8(out.stderr).unwrap(), "", "{arguments:?}");
    }
}
