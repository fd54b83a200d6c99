//! Cursors: opaque texts that name a place in one journal.

use std::fmt;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

/// A place after one event, or after all events of a command. Later places compare as greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// The journal that the place is in.
    pub journal: Uuid,
    /// The number of the command.
    pub seq: u64,
    /// The index of the event within its command. [`Cursor::ALL`] is the place after the last one.
    pub index: u32,
}

/// An error: the text is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no cursor")]
pub struct NotACursor;

const BYTES: usize = 30;
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Cursor {
    /// The index after all events of a command.
    pub const ALL: u32 = u32::MAX;

    /// Returns the cursor after this command and all before it.
    pub fn after(journal: Uuid, seq: u64) -> Cursor {
        Cursor { journal, seq, index: Cursor::ALL }
    }

    /// Reads a cursor from its text.
    pub fn parse(text: &str) -> Result<Cursor, NotACursor> {
        let bytes = decode(text.as_bytes()).ok_or(NotACursor)?;
        let (body, check) = bytes.split_at(BYTES - 2);
        if check != checksum(body) {
            return Err(NotACursor);
        }
        let part = |from: usize, to: usize| &body[from..to];
        Ok(Cursor {
            journal: Uuid::from_slice(part(0, 16)).expect("16 bytes"),
            seq: u64::from_be_bytes(part(16, 24).try_into().expect("8 bytes")),
            index: u32::from_be_bytes(part(24, 28).try_into().expect("4 bytes")),
        })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; BYTES];
        bytes[..16].copy_from_slice(self.journal.as_bytes());
        bytes[16..24].copy_from_slice(&self.seq.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.index.to_be_bytes());
        let check = checksum(&bytes[..28]);
        bytes[28..].copy_from_slice(&check);
        for three in bytes.chunks(3) {
            let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
            for shift in [18, 12, 6, 0] {
                let letter = LETTERS[(bits >> shift & 63) as usize];
                f.write_str(char::from(letter).encode_utf8(&mut [0; 4]))?;
            }
        }
        Ok(())
    }
}

/// Returns a checksum, so that a cursor that was cut or retyped is not taken for one of another journal.
fn checksum(body: &[u8]) -> [u8; 2] {
    (xxh3_64(body) as u16).to_be_bytes()
}

fn decode(text: &[u8]) -> Option<[u8; BYTES]> {
    if text.len() != BYTES / 3 * 4 {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (three, four) in bytes.chunks_mut(3).zip(text.chunks(4)) {
        let mut bits = 0u32;
        for letter in four {
            let six = LETTERS.iter().position(|known| known == letter)?;
            bits = bits << 6 | six as u32;
        }
        three.copy_from_slice(&bits.to_be_bytes()[1..]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_forty_letters_and_comes_back() {
        let journal = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        for (seq, index) in [(0, 0), (7, 3), (u64::MAX, Cursor::ALL)] {
            let cursor = Cursor { journal, seq, index };
            let text = cursor.to_string();
            assert_eq!(text.len(), 40);
            assert_eq!(Cursor::parse(&text), Ok(cursor));
        }
    }

    #[test]
    fn a_text_that_was_cut_or_retyped_is_no_cursor() {
        let text = Cursor::after(Uuid::from_u128(1), 9).to_string();
        assert_eq!(Cursor::parse(&text[..39]), Err(NotACursor));
        assert_eq!(Cursor::parse(&text.replace('A', "B")), Err(NotACursor));
        assert_eq!(Cursor::parse("ü"), Err(NotACursor));
        assert_eq!(Cursor::parse(""), Err(NotACursor));
    }
}
