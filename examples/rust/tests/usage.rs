//! The program says how it is called. The job itself is tried by `cli/tests/examples.rs`, which has an engine.

use std::process::Command;

#[test]
fn without_arguments_it_says_how_it_is_called() {
    let said = Command::new(env!("CARGO_BIN_EXE_kubebid-job")).output().unwrap();
    let text = String::from_utf8(said.stderr).unwrap();
    assert!(!said.status.success() && text.contains("<MARKET> <NODES> <MOST> <SECONDS>"), "{text}");
}
