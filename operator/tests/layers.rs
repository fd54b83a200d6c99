//! The layers of the operator: `plan` is pure, and `observe`, `act` and `control` are on top of it in this order.

use std::fs;
use std::path::{Path, PathBuf};

/// The layers, from the lowest to the highest. A layer names none above it.
const LAYERS: [&str; 4] = ["plan", "observe", "act", "control"];

/// Names that a plan does not use: clients, caches, the clock, chance, logging, and anything asynchronous.
const IMPURE: [&str; 21] = [
    "Api<",
    "Client",
    "Mutex",
    "async ",
    ".await",
    "crate::cache",
    "crate::clock",
    "crate::context",
    "crate::engine",
    "crate::error",
    "crate::failpoint",
    "crate::leader_election",
    "crate::metrics",
    "crate::provisioner",
    "fastrand",
    "kube::api",
    "kube::runtime",
    "kubebid_client",
    "now()",
    "tokio",
    "tracing",
];

/// Names of what writes to the cluster, to the engine or to the provisioner.
const WRITES: [&str; 21] = [
    "act::",
    ".patch(",
    ".patch_status(",
    ".replace(",
    ".evict(",
    "PatchParams",
    "PostParams",
    "DeleteParams",
    "deletion::",
    "record_event(",
    "engine().amend(",
    "engine().cancel(",
    "engine().end_bid(",
    "engine().end_search(",
    "engine().enlarge(",
    "engine().give_back(",
    "engine().place(",
    "engine().regroup(",
    "engine().report_ready(",
    "engine().report_access(",
    "provisioner().create(",
];

fn files(layer: &str) -> Vec<PathBuf> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.file_name().is_some_and(|name| name != "tests.rs") {
                found.push(path);
            }
        }
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = vec![sources.join(layer).with_extension("rs")];
    collect(&sources.join(layer), &mut found);
    found
}

/// Returns the code of a file, without comments and tests.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    text.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect()
}

/// Returns the files of a layer that use one of these names.
fn uses(layer: &str, names: &[&str]) -> Vec<String> {
    let files = files(layer);
    assert!(files.len() > 1, "{layer} has no files");
    let mut found = Vec::new();
    for file in files {
        let code = code(&file);
        let used = names.iter().filter(|name| code.contains(**name));
        found.extend(used.map(|name| format!("{}: {name}", file.display())));
    }
    found
}

#[test]
fn a_plan_is_pure() {
    assert_eq!(uses("plan", &IMPURE), Vec::<String>::new());
}

#[test]
fn a_layer_names_none_above_it() {
    for (height, layer) in LAYERS.iter().enumerate() {
        let above: Vec<_> = LAYERS[height + 1..]
            .iter()
            .flat_map(|above| [format!("crate::{above}"), format!(" {above}::"), format!("({above}::")])
            .collect();
        let above: Vec<_> = above.iter().map(String::as_str).collect();
        assert_eq!(uses(layer, &above), Vec::<String>::new(), "{layer}");
    }
}

#[test]
fn an_observation_writes_nothing() {
    assert_eq!(uses("observe", &WRITES), Vec::<String>::new());
}

#[test]
fn only_act_writes() {
    assert_eq!(uses("control", &WRITES[1..]), Vec::<String>::new());
}
