//! The words of one line of a story, and the numbers in them.

use kubebid_core::units::Micros;
use std::fmt::Debug;
use std::str::FromStr;

pub(super) struct Words<'a> {
    line: &'a str,
    words: Vec<&'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn new(line: &'a str) -> Words<'a> {
        Words { line, words: line.split_whitespace().collect() }
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        (!self.words.is_empty()).then(|| self.words.remove(0))
    }

    pub(super) fn must(&mut self) -> &'a str {
        self.next().unwrap_or_else(|| panic!("{:?} is too short", self.line))
    }

    pub(super) fn number<T: FromStr<Err: Debug>>(&mut self) -> T {
        number(self.must())
    }

    /// Takes an amount in dollars, which may be negative, as micro-dollars.
    pub(super) fn amount(&mut self) -> i64 {
        let text = self.must();
        let (sign, dollars_of) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
        sign * i64::try_from(dollars(dollars_of)).expect("an amount")
    }

    /// Takes the first word, if it contains this character.
    pub(super) fn name_with(&mut self, character: char) -> Option<&'a str> {
        let named = self.words.first().is_some_and(|word| word.contains(character) && !word.contains('='));
        named.then(|| self.must())
    }

    /// Takes `word` and what follows it.
    pub(super) fn after(&mut self, word: &str) -> Option<&'a str> {
        let at = self.words.iter().position(|w| *w == word)?;
        self.words.remove(at);
        assert!(at < self.words.len(), "{:?}: nothing behind {word:?}", self.line);
        Some(self.words.remove(at))
    }

    pub(super) fn flag(&mut self, word: &str) -> bool {
        let at = self.words.iter().position(|w| *w == word);
        at.map(|at| self.words.remove(at)).is_some()
    }

    /// Takes the first word, if it is `name=value`.
    pub(super) fn pair(&mut self) -> Option<(&'a str, &'a str)> {
        let pair = self.words.first()?.split_once('=')?;
        self.words.remove(0);
        Some(pair)
    }

    /// Takes `at 900s` or `+300s` at the beginning.
    pub(super) fn time(&mut self, now: Micros) -> Micros {
        match self.words.first() {
            Some(&"at") => span(self.after("at").expect("just seen")),
            Some(word) if word.starts_with('+') => {
                let later = span(&word[1..]);
                self.words.remove(0);
                now.after(later)
            }
            Some(_) | None => now,
        }
    }

    pub(super) fn end(self) {
        assert!(self.words.is_empty(), "{:?}: what is {:?}?", self.line, self.words);
    }
}

pub(super) fn number<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap_or_else(|e| panic!("{text:?} is not a number: {e:?}"))
}

/// Parses a time such as `300s` or `0.000001s`.
pub(super) fn span(text: &str) -> Micros {
    let seconds = text.strip_suffix('s').unwrap_or_else(|| panic!("{text:?} is not a time like 300s"));
    Micros(dollars(seconds))
}

/// Parses a decimal number as millionths: dollars as micro-dollars, seconds as microseconds.
pub(super) fn dollars(text: &str) -> u64 {
    let (whole, parts) = text.split_once('.').unwrap_or((text, ""));
    assert!(parts.len() <= 6, "{text:?} has more than six decimals");
    number::<u64>(whole) * 1_000_000 + number::<u64>(&format!("{parts:0<6}"))
}

/// Parses the value of a rule: `60s`, `0.01` dollars, or a plain number. Returns None for a word.
pub(super) fn measure(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('s').unwrap_or(text);
    if !digits.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return None;
    }
    Some(if text.ends_with('s') || text.contains('.') { dollars(digits) } else { number(digits) })
}

/// Formats millionths as a decimal number with at least `decimals` decimals.
pub(super) fn decimal(millionths: u128, decimals: usize) -> String {
    let (whole, parts) = (millionths / 1_000_000, millionths % 1_000_000);
    let parts = format!("{parts:06}");
    let parts = parts.trim_end_matches('0');
    if parts.is_empty() && decimals == 0 { whole.to_string() } else { format!("{whole}.{parts:0<decimals$}") }
}
