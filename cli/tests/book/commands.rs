//! Every `sh` block of every page is run, page by page, and those of the book in its order, but those of docs/exempt.txt.

use crate::pages::{self, Block, Page};
use crate::script::Commands;
use crate::{exempt, links, script, shown};
use std::collections::BTreeMap;
use std::thread;

/// What a fence may say; of these only `sh` is for a shell.
const LANGUAGES: [&str; 9] = ["sh", "text", "yaml", "toml", "json", "rust", "proto", "promql", "sql"];

fn commands(page: &Page) -> Vec<Block> {
    page.blocks().into_iter().filter(|block| block.language == "sh").collect()
}

/// One page alone, as `KUBEBID_PAGE=docs/drills.md cargo test -p kubebid --test book -- commands --nocapture`.
#[expect(clippy::disallowed_methods, reason = "which page its author works on")]
fn asked_for() -> Option<String> {
    std::env::var("KUBEBID_PAGE").ok()
}

/// The pages that have commands to run, with those.
fn to_run() -> Vec<Commands> {
    let exempt = exempt::list();
    let mut pages = Vec::new();
    for page in pages::all() {
        let mut blocks = commands(&page);
        blocks.retain(|block| !exempt.iter().any(|exempt| exempt.covers(&page.path, block)));
        if !blocks.is_empty() {
            pages.push((page.path, blocks));
        }
    }
    pages
}

#[test]
fn the_readme_and_the_book_can_be_followed_in_order() {
    if asked_for().is_some() {
        return;
    }
    let mut pages: BTreeMap<String, Commands> =
        to_run().into_iter().map(|page| (page.0.clone(), page)).collect();
    let order = std::iter::once("README.md".to_owned()).chain(links::chapters());
    let pages: Vec<Commands> = order.filter_map(|path| pages.remove(&path)).collect();
    assert!(pages.len() > 8 && pages[0].0 == "README.md" && pages[1].0 == "docs/install.md");
    let outcome = script::run_in_order(&pages);
    assert!(outcome.worked, "the pages in the order of the book stopped here:\n{}", outcome.last());
    println!("{} pages in order, {:.0} s", pages.len(), outcome.took.as_secs_f64());
}

/// A reader may have the market of the quick start open beside any page, and two pages at a time.
#[test]
fn each_page_has_ports_of_its_own() {
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for page in to_run() {
        for port in page.1.iter().flat_map(script::ports) {
            let usual = script::DEFAULTS.contains(&port.as_str());
            assert!(
                usual == script::starts_a_server(&page),
                "{}: {port}: the default ports are those of the market of the quick start, other pages name others",
                page.0
            );
            let other = owners.insert(port.clone(), page.0.clone()).filter(|other| *other != page.0);
            assert!(usual || other.is_none(), "{port} is used by {} and by {other:?}", page.0);
        }
    }
}

#[test]
fn every_command_of_every_page_works() {
    let only = asked_for();
    let mut pages = to_run();
    pages.retain(|(path, _)| only.as_ref().is_none_or(|only| path == only));
    assert!(!pages.is_empty(), "there are pages with commands");
    let outcomes: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = pages.iter().map(|page| scope.spawn(|| script::run(page))).collect();
        running.into_iter().map(|run| run.join().expect("a page was tried")).collect()
    });
    let all = pages::all();
    let (mut failed, mut missing) = (String::new(), Vec::new());
    for ((page, blocks), outcome) in pages.iter().zip(outcomes) {
        if outcome.worked {
            println!("{page}: {} blocks, {:.0} s", blocks.len(), outcome.took.as_secs_f64());
            let text = all.iter().find(|it| it.path == *page).expect("it was read before");
            if !shown::missing(text, &outcome).is_empty() {
                // A list follows the commands by a moment, and all pages at once are a lot: once more, alone.
                let again = script::run(&(page.clone(), blocks.clone()));
                missing.extend(shown::missing(text, &again));
            }
        } else {
            failed.push_str(&format!("\n{page} stopped here:\n{}", outcome.last()));
        }
        if only.is_some() {
            println!("{}", outcome.said);
        }
    }
    assert!(failed.is_empty(), "{failed}\nmend the block, or name it in docs/exempt.txt with a reason");
    let missing = missing.join("\n");
    assert!(missing.is_empty(), "lines of output that the commands before them do not print:\n{missing}");
}

#[test]
fn what_is_exempt_is_there() {
    let pages = pages::all();
    for exempt in exempt::list() {
        let page = pages.iter().find(|page| page.path == exempt.page);
        let page = page.unwrap_or_else(|| panic!("docs/exempt.txt: there is no page {}", exempt.page));
        let covered = commands(page).iter().filter(|block| exempt.covers(&page.path, block)).count();
        let (begins, page) = (&exempt.begins, &exempt.page);
        match begins.as_str() {
            "*" => assert!(covered > 0, "docs/exempt.txt: {page} has no command"),
            _ => assert_eq!(covered, 1, "docs/exempt.txt: blocks of {page} that begin with `{begins}`"),
        }
        if let Some(runner) = exempt.runner() {
            assert!(pages::root().join(runner).exists(), "docs/exempt.txt: {page}: there is no {runner}");
        }
    }
}

#[test]
fn every_block_says_what_it_is() {
    for page in pages::all() {
        for block in page.blocks() {
            assert!(
                LANGUAGES.contains(&block.language.as_str()),
                "{}:{}: `{}` is not one of {LANGUAGES:?}; commands are `sh`",
                page.path,
                block.line - 1,
                block.language
            );
        }
    }
}
