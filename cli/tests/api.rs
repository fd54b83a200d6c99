//! The API for those who write clients: the `.proto` files and the OpenAPI document pass the checks of `scripts/api`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of the project").to_owned()
}

/// Runs `scripts/api`. Returns true if it passed, and what it printed.
fn check(argument: &Path) -> (bool, String) {
    let ended = Command::new(root().join("scripts/api")).arg(argument).output().expect("bash is there");
    let said = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (ended.status.success(), said)
}

#[test]
fn the_definitions_break_no_client_and_the_document_has_no_warnings() {
    let folder = tempfile::tempdir().expect("a folder");
    let document = folder.path().join("openapi.json");
    fs::write(&document, kubebid_engine::rest::openapi()).expect("a file");
    let (passed, said) = check(&document);
    assert!(passed, "{said}");
}

#[test]
fn a_warning_fails_the_check() {
    let folder = tempfile::tempdir().expect("a folder");
    let document = folder.path().join("openapi.json");
    let without_servers = kubebid_engine::rest::openapi().replacen("\"servers\"", "\"x-servers\"", 1);
    fs::write(&document, without_servers).expect("a file");
    let (passed, said) = check(&document);
    assert!(!passed && said.contains("no-empty-servers"), "{said}");
}
