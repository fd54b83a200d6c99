//! Decides who may see which events, and which of their fields: the only place that does.

#[cfg(test)]
mod tests;

use super::message::{Parties, Party};
use kubebid_core::units::AccountName;
use kubebid_core::{Command, EventKind, Reject};
use kubebid_proto::v1::{self, allocation::EndReason, charge, event::Kind, notice};

/// The viewer of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// A viewer that may see all accounts.
    All,
    /// An account, which sees what concerns it.
    Account(AccountName),
}

impl Viewer {
    /// Returns true if the viewer may see what belongs to this account.
    pub fn sees(&self, account: &str) -> bool {
        match self {
            Viewer::All => true,
            Viewer::Account(viewer) => viewer.as_str() == account,
        }
    }
}

/// The roles of a viewer in an event; one account may have several.
#[derive(Clone, Copy, Debug)]
struct Roles {
    holder: bool,
    claimant: bool,
    former: bool,
    provider: bool,
    account: bool,
}

impl Roles {
    fn of(viewer: &AccountName, parties: &Parties) -> Roles {
        let is = |party: &Option<Party>| party.as_ref().is_some_and(|party| party.account == *viewer);
        Roles {
            holder: is(&parties.holder),
            claimant: is(&parties.claimant),
            former: is(&parties.former),
            provider: parties.provider.as_ref() == Some(viewer),
            account: parties.account.as_ref() == Some(viewer),
        }
    }
}

/// Returns true if events of this kind are about the market itself, so that everyone may see them.
pub(crate) fn concerns_everyone(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::MarketOpened
            | EventKind::RulesChanged
            | EventKind::MarketClosing
            | EventKind::MarketEnded
            | EventKind::PriceChanged
            | EventKind::RenewalSet
    )
}

/// Returns the event as the viewer may see it, or None if it does not concern the viewer. `event` must be
/// complete.
pub fn redact(mut event: v1::Event, parties: &Parties, viewer: &Viewer) -> Option<v1::Event> {
    let Viewer::Account(viewer) = viewer else { return Some(event) };
    let roles = Roles::of(viewer, parties);
    // The holder of a node sees everything that its provider sees.
    let side_of_node = roles.holder || roles.provider;
    let concerned = match event.kind.as_mut()? {
        Kind::MarketOpened(_)
        | Kind::RulesChanged(_)
        | Kind::MarketClosing(_)
        | Kind::MarketEnded(_)
        | Kind::PriceChanged(_)
        | Kind::RenewalSet(_) => true,
        Kind::OfferPut(_)
        | Kind::UnitAdded(_)
        | Kind::UnitLeaving(_)
        | Kind::UnitBack(_)
        | Kind::UnitResting(_)
        | Kind::UnitResumed(_)
        | Kind::UnitRemoved(_) => roles.provider,
        Kind::BidPlaced(_) | Kind::BidAmended(_) | Kind::BidClosed(_) => roles.holder,
        Kind::Allocated(of) => {
            hide(!roles.holder, &mut of.bid, &mut of.tenant);
            side_of_node
        }
        Kind::Ready(of) => {
            hide(!roles.holder, &mut of.bid, &mut of.tenant);
            side_of_node
        }
        Kind::NoticeStarted(of) => {
            hide(!roles.holder, &mut of.bid, &mut of.tenant);
            hide_one(!roles.holder, &mut of.max_nodes);
            if !roles.holder && of.reason() == notice::Reason::Funds {
                of.set_reason(notice::Reason::Other);
            }
            side_of_node
        }
        Kind::NoticeMoved(of) => {
            hide(!roles.holder, &mut of.bid, &mut of.tenant);
            side_of_node
        }
        Kind::NoticeRescinded(of) => {
            hide(!roles.holder, &mut of.bid, &mut of.tenant);
            hide_one(!roles.holder, &mut of.max_nodes);
            side_of_node
        }
        Kind::Ended(of) => {
            hide(!roles.holder, &mut of.bid, &mut of.tenant);
            hide_one(!roles.holder, &mut of.max_nodes);
            if !roles.holder && of.reason() == EndReason::Funds {
                of.set_reason(EndReason::Other);
            }
            side_of_node
        }
        Kind::Claimed(of) => {
            hide_one(!side_of_node, &mut of.allocation);
            hide(!roles.claimant, &mut of.bid, &mut of.tenant);
            hide_one(!roles.former, &mut of.was);
            side_of_node || roles.claimant || roles.former
        }
        Kind::ClaimDropped(of) => {
            hide_one(!side_of_node, &mut of.allocation);
            hide(!roles.claimant, &mut of.bid, &mut of.tenant);
            side_of_node || roles.claimant
        }
        // A party sees itself as the holder only if it pays.
        Kind::Charged(of) => {
            let pays = roles.holder || roles.claimant;
            hide_one(!side_of_node, &mut of.allocation);
            hide(!pays, &mut of.bid, &mut of.tenant);
            if !pays && of.reason() == charge::Reason::Funds {
                of.set_reason(charge::Reason::Other);
            }
            pays || roles.provider
        }
        Kind::Rejected(_)
        | Kind::Repeated(_)
        | Kind::Funded(_)
        | Kind::BudgetSet(_)
        | Kind::BudgetRenewed(_) => roles.account,
    };
    concerned.then_some(event)
}

fn hide(hidden: bool, bid: &mut Option<u64>, tenant: &mut Option<String>) {
    hide_one(hidden, bid);
    hide_one(hidden, tenant);
}

fn hide_one<T>(hidden: bool, field: &mut Option<T>) {
    if hidden {
        *field = None;
    }
}

/// Returns the reason that an event shows. It is not known here if an allocation that has ended was the
/// caller's: the answer to the caller says ENDED, the event never does.
pub(super) fn event_reason(command: &Command, reject: Reject) -> Reject {
    let reject = as_missing(command, reject);
    if reject == Reject::Ended { Reject::UnknownAllocation } else { reject }
}

/// Replaces NOT_YOURS by UNKNOWN_…, so that what belongs to others looks as if it did not exist.
pub(crate) fn as_missing(command: &Command, reject: Reject) -> Reject {
    match (reject, command) {
        (Reject::NotYours, Command::AmendBid { .. } | Command::CancelBid { .. }) => Reject::UnknownBid,
        (Reject::NotYours, Command::ReleaseAllocation { .. } | Command::ReportReady { .. }) => {
            Reject::UnknownAllocation
        }
        (
            Reject::NotYours,
            Command::WithdrawUnit { .. } | Command::ReportUnitLost { .. } | Command::ResumeUnits { .. },
        ) => Reject::UnknownUnit,
        (reject, _) => reject,
    }
}
