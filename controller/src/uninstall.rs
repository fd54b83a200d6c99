//! Removes the finalizers of an operator, so that its objects and definitions can be deleted once it is gone.

use crate::leader_election::Leadership;
use crate::object::{Object, ObjectName};
use crate::process::{ProcessArgs, candidate, client};
use crate::writer::{WriteError, Writer};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;
use tokio::time::timeout;

/// Objects in one page of a list.
const PAGE: u32 = 500;
/// The time to wait for the Lease beyond its duration: a replica that crashed holds it until it ends.
const TAKE: Duration = Duration::from_secs(5);

/// A replica still runs: it would add finalizers again.
#[derive(Debug, thiserror::Error)]
#[error("a replica of {program} holds the Lease: end all of them first, for example with kubectl scale")]
pub struct LeaseHeld {
    program: &'static str,
}

/// Runs `remove` while this process holds the Lease of the operator `program`, so that no replica adds finalizers again.
///
/// # Errors
/// [`LeaseHeld`], a cluster that is not configured, and whatever `remove` fails with.
pub async fn uninstall(
    program: &'static str,
    args: &ProcessArgs,
    remove: impl AsyncFnOnce(&Writer) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let client = client(args).await?;
    let writer = |leadership| Writer::new(client.clone(), program, "uninstall", leadership, args.dry_run);
    if args.alone || args.dry_run {
        return remove(&writer(Leadership::alone())).await;
    }
    let candidate = candidate(program, args, client.clone())?;
    let lease = Duration::from_secs(args.lease_seconds);
    let term = timeout(lease + TAKE, candidate.lead()).await;
    let mut term = term.map_err(|_| LeaseHeld { program })?;
    let writer = writer(term.leadership.clone());
    let removed = tokio::select! {
        removed = remove(&writer) => removed,
        () = term.ended() => Err("another replica took the Lease".into()),
    };
    term.release().await;
    removed
}

/// Removes a finalizer from all objects of a kind, which may not be defined. Returns the objects that had it.
///
/// # Errors
/// [`WriteError`], after some objects were changed: it can be repeated.
pub async fn remove_finalizer<K: Object>(
    writer: &Writer,
    finalizer: &str,
) -> Result<BTreeSet<ObjectName>, WriteError> {
    remove_finalizer_in(writer, &Api::<K>::all(writer.client().clone()), finalizer).await
}

/// Works like [`remove_finalizer`], for the objects that `api` lists.
///
/// # Errors
/// [`WriteError`], after some objects were changed: it can be repeated.
pub async fn remove_finalizer_in<K: Object>(
    writer: &Writer,
    api: &Api<K>,
    finalizer: &str,
) -> Result<BTreeSet<ObjectName>, WriteError> {
    let mut removed = BTreeSet::new();
    let mut params = ListParams::default().limit(PAGE);
    let mut has_conflicts = false;
    loop {
        let page = match api.list(&params).await {
            // The kind is not defined in the cluster.
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(removed),
            listed => listed?,
        };
        for object in page.items.iter().filter(|object| has(*object, finalizer)) {
            removed.insert(ObjectName::of(object));
            match writer.remove_finalizer(object, finalizer).await {
                // Somebody changes it at the same time: the next round sees it as it is then.
                Err(WriteError::Conflict) => has_conflicts = true,
                done => done?,
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None if !has_conflicts => return Ok(removed),
            None => (params, has_conflicts) = (ListParams::default().limit(PAGE), false),
        }
    }
}

fn has<K: Object>(object: &K, finalizer: &str) -> bool {
    object.finalizers().iter().any(|name| name == finalizer)
}
