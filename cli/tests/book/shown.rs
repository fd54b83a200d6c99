//! The output that a page shows is what its commands print, but for numbers, times and what a number is part of.

use crate::pages::{Block, Page};
use crate::script::Outcome;
use kubebid_testkit::missing_lines;

/// Returns each output that a page shows, with the block of commands before it.
fn shown(page: &Page) -> Vec<(Block, Block)> {
    let blocks = page.blocks();
    let mut shown = Vec::new();
    for (commands, output) in blocks.iter().zip(blocks.iter().skip(1)) {
        // The closing and the opening fence, and an empty line or none.
        let lines_between = output.line - commands.line - commands.text.lines().count();
        if commands.language == "sh" && output.language == "text" && lines_between <= 3 {
            shown.push((commands.clone(), output.clone()));
        }
    }
    shown
}

/// Returns the lines of a page's outputs that the commands before them did not print.
pub(crate) fn missing(page: &Page, outcome: &Outcome) -> Vec<String> {
    let mut missing = Vec::new();
    for (commands, output) in shown(page) {
        let Some(said) = outcome.of(&page.path, commands.line) else { continue };
        for (number, line) in missing_lines(&output.text, said) {
            missing.push(format!("{}:{}: {line}", page.path, output.line + number));
        }
    }
    missing
}
