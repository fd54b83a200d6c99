//! What went wrong, what to do next, and the exit code that says so to scripts.

use crate::advice::advice;
use kubebid_client::{Error, Kind, Refusal};
use std::fmt;
use std::process::ExitCode;

/// The exit codes, as the help documents them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The reader of our output has gone, which is its right.
    Fine = 0,
    Fault = 1,
    Usage = 2,
    Refused = 3,
    NotFound = 4,
    Denied = 5,
    Unavailable = 6,
}

/// The end of a command that did not come to its end.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// One line: what happened.
    what: String,
    /// One line: what to do next.
    next: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Failure { exit, what: what.into(), next: None }
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, what)
    }

    pub(crate) fn next(self, next: impl Into<String>) -> Self {
        Failure { next: Some(next.into()), ..self }
    }

    /// Says it on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        if self.exit != Exit::Fine {
            eprintln!("{self}");
        }
        ExitCode::from(self.exit as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if let Some(next) = &self.next {
            write!(f, "\n next: {next}")?;
        }
        Ok(())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::Config(_) => Exit::Usage,
            Error::Refused(refusal) if refusal.kind == Kind::NotFound => Exit::NotFound,
            Error::Refused(_) | Error::Gone(_) => Exit::Refused,
            Error::Unauthenticated(_) | Error::Denied(_) => Exit::Denied,
            Error::Busy(_) | Error::Late(_) | Error::Unavailable(_) => Exit::Unavailable,
            Error::Fault(_) | _ => Exit::Fault,
        };
        let what = match error.refusal() {
            Some(refusal) => said(refusal),
            None => error.to_string(),
        };
        Failure { exit, what, next: advice(&error) }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::new(Exit::Fine, ""),
            _ => Failure::new(Exit::Fault, format!("cannot write the answer: {error}")),
        }
    }
}

fn said(refusal: &Refusal) -> String {
    let mut said = format!("{}: {}", refusal.code, refusal.message);
    if let Some(field) = &refusal.field
        && !refusal.message.contains(field.as_str())
    {
        said.push_str(&format!(" (field {field})"));
    }
    if let Some(seq) = refusal.seq {
        said.push_str(&format!(" (command {seq})"));
    }
    said
}
