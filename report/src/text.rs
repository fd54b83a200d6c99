//! Text that other people wrote, made safe for a terminal: nothing in it moves the cursor, changes the direction of
//! writing or hides.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Characters that take no room and are neither controls nor of the category Cf: fillers, joiners and selectors of
/// variants. With the category Cf they are Unicode's `Default_Ignorable_Code_Point`.
const INVISIBLE: [std::ops::RangeInclusive<char>; 9] = [
    '\u{34f}'..='\u{34f}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{2065}'..='\u{2065}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{e0000}'..='\u{e0fff}',
];

/// Returns true for a character that a terminal must not get from others: controls (C0, C1 and U+007F), format
/// controls (the category Cf, with those of the direction of writing and of no width), separators of lines and
/// paragraphs, and characters that nobody sees.
pub fn is_hidden(letter: char) -> bool {
    // Nothing between a space and a tilde is, which is nearly all text.
    if (' '..='~').contains(&letter) {
        return false;
    }
    let is_control = matches!(
        letter.general_category(),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
    );
    is_control || INVISIBLE.iter().any(|range| range.contains(&letter))
}

/// Returns a text with each [hidden](is_hidden) character as its code, as in `\u{202e}`.
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_hidden(letter) {
            safe.extend(letter.escape_unicode());
        } else {
            safe.push(letter);
        }
    }
    safe
}

/// Returns a text of several lines in the same way, with its line feeds.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// Returns JSON with hidden characters in its strings as JSON writes them, so that it means the same. Between strings, JSON
/// has none but line feeds.
pub fn printable_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter == '\n' || !is_hidden(letter) {
            safe.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            safe.push_str(&format!("\\u{unit:04x}"));
        }
    }
    safe
}

/// Returns JSON as YAML, which has all of JSON, with hidden characters in its strings as YAML writes them.
pub fn printable_yaml(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter as u32 {
            _ if letter == '\n' || !is_hidden(letter) => safe.push(letter),
            code @ 0..=0xffff => safe.push_str(&format!("\\u{code:04x}")),
            code => safe.push_str(&format!("\\U{code:08x}")),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = char> {
        '\0'..=char::MAX
    }

    #[test]
    fn no_control_and_no_format_character_is_printed() {
        let mut hidden = 0;
        for letter in all() {
            let is_control = letter.is_control() || letter.general_category() == GeneralCategory::Format;
            if is_control || matches!(letter, '\u{2028}' | '\u{2029}') {
                let safe = printable(&format!("a{letter}b"));
                assert_eq!(safe, format!("a\\u{{{:x}}}b", letter as u32));
                assert!(safe.is_ascii());
                hidden += 1;
            }
        }
        // 65 controls, 2 separators, and Unicode 16 has 170 format characters.
        assert!(hidden >= 65 + 2 + 170, "{hidden}");
    }

    #[test]
    fn what_is_said_to_hide_or_turn_text_is_among_them() {
        let controls = ('\0'..='\u{1f}').chain('\u{7f}'..='\u{9f}');
        let bidi = ['\u{61c}', '\u{200e}', '\u{200f}'].into_iter().chain('\u{202a}'..='\u{202e}');
        let isolates = '\u{2066}'..='\u{2069}';
        let widths =
            ['\u{ad}', '\u{34f}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{2060}', '\u{feff}', '\u{3164}'];
        let tags = '\u{e0001}'..='\u{e007f}';
        let selectors = ('\u{fe00}'..='\u{fe0f}').chain('\u{e0100}'..='\u{e01ef}');
        let all = controls.chain(bidi).chain(isolates).chain(widths).chain(tags).chain(selectors);
        for letter in all.chain(['\u{2028}', '\u{2029}', '\u{fff9}', '\u{1d173}']) {
            assert!(is_hidden(letter), "{letter:?}");
        }
    }

    #[test]
    fn letters_stay_as_they_are() {
        let text = "Größe, 東京, मुंबई, שלום, 😀 $1.00 – 50 %\u{a0}=x";
        assert_eq!(printable(text), text);
        assert_eq!(printable_lines("a\r\nb\u{202e}\n"), "a\\u{d}\nb\\u{202e}\n");
    }

    #[test]
    fn json_means_the_same() {
        let value = serde_json::json!({ "team\u{202e}": "a\u{9b}31m\u{e0041}b\n", "b": ["ok"] });
        let safe = printable_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(safe.is_ascii(), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }
}
