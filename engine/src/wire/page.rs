//! Page sizes and page tokens of lists.

use super::status::ApiError;
use std::str::FromStr;

const DEFAULT: u32 = 100;
const MOST: u32 = 1000;

/// Returns the number of entries of a page. 0 stands for the default, and more than the most for the most.
pub(crate) fn size(page_size: u32) -> u32 {
    if page_size == 0 { DEFAULT } else { page_size.min(MOST) }
}

/// Returns the key with which the previous page ended. `page_token` is empty, or one that [`token`] has
/// made.
pub(crate) fn after<K: FromStr>(page_token: &str) -> Result<Option<K>, ApiError> {
    if page_token.is_empty() {
        return Ok(None);
    }
    let parsed = page_token.strip_prefix('p').and_then(|key| key.parse().ok());
    parsed.map(Some).ok_or_else(|| ApiError::bad_field("page_token", "is not of a page before"))
}

/// Returns the `next_page_token` of a page that ends with `last`.
pub(crate) fn token(last: impl std::fmt::Display) -> String {
    format!("p{last}")
}

/// Cuts off the entries beyond `size`, which were read to see if more follow. Returns the token of the
/// next page, or an empty text.
pub(crate) fn cut<T, K: std::fmt::Display>(entries: &mut Vec<T>, size: u32, key: impl Fn(&T) -> K) -> String {
    if entries.len() <= size as usize {
        return String::new();
    }
    entries.truncate(size as usize);
    entries.last().map(|last| token(key(last))).unwrap_or_default()
}
