//! Advice on the next step, for each way in which a call can fail.

use kubebid_client::{Code, Error, Refusal};

pub(crate) fn advice(error: &Error) -> Option<String> {
    if let Some(cause) = hopeless(error) {
        return Some(cause.to_owned());
    }
    if let Some(end) = error.gave_up()
        && end.maybe_taken
    {
        return end.client_key.as_ref().map(|key| {
            format!(
                "what became of the command is unknown: repeat it with --key {key}, it is done at most once"
            )
        });
    }
    match error {
        Error::Unavailable(_) => {
            Some("is the engine running? `kubebid up` starts one; --endpoint names another".into())
        }
        Error::Unauthenticated(_) => {
            Some("name a token: --as NAME from the profile, --token, --token-file or KUBEBID_TOKEN".into())
        }
        Error::Denied(_) => Some(
            "see the roles of this token: kubebid whoami; --as NAME uses another one of the profile: tenant-a, provider, admin"
                .into(),
        ),
        Error::Gone(_) => Some("watch again without --cursor, or from the cursor of a list (-o json)".into()),
        Error::Busy(_) | Error::Late(_) => Some("try again, with a longer --timeout".into()),
        Error::Fault(status) if status.message().contains("grpc-status header missing") => {
            Some("another program answers there: name the address on which the engine serves its API".into())
        }
        Error::Fault(_) => Some("a bug: please report it with what the engine logged".into()),
        Error::Refused(refusal) if refusal.code == Code::Limit => Some(at_the_limit(refusal)),
        Error::Refused(refusal) => of(&refusal.code).map(str::to_owned),
        Error::Config(_) => None,
    }
}

/// Returns what to do about an endpoint at which no further try can succeed.
pub(crate) fn hopeless(error: &Error) -> Option<&'static str> {
    let Error::Unavailable(_) = error else { return None };
    let said = error.to_string();
    let causes = [
        // The words of the TLS library for an answer that is not TLS.
        ("InvalidContentType", "the port speaks http: write http:// in place of https:// in the endpoint"),
        // An alert of TLS, read as a frame of HTTP/2.
        (
            "frame with invalid size",
            "the port seems to speak https: write https:// in place of http:// in the endpoint",
        ),
        ("invalid peer certificate", "name the authority of the engine's certificate with --ca-file"),
    ];
    causes.into_iter().find(|(words, _)| said.contains(words)).map(|(_, next)| next)
}

/// Returns what a tenant can do at a limit of its account.
fn at_the_limit(refusal: &Refusal) -> String {
    let limit = refusal.metadata.get("limit").map_or("", String::as_str);
    let (own, flag) = match limit {
        "open_bids" => ("cancel a bid that searches: kubebid bid list --state open", "--open-bids"),
        "nodes_wanted" => ("ask for fewer --nodes, or cancel a bid: kubebid bid list", "--nodes-wanted"),
        "ceiling_micros" => ("ask for a lower --max", "--max-ceiling"),
        "requests_per_second" => ("wait a second", "--requests-per-second"),
        "refusals_per_second" => ("wait a second", "--refusals-per-second"),
        "commands_per_day" => ("go on tomorrow", "--commands-per-day"),
        "units_offered" => ("offer fewer units: kubebid offer list", "--units-offered"),
        "units_per_command" => {
            ("change --capacity in several steps, or resume units by name", "--units-per-command")
        }
        "open_requests" | "watches" | "reads" => {
            return "end a watch or another command of this account first".to_owned();
        }
        _ => return "see the limits and what counts against them: kubebid whoami".to_owned(),
    };
    format!("{own}; an administrator raises the limit: kubebid account put NAME {flag} N")
}

fn of(code: &Code) -> Option<&'static str> {
    Some(match code {
        Code::UnknownMarket => "see what is open: kubebid market list",
        Code::MarketClosed => "look for another market: kubebid market list",
        Code::UnknownBid => "see your bids: kubebid bid list",
        Code::UnknownAllocation => "see your nodes: kubebid alloc list",
        Code::UnknownUnit | Code::UnknownOffer => {
            "see your offers and units: kubebid offer list, offer show MARKET"
        }
        Code::UnknownAccount => "make it first: kubebid account put NAME",
        Code::UnknownToken => "see the tokens: kubebid token list",
        Code::NotATick => "see the ticks: kubebid market list",
        Code::CeilingTooHigh | Code::TooManyNodes | Code::BadReserve | Code::BadCapacity | Code::BadRule => {
            "see the rules of the market: kubebid market show MARKET"
        }
        Code::BadMarkets => "name each market once, or a type with --type, not both",
        Code::BadNodes => "ask for at least one node, and for a minimum of at most --nodes",
        Code::Expired => "say a time that is still to come, as in --for 2h",
        Code::MarketExists => "it is open already: kubebid market show MARKET; change it with market rules",
        Code::KeyConflict => "this --key was used for something else: leave it out to get a random one",
        Code::Closed => {
            "its search is over: while it holds nodes it can raise --max, or be cancelled with --release; else place another"
        }
        Code::Ended => "see what is held: kubebid alloc list --state starting --state active",
        Code::AlreadyReady => "nothing is left to do: the first report counts",
        Code::AlreadyLeaving => "nothing is left to do: the unit leaves when its notice ends",
        Code::NotResting => "see which units rest: kubebid offer show MARKET",
        Code::NotAGang => "release its nodes one by one instead: kubebid alloc release N",
        Code::BelowHeld => "release nodes first: kubebid alloc release N",
        Code::Protected => {
            "wait until the protection of its nodes ends (kubebid alloc list shows when), and the lock of its ceiling (kubebid bid show N)"
        }
        Code::BelowReserve => "release the node instead: kubebid alloc release N",
        Code::RealClock => "only an engine on the stepped clock can be moved",
        Code::InjectDisabled => "drills are for engines that were started for them, as `kubebid up` is",
        Code::BadField | Code::TooLarge => "see --help for what the command takes",
        Code::Limit
        | Code::UnknownRule
        | Code::BadTif
        | Code::BadOnPreemption
        | Code::BadMode
        | Code::Unauthenticated
        | Code::Forbidden
        | Code::Busy
        | Code::Gone
        | Code::NotYet
        | Code::NotLeading
        | Code::Unavailable
        | Code::Other(_) => return None,
    })
}
