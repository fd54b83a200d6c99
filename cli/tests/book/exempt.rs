//! docs/exempt.txt: the blocks that are not run here, and why.

use crate::pages::{self, Block};
use std::fs;

#[derive(Debug)]
pub(crate) struct Exempt {
    pub(crate) page: String,
    /// How the block begins; `*` for all blocks of the page.
    pub(crate) begins: String,
    pub(crate) reason: String,
}

impl Exempt {
    pub(crate) fn covers(&self, page: &str, block: &Block) -> bool {
        self.page == page && (self.begins == "*" || block.text.starts_with(&self.begins))
    }

    /// The file that runs these commands in our place, where the reason names one: "run by PATH".
    pub(crate) fn runner(&self) -> Option<&str> {
        self.reason.strip_prefix("run by ")?.split([',', ' ', ':']).next()
    }
}

/// # Panics
/// Where a line is not `PAGE | BEGINNING | REASON`.
pub(crate) fn list() -> Vec<Exempt> {
    let text = fs::read_to_string(pages::root().join("docs/exempt.txt")).expect("docs/exempt.txt");
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let read = |line: &str| {
        let parts: Vec<&str> = line.splitn(3, " | ").map(str::trim).collect();
        let [page, begins, reason] = parts[..] else {
            panic!("docs/exempt.txt: `{line}` is not PAGE | BEGINNING | REASON")
        };
        assert!(!begins.is_empty() && reason.len() > 10, "docs/exempt.txt: `{line}` says too little");
        Exempt { page: page.to_owned(), begins: begins.to_owned(), reason: reason.to_owned() }
    };
    lines.map(read).collect()
}
