//! Steps of a gang slot: create and release its members, regroup its bid.

use super::{RETRY, record_event};
use crate::act::{create_slot, release};
use crate::api::{BidSlotSpec, BidSlotStatus, GangMember};
use crate::context::Context;
use crate::error::Error;
use crate::observe::gang::member_name;
use crate::observe::slot::SlotObjects;
use crate::plan::gang::{COMPLETE, GangStep, REGROUPING, REPLACING, WAITS};
use crate::{clock, failpoint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::runtime::events::EventType;
use kube::runtime::reflector::ObjectRef;
use kubebid_controller::phased::Progress;

/// Carries out a step of a gang slot, and records its outcome in the status.
pub(super) async fn act(
    step: &GangStep,
    objects: &SlotObjects,
    status: &mut BidSlotStatus,
    context: &Context,
) -> Result<Progress, Error> {
    let Some(bid) = status.bid else { return Ok(Progress::Done) };
    let nodes = objects.slot.spec.gang_nodes.unwrap_or_default();
    let now = Time(clock::now());
    match step {
        GangStep::AddMembers(allocations) => {
            for allocation in allocations {
                add_member(GangMember { bid, allocation: *allocation }, objects, context).await?;
                failpoint::hit("member-created");
            }
            Ok(Progress::RetryAfter(RETRY))
        }
        GangStep::ReleaseMembers { names, reason } => {
            let namespace = objects.slot.namespace().unwrap_or_default();
            for name in names {
                let member = context.stores.slots.get(&ObjectRef::new(name).within(&namespace));
                if let Some(member) = member {
                    release(&member, *reason, context).await?;
                    failpoint::hit("member-released");
                }
            }
            Ok(Progress::RetryAfter(RETRY))
        }
        GangStep::Enlarge => {
            context.engine().enlarge(&objects.slot, bid, nodes).await?;
            failpoint::hit("enlarged");
            Ok(Progress::Done)
        }
        GangStep::Record { reason, deadline, message } => {
            if let Some(message) = message {
                status.message = Some(message.clone()).filter(|message| !message.is_empty());
            }
            match (*reason, &status.message) {
                (COMPLETE, _) => {
                    let note = format!("bid {bid} has all {nodes} nodes of the gang");
                    record_event(objects, EventType::Normal, "GangComplete", note, context);
                }
                (REPLACING, Some(why)) => {
                    let note = format!("bid {bid} looks for a replacement until then: {why}");
                    record_event(objects, EventType::Warning, "GangShort", note, context);
                }
                (_, _) => {}
            }
            status.reason = Some((*reason).to_owned());
            status.deadline = deadline.map(Time);
            status.since = Some(now);
            Ok(Progress::Done)
        }
        GangStep::BeginRegroup { message } => {
            status.regroups += 1;
            status.regroup_time = Some(now.clone());
            status.since = Some(now);
            status.reason = Some(REGROUPING.to_owned());
            status.message = Some(message.clone());
            record_event(objects, EventType::Warning, REGROUPING, message.clone(), context);
            Ok(Progress::Done)
        }
        GangStep::Regroup => {
            failpoint::hit("regrouping");
            context.engine().regroup(&objects.slot, bid, status.regroups).await?;
            failpoint::hit("regrouped");
            status.regroup_time = None;
            status.deadline = None;
            status.since = Some(now);
            status.reason = Some(WAITS.to_owned());
            let note = format!("bid {bid} waits for all {nodes} nodes of the gang again");
            record_event(objects, EventType::Normal, "Regrouped", note, context);
            Ok(Progress::Done)
        }
        GangStep::EndSearch => {
            context.engine().end_search(&objects.slot, bid).await?;
            failpoint::hit("search-ended");
            Ok(Progress::Done)
        }
    }
}

/// Creates the slot of a member. It bids where its gang slot does.
async fn add_member(member: GangMember, objects: &SlotObjects, context: &Context) -> Result<(), Error> {
    let Some(bidnode) = &objects.bidnode else { return Ok(()) };
    let spec =
        BidSlotSpec { gang_nodes: None, release: None, member: Some(member), ..objects.slot.spec.clone() };
    let name = member_name(&bidnode.name_any(), member.allocation);
    create_slot(&name, spec, bidnode, &context.slot_writer).await
}
