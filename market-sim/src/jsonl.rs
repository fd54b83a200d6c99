//! Commands and answers as JSON lines: reads a command from each line, applies it, and prints the answer.

mod answers;
mod format;
mod parse;
mod schema;
mod unique;

pub use answers::{format_answer, format_events};
pub use format::format_command;
pub use parse::{BadCommand, parse_command};
pub(crate) use unique::parse_unique;

use kubebid_core::Auction;
use kubebid_report::text::printable_json;
use std::fmt;
use std::io::{self, BufRead, ErrorKind, Read as _, Write};

/// The reason for which a run ended before its input did.
#[derive(Debug)]
pub enum PlayError {
    /// The input could not be read.
    Read(io::Error),
    /// An answer could not be written.
    Write(io::Error),
    /// A line was no command.
    BadLine {
        /// Number of the line, from 1.
        line: u64,
        /// The error in it.
        reason: BadCommand,
    },
}

impl fmt::Display for PlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlayError::Read(fault) => write!(f, "cannot read commands: {fault}"),
            PlayError::Write(fault) => write!(f, "cannot write answers: {fault}"),
            PlayError::BadLine { line, reason } => write!(f, "line {line}: {reason}"),
        }
    }
}

impl std::error::Error for PlayError {}

/// The content of a printed answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrintDetail {
    /// The events of the command, and how the whole market stands afterwards.
    Everything,
    /// The events only: an answer is as long as what happened, however large the market is.
    Events,
}

/// The longest line, in KiB.
const LINE_KILOBYTES_MAX: u64 = 1024;

/// Reads the next line into `line`. Returns false if there is none.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let most = LINE_KILOBYTES_MAX << 10;
    Ok(input.take(most + 1).read_until(b'\n', line)? > 0)
}

/// Returns the text of a line without its end.
fn text_of(line: &[u8]) -> Result<&str, BadCommand> {
    let bad = |message: String| BadCommand { field: None, message };
    if line.len() as u64 > LINE_KILOBYTES_MAX << 10 {
        return Err(bad(format!("it is longer than {LINE_KILOBYTES_MAX} KiB")));
    }
    let text = std::str::from_utf8(line);
    let text = text.map_err(|error| bad(format!("byte {} is not UTF-8", error.valid_up_to() + 1)))?;
    Ok(text.trim_end_matches(['\n', '\r']))
}

/// Answers each line of `input` on a line of `output`. Empty lines are passed over. If the reader of the
/// answers goes away, the run ends without an error.
pub fn play(
    mut input: impl BufRead,
    mut output: impl Write,
    auction: &mut dyn Auction,
    shown: PrintDetail,
) -> Result<(), PlayError> {
    let (mut line, mut number) = (Vec::new(), 0);
    while read_line(&mut input, &mut line).map_err(PlayError::Read)? {
        number += 1;
        let bad_line = |reason| PlayError::BadLine { line: number, reason };
        let text = text_of(&line).map_err(bad_line)?;
        if text.trim().is_empty() {
            continue;
        }
        let command = parse_command(text).map_err(bad_line)?;
        let answer = auction.apply(&command);
        let text = match shown {
            PrintDetail::Everything => format_answer(&answer, &auction.dump(), auction.names()),
            PrintDetail::Events => format_events(&answer, auction.names()),
        };
        match writeln!(output, "{}", printable_json(&text)) {
            Err(fault) if fault.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(PlayError::Write)?,
        }
    }
    output.flush().map_err(PlayError::Write)
}
