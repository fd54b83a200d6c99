//! The operator fails with a message if its output cannot be written.

use kubebid_testkit::{assert_copes_without_output, code_without_error_output};
use std::process::Command;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/sample.yaml");

fn operator(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cache-operator"));
    command.args(arguments.split(' '));
    command
}

#[test]
fn output_that_cannot_be_written_is_a_failure_and_a_reader_that_goes_away_is_none() {
    let convert = format!("convert --to v1alpha1 -f {SAMPLE}");
    for arguments in ["--version", "--help", "help run", "crds", &convert] {
        assert_copes_without_output(|| operator(arguments));
    }
    assert_eq!(code_without_error_output(|| operator("no-command")), Some(2));
    assert_eq!(code_without_error_output(|| operator("convert --to v1alpha1 -f /nowhere")), Some(1));
}
