//! The command `convert`.

use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Converts a text by the program, which reads it from a file or from its standard input.
fn convert(version: &str, text: &str, is_file: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("objects.yaml");
    std::fs::write(&file, text).unwrap();
    let name = if is_file { file.to_str().unwrap() } else { "-" };
    let mut program = Command::new(env!("CARGO_BIN_EXE_kubebid-operator"))
        .args(["convert", "--to", version, "-f", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    if !is_file {
        input.write_all(text.as_bytes()).unwrap();
    }
    drop(input);
    let done = program.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

fn document(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml.trim_start_matches("---\n")).unwrap()
}

/// A BidNode as people write it, without anything that has a default.
const WRITTEN: &str = "\
apiVersion: kubebid.io/v1
kind: BidNode
metadata:
  name: gpu
  annotations:
    kubebid.io/release-empty-after: 2s    # for a test
spec:
  instanceType: h100-8x
  region: eu-west
  maxBid: 5.0
";

#[test]
fn a_file_that_lacks_defaults_gets_them_and_nothing_is_kept_for_them() {
    let newer = convert("v2beta1", WRITTEN, true);
    assert_eq!(newer, convert("v2beta1", WRITTEN, false));
    let spec = json!({
        "instanceTypes": ["h100-8x"], "regions": ["eu-west"], "maxBid": "5", "strategy": "balanced",
        "nodes": {"min": 1, "max": 10, "minRequestedGpus": 0}, "gang": false, "drain": {"emptyAfter": "2s"},
    });
    let wanted = json!({
        "apiVersion": "kubebid.io/v2beta1", "kind": "BidNode", "metadata": {"name": "gpu"}, "spec": spec,
    });
    assert_eq!(document(&newer), wanted);

    let older = convert("v1", &newer, true);
    let spec = json!({
        "instanceType": "h100-8x", "region": "eu-west", "maxBid": 5, "minNodes": 1, "maxNodes": 10,
        "minRequestedGpus": 0, "gang": false, "bidStrategy": "balanced",
    });
    let metadata = json!({"name": "gpu", "annotations": {"kubebid.io/release-empty-after": "2s"}});
    let wanted =
        json!({"apiVersion": "kubebid.io/v1", "kind": "BidNode", "metadata": metadata, "spec": spec});
    assert_eq!(document(&older), wanted);
    assert_eq!(convert("v2beta1", &older, true), newer);
    assert_eq!(convert("v1", WRITTEN, true), convert("v1", &convert("v1", WRITTEN, true), true));
}

#[test]
fn a_file_keeps_what_v1_cannot_say() {
    let spec = json!({"instanceTypes": ["h100-8x", "a100-8x"], "maxBid": "2.50", "nodes": {"max": 3}});
    let wide = json!({
        "apiVersion": "kubebid.io/v2beta1", "kind": "BidNode", "metadata": {"name": "wide"}, "spec": spec,
    });
    let older = convert("v1", &wide.to_string(), true);
    assert_eq!(document(&older)["spec"]["instanceType"], "h100-8x");
    let back = document(&convert("v2beta1", &older, true));
    let filled = json!({
        "instanceTypes": ["h100-8x", "a100-8x"], "maxBid": "2.50", "strategy": "balanced",
        "nodes": {"min": 1, "max": 3, "minRequestedGpus": 0}, "gang": false,
    });
    assert_eq!(back["spec"], filled);
    assert_eq!(back["metadata"], wide["metadata"]);
}
