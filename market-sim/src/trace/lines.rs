//! The lines of a text, counted while it is read.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

/// The longest row, in KiB.
pub(super) const ROW_KILOBYTES_MAX: u64 = 1024;

/// A text that knows on which line its rows begin. The CSV reader passes over blank lines without a word, and counts no
/// line for the second half of CR LF.
pub(super) struct Lines {
    text: Box<dyn BufRead>,
    /// Bytes that were read, and the line of the next one.
    offset: u64,
    line: u64,
    /// Lines that are not blank and not passed: the place of the first byte, and the number.
    begun: VecDeque<(u64, u64)>,
    /// True until the line has a byte other than its end.
    is_blank: bool,
    after_return: bool,
    /// The place from which the present row is read.
    row: u64,
}

/// The error of a row that is too long.
#[derive(Debug, thiserror::Error)]
#[error("the row is too long")]
pub(super) struct RowTooLong;

impl Lines {
    pub(super) fn of(text: Box<dyn BufRead>) -> Lines {
        let begun = VecDeque::new();
        Lines { text, offset: 0, line: 1, begun, is_blank: true, after_return: false, row: 0 }
    }

    /// Begins a row at this place.
    pub(super) fn begin_row(&mut self, at: u64) {
        self.row = at;
    }

    /// Returns the line on which the row begins: the first one from there on that is not blank.
    pub(super) fn line_of_row(&mut self) -> u64 {
        while self.begun.front().is_some_and(|(begin, _)| *begin < self.row) {
            self.begun.pop_front();
        }
        self.begun.front().map_or(self.line, |(_, line)| *line)
    }

    fn count(&mut self, byte: u8) {
        match byte {
            b'\n' if self.after_return => {}
            b'\n' | b'\r' => {
                self.line += 1;
                self.is_blank = true;
            }
            _ if self.is_blank => {
                self.begun.push_back((self.offset, self.line));
                self.is_blank = false;
            }
            _ => {}
        }
        self.after_return = byte == b'\r';
        self.offset += 1;
    }
}

impl Read for Lines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.offset - self.row > ROW_KILOBYTES_MAX << 10 {
            return Err(io::Error::other(RowTooLong));
        }
        let count = self.text.read(buffer)?;
        buffer[..count].iter().for_each(|byte| self.count(*byte));
        Ok(count)
    }
}
