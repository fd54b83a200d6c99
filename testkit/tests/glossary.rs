//! Holds that the code speaks the words of `docs/glossary.md`: the last word of each public type and of each root module
//! is on that page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders whose names are held to the glossary.
const SOURCES: [&str; 13] = [
    "cli/src",
    "controller/src",
    "engine/core/src",
    "engine/model/src",
    "engine/src",
    "examples/cache-operator/src",
    "examples/mysql-operator/src",
    "loadgen/src",
    "market-sim/src",
    "operator-client/src",
    "operator/src",
    "strategy/src",
    "webhook/src",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the words of the glossary: those in bold, in code, and those that have their ordinary meaning.
fn glossary() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("docs/glossary.md")).unwrap().to_lowercase();
    let (tables, ordinary) = page.split_once("these have their ordinary meaning:").unwrap();
    let marked = tables.split("**").skip(1).step_by(2).chain(tables.split('`').skip(1).step_by(2));
    let all = marked.chain([ordinary]).flat_map(|text| text.split(|letter: char| !letter.is_alphabetic()));
    all.filter(|word| !word.is_empty()).map(singular).collect()
}

fn singular(word: &str) -> String {
    let ends = [("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch")];
    for (plural, one) in ends {
        if let Some(stem) = word.strip_suffix(plural) {
            return format!("{stem}{one}");
        }
    }
    let plural = word.len() > 3 && word.ends_with('s') && !["ss", "us"].iter().any(|end| word.ends_with(end));
    if plural { word[..word.len() - 1].to_owned() } else { word.to_owned() }
}

/// Returns the last word of a name in CamelCase or snake_case.
fn last_word(name: &str) -> String {
    let start = name.rfind(|letter: char| letter.is_uppercase() || letter == '_').unwrap_or(0);
    singular(&name[start..].trim_start_matches('_').to_lowercase())
}

/// Returns the name of the public type that a line declares.
fn public_type(line: &str) -> Option<&str> {
    let line = line.trim_start().strip_prefix("pub ")?;
    let kinds = ["struct ", "enum ", "trait ", "type "];
    let name = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    name.split(|letter: char| !letter.is_alphanumeric()).next().filter(|name| !name.is_empty())
}

#[test]
fn the_nouns_of_public_types_and_root_modules_are_in_the_glossary() {
    let glossary = glossary();
    let mut unknown = Vec::new();
    for source in SOURCES {
        let folder = root().join(source);
        let mut files = Vec::new();
        rust_files(&folder, &mut files);
        for file in files {
            let stem = file.file_stem().unwrap().to_str().unwrap();
            let is_module = file.parent() == Some(&folder) && !["lib", "main"].contains(&stem);
            let text = fs::read_to_string(&file).unwrap();
            let names = text.lines().filter_map(public_type).chain(is_module.then_some(stem));
            let missing = names.filter(|name| !glossary.contains(&last_word(name)));
            unknown.extend(missing.map(|name| format!("{source}: {name}")));
        }
    }
    assert!(unknown.is_empty(), "not in docs/glossary.md: {unknown:#?}");
}

#[test]
fn the_last_word_of_a_name_is_found() {
    assert_eq!(
        ["BidView", "TypeTables", "Status", "leader_election", "queries"].map(last_word),
        ["view", "table", "status", "election", "query"]
    );
    assert_eq!(public_type("    pub struct BidView<K> {"), Some("BidView"));
    assert_eq!(public_type("pub(crate) struct Hidden;"), None);
}
