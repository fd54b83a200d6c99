//! The command `convert`.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/sample.yaml");

/// Runs `cache-operator convert` with a text as its standard input.
fn convert(arguments: &[&str], input: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cache-operator"));
    program
        .arg("convert")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut program = program.spawn().unwrap();
    // A program that refuses its arguments reads nothing.
    let _ = program.stdin.take().unwrap().write_all(input.as_bytes());
    program.wait_with_output().unwrap()
}

fn converted(arguments: &[&str], input: &str) -> String {
    let done = convert(arguments, input);
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn the_sample_is_converted_and_back() {
    let older = converted(&["--to", "v1alpha1", "--filename", SAMPLE], "");
    assert!(older.contains("apiVersion: infra.archon.dev/v1alpha1\n"), "{older}");
    assert!(!older.contains("\n  highAvailability:"), "{older}");
    // The defaults of the API server are written out, and nothing is lost.
    let newer = converted(&["--to", "v1beta1", "-f", "-"], &older);
    assert!(newer.contains("apiVersion: infra.archon.dev/v1beta1\n"), "{newer}");
    assert!(newer.contains("\n  highAvailability:\n    autoFailover: true\n    enabled: true\n"), "{newer}");
    assert!(!newer.contains("replicas"), "{newer}");
    assert_eq!(converted(&["--to", "v1alpha1", "-f", "-"], &newer), older);
}

#[test]
fn several_files_become_documents_and_other_kinds_stay_as_they_are() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: other\n";
    let all = converted(&["--to", "v1alpha1", "-f", SAMPLE, "-f", "-"], secret);
    let documents: Vec<&str> = all.split("---\n").skip(1).collect();
    assert_eq!(documents.len(), 2, "{all}");
    assert!(documents[0].starts_with("apiVersion: infra.archon.dev/v1alpha1\n"), "{all}");
    assert_eq!(documents[1], secret);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let refused = |arguments: &[&str], code: i32, message: &str| {
        let done = convert(arguments, "");
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(code), "{said}");
        assert!(said.contains(message), "{said}");
        assert!(done.stdout.is_empty());
    };
    refused(&["--to", "v1beta1"], 2, "--filename <FILE>");
    refused(&["-f", SAMPLE], 2, "--to <VERSION>");
    refused(&["--to", "v1beta1", "-f", "/nowhere.yaml"], 1, "/nowhere.yaml");
}
