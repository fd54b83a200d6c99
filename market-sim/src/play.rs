//! Plays commands, one JSON object a line, and prints the answers.

mod input;
mod output;

pub use input::{BadCommand, format_command, parse_command};
pub use output::{format_answer, format_events};

use kubebid_core::Auction;
use std::fmt;
use std::io::{self, BufRead, ErrorKind, Write};

/// Why a run ended before its input did.
#[derive(Debug)]
pub enum PlayError {
    Read(io::Error),
    Write(io::Error),
    /// Lines count from 1.
    BadLine {
        line: u64,
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

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The events of the command, and how the whole market stands afterwards.
    Everything,
    /// The events only: an answer is as long as what happened, however large the market is.
    Events,
}

/// Answers each line of `input` on a line of `output`. Empty lines are passed over; a reader of the
/// answers who goes away ends the run without an error.
pub fn play(
    input: impl BufRead,
    mut output: impl Write,
    auction: &mut dyn Auction,
    shown: Shown,
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
            Shown::Everything => format_answer(&answer, &auction.dump(), auction.names()),
            Shown::Events => format_events(&answer, auction.names()),
        };
        match writeln!(output, "{text}") {
            Err(fault) if fault.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(PlayError::Write)?,
        }
    }
    output.flush().map_err(PlayError::Write)
}
