//! The operator fails with a message if its output cannot be written.

use kubebid_testkit::{assert_copes_without_output, code_without_error_output};
use std::process::Command;

fn operator(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubebid-operator"));
    command.args(arguments.split(' '));
    command
}

#[test]
fn output_that_cannot_be_written_is_a_failure_and_a_reader_that_goes_away_is_none() {
    for arguments in [
        "--version",
        "--help",
        "help run",
        "crds",
        "policy labels",
        "provisioner-api",
        "convert --to v1 -f ../deploy/kubernetes/operator/rbac.yaml",
        "run --token-file /nowhere --dump-config",
    ] {
        assert_copes_without_output(|| operator(arguments));
    }
}

#[test]
fn a_message_that_cannot_be_written_leaves_the_exit_code_as_it_is() {
    assert_eq!(code_without_error_output(|| operator("no-command")), Some(2));
    assert_eq!(code_without_error_output(|| operator("convert --to v1 -f /nowhere")), Some(1));
}
