//! The market page: its scripts type-check, and its tests pass in a real Chromium (`web/tests`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SETUP: &str = "scripts/setup installs it";

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../web")
}

/// Runs a program of Node.js in `web/`, with what it prints on failure.
fn run_node(arguments: &[&str]) {
    let root = web();
    for package in ["axe-core", "pixelmatch", "playwright-core", "pngjs", "typescript"] {
        assert!(
            root.join("node_modules").join(package).is_dir(),
            "web/node_modules/{package} is missing: {SETUP}"
        );
    }
    let mut node = Command::new("node");
    node.args(arguments).current_dir(&root).env("KUBEBID_BINARY", env!("CARGO_BIN_EXE_kubebid"));
    let ended = node.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("node: {error}: {SETUP}"));
    let said = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(ended.status.success(), "node {} in web/:\n{said}", arguments.join(" "));
}

#[test]
fn the_scripts_type_check() {
    run_node(&["node_modules/typescript/bin/tsc"]);
}

#[test]
fn the_page_works_in_a_browser() {
    let entries = std::fs::read_dir(web().join("tests")).expect("there are tests");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut files: Vec<_> = names.filter(|name| name.ends_with(".test.mjs")).collect();
    files.sort();
    let files: Vec<_> = files.iter().map(|name| format!("tests/{name}")).collect();
    let mut arguments = vec!["--test", "--test-reporter=spec"];
    arguments.extend(files.iter().map(String::as_str));
    run_node(&arguments);
}
