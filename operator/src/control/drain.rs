//! Makes the pods of a node leave.

use super::Error;
use super::context::Context;
use super::slot::Scene;
use crate::plan::drain::{Act, PodView, next_look, plan};
use crate::world::pod_view;
use crate::{clock, metrics};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, EvictParams, Preconditions};
use std::time::Duration;
use tracing::info;

/// How long a node that is given up of one's own will may take to drain; then its pods are deleted.
const PATIENCE: SignedDuration = SignedDuration::from_mins(15);

/// One round; returns when to come again.
pub(super) async fn drain(
    scene: &Scene,
    deadline: Option<Timestamp>,
    began: Timestamp,
    context: &Context,
) -> Result<Duration, Error> {
    let node = scene.status().node.unwrap_or_default();
    let pods: Vec<_> = context.world().pods_on(&node).iter().filter_map(|pod| pod_view(pod)).collect();
    let (deadline, now) = (deadline.or(Some(began + PATIENCE)), clock::now());
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
    let params = EvictParams { delete_options: Some(of_this(pod, None)), ..EvictParams::default() };
    match api.evict(&pod.name, &params).await {
        Ok(_) => metrics::moved_pod("evicted"),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        // A disruption budget says not yet, or several of them cannot agree: the other pods go all the same.
        Err(kube::Error::Api(status)) if status.code == 429 || status.code >= 500 => {
            metrics::moved_pod("refused")
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

async fn delete(pod: &PodView, grace: SignedDuration, context: &Context) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &pod.namespace);
    let grace = u32::try_from(grace.as_secs()).unwrap_or(1).max(1);
    match api.delete(&pod.name, &of_this(pod, Some(grace))).await {
        Ok(_) => {
            info!(namespace = pod.namespace, pod = pod.name, grace, "deleted: there was no time to ask");
            metrics::moved_pod("deleted");
        }
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// This pod, and none of the same name that came later.
fn of_this(pod: &PodView, grace_period_seconds: Option<u32>) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
    DeleteParams { grace_period_seconds, preconditions: Some(preconditions), ..DeleteParams::default() }
}
