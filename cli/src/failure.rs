//! A failure: its message, the advice, and the exit code for scripts.

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
    StillWaiting = 7,
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
            Error::Fault(_) => Exit::Fault,
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
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure::new(Exit::Fine, "");
        }
        Failure::new(Exit::Fault, format!("cannot write the answer: {error}"))
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

#[cfg(test)]
mod tests {
    use super::{Exit, Failure};
    use kubebid_client::{Code, Error, Kind, Refusal};

    fn refusal(code: Code, kind: Kind) -> Box<Refusal> {
        Box::new(Refusal {
            code,
            kind,
            message: "no".into(),
            field: Some("ceiling_micros".into()),
            seq: Some(12),
            metadata: Default::default(),
        })
    }

    #[test]
    fn each_failure_has_its_exit_code_and_says_what_next() {
        for (error, exit) in [
            (Error::Refused(refusal(Code::Protected, Kind::State)), Exit::Refused),
            (Error::Refused(refusal(Code::UnknownBid, Kind::NotFound)), Exit::NotFound),
            (Error::Denied(refusal(Code::Forbidden, Kind::Access)), Exit::Denied),
            (Error::Unauthenticated(refusal(Code::Unauthenticated, Kind::Access)), Exit::Denied),
            (Error::Gone(refusal(Code::Gone, Kind::OutOfRange)), Exit::Refused),
        ] {
            let failure = Failure::from(error);
            assert_eq!(failure.exit, exit);
            assert!(failure.next.is_some(), "{failure}");
        }
        let failure = Failure::from(Error::Refused(refusal(Code::NotATick, Kind::Invalid)));
        let said = "error: NOT_A_TICK: no (field ceiling_micros) (command 12)\n next: see the ticks: kubebid market list";
        assert_eq!(failure.to_string(), said);
    }

    #[test]
    fn who_stops_reading_is_not_at_fault() {
        let failure = Failure::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(failure.exit, Exit::Fine);
    }
}
