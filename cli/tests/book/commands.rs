//! Every `sh` block of every page is run, page by page, but those of docs/exempt.txt.

use crate::pages::{self, Block, Page};
use crate::{exempt, script};
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

#[test]
fn every_command_of_every_page_works() {
    let (exempt, only) = (exempt::list(), asked_for());
    let mut pages = Vec::new();
    for page in pages::all().into_iter().filter(|page| only.as_ref().is_none_or(|only| page.path == *only)) {
        let mut blocks = commands(&page);
        blocks.retain(|block| !exempt.iter().any(|exempt| exempt.covers(&page.path, block)));
        if !blocks.is_empty() {
            pages.push((page.path, blocks));
        }
    }
    assert!(!pages.is_empty(), "there are pages with commands");
    let outcomes: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> =
            pages.iter().map(|(page, blocks)| scope.spawn(|| script::run(page, blocks))).collect();
        running.into_iter().map(|run| run.join().expect("a page was tried")).collect()
    });
    let mut failed = String::new();
    for ((page, blocks), outcome) in pages.iter().zip(outcomes) {
        if outcome.worked {
            println!("{page}: {} blocks, {:.0} s", blocks.len(), outcome.took.as_secs_f64());
        } else {
            failed.push_str(&format!("\n{page} stopped here:\n{}", outcome.last()));
        }
        if only.is_some() {
            println!("{}", outcome.said);
        }
    }
    assert!(failed.is_empty(), "{failed}\nmend the block, or name it in docs/exempt.txt with a reason");
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
