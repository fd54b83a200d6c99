//! The steps of a slot at the engine: place its bid, amend it, answer a notice.

use super::{Outcome, moved, since_notice};
use crate::api::{BidSlotStatus, ReleaseReason, SlotPhase, usd};
use crate::auction::Amended;
use crate::control::Error;
use crate::control::context::Context;
use crate::control::objects::release;
use crate::control::slot::{ObservedObjects, instant};
use crate::{clock, fault, metrics};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::events::EventType;
use kubebid_strategy::AtNotice;
use std::time::Duration;
use tracing::warn;

/// How soon the engine is asked again where no event tells.
const BEAT: Duration = Duration::from_secs(1);
/// The time that an engine that says nothing is asked for the price to stay.
const PATIENCE: Duration = Duration::from_secs(10);
/// How old a bid that was begun may be before it is looked for: it may have been placed by who crashed.
const FRESH: Duration = Duration::from_secs(10);

pub(super) async fn place(
    observed: ObservedObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Outcome, Error> {
    fault::point("begun");
    let Some(owner) = &observed.owner else {
        // Nobody wants it, and a bid may stand all the same: the engine lists what it has.
        return abandon_begun(observed, status, context).await;
    };
    let age = status.bid_time.as_ref().map(|time| clock::now().duration_since(time.0)).unwrap_or_default();
    let again = Duration::try_from(age).is_ok_and(|age| age > FRESH);
    match context.auction().place(owner, &observed.slot, again).await {
        Ok(bid) => {
            fault::point("placed");
            status.bid = Some(bid);
            status.phase = SlotPhase::Bidding;
            status.reason = None;
            status.message = None;
            status.since = Some(Time(clock::now()));
            let ceiling = usd(status.ceiling_micros.unwrap_or_default());
            let note = format!("slot {} bids {ceiling} USD per hour, bid {bid}", observed.slot.name_any());
            observed.tell_owner(EventType::Normal, "BidPlaced", note, context);
            Ok(Outcome::Done)
        }
        Err(kubebid_client::Error::Refused(refusal)) => {
            status.ceiling_micros = None;
            status.reason = Some("BidRefused".to_owned());
            let why = refusal.to_string();
            if status.message.as_ref() != Some(&why) {
                observed.tell_owner(EventType::Warning, "BidRefused", why.clone(), context);
                status.message = Some(why);
            }
            Err(kubebid_client::Error::Refused(refusal).into())
        }
        Err(error) => Err(error.into()),
    }
}

async fn abandon_begun(
    observed: ObservedObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Outcome, Error> {
    match context.auction().find(&observed.slot).await? {
        Some(bid) => status.bid = Some(bid),
        None => status.phase = SlotPhase::Released,
    }
    Ok(Outcome::Done)
}

pub(super) async fn amend(
    observed: ObservedObjects,
    status: &mut BidSlotStatus,
    ceiling: u64,
    context: &Context,
) -> Result<Outcome, Error> {
    let Some(bid) = status.bid else { return Ok(Outcome::Done) };
    match context.auction().amend(&observed.slot, bid, ceiling).await? {
        Amended::Done => {
            fault::point("amended");
            status.ceiling_micros = Some(ceiling);
            status.protected_until = None;
            Ok(Outcome::Done)
        }
        Amended::Protected { until_us } => {
            status.protected_until = instant(until_us).map(Time);
            let left = status.protected_until.as_ref().map(|time| time.0.duration_since(clock::now()));
            let left = left.and_then(|left| Duration::try_from(left).ok()).unwrap_or(BEAT);
            Ok(Outcome::Later(left.max(BEAT)))
        }
        Amended::BelowReserve => {
            release(&observed.slot, ReleaseReason::MaxBid, context).await?;
            Ok(Outcome::Later(BEAT))
        }
        Amended::Closed => Ok(Outcome::Later(Duration::from_secs(60))),
    }
}

pub(super) async fn answer_notice(
    observed: ObservedObjects,
    status: &mut BidSlotStatus,
    deadline: Timestamp,
    context: &Context,
) -> Result<Outcome, Error> {
    let (Some(bid), Some(allocation), Some(owner)) = (status.bid, status.allocation, observed.owner.clone())
    else {
        return Ok(Outcome::Done);
    };
    let ceiling = observed.known.as_ref().map_or(0, |known| known.ceiling_micros);
    let answer = match context.auction().at_notice(&owner.spec, allocation).await {
        Ok(answer) => answer,
        // The notice does not wait for an engine that says nothing.
        Err(error) if since_notice(&observed).is_some_and(|time| time > PATIENCE) => {
            warn!(slot = observed.slot.name_any(), %error, "no price to stay is to be had: the node goes");
            Some(AtNotice::LetGo)
        }
        Err(error) => return Err(error.into()),
    };
    match answer {
        None => return Ok(Outcome::Later(BEAT / 4)),
        Some(AtNotice::RaiseTo { ceiling_micros }) if ceiling_micros > ceiling => {
            match context.auction().amend(&observed.slot, bid, ceiling_micros).await {
                Ok(Amended::Done) => {
                    metrics::noticed(metrics::RAISED);
                    let note = format!("raised to {} USD to keep the node", usd(ceiling_micros));
                    observed.tell_owner(EventType::Normal, "RaisedToStay", note, context);
                    status.ceiling_micros = Some(ceiling_micros);
                    return Ok(Outcome::Done);
                }
                Ok(Amended::Protected { .. } | Amended::BelowReserve | Amended::Closed) => {}
                // The notice does not wait for what the engine does not allow.
                Err(kubebid_client::Error::Refused(refusal)) => {
                    let note = format!("the bid cannot be raised to keep the node: {refusal}");
                    observed.tell_owner(EventType::Warning, "RaiseRefused", note, context);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Some(AtNotice::RaiseTo { .. } | AtNotice::LetGo) => {}
    }
    metrics::noticed(metrics::LET_GO);
    status.deadline = Some(Time(deadline));
    Ok(moved(&observed, status, SlotPhase::Notice, "Preempted", context))
}
