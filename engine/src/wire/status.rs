//! The table of error codes: gRPC code, HTTP status, field and the default sentence of each. `refusal.rs` replaces the
//! sentence if it knows the values.

use super::echo::echo;
use crate::runtime::intake::SubmitError;
use crate::store::Fault;
use kubebid_core::Reject;
use kubebid_proto::v1;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tonic::Code as Grpc;
use tonic_types::{ErrorDetails, StatusExt};
use tracing::error;

/// The domain of all codes, in `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "kubebid.io";

/// Why a request was refused: by the market, or by the edge before it was numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The market refused the command.
    Market(Reject),
    /// A field has a value that it cannot have.
    BadField,
    /// The request has no token, or one that is unknown or revoked.
    Unauthenticated,
    /// The token's roles do not allow the call.
    Forbidden,
    /// The offer does not exist.
    UnknownOffer,
    /// The account does not exist.
    UnknownAccount,
    /// The token does not exist.
    UnknownToken,
    /// A limit of the account, named in the metadata.
    Limit,
    /// The intake is full.
    Busy,
    /// The request is too large.
    TooLarge,
    /// The call is for a stepped clock, and the market's clock is real.
    RealClock,
    /// The engine allows no drills.
    InjectDisabled,
    /// The cursor is of another journal, ahead of its end, or older than the events that are kept.
    Gone,
    /// The caller's deadline passed first.
    NotYet,
    /// A method or a path that does not exist.
    UnknownMethod,
    /// A message that is compressed.
    UnsupportedEncoding,
    /// Another engine leads, or may do so.
    NotLeading,
    /// The store or the engine does not answer.
    Unavailable,
    /// A bug of the engine, never the caller's fault.
    Internal,
}

/// A row of the table: the code in each protocol, and the default sentence.
struct Row {
    word: &'static str,
    grpc: Grpc,
    http: u16,
    field: Option<&'static str>,
    sentence: &'static str,
}

impl Code {
    /// The codes of the edge. Those of the market are [`Reject::ALL`].
    pub const OF_THE_EDGE: [Code; 18] = [
        Code::BadField,
        Code::Unauthenticated,
        Code::Forbidden,
        Code::UnknownOffer,
        Code::UnknownAccount,
        Code::UnknownToken,
        Code::Limit,
        Code::Busy,
        Code::TooLarge,
        Code::RealClock,
        Code::InjectDisabled,
        Code::Gone,
        Code::NotYet,
        Code::UnknownMethod,
        Code::UnsupportedEncoding,
        Code::NotLeading,
        Code::Unavailable,
        Code::Internal,
    ];

    /// Returns all codes, those of the market first.
    pub fn all() -> impl Iterator<Item = Code> {
        Reject::ALL.iter().copied().map(Code::Market).chain(Code::OF_THE_EDGE)
    }

