//! Page sizes and page tokens of lists, and the bounds of pages and frames.

use super::status::ApiError;
use prost::Message;
use std::fmt::Display;
use std::str::FromStr;

const DEFAULT: u32 = 100;
const MOST: u32 = 1000;
/// The most bytes of the entries of a page or a frame, as protobuf. An entry that is larger stands alone. A client of
/// gRPC refuses a message of more than 4 MiB unless it is told otherwise.
const MOST_BYTES: usize = 1 << 20;

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
    // No key has control characters, and PostgreSQL takes no NUL in a text.
    let key = page_token.strip_prefix('p').filter(|key| !key.contains(char::is_control));
    let parsed = key.and_then(|key| key.parse().ok());
    parsed.map(Some).ok_or_else(|| ApiError::bad_field("page_token", "is not of a page before"))
}

/// Returns the `next_page_token` of a page that ends with `last`.
pub(crate) fn token(last: impl Display) -> String {
    format!("p{last}")
}

/// Drops the rows beyond `size`, which were read to see if more follow. Returns the key of the last row that stays if
/// more follow.
pub(crate) fn truncate<T, K>(rows: &mut Vec<T>, size: u32, key: impl Fn(&T) -> K) -> Option<K> {
    let more_follow = rows.len() > size as usize;
    rows.truncate(size as usize);
    rows.last().map(key).filter(|_| more_follow)
}

/// Returns the entries for which one page has room, and the token of the next page, which is empty if there is none.
/// The arguments are those of [`fill`].
pub(crate) fn fit<K: Display, M: Message>(
    found: impl IntoIterator<Item = (K, M)>,
    end: Option<K>,
) -> (Vec<M>, String) {
    let (entries, end) = fill(found, end);
    (entries, end.map(token).unwrap_or_default())
}

/// Returns the entries for which one page has room, and the key with which the page ends, if more follow. `found` has
/// each entry with its key. `end` is that key if the page has room for all of them.
pub(crate) fn fill<K, M: Message>(
    found: impl IntoIterator<Item = (K, M)>,
    end: Option<K>,
) -> (Vec<M>, Option<K>) {
    let (mut room, mut entries, mut last) = (Room::new(usize::MAX), Vec::new(), None);
    for (key, entry) in found {
        if !room.admits(entry.encoded_len()) {
            return (entries, last);
        }
        entries.push(entry);
        last = Some(key);
    }
    (entries, end)
}

/// The room that is left in a page or a frame.
#[derive(Debug)]
pub(crate) struct Room {
    entries: usize,
    bytes: usize,
    is_empty: bool,
    is_full: bool,
}

impl Room {
    /// Returns the room of an empty page of `entries`, at least one.
    pub(crate) fn new(entries: usize) -> Room {
        Room { entries, bytes: MOST_BYTES, is_empty: true, is_full: false }
    }

    /// Takes the room of an entry whose message has `length` bytes. Returns false if it does not fit. The first entry
    /// always fits.
    pub(crate) fn admits(&mut self, length: usize) -> bool {
        // The number of the field takes one byte.
        self.admits_bytes(1 + prost::length_delimiter_len(length) + length)
    }

    /// Works like [`Room::admits`] for an entry that has `bytes` bytes together with its field number and its length.
    fn admits_bytes(&mut self, bytes: usize) -> bool {
        let fits = self.is_empty || self.entries > 0 && bytes <= self.bytes;
        if fits {
            self.entries = self.entries.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(bytes);
            self.is_empty = false;
        }
        self.is_full |= !fits || self.entries == 0 || self.bytes == 0;
        fits
    }

    /// Takes the room of as many consecutive entries as fit, and returns their number. `begins` has the byte at which
    /// each of them begins in a frame, and the end of the last one.
    pub(crate) fn admits_run(&mut self, begins: &[usize]) -> usize {
        let (Some(first), entries) = (begins.first(), begins.len().saturating_sub(1)) else { return 0 };
        let all = begins[entries] - first;
        if entries <= self.entries && all <= self.bytes {
            self.entries -= entries;
            self.bytes -= all;
            self.is_empty &= entries == 0;
            self.is_full |= self.entries == 0 || self.bytes == 0;
            return entries;
        }
        begins.windows(2).take_while(|entry| self.admits_bytes(entry[1] - entry[0])).count()
    }

