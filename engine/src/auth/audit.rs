//! The audit log: one line of the log for each command that only an administrator may give, with the account and the
//! token that gave it, the request and its outcome.

use crate::auth::caller::Caller;
use crate::auth::policy::Need;
use crate::wire::echo::cut;
use crate::wire::status::ApiError;
use serde::Serialize;
use tracing::info;

/// The target of the lines, by which a filter chooses them.
const TARGET: &str = "audit";
/// The most bytes of a request in a line.
const REQUEST: usize = 1000;
/// The outcome of a command whose caller has gone before the answer: it may be done.
const UNANSWERED: &str = "UNANSWERED";
/// Calls that only an administrator may make and that have no line: reads, and the steps of a stepped clock, which a simulation
/// makes thousands of times a second.
const NOT_LOGGED: [&str; 3] = ["ListAccounts", "ListTokens", "AdvanceTime"];

/// The line of a command that is under way. It is logged when the value is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    account: String,
    /// Absent for callers that have no token of the store.
    token: Option<u64>,
    method: &'static str,
    /// The request as JSON. No request holds a secret; only the answer of CreateToken does.
    request: String,
    outcome: &'static str,
}

impl Entry {
    /// Begins the line of a call with this permission. Returns None for calls that are not logged.
    pub(crate) fn begin<Q: Serialize>(
        caller: &Caller,
        need: Need,
        method: &'static str,
        request: &Q,
    ) -> Option<Entry> {
        if need != Need::Admin || NOT_LOGGED.contains(&method) {
            return None;
        }
        let request = serde_json::to_string(request).unwrap_or_default();
        Some(Entry {
            account: caller.account.to_string(),
            token: caller.session.token_id(),
            method,
            request: cut(&request, REQUEST).into_owned(),
            outcome: UNANSWERED,
        })
    }
}

/// Ends the line of a call with its outcome, and returns the outcome.
pub(crate) fn ended<A>(entry: Option<Entry>, outcome: Result<A, ApiError>) -> Result<A, ApiError> {
    if let Some(mut entry) = entry {
        entry.outcome = outcome.as_ref().map_or_else(|error| error.code.word(), |_| "OK");
    }
    outcome
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Entry { account, token, method, request, outcome } = self;
        info!(target: TARGET, account, token, method, %request, outcome, "an administrator's command");
    }
}