    /// Returns the stable name of the code, such as `NOT_A_TICK`.
    pub fn word(self) -> &'static str {
        self.row().word
    }

    /// Returns the gRPC code.
    pub fn grpc(self) -> Grpc {
        self.row().grpc
    }

    /// Returns the HTTP status.
    pub fn http(self) -> u16 {
        self.row().http
    }

    /// Returns the row of the table.
    #[rustfmt::skip]
    fn row(self) -> Row {
        use Grpc::*;
        const fn row(word: &'static str, grpc: Grpc, http: u16, field: Option<&'static str>, sentence: &'static str) -> Row {
            Row { word, grpc, http, field, sentence }
        }
        let reject = match self {
            Code::Market(reject) => reject,
            Code::BadField => return row("BAD_FIELD", InvalidArgument, 400, None, "a field holds what it cannot carry"),
            Code::Unauthenticated => return row("UNAUTHENTICATED", Unauthenticated, 401, None, "send \"authorization: Bearer TOKEN\" with a token that is known and not revoked"),
            Code::Forbidden => return row("FORBIDDEN", PermissionDenied, 403, None, "the roles of this token do not allow it"),
            Code::UnknownOffer => return row("UNKNOWN_OFFER", NotFound, 404, Some("market"), "nothing is offered there"),
            Code::UnknownAccount => return row("UNKNOWN_ACCOUNT", NotFound, 404, Some("account"), "there is no such account"),
            Code::UnknownToken => return row("UNKNOWN_TOKEN", NotFound, 404, Some("token_id"), "there is no such token"),
            Code::Limit => return row("LIMIT", ResourceExhausted, 429, None, "a limit of the account is reached"),
            Code::Busy => return row("BUSY", ResourceExhausted, 503, None, "more is asked than can be taken; try again"),
            Code::TooLarge => return row("TOO_LARGE", ResourceExhausted, 413, None, "the message is too large"),
            Code::RealClock => return row("REAL_CLOCK", FailedPrecondition, 409, None, "the clock follows real time; only a stepped one is moved"),
            Code::InjectDisabled => return row("INJECT_DISABLED", FailedPrecondition, 409, None, "drills are off here; start the engine with --allow-inject, or KUBEBID_ALLOW_INJECT=true"),
            Code::Gone => return row("GONE", OutOfRange, 410, Some("cursor"), "the cursor is of another journal or ahead of its end; read the lists afresh and watch from the cursor they give"),
            Code::NotYet => return row("NOT_YET", DeadlineExceeded, 504, None, "the deadline came first"),
            Code::UnknownMethod => return row("UNKNOWN_METHOD", Unimplemented, 404, None, "there is no such method"),
            Code::UnsupportedEncoding => return row("UNSUPPORTED_ENCODING", Unimplemented, 415, None, "messages are not compressed here; send grpc-encoding: identity"),
            Code::NotLeading => return row("NOT_LEADING", Unavailable, 503, None, "this engine does not lead, and took nothing; try the others of its exchange, or again in a moment"),
            Code::Unavailable => return row("UNAVAILABLE", Unavailable, 503, None, "the engine or its store is away; whether a command was taken is unknown: repeat it with its client_key"),
            Code::Internal => return row("INTERNAL", Internal, 500, None, "a bug of the engine; its log says more"),
        };
        let (grpc, http, field, sentence) = match reject {
            Reject::KeyConflict => (AlreadyExists, 409, Some("client_key"), "the client_key was used for something else"),
            Reject::MarketExists => (AlreadyExists, 409, Some("market"), "the market is open already"),
            Reject::MarketClosed => (FailedPrecondition, 409, Some("market"), "the market is closed: it takes no new bids and no more capacity"),
            Reject::UnknownMarket => (NotFound, 404, Some("market"), "there is no such market"),
            Reject::UnknownRule => (InvalidArgument, 400, Some("rules"), "there is no such rule"),
            Reject::BadRule => (InvalidArgument, 400, Some("rules"), "a rule does not allow its value, or the tick of a market was to be changed"),
            Reject::BadCapacity => (InvalidArgument, 400, Some("capacity"), "the capacity is 0 where nothing is offered, or more than an offer may have"),
            Reject::BadReserve => (InvalidArgument, 400, Some("reserve_micros"), "the reserve is not a multiple of the market's tick"),
            Reject::UnknownUnit => (NotFound, 404, Some("unit"), "you offer no such unit"),
            Reject::UnknownBid => (NotFound, 404, Some("bid"), "you have no such bid"),
            Reject::UnknownAllocation => (NotFound, 404, Some("allocation"), "you have no such allocation"),
            Reject::Ended => (FailedPrecondition, 409, Some("allocation"), "the allocation has ended"),
            Reject::NotYours => (NotFound, 404, None, "you have nothing of that name"),
            Reject::AlreadyLeaving => (FailedPrecondition, 409, Some("unit"), "the unit is leaving already"),
            Reject::NotResting => (FailedPrecondition, 409, Some("unit"), "the unit does not rest"),
            Reject::AlreadyReady => (FailedPrecondition, 409, Some("allocation"), "the allocation was reported ready before"),
            Reject::BadMarkets => (InvalidArgument, 400, Some("markets"), "name markets, each once, or an instance_type, and not both"),
            Reject::BadNodes => (InvalidArgument, 400, Some("min_nodes"), "1 <= min_nodes <= max_nodes must hold"),
            Reject::NotAGang => (FailedPrecondition, 409, Some("bid"), "only a bid that waits for more than one node at once is regrouped"),
            Reject::Closed => (FailedPrecondition, 409, Some("bid"), "the bid is closed"),
            Reject::BadMode => (InvalidArgument, 400, Some("mode"), "the mode is KEEP, RELEASE or REGROUP"),
            Reject::NotATick => (InvalidArgument, 400, Some("ceiling_micros"), "the ceiling is 0 or not a multiple of the market's tick"),
            Reject::CeilingTooHigh => (InvalidArgument, 400, Some("ceiling_micros"), "the ceiling is above the market's ceiling_max"),
            Reject::TooManyNodes => (InvalidArgument, 400, Some("max_nodes"), "more nodes than the market's bid_nodes_max"),
            Reject::BadTif => (InvalidArgument, 400, Some("time_in_force"), "the time in force is GTC, GTT or IOC, and expire_at_us goes with GTT and only with it"),
            Reject::Expired => (InvalidArgument, 400, Some("expire_at_us"), "expire_at_us is not in the future of the market's clock"),
            Reject::BadOnPreemption => (InvalidArgument, 400, Some("on_preemption"), "on_preemption is REQUEUE or CLOSE"),
            Reject::BelowHeld => (FailedPrecondition, 409, Some("max_nodes"), "fewer nodes than the bid holds or takes at least; release nodes by name first"),
            Reject::Protected => (FailedPrecondition, 409, Some("ceiling_micros"), "the ceiling is not lowered while a node of the bid is protected, nor soon after a raise under notice"),
            Reject::BelowReserve => (FailedPrecondition, 409, Some("ceiling_micros"), "the ceiling is below the reserve of a node that the bid holds"),
            Reject::NoFunds => (FailedPrecondition, 409, Some("ceiling_micros"), "the account cannot pay for its nodes and claims at this ceiling"),
            Reject::BadAmount => (InvalidArgument, 400, None, "the amount is out of range"),
            Reject::KeyRequired => (InvalidArgument, 400, Some("client_key"), "funds are changed only with a client_key, so that a retry does not change them twice"),
        };
        row(reject.code(), grpc, http, field, sentence)
    }
}

