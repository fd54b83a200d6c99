//! The operator fails with a message if its output cannot be written.

use kubebid_testkit::{assert_copes_without_output, code_without_error_output};
use std::process::Command;

fn operator(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mysql-operator"));
    command.args(arguments.split(' '));
    command
}

#[test]
fn output_that_cannot_be_written_is_a_failure_and_a_reader_that_goes_away_is_none() {
    for arguments in ["--version", "--help", "help run", "crds"] {
        assert_copes_without_output(|| operator(arguments));
    }
    assert_eq!(code_without_error_output(|| operator("no-command")), Some(2));
}
