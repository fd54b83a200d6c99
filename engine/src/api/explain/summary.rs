//! Writes the summary sentence of an explanation, and names the rule that decides.

use super::held;
use super::words::{REGROUPED, dollars, instant, nodes};
use crate::runtime::views::MarketView;
use kubebid_core::event::NoticeReason;
use kubebid_core::state_dump::AllocationState;
use kubebid_core::units::{AllocationId, MarketId};
use kubebid_core::views::{AllocationView, BidView, NoticeView, Obstacle, Unfilled};
use kubebid_proto::v1;
use v1::allocation::EndReason;
use v1::event::Kind;

pub(super) fn of_bid(
    view: &BidView,
    obstacles: &[Obstacle],
    name: impl Fn(MarketId) -> String,
) -> (&'static str, String) {
    let (rule, text) = how_it_stands(view, obstacles, name);
    let lock = view.ceiling_locked_until.map(|until| {
        let until = instant(until.0);
        format!(" Its ceiling was raised under notice, and is not lowered before {until} (R2).")
    });
    (rule, text + &lock.unwrap_or_default())
}

fn how_it_stands(
    view: &BidView,
    obstacles: &[Obstacle],
    name: impl Fn(MarketId) -> String,
) -> (&'static str, String) {
    let bid = view.bid;
    if !view.searching {
        return ("R14", format!("Bid {bid} is closed and searches no more; it holds {}.", nodes(held(view))));
    }
    if view.unmet == 0 {
        let claims = match view.claims.len() {
            0 => String::new(),
            count => format!(", {count} of them when a notice ends"),
        };
        return ("R3", format!("Bid {bid} has all it wants: {}{claims}.", nodes(view.max_nodes.into())));
    }
    let lacks = format!("Bid {bid} lacks {} of {}", view.unmet, nodes(view.max_nodes.into()));
    let Some(nearest) = obstacles.iter().max_by_key(|obstacle| obstacle.reason) else {
        return ("R13", format!("{lacks}: no market of its instance type is open."));
    };
    let market = name(nearest.market);
    let ceiling = dollars(view.ceiling.0);
    let needed = nearest.needed_ceiling.map(|needed| dollars(needed.0));
    let would = needed.map(|needed| format!("; a ceiling of {needed} would do")).unwrap_or_default();
    let (rule, why) = match nearest.reason {
        Unfilled::NoMarket => ("R13", "no market of its instance type is open".to_owned()),
        Unfilled::OwnSupply => {
            ("R17", format!("its account sells in {market}, and does not buy where it sells"))
        }
        Unfilled::NoSupply => ("R3", format!("{market} has no unit that stays, but for those it has itself")),
        Unfilled::BelowFloor => {
            ("R3", format!("its ceiling of {ceiling} is below the lowest reserve in {market}{would}"))
        }
        Unfilled::BelowNeededCeiling => (
            "R4",
            format!(
                "its ceiling of {ceiling} is not high enough above the lowest of those who hold nodes in {market}{would}"
            ),
        ),
        Unfilled::MinimumNotMet => (
            "R12",
            format!("{market} does not have its minimum of {} at once{would}", nodes(view.min_nodes.into())),
        ),
        Unfilled::NoFunds => (
            "R19",
            format!(
                "its account cannot pay for {} in {market} at its ceiling of {ceiling}",
                nodes(view.min_nodes.into())
            ),
        ),
        Unfilled::WaitingForProtectedNode => {
            let until = nearest
                .protected_until
                .map(|until| format!("; the first protection ends at {}", instant(until.0)));
            let until = until.unwrap_or_default();
            (
                "R4",
                format!(
                    "its ceiling of {ceiling} is high enough, but the lowest nodes in {market} are still protected{until}"
                ),
            )
        }
    };
    (rule, format!("{lacks}: {why}."))
}