/// A refused request, independent of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The code.
    pub code: Code,
    /// One sentence for people.
    pub message: String,
    /// The wrong field, if there is a single one.
    pub field: Option<String>,
    /// The number of the refused command. Absent if the request was refused before it was numbered.
    pub seq: Option<u64>,
    /// True if an earlier command with the same key was refused, and this is its answer again.
    pub repeated: bool,
    /// The time to wait before trying again, if that helps.
    pub retry_after: Option<Duration>,
    /// Further values by name, besides `seq`.
    pub metadata: BTreeMap<String, String>,
}

impl ApiError {
    /// Makes an error with the field and the sentence of the table.
    pub fn new(code: Code) -> ApiError {
        let row = code.row();
        ApiError {
            code,
            message: row.sentence.to_owned(),
            field: row.field.map(str::to_owned),
            seq: None,
            repeated: false,
            retry_after: None,
            metadata: BTreeMap::new(),
        }
    }

    /// Makes the error of a field with a value that it cannot have.
    pub fn bad_field(field: impl Into<String>, message: impl fmt::Display) -> ApiError {
        // A parameter that does not exist is named as it was sent.
        let field = echo(&field.into()).into_owned();
        ApiError { message: format!("{field} {message}"), ..ApiError::new(Code::BadField) }.at(field)
    }

    /// Makes the error of a limit that is reached. `name` is its field of `AccountLimits`.
    pub fn limit(name: &str, message: impl fmt::Display) -> ApiError {
        ApiError::new(Code::Limit).saying(message).with("limit", name)
    }

    /// Replaces the sentence.
    #[must_use]
    pub fn saying(self, message: impl fmt::Display) -> ApiError {
        ApiError { message: message.to_string(), ..self }
    }

    /// Sets the wrong field.
    #[must_use]
    pub fn at(self, field: impl Into<String>) -> ApiError {
        ApiError { field: Some(field.into()), ..self }
    }

    /// Sets the number of the refused command.
    #[must_use]
    pub fn numbered(self, seq: u64) -> ApiError {
        ApiError { seq: Some(seq), ..self }
    }

    /// Sets the time to wait before trying again.
    #[must_use]
    pub fn again_after(self, retry_after: Duration) -> ApiError {
        ApiError { retry_after: Some(retry_after), ..self }
    }

    /// Adds a value to the metadata.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> ApiError {
        self.metadata.insert(name.to_owned(), value.to_string());
        self
    }

    /// Converts into the status of a unary call, or of the end of a stream.
    pub fn into_status(self) -> tonic::Status {
        let mut metadata: std::collections::HashMap<String, String> = self.metadata.into_iter().collect();
        metadata.extend(self.seq.map(|seq| ("seq".to_owned(), seq.to_string())));
        let mut details = ErrorDetails::new();
        details.set_error_info(self.code.word(), DOMAIN, metadata);
        if let Some(field) = self.field {
            details.add_bad_request_violation(field, &self.message);
        }
        if self.retry_after.is_some() {
            details.set_retry_info(self.retry_after);
        }
        tonic::Status::with_error_details(self.code.grpc(), self.message, details)
    }

    /// Converts into one result of a stream.
    pub fn into_refusal(self) -> v1::Refusal {
        v1::Refusal {
            reason: self.code.word().to_owned(),
            message: self.message,
            field: self.field,
            seq: self.seq,
            code: self.code.grpc() as i32 as u32,
            retry_after_us: self.retry_after.map(|wait| wait.as_micros() as u64),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.word(), self.message)
    }
}

impl std::error::Error for ApiError {}

impl From<Code> for ApiError {
    fn from(code: Code) -> ApiError {
        ApiError::new(code)
    }
}

