//! Holds the style of comments and decision records as far as a machine can.

use std::fs;
use std::path::{Path, PathBuf};

/// Words with which a comment has no subject.
const NO_SUBJECT: [&str; 30] = [
    "After", "Among", "As", "At", "Before", "Behind", "Beside", "By", "For", "From", "How", "If", "In", "Of",
    "On", "Over", "Since", "That", "Those", "To", "Under", "Until", "What", "When", "Where", "Whether",
    "Which", "Who", "Whose", "With",
];

/// Metaphors and words that the glossary replaces.
const BANNED: [&str; 8] = ["behind", "hears", "heard", "nobody", "obey", "somebody", "told", "whoever"];

/// Files whose `//!` headers are held to both lists. Add a package once its headers are mended.
const HEADERS: [&str; 15] = [
    "cli/src",
    "controller/src",
    "engine/core/src",
    "engine/model/src",
    "engine/src",
    "examples/cache-operator/src",
    "examples/mysql-operator/src",
    "examples/rust/src",
    "loadgen/src",
    "market-sim/src",
    "operator-client/src",
    "operator/src",
    "strategy/src",
    "testkit/tests",
    "webhook/src",
];

/// Comments of items that begin without a subject, by package. Mend some, and lower the number.
const LEFT: [(&str, usize); 14] = [
    ("cli/src", 7),
    ("controller/src", 0),
    ("engine/core/src", 0),
    ("engine/model/src", 0),
    ("engine/src", 0),
    ("examples/cache-operator/src", 0),
    ("examples/mysql-operator/src", 0),
    ("examples/rust/src", 0),
    ("loadgen/src", 0),
    ("market-sim/src", 0),
    ("operator-client/src", 0),
    ("operator/src", 0),
    ("strategy/src", 0),
    ("webhook/src", 0),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn has_no_subject(comment: &str) -> bool {
    let first = comment.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    NO_SUBJECT.contains(&first)
}

fn banned(text: &str) -> Option<&str> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .find(|word| BANNED.contains(&&word.to_lowercase()[..]))
}

#[test]
fn headers_say_what_a_file_does_in_the_words_of_the_glossary() {
    let mut faults = Vec::new();
    for file in HEADERS.iter().flat_map(|folder| rust_files(&root().join(folder))) {
        let text = fs::read_to_string(&file).unwrap();
        let header: Vec<&str> =
            text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
        let first: Vec<&str> = header.iter().take_while(|line| !line.is_empty()).copied().collect();
        let first = first.join(" ");
        if first.is_empty() || has_no_subject(&first) || banned(&first).is_some() {
            faults.push(format!("{}: {first}", file.display()));
        }
    }
    assert!(faults.is_empty(), "begin with a noun or a verb, without {BANNED:?}:\n{}", faults.join("\n"));
}

#[test]
fn comments_without_a_subject_become_fewer() {
    for (folder, left) in LEFT {
        let mut found = Vec::new();
        for file in rust_files(&root().join(folder)) {
            let text = fs::read_to_string(&file).unwrap();
            let mut before = "";
            for line in text.lines().map(str::trim) {
                let comment = line.strip_prefix("/// ").filter(|_| !before.starts_with("///"));
                if comment.is_some_and(has_no_subject) {
                    found.push(format!("{}: {line}", file.display()));
                }
                before = line;
            }
        }
        assert!(found.len() <= left, "{folder}: {} of at most {left}:\n{}", found.len(), found.join("\n"));
        assert!(found.len() == left, "{folder}: {} are left; lower the number from {left}", found.len());
    }
}

#[test]
fn each_decision_record_has_a_status_its_consequences_and_a_place_in_the_index() {
    let folder = root().join("docs/decisions");
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let (index, summary) = (read(&folder.join("README.md")), read(&root().join("docs/SUMMARY.md")));
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "README.md" {
            continue;
        }
        let text = read(&path);
        for part in ["**Status:**", "## Context", "## Decision", "## Consequences"] {
            assert!(text.contains(part), "{name} has no {part}");
        }
        assert!(index.contains(name), "{name} is not in docs/decisions/README.md");
        assert!(summary.contains(name), "{name} is not in docs/SUMMARY.md");
    }
}