/// Explains an allocation. `events` are those that the caller may see; a node that has ended is known
/// from them only.
pub(super) fn of_allocation(
    id: AllocationId,
    view: Option<&AllocationView>,
    events: &[v1::Event],
    market: Option<&MarketView>,
) -> (&'static str, String) {
    if let Some(view) = view {
        return match &view.notice {
            Some(notice) => under_notice(id, view, notice, events, market),
            None => live(id, view),
        };
    }
    let ended = events.iter().rev().find_map(|event| match &event.kind {
        Some(Kind::Ended(of)) if of.allocation == id.0 => Some((event.at_us, of.reason())),
        _ => None,
    });
    let Some((at, reason)) = ended else { return ("R5", format!("Node {id} has ended.")) };
    let (rule, why) = match reason {
        EndReason::Outbid => ("R4", "it was outbid: another bid displaced it, and its notice was over"),
        EndReason::CapacityWithdrawn => ("R11", "its provider lowered the capacity, and its notice was over"),
        EndReason::ReserveRaised => {
            ("R11", "its provider asked for more than its ceiling, and its notice was over")
        }
        EndReason::Released => ("R14", "its tenant gave it back"),
        EndReason::Regrouped => ("R14", REGROUPED),
        EndReason::UnitLost => ("R11", "its provider lost the unit"),
        EndReason::StartTimeout => ("R11", "nobody reported it ready in time"),
        EndReason::Funds => ("R19", "its account could not pay for longer, and its notice was over"),
        EndReason::Other | EndReason::Unspecified => ("R5", "it is over"),
    };
    (rule, format!("Node {id} ended at {}: {why}.", instant(at)))
}

fn live(id: AllocationId, view: &AllocationView) -> (&'static str, String) {
    let until = instant(view.protected_until.0);
    match view.state {
        AllocationState::Starting => {
            let by = instant(view.start_by.0);
            (
                "R11",
                format!(
                    "Node {id} is not under notice; it waits to be reported ready, by {by} at the latest."
                ),
            )
        }
        AllocationState::Active | AllocationState::Notice => {
            ("R4", format!("Node {id} is not under notice; its protection ends at {until}."))
        }
    }
}

fn under_notice(
    id: AllocationId,
    view: &AllocationView,
    notice: &NoticeView,
    events: &[v1::Event],
    market: Option<&MarketView>,
) -> (&'static str, String) {
    let deadline = instant(notice.deadline.0);
    // A caller who sees the bid of the node may see what is the tenant's.
    let is_tenants = events.iter().any(|event| matches!(&event.kind, Some(Kind::BidPlaced(_))));
    let stay = notice.price_to_stay.filter(|_| is_tenants).map(|price| dollars(price.0));
    let stay = stay.map(|price| format!(" A ceiling of {price} keeps it.")).unwrap_or_default();
    let (rule, why) = match notice.reason {
        NoticeReason::Outbid => {
            let increment = market.map(|market| market.rules.increment_bps);
            let increment = increment.map_or("the increment".to_owned(), |bps| format!("{} %", percent(bps)));
            ("R4", format!("a bid at least {increment} above its ceiling displaced it"))
        }
        NoticeReason::CapacityWithdrawn => ("R11", "its provider lowered the capacity".to_owned()),
        NoticeReason::ReserveRaised => ("R11", "its provider asks for more than its ceiling".to_owned()),
        NoticeReason::Funds if is_tenants => ("R19", "its account cannot pay for longer".to_owned()),
        NoticeReason::Funds => ("R5", "its tenant has to give it up".to_owned()),
    };
    let price = view.ready_at.map(|_| match notice.reason {
        NoticeReason::Outbid | NoticeReason::Funds => {
            format!(" Until then its price is frozen at {}.", dollars(view.price.0))
        }
        NoticeReason::CapacityWithdrawn | NoticeReason::ReserveRaised => {
            " Until then its price does not rise above what it was when the notice began.".to_owned()
        }
    });
    let price = price.unwrap_or_default();
    (rule, format!("Node {id} is under notice until {deadline}: {why}.{price}{stay}"))
}

/// Formats hundredths of a percent without needless zeros.
fn percent(bps: u64) -> String {
    let text = format!("{}.{:02}", bps / 100, bps % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