impl From<ApiError> for tonic::Status {
    fn from(error: ApiError) -> tonic::Status {
        error.into_status()
    }
}

/// The time to wait for a caller that has found no leader, before it tries the engines again.
const NOT_LEADING: Duration = Duration::from_millis(200);

impl ApiError {
    /// Makes the error of an engine that does not lead, or cannot know if it does.
    pub fn not_leading() -> ApiError {
        ApiError::new(Code::NotLeading).again_after(NOT_LEADING)
    }
}

/// The time to wait for a caller that has found the intake full.
const BUSY: Duration = Duration::from_millis(50);

impl From<SubmitError> for ApiError {
    fn from(reason: SubmitError) -> ApiError {
        match reason {
            SubmitError::Full => ApiError::new(Code::Busy).again_after(BUSY),
            SubmitError::TooLate => ApiError::new(Code::NotYet).saying(format!("{reason}; its key is free")),
            SubmitError::TooFar => ApiError::bad_field("to_us", reason.to_string()),
            SubmitError::Stopping | SubmitError::StoreRefused => ApiError::new(Code::Unavailable)
                .saying(format!("{reason}; a command was not taken"))
                .again_after(BUSY),
            SubmitError::Unknown => ApiError::new(Code::Unavailable)
                .saying(format!("{reason}; repeat it with its client_key to learn")),
        }
    }
}

impl From<Fault> for ApiError {
    /// Logs the fault, and tells the caller only UNAVAILABLE.
    fn from(fault: Fault) -> ApiError {
        if let Fault::TooSlow { time_out, .. } = fault {
            let seconds = time_out.as_secs_f64();
            let said =
                format!("the read took longer than the {seconds} s that a read may take; ask for less");
            return ApiError::new(Code::NotYet).saying(said);
        }
        if let Fault::Deposed = fault {
            return ApiError::not_leading();
        }
        error!(error = %fault, "the store failed a request");
        ApiError::new(Code::Unavailable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The head of common.proto, where clients read the meaning of the codes.
    const COMMON_PROTO: &str = include_str!("../../../proto/kubebid/auction/v1/common.proto");

    /// Returns the gRPC code under which that comment lists a code.
    fn grpc_code_in_proto(word: &str) -> Option<&'static str> {
        let mut under = None;
        for line in COMMON_PROTO.lines().take_while(|line| line.starts_with("//")) {
            let line = line.trim_start_matches('/');
            let entry = line.starts_with("   ").then(|| line.trim());
            let Some(entry) = entry.filter(|entry| !entry.is_empty()) else { continue };
            let mut rest = entry;
            if !line.starts_with("      ") {
                let (code, words) = entry.split_once("  ").unwrap_or((entry, ""));
                (under, rest) = (Some(code), words);
            }
            if rest.split([' ', ',', ':', ';']).any(|found| found == word) {
                return under;
            }
        }
        None
    }

    #[test]
    fn every_code_is_mapped_as_the_proto_says() {
        for code in Code::all() {
            if matches!(code, Code::Market(Reject::NotYours) | Code::UnknownMethod | Code::Internal) {
                continue;
            }
            let name = grpc_code_in_proto(code.word())
                .unwrap_or_else(|| panic!("{} is not in the comment of the proto", code.word()));
            let camel = format!("{:?}", code.grpc()).to_uppercase();
            assert_eq!(name.replace('_', ""), camel, "{}", code.word());
        }
    }

    #[test]
    fn every_code_has_its_own_name_and_sentence() {
        let words: BTreeSet<_> = Code::all().map(Code::word).collect();
        assert_eq!(words.len(), Code::all().count());
        for code in Code::all() {
            let error = ApiError::new(code);
            assert!(!error.message.is_empty() && !error.message.ends_with('.'), "{error}");
            assert!((400..=599).contains(&code.http()), "{error}");
        }
    }

    #[test]
    fn a_status_has_the_code_the_field_the_number_and_the_time_to_retry() {
        let error =
            ApiError::bad_field("labels", "are too many").numbered(7).again_after(Duration::from_secs(1));
        let status = error.clone().with("limit", "x").into_status();
        let details = status.get_error_details();
        let info = details.error_info().unwrap();
        assert_eq!((&info.reason[..], &info.domain[..]), ("BAD_FIELD", DOMAIN));
        assert_eq!((&info.metadata["seq"][..], &info.metadata["limit"][..]), ("7", "x"));
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, "labels");
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
        let refusal = error.into_refusal();
        assert_eq!((&refusal.reason[..], refusal.seq, refusal.code), ("BAD_FIELD", Some(7), 3));
        assert_eq!(refusal.retry_after_us, Some(1_000_000));
    }
}
