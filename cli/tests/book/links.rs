//! Links lead somewhere, in the project and in the book that is built from docs/, which has every page of it.

use crate::pages::{self, Page};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// The targets of `[…](target)` in a page, with the lines they are in.
fn targets(page: &Page) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    for (line, text) in page.prose() {
        let text = without_code(text);
        for after in text.split("](").skip(1) {
            let target = after.split(')').next().unwrap_or_default();
            targets.push((line, target.split(' ').next().unwrap_or_default().to_owned()));
        }
    }
    targets
}

/// The pages of docs/SUMMARY.md, in its order.
pub(crate) fn chapters() -> Vec<String> {
    let pages = pages::all();
    let summary = pages.iter().find(|page| page.path == "docs/SUMMARY.md").expect("docs/SUMMARY.md");
    targets(summary).iter().map(|(_, target)| resolved(Path::new("docs"), target)).collect()
}

/// A line without what stands between backquotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("")
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(page: &Page) -> BTreeSet<String> {
    let mut times = BTreeMap::new();
    let headings = page.prose().into_iter().filter_map(|(_, line)| {
        let text = line.trim_start_matches('#');
        (text.len() < line.len() && text.starts_with(' ')).then(|| text.trim().to_lowercase())
    });
    headings
        .map(|heading| {
            let letters = heading.chars().map(|letter| if letter == ' ' { '-' } else { letter });
            let slug: String =
                letters.filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_')).collect();
            let before = times.entry(slug.clone()).or_insert(0);
            *before += 1;
            if *before == 1 { slug } else { format!("{slug}-{}", *before - 1) }
        })
        .collect()
}

/// `docs/decisions` and `../mechanism.md` as `docs/mechanism.md`.
fn resolved(folder: &Path, target: &str) -> String {
    let mut path = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{target} leaves the project"),
            Component::CurDir => {}
            part @ (Component::Normal(_) | Component::RootDir | Component::Prefix(_)) => path.push(part),
        }
    }
    path.to_string_lossy().into_owned()
}

#[test]
fn every_link_within_the_project_leads_somewhere() {
    let pages = pages::all();
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        pages.iter().map(|page| (page.path.as_str(), anchors(page))).collect();
    let mut broken = Vec::new();
    for page in &pages {
        let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for (line, target) in targets(page) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { page.path.clone() } else { resolved(folder, file) };
            let there = pages::root().join(&file).exists();
            let there =
                there && (anchor.is_empty() || anchors.get(&*file).is_none_or(|all| all.contains(anchor)));
            if !there {
                broken.push(format!("{}:{line}: {target}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// The book has the pages and pictures of docs/ and nothing else; a file elsewhere is named by its path, as code.
#[test]
fn pages_of_the_book_link_to_what_the_book_has() {
    let mut out = Vec::new();
    for page in pages::all().iter().filter(|page| page.path.starts_with("docs/")) {
        let folder = Path::new(&page.path).parent().expect("docs");
        for (line, target) in targets(page) {
            let (file, _) = target.split_once('#').unwrap_or((&target, ""));
            let within = target.contains("://") || file.is_empty() || {
                let file = resolved(folder, file);
                file.starts_with("docs/") && pages::root().join(file).is_file()
            };
            if !within {
                out.push(format!("{}:{line}: {target}", page.path));
            }
        }
    }
    assert!(out.is_empty(), "links that lead out of the book:\n{}", out.join("\n"));
}

/// Decisions are of their day.
#[test]
fn files_that_pages_name_are_there() {
    let root = pages::root();
    let mut missing = Vec::new();
    for page in pages::all().iter().filter(|page| !page.path.starts_with("docs/decisions/")) {
        for (line, text) in page.prose() {
            let code = text.split('`').skip(1).step_by(2);
            let paths = code.filter_map(|code| code.split(' ').next()).filter(|path| path.contains('/'));
            for path in paths {
                let (folder, _) = path.split_once('/').expect("it has a folder");
                let ours = !["", "target"].contains(&folder) && root.join(folder).is_dir();
                if ours && !root.join(path).exists() {
                    missing.push(format!("{}:{line}: {path}", page.path));
                }
            }
        }
    }
    assert!(missing.is_empty(), "files that are not there:\n{}", missing.join("\n"));
}

#[test]
fn the_book_has_every_page_of_docs_once() {
    let pages = pages::all();
    let mut listed = chapters();
    listed.sort();
    let there = pages.iter().map(|page| page.path.as_str());
    let there: Vec<&str> =
        there.filter(|path| path.starts_with("docs/") && *path != "docs/SUMMARY.md").collect();
    assert_eq!(listed, there, "docs/SUMMARY.md, and the pages of docs/");
}
