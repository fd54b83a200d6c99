//! Drains a node: makes its pods leave.

use super::Error;
use super::context::Context;
use super::slot::ObservedObjects;
use crate::plan::drain::{Act, PodView, next_look, plan};
use crate::world::pod_view;
use crate::{clock, deletion, metrics};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, EvictParams};
use std::time::Duration;
use tracing::info;

/// One round; returns when to come again. Who is not gone when the time is over is deleted.
pub(super) async fn drain(
    observed: &ObservedObjects,
    deadline: Option<Timestamp>,
    began: Timestamp,
    context: &Context,
) -> Result<Duration, Error> {
    let node = observed.status().node.unwrap_or_default();
    let pods: Vec<_> = context.world().pods_on(&node).iter().filter_map(|pod| pod_view(pod)).collect();
    let (deadline, now) = (deadline.or(Some(began + context.limits().drain)), clock::now());
    for act in plan(&pods, deadline, now) {
        context.leads()?;
        match act {
            Act::Evict(pod) => evict(&pod, context).await?,
            Act::Delete(pod, grace) => delete(&pod, grace, context).await?,
        }
    }
    Ok(Duration::try_from(next_look(&pods, deadline, now)).unwrap_or(Duration::from_millis(200)))
}

async fn evict(pod: &PodView, context: &Context) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &pod.namespace);
    let params = EvictParams { delete_options: Some(deletion::only(&pod.uid)), ..EvictParams::default() };
    match api.evict(&pod.name, &params).await {
        Ok(_) => metrics::moved_pod(metrics::EVICTED),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        // A disruption budget says not yet, or several of them cannot agree: the other pods go all the same.
        Err(kube::Error::Api(status)) if status.code == 429 || status.code >= 500 => {
            metrics::moved_pod(metrics::REFUSED)
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

async fn delete(pod: &PodView, grace: SignedDuration, context: &Context) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &pod.namespace);
    let grace = u32::try_from(grace.as_secs()).unwrap_or(1).max(1);
    match api
        .delete(&pod.name, &DeleteParams { grace_period_seconds: Some(grace), ..deletion::only(&pod.uid) })
        .await
    {
        Ok(_) => {
            info!(namespace = pod.namespace, pod = pod.name, grace, "deleted: there was no time to ask");
            metrics::moved_pod(metrics::DELETED);
        }
        gone => deletion::done_or_gone(gone)?,
    }
    Ok(())
}
