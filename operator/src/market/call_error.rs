//! Errors of the engine as errors of calls: which pass by themselves, and which are refusals.

use kubebid_client::{Code, Error};
use kubebid_controller::external::CallError;

/// Returns the error of a call: a refusal stays until something changes, everything else passes by itself. The engine's code
/// is the reason, as in `BadReserve`.
pub(super) fn of(error: Error) -> CallError {
    let message = format!("the engine: {error}");
    match error {
        // Somebody will open the market.
        Error::Refused(refusal) if refusal.code == Code::UnknownMarket => {
            CallError::transient("UnknownMarket", message)
        }
        Error::Refused(refusal) | Error::Unauthenticated(refusal) | Error::Denied(refusal) => {
            CallError::terminal(camel_case(refusal.code.as_str()), message)
        }
        Error::Gone(_)
        | Error::Config(_)
        | Error::Busy(_)
        | Error::Late(_)
        | Error::Unavailable(_)
        | Error::Fault(_) => CallError::transient("EngineUnreachable", message),
    }
}

/// Returns `BadReserve` for `BAD_RESERVE`.
fn camel_case(code: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at_checked(1).unwrap_or(("", ""));
        format!("{first}{}", rest.to_ascii_lowercase())
    };
    code.split('_').map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_becomes_a_reason() {
        assert_eq!(camel_case("BAD_RESERVE"), "BadReserve");
        assert_eq!(camel_case("LIMIT"), "Limit");
    }
}
