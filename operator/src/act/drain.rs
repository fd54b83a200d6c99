//! Removes pods from a node that is drained.

use crate::context::Context;
use crate::error::Error;
use crate::plan::drain::{PodView, Removal};
use crate::{deletion, metrics};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::SignedDuration;
use kube::api::{Api, DeleteParams, EvictParams};
use tracing::info;

/// Removes these pods.
pub(super) async fn drain(removals: &[Removal], context: &Context) -> Result<(), Error> {
    for removal in removals {
        context.check_leadership()?;
        match removal {
            Removal::Evict(pod) => evict(pod, context).await?,
            Removal::Delete(pod, grace) => delete(pod, *grace, context).await?,
        }
    }
    Ok(())
}

async fn evict(pod: &PodView, context: &Context) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &pod.namespace);
    let params = EvictParams { delete_options: Some(deletion::only(&pod.uid)), ..EvictParams::default() };
    match api.evict(&pod.name, &params).await {
        Ok(_) => metrics::moved_pod(metrics::EVICTED),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        // A disruption budget forbids it (429), or several budgets select the pod (500). The other pods are removed all the same.
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
