//! A failure: its message, the advice, and the exit code for scripts.

use crate::advice::advice;
use crate::time::{Span, to_the_second};
use kubebid_client::{Code, Dollars, Error, Kind, Refusal};
use kubebid_report::text::printable_lines;
use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Says something on standard error, if it can be written. `eprintln!` panics if it cannot.
pub(crate) fn note(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

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
    /// The code of the refusal, if it is one.
    pub(crate) code: Option<Code>,
    /// One line: what happened.
    what: String,
    /// One line: what to do next.
    next: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Failure { exit, code: None, what: what.into(), next: None }
    }

    /// Returns the failure of a command that names what is not there.
    pub(crate) fn unknown(code: Code, what: impl Into<String>) -> Self {
        Failure { code: Some(code), ..Failure::new(Exit::NotFound, what) }
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, what)
    }

    pub(crate) fn next(self, next: impl Into<String>) -> Self {
        Failure { next: Some(next.into()), ..self }
    }

    /// Returns the failure with a name that may have been meant.
    pub(crate) fn did_you_mean(self, name: &str) -> Self {
        let otherwise = self.next.as_ref().map_or_else(String::new, |next| format!(" Otherwise {next}"));
        self.next(format!("did you mean {name}?{otherwise}"))
    }

    /// Says it on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        if self.exit != Exit::Fine {
            note(self);
        }
        ExitCode::from(self.exit as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The engine's words may repeat names and labels of others.
        write!(f, "error: {}", printable_lines(&self.what))?;
        if let Some(next) = &self.next {
            write!(f, "\n next: {}", printable_lines(next))?;
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
        Failure {
            exit,
            code: error.refusal().map(|refusal| refusal.code.clone()),
            what,
            next: advice(&error),
        }
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

/// Returns a refusal in the words of the command line.
fn said(refusal: &Refusal) -> String {
    let mut said = format!("{}: {}", refusal.code, in_flags(&refusal.message));
    if let Some(field) = refusal.field.as_deref().filter(|field| !refusal.message.contains(field)) {
        match flag(field) {
            // The message names what stands at such a place by itself.
            Some("") => {}
            Some(flag) => said.push_str(&format!(" ({flag})")),
            None => said.push_str(&format!(" (field {field})")),
        }
    }
    said
}

/// Returns the flag for a field of the API; the empty text for an argument that has none.
fn flag(field: &str) -> Option<&'static str> {
    Some(match field {
        "ceiling_micros" => "--max",
        "max_nodes" => "--nodes",
        "min_nodes" => "--min-nodes",
        "reserve_micros" => "--reserve",
        "capacity" => "--capacity",
        "expire_at_us" => "--until",
        "instance_type" => "--type",
        "bar_us" => "--bar",
        "by_label" => "--by-label",
        "client_key" => "--key",
        "node_config" => "--node-config",
        "from_us" => "--from",
        "to_us" => "--to",
        "market" | "markets" | "rules" | "bid" | "allocation" | "unit" | "token_id" | "name" => "",
        _ => return None,
    })
}

/// Returns a sentence of the engine with flags for fields, dollars for micro-dollars and UTC for microseconds.
fn in_flags(message: &str) -> String {
    let mut said = Vec::new();
    let mut unit = None;
    let words: Vec<_> = message.split(' ').collect();
    for (at, word) in words.iter().enumerate() {
        let end = word.len() - word.chars().rev().take_while(|last| matches!(last, ',' | ';' | ':')).count();
        let (core, stop) = word.split_at(end);
        let is_rule = at > 0 && words[at - 1] == "rule";
        match core {
            rule if is_rule && rule.ends_with("_us") => unit = Some(Unit::Span),
            "ceiling_micros" | "reserve_micros" | "ceiling_max" | "tick" | "ceiling" | "limit" => {
                // The limit of what stands at the begin: nodes have no unit.
                let is_money = core != "limit" || words[0] == "ceiling_micros";
                unit = is_money.then_some(Unit::Micros);
            }
            "expire_at_us" | "time" => unit = Some(Unit::Instant),
            _ => {}
        }
        let text = match (core.parse::<u64>(), unit) {
            (Ok(_), _) if at > 0 && matches!(words[at - 1], "bid" | "allocation") => core.to_owned(),
            (Ok(micros), Some(Unit::Micros)) => format!("${}", Dollars(micros)),
            (Ok(at_us), Some(Unit::Instant)) => to_the_second(at_us),
            (Ok(span), Some(Unit::Span)) => Span(span).to_string(),
            (Err(_), _) if is_rule => format!("--{}", core.trim_end_matches("_us").replace('_', "-")),
            (Ok(_), None) => core.to_owned(),
            (Err(_), _) => match core {
                "ceiling_max" => "highest ceiling".to_owned(),
                "bid_nodes_max" => "most nodes of a bid".to_owned(),
                _ => match flag(core).filter(|flag| !flag.is_empty() && core.contains('_')) {
                    Some(flag) => flag.to_owned(),
                    None => core.to_owned(),
                },
            },
        };
        said.push(text + stop);
    }
    said.join(" ")
}

/// The unit of a number in a sentence.
#[derive(Clone, Copy)]
enum Unit {
    Micros,
    Instant,
    Span,
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
        let said = "error: NOT_A_TICK: no (--max)\n next: see the ticks: kubebid market list";
        assert_eq!(failure.to_string(), said);
    }

    #[test]
    fn a_refusal_speaks_of_flags_and_dollars() {
        for (message, said) in [
            (
                "ceiling_micros 99999999000000 is above the ceiling_max 1000000000000 of h100-8x/eu-west",
                "--max $99999999.00 is above the highest ceiling $1000000.00 of h100-8x/eu-west",
            ),
            (
                "max_nodes 5000 is more than the bid_nodes_max 1000 of a/b",
                "--nodes 5000 is more than the most nodes of a bid 1000 of a/b",
            ),
            (
                "reserve_micros 1200050 is not a multiple of the tick 100 of a/b",
                "--reserve $1.20005 is not a multiple of the tick $0.0001 of a/b",
            ),
            (
                "the ceiling of bid 3 is not lowered from 2500000 while a node of it is protected",
                "the ceiling of bid 3 is not lowered from $2.50 while a node of it is protected",
            ),
            (
                "ceiling_micros 1500000 is below the reserve of a node of bid 12",
                "--max $1.50 is below the reserve of a node of bid 12",
            ),
            (
                "min_nodes 1 and max_nodes 0: 1 <= min_nodes <= max_nodes must hold",
                "--min-nodes 1 and --nodes 0: 1 <= --min-nodes <= --nodes must hold",
            ),
            (
                "ceiling_micros 11000000 is above the account's limit of 10000000",
                "--max $11.00 is above the account's limit of $10.00",
            ),
            (
                "2 nodes are wanted or held, and 50 more are asked for; the account's limit is 20",
                "2 nodes are wanted or held, and 50 more are asked for; the account's limit is 20",
            ),
            (
                "the rule fee_bps is from 0 to 10000, not 20000",
                "the rule --fee-bps is from 0 to 10000, not 20000",
            ),
            (
                "the rule start_timeout_us is from 1 to 31622400000000000, not 0",
                "the rule --start-timeout is from 1us to 366000d, not 0s",
            ),
            (
                "the rule tick is from 1 to 1000000000000000, not 0",
                "the rule --tick is from $0.000001 to $1000000000.00, not $0.00",
            ),
            (
                "expire_at_us 1795201200000000 is not in the future: the market's time is 1795201452000007",
                "--until 2026-11-20T19:00:00Z is not in the future: the market's time is 2026-11-20T19:04:12Z",
            ),
        ] {
            assert_eq!(super::in_flags(message), said);
        }
    }

    #[test]
    fn who_stops_reading_is_not_at_fault() {
        let failure = Failure::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(failure.exit, Exit::Fine);
    }
}