    /// Returns true if nothing is taken yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Returns true if no more entries fit, or if one did not fit.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }
}

/// Returns entries in frames, in order: at least one frame, none larger than it may be.
pub(crate) fn frames<M: Message>(entries: impl IntoIterator<Item = M>) -> Vec<Vec<M>> {
    let (mut frames, mut room) = (vec![Vec::new()], Room::new(usize::MAX));
    for entry in entries {
        if !room.admits(entry.encoded_len()) {
            room = Room::new(usize::MAX);
            room.admits(entry.encoded_len());
            frames.push(Vec::new());
        }
        frames.last_mut().expect("there is a frame").push(entry);
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of entries in a page of entries of these sizes, and the token of the next page.
    fn page(sizes: &[usize], end: Option<usize>) -> (usize, String) {
        let (entries, next) = fit(sizes.iter().map(|size| "x".repeat(*size)).enumerate(), end);
        (entries.len(), next)
    }

    #[test]
    fn a_page_ends_with_its_rows_or_its_bytes() {
        let mut rows = vec![7, 8, 9];
        assert_eq!((truncate(&mut rows, 3, |row| *row), rows.len()), (None, 3));
        assert_eq!((truncate(&mut rows, 2, |row| *row), rows.len()), (Some(8), 2));
        let kib = 1 << 10;
        assert_eq!(page(&[], None), (0, String::new()));
        assert_eq!(page(&[], Some(5)), (0, "p5".to_owned()));
        assert_eq!(page(&[400 * kib, 600 * kib], None), (2, String::new()));
        assert_eq!(page(&[400 * kib, 600 * kib], Some(1)), (2, "p1".to_owned()));
        assert_eq!(page(&[400 * kib, 400 * kib, 400 * kib], Some(9)), (2, "p1".to_owned()));
    }

    #[test]
    fn an_entry_that_is_larger_than_a_page_stands_alone() {
        assert_eq!(page(&[2 * MOST_BYTES], None), (1, String::new()));
        assert_eq!(page(&[2 * MOST_BYTES, 1], None), (1, "p0".to_owned()));
        assert_eq!(page(&[1, 2 * MOST_BYTES], None), (1, "p0".to_owned()));
    }

    #[test]
    fn frames_have_all_entries_in_order() {
        let sizes = [1, MOST_BYTES, 1, 1, MOST_BYTES / 2, MOST_BYTES / 2, MOST_BYTES];
        let sizes_of = |frame: Vec<String>| frame.iter().map(String::len).collect::<Vec<_>>();
        let framed: Vec<_> = frames(sizes.map(|size| "x".repeat(size))).into_iter().map(sizes_of).collect();
        let half = MOST_BYTES / 2;
        assert_eq!(framed, [vec![1], vec![MOST_BYTES], vec![1, 1, half], vec![half], vec![MOST_BYTES]]);
        assert_eq!(frames(Vec::<String>::new()), [Vec::<String>::new()]);
    }

    #[test]
    fn a_run_of_entries_fits_as_its_entries_do_one_by_one() {
        let begins: Vec<usize> = (0..=10).map(|entry| entry * (MOST_BYTES / 4)).collect();
        for most in [1, 3, 4, 5, 20] {
            let (mut room, mut one_by_one) = (Room::new(most), Room::new(most));
            let count = begins.windows(2).take_while(|entry| one_by_one.admits_bytes(entry[1] - entry[0]));
            assert_eq!(room.admits_run(&begins), count.count());
            assert_eq!(format!("{room:?}"), format!("{one_by_one:?}"));
            assert!(room.is_full());
        }
        let mut room = Room::new(20);
        assert_eq!((room.admits_run(&begins[..1]), room.is_empty()), (0, true));
        assert_eq!((room.admits_run(&begins[..4]), room.is_empty(), room.is_full()), (3, false, false));
        assert_eq!((room.admits_run(&begins[3..6]), room.is_full()), (1, true));
    }
}
