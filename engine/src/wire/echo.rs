//! Shortens texts of a request for error messages, so that an answer is never as long as its request.

use std::borrow::Cow;

/// The most bytes of a text of a request that an error repeats.
const ECHO: usize = 200;

/// Returns the first [`ECHO`] bytes of a text, with "…" in place of the rest.
pub(crate) fn echo(text: &str) -> Cow<'_, str> {
    cut(text, ECHO)
}

/// Returns the first bytes of a text, with "…" in place of the rest.
pub(crate) fn cut(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= bytes {
        return text.into();
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes)]).into()
}

/// Returns the same in quotes, with what cannot be printed escaped and then cut again.
pub(crate) fn quoted(text: &str) -> String {
    let escaped = format!("{:?}", echo(text));
    format!("\"{}\"", echo(&escaped[1..escaped.len() - 1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_letters() {
        assert_eq!(echo("short"), "short");
        assert_eq!(echo(&"a".repeat(200)), "a".repeat(200));
        assert_eq!(echo(&"a".repeat(60_000)), format!("{}…", "a".repeat(200)));
        assert_eq!(echo(&"€".repeat(100)), format!("{}…", "€".repeat(66)));
        assert_eq!(quoted("a\0"), r#""a\0""#);
        assert_eq!(quoted(&"a".repeat(201)), format!("\"{}…\"", "a".repeat(200)));
        assert!(quoted(&"\u{1}".repeat(60_000)).len() < 210);
    }
}
