//! Holds the style of comments and decision records as far as a machine can.

use std::collections::BTreeSet;
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

/// Returns the Markdown files of a folder and its folders.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

/// Returns true for the line below the heading of a table, as in `|---|---:|`.
fn is_delimiter(line: &str) -> bool {
    let line = line.trim();
    line.starts_with('|') && line.contains('-') && line.chars().all(|letter| "|-: ".contains(letter))
}

/// Returns the rows of a page that belong to no table: a table begins with a heading and a delimiter, and ends at the first
/// line that is no row. The lines count from 1.
fn rows_without_a_heading(page: &str) -> Vec<usize> {
    let lines: Vec<&str> = page.lines().map(str::trim).collect();
    let (mut in_code, mut in_table, mut found) = (false, false, Vec::new());
    for (index, line) in lines.iter().enumerate() {
        in_code ^= line.starts_with("```");
        let is_row = line.starts_with('|') && !in_code;
        if is_row && !in_table && !lines.get(index + 1).is_some_and(|next| is_delimiter(next)) {
            found.push(index + 1);
        }
        in_table = is_row;
    }
    found
}

#[test]
fn each_table_of_the_documentation_has_a_heading_and_no_blank_line_cuts_it_in_two() {
    let mut faults = Vec::new();
    let readme = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "traces/README.md"];
    let files = pages(&root().join("docs")).into_iter().chain(readme.map(|name| root().join(name)));
    for file in files {
        let rows = rows_without_a_heading(&fs::read_to_string(&file).unwrap());
        faults.extend(rows.iter().map(|line| format!("{}:{line}", file.display())));
    }
    assert!(faults.is_empty(), "these rows are below no heading:\n{}", faults.join("\n"));
}

#[test]
fn rows_below_a_blank_line_have_no_heading() {
    assert_eq!(rows_without_a_heading("| a | b |\n|---|--:|\n| 1 | 2 |\n\ntext\n"), [0; 0]);
    assert_eq!(rows_without_a_heading("| a |\n|---|\n| 1 |\n\n| 2 |\n| 3 |\n"), [5]);
    assert_eq!(rows_without_a_heading("```text\n| 1 |\n```\n- | a |\n  | b |\n  |---|\n"), [0; 0]);
}

/// Returns the places in the code that a text names: files and folders, and items with their module.
fn places(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !(letter.is_alphanumeric() || "_/.:".contains(letter)));
    let words = words.map(|word| word.trim_end_matches(['.', ':']));
    words.filter(|word| word.contains('/') || word.contains("::") || word.ends_with(".rs"))
}

/// Returns true if a place exists: a path from the root, a file of that name, or an item of a module.
fn exists(place: &str, sources: &[(PathBuf, String)]) -> bool {
    let Some((module, item)) = place.rsplit_once("::") else {
        return root().join(place).exists() || sources.iter().any(|(path, _)| path.ends_with(place));
    };
    let module = module.rsplit("::").next().unwrap_or(module);
    let declares = |text: &str| {
        ["fn", "struct", "enum", "trait", "type", "mod", "const"].iter().any(|kind| {
            text.split(&format!("{kind} {item}")).skip(1).any(|rest| !rest.starts_with(char::is_alphanumeric))
        })
    };
    sources.iter().any(|(path, text)| path.file_stem().is_some_and(|stem| stem == module) && declares(text))
}

#[test]
fn each_place_that_clippy_recommends_exists() {
    let sources: Vec<(PathBuf, String)> = HEADERS
        .iter()
        .flat_map(|folder| rust_files(&root().join(folder)))
        .map(|path| (path.clone(), fs::read_to_string(&path).unwrap()))
        .collect();
    let rules = fs::read_to_string(root().join("clippy.toml")).unwrap();
    let reasons = rules.split("reason = \"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default());
    let named: BTreeSet<&str> = reasons.flat_map(places).collect();
    assert!(named.contains("engine/src/runtime/clock.rs") && named.contains("controller/"), "{named:?}");
    let missing: Vec<&&str> = named.iter().filter(|place| !exists(place, &sources)).collect();
    assert!(missing.is_empty(), "clippy.toml names what is nowhere: {missing:?}");
    assert!(exists("writer::Writer", &sources));
    for nowhere in ["table::sorted", "engine/src/clock.rs", "nowhere.rs"] {
        assert!(!exists(nowhere, &sources), "{nowhere}");
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
