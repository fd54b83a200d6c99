//! Steps of a slot at the engine: place its bid, amend it, answer a notice.

use super::{RETRY, move_to, record_event};
use crate::act::release;
use crate::api::{BidSlotStatus, ReleaseReason, SlotPhase, usd};
use crate::context::Context;
use crate::engine::{AmendOutcome, WithdrawOutcome};
use crate::error::Error;
use crate::observe::slot::{SlotObjects, instant};
use crate::plan::slot::Placement;
use crate::{clock, failpoint, metrics};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::events::EventType;
use kubebid_controller::phased::Progress;
use std::time::Duration;

/// The time after which the engine is asked again, if no event says more.
const POLL: Duration = Duration::from_secs(1);
/// The time after which a bid that has a claim is asked about again.
const CLAIM_WAIT: Duration = Duration::from_secs(10);
/// The time after which the amendment of a closed bid is tried again.
const CLOSED_WAIT: Duration = Duration::from_secs(60);

/// Places the bid that was begun, or finds it.
pub(super) async fn place(
    placement: Placement,
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Progress, Error> {
    failpoint::hit("begun");
    let search_first = match placement {
        Placement::SearchOnly => return find(objects, status, context).await,
        Placement::SearchFirst => true,
        Placement::New => false,
    };
    let Some(bidnode) = &objects.bidnode else { return Ok(Progress::Done) };
    match context.engine().place(bidnode, &objects.slot, search_first).await {
        Ok(bid) => {
            failpoint::hit("placed");
            status.bid = Some(bid);
            status.phase = SlotPhase::Bidding;
            status.reason = None;
            status.message = None;
            status.since = Some(Time(clock::now()));
            let ceiling = usd(status.ceiling_micros.unwrap_or_default());
            let note = format!("slot {} bids {ceiling} USD per hour, bid {bid}", objects.slot.name_any());
            record_event(objects, EventType::Normal, "BidPlaced", note, context);
            Ok(Progress::Done)
        }
        Err(kubebid_client::Error::Refused(refusal)) => {
            status.ceiling_micros = None;
            status.reason = Some("BidRefused".to_owned());
            let why = refusal.to_string();
            if status.message.as_ref() != Some(&why) {
                record_event(objects, EventType::Warning, "BidRefused", why.clone(), context);
                status.message = Some(why);
            }
            Err(kubebid_client::Error::Refused(refusal).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Finds the bid that was begun. The slot ends if it was not placed.
async fn find(
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Progress, Error> {
    match context.engine().find(&objects.slot).await? {
        Some(bid) => status.bid = Some(bid),
        None => status.phase = SlotPhase::Released,
    }
    Ok(Progress::Done)
}

/// Amends the bid to this ceiling.
pub(super) async fn amend(
    ceiling_micros: u64,
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Progress, Error> {
    let Some(bid) = status.bid else { return Ok(Progress::Done) };
    match context.engine().amend(&objects.slot, bid, ceiling_micros).await? {
        AmendOutcome::Done => {
            failpoint::hit("amended");
            status.ceiling_micros = Some(ceiling_micros);
            status.protected_until = None;
            Ok(Progress::Done)
        }
        AmendOutcome::Protected { until_us } => {
            status.protected_until = instant(until_us).map(Time);
            let left = status.protected_until.as_ref().map(|time| time.0.duration_since(clock::now()));
            let left = left.and_then(|left| Duration::try_from(left).ok()).unwrap_or(POLL);
            Ok(Progress::RetryAfter(left.max(POLL)))
        }
        AmendOutcome::BelowReserve => {
            release(&objects.slot, ReleaseReason::MaxBid, context).await?;
            Ok(Progress::RetryAfter(POLL))
        }
        AmendOutcome::Closed => Ok(Progress::RetryAfter(CLOSED_WAIT)),
    }
}

/// Cancels a bid that waits, so that the next one names all markets that are open to the slot. A bid that is about to get a
/// node stays. The new bid loses its place among bids of the same ceiling.
pub(super) async fn replace(
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Progress, Error> {
    let Some(bid) = status.bid else { return Ok(Progress::Done) };
    match context.engine().withdraw(&objects.slot, bid).await? {
        WithdrawOutcome::Done => {}
        // The next step is that of a bid with a node.
        WithdrawOutcome::Won => return Ok(Progress::Done),
        WithdrawOutcome::Claims => return Ok(Progress::RetryAfter(CLAIM_WAIT)),
    }
    failpoint::hit("withdrawn");
    let reason = "MarketsAdded";
    let slot = objects.slot.name_any();
    let note = format!("slot {slot} bids again: bid {bid} does not name all of its markets");
    record_event(objects, EventType::Normal, reason, note, context);
    status.replaced_bid = Some(bid);
    status.bid = None;
    status.bid_markets.clear();
    status.ceiling_micros = None;
    status.protected_until = None;
    status.phase = SlotPhase::Pending;
    status.reason = Some(reason.to_owned());
    status.message = None;
    status.since = Some(Time(clock::now()));
    Ok(Progress::Done)
}

/// Answers a notice: raises the bid to this ceiling, or lets the node go by this deadline. A node whose bid the engine does
/// not let raise is let go.
pub(super) async fn answer_notice(
    deadline: Timestamp,
    raise_to_micros: Option<u64>,
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Progress, Error> {
    if let (Some(ceiling_micros), Some(bid)) = (raise_to_micros, status.bid)
        && raise(bid, ceiling_micros, objects, context).await?
    {
        // The bid of a gang is its gang slot's.
        if objects.slot.spec.member.is_none() {
            status.ceiling_micros = Some(ceiling_micros);
        }
        // The event that the notice is rescinded is on its way.
        return Ok(Progress::RetryAfter(RETRY));
    }
    metrics::noticed(metrics::LET_GO);
    status.deadline = Some(Time(deadline));
    Ok(move_to(SlotPhase::Notice, "Preempted", objects, status, context))
}

/// Raises the bid to keep the node. Returns whether the engine has accepted that.
async fn raise(
    bid: u64,
    ceiling_micros: u64,
    objects: &SlotObjects,
    context: &Context,
) -> Result<bool, Error> {
    let known = context.engine().bid_cache().bid(bid);
    if known.is_some_and(|known| known.ceiling_micros >= ceiling_micros) {
        // Another member of its gang has raised the bid.
        return Ok(true);
    }
    match context.engine().amend(&objects.slot, bid, ceiling_micros).await {
        Ok(AmendOutcome::Done) => {
            metrics::noticed(metrics::RAISED);
            let note = format!("raised to {} USD to keep the node", usd(ceiling_micros));
            record_event(objects, EventType::Normal, "RaisedToStay", note, context);
            Ok(true)
        }
        Ok(AmendOutcome::Protected { .. } | AmendOutcome::BelowReserve | AmendOutcome::Closed) => Ok(false),
        Err(kubebid_client::Error::Refused(refusal)) => {
            let note = format!("the bid cannot be raised to keep the node: {refusal}");
            record_event(objects, EventType::Warning, "RaiseRefused", note, context);
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
