//! Removes the finalizers of an operator, so that its objects and definitions can be deleted once it is gone.

use crate::api_error;
use crate::leader_election::{Leadership, Term};
use crate::object::{Object, ObjectName};
use crate::output::note;
use crate::process::{ProcessArgs, candidate, with_suffix};
use crate::writer::{WriteError, Writer};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
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

/// The error of a term that ended.
const TERM_ENDED: &str = "another replica took a Lease";

/// A replica still runs: it would add finalizers again.
#[derive(Debug, thiserror::Error)]
#[error("a replica holds the Lease {lease}: end all of them first, for example with kubectl scale")]
pub struct LeaseHeld {
    lease: String,
}

/// Runs `remove` while this process holds the Lease of the operator `program`, and the Leases `others` of its processes that
/// lead apart from it, so that no replica adds finalizers again.
///
/// # Errors
/// [`LeaseHeld`], a cluster that is not configured, and whatever `remove` fails with.
pub async fn uninstall(
    program: &'static str,
    others: &[&str],
    args: &ProcessArgs,
    remove: impl AsyncFnOnce(&Writer) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let client = args.client().await?;
    let writer = |leadership| Writer::new(client.clone(), program, "uninstall", leadership, args.dry_run);
    if args.alone || args.dry_run {
        return remove(&writer(Leadership::alone())).await;
    }
    let wait = Duration::from_secs(args.lease_seconds) + TAKE;
    let own = args.lease_name.as_deref().unwrap_or(program);
    // A name that no replica has: a replica of the same name would share its Lease.
    let identity = with_suffix(&format!("{program}-uninstall"));
    let mut terms = Vec::new();
    for lease in [own].iter().chain(others) {
        let candidate = candidate(lease, &identity, args, client.clone())?;
        note(format_args!("takes the Lease {lease}, within {wait:?}"));
        let led = tokio::select! {
            led = timeout(wait, candidate.lead()) => match led {
                Ok(term) => Ok(term),
                Err(_) => Err(not_led(lease, candidate.holder().await)),
            },
            () = any_ended(&mut terms) => Err(TERM_ENDED.into()),
        };
        match led {
            Ok(term) => terms.push(term),
            Err(error) => {
                release(terms).await;
                return Err(error);
            }
        }
    }
    let writer = writer(terms[0].leadership.clone());
    let removed = tokio::select! {
        removed = remove(&writer) => removed,
        () = any_ended(&mut terms) => Err(TERM_ENDED.into()),
    };
    release(terms).await;
    removed
}

/// Returns why a Lease could not be taken.
fn not_led(lease: &str, holder: Result<Option<String>, String>) -> Box<dyn Error> {
    match holder {
        Ok(Some(_)) => LeaseHeld { lease: lease.to_owned() }.into(),
        Ok(None) => format!("the Lease {lease} could not be taken in time").into(),
        Err(error) => format!("the Lease {lease} cannot be asked for: {error}").into(),
    }
}

/// Waits until one of the terms ends. They are renewed meanwhile.
async fn any_ended(terms: &mut [Term]) {
    let mut ended: FuturesUnordered<_> = terms.iter_mut().map(Term::ended).collect();
    if ended.next().await.is_none() {
        std::future::pending().await
    }
}

async fn release(terms: Vec<Term>) {
    for term in terms {
        term.release().await;
    }
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
        // Metadata has the same shape in all versions: a spec that this version cannot read has finalizers too.
        let page = match api.list_metadata(&params).await {
            Err(error) if api_error::is_not_found(&error) => return Ok(removed),
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
