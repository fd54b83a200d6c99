//! Commands and answers as JSON lines: reads a command from each line, applies it, and prints the answer.

mod answers;
mod format;
mod parse;
mod schema;

pub use answers::{format_answer, format_events};
pub use format::format_command;
pub use parse::{BadCommand, parse_command};

use kubebid_core::Auction;
use std::fmt;
use std::io::{self, BufRead, ErrorKind, Write};

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
            PlayError::Read(fault) => write!(f, "reading commands: {fault}"),
            PlayError::Write(fault) => write!(f, "writing answers: {fault}"),
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

/// Answers each line of `input` on a line of `output`. Empty lines are passed over. If the reader of the
/// answers goes away, the run ends without an error.
pub fn play(
    input: impl BufRead,
    mut output: impl Write,
    auction: &mut dyn Auction,
    shown: PrintDetail,
) -> Result<(), PlayError> {
    for (index, line) in input.lines().enumerate() {
        let line = line.map_err(PlayError::Read)?;
        if line.trim().is_empty() {
            continue;
        }
        let command =
            parse_command(&line).map_err(|reason| PlayError::BadLine { line: index as u64 + 1, reason })?;
        let answer = auction.apply(&command);
        let text = match shown {
            PrintDetail::Everything => format_answer(&answer, &auction.dump(), auction.names()),
            PrintDetail::Events => format_events(&answer, auction.names()),
        };
        match writeln!(output, "{text}") {
            Err(fault) if fault.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(PlayError::Write)?,
        }
    }
    output.flush().map_err(PlayError::Write)
}
