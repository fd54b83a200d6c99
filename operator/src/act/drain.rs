//! Removes pods from a node that is drained.

use crate::context::Context;
use crate::error::Error;
use crate::metrics;
use crate::plan::drain::{PodView, Removal};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::SignedDuration;
use kubebid_controller::ObjectName;
use kubebid_controller::writer::Eviction;
use tracing::info;

/// Removes these pods.
pub(super) async fn drain(removals: &[Removal], context: &Context) -> Result<(), Error> {
    for removal in removals {
        match removal {
            Removal::Evict(pod) => evict(pod, context).await?,
            Removal::Delete(pod, grace) => delete(pod, *grace, context).await?,
        }
    }
    Ok(())
}

fn name_of(pod: &PodView) -> ObjectName {
    ObjectName { namespace: pod.namespace.clone(), name: pod.name.clone() }
}

async fn evict(pod: &PodView, context: &Context) -> Result<(), Error> {
    match context.slot_writer.evict(&name_of(pod), &pod.uid).await? {
        Eviction::Accepted => metrics::moved_pod(metrics::EVICTED),
        // The other pods are removed all the same.
        Eviction::Refused => metrics::moved_pod(metrics::REFUSED),
        Eviction::Gone => {}
    }
    Ok(())
}

async fn delete(pod: &PodView, grace: SignedDuration, context: &Context) -> Result<(), Error> {
    let grace = u32::try_from(grace.as_secs()).unwrap_or(1).max(1);
    if context.slot_writer.delete_by::<Pod>(&name_of(pod), &pod.uid, Some(grace)).await? {
        info!(namespace = pod.namespace, pod = pod.name, grace, "deleted: there was no time to ask");
        metrics::moved_pod(metrics::DELETED);
    }
    Ok(())
}
