//! Compares an output that a page shows with what the commands before it print.

use std::collections::BTreeSet;

/// Returns the words of a line without those that another run has otherwise.
fn words(line: &str) -> Vec<&str> {
    let is_same =
        |word: &&str| word.chars().any(char::is_alphabetic) && !word.contains(|it: char| it.is_ascii_digit());
    line.split_whitespace().filter(is_same).collect()
}

/// Returns the lines of an output that were not printed, with their numbers from 0. Numbers, times and what a number is part
/// of may differ.
pub fn missing_lines<'a>(output: &'a str, printed: &str) -> Vec<(usize, &'a str)> {
    let printed: BTreeSet<_> = printed.lines().map(words).collect();
    let lines = output.lines().enumerate();
    lines.filter(|(_, line)| !words(line).is_empty() && !printed.contains(&words(line))).collect()
}
