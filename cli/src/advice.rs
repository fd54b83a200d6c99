//! Advice on the next step, for each way in which a call can fail.

use kubebid_client::{Code, Error};

pub(crate) fn advice(error: &Error) -> Option<String> {
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
        Error::Denied(_) => Some("use a token with another role, as in --as provider or --as admin".into()),
        Error::Gone(_) => Some("watch again without --cursor, or from the cursor of a list (-o json)".into()),
        Error::Busy(_) | Error::Late(_) => Some("try again, with a longer --timeout".into()),
        Error::Fault(_) => Some("a bug: please report it with what the engine logged".into()),
        Error::Refused(refusal) => of(&refusal.code).map(str::to_owned),
        Error::Config(_) => None,
    }
}

fn of(code: &Code) -> Option<&'static str> {
    Some(match code {
        Code::UnknownMarket => "see what is open: kubebid market list",
        Code::UnknownBid => "see your bids: kubebid bid list",
        Code::UnknownAllocation => "see your nodes: kubebid alloc list",
        Code::UnknownUnit | Code::UnknownOffer => {
            "see your offers and units: kubebid offer list, offer show MARKET"
        }
        Code::UnknownAccount => "make it first: kubebid account put NAME",
        Code::UnknownToken => "see the tokens: kubebid token list",
        Code::NotATick => "see the ticks: kubebid market list",
        Code::CeilingTooHigh | Code::TooManyNodes | Code::BadReserve | Code::BadCapacity => {
            "see the rules of the market: kubebid market show MARKET"
        }
        Code::BadMarkets => "name each market once, or a type with --type, not both",
        Code::BadNodes => "ask for at least one node, and for a minimum of at most --nodes",
        Code::Expired => "say a time that is still to come, as in --for 2h",
        Code::MarketExists => "it is open already: kubebid market show MARKET; change it with market rules",
        Code::KeyConflict => "this --key was used for something else: leave it out to get a random one",
        Code::Closed => "a closed bid can only raise its ceiling while it holds nodes: place another",
        Code::Ended => "see what is held: kubebid alloc list --state starting --state active",
        Code::AlreadyReady => "nothing is left to do: the first report counts",
        Code::AlreadyLeaving => "nothing is left to do: the unit leaves when its notice ends",
        Code::BelowHeld => "release nodes first: kubebid alloc release N",
        Code::Protected => "wait until the protection ends: kubebid alloc list shows when",
        Code::BelowReserve => "release the node instead: kubebid alloc release N",
        Code::RealClock => "only an engine on the stepped clock can be moved",
        Code::InjectDisabled => "drills are for engines that were started for them, as `kubebid up` is",
        Code::Limit => {
            "see the limits and what counts against them: kubebid whoami; an administrator changes them"
        }
        Code::BadField | Code::TooLarge => "see --help for what the command takes",
        Code::UnknownRule
        | Code::BadRule
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
