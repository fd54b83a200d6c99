//! Moves the objects of a kind into the version that its definition stores.
//!
//! The API server stores an object in that version whenever it is written, and leaves the others as they are. [`migrate`]
//! writes each object without a change, beside all other writers, and then takes the other versions out of the list of the
//! stored ones, so that a version can be dropped. To run it again after it was interrupted costs little: an object that is
//! stored in the version already is not stored again.

use crate::definition::stored;
use crate::sparse::Sparse;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Api, GetParams, ListParams, PartialObjectMeta, Request};
use kube::{Client, Resource as _};
use kubebid_controller::writer::{WriteError, Writer};
use kubebid_controller::{Object, ObjectName, api_error};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::sleep;
use tracing::info;

/// Objects in one page of a list.
const PAGE: u32 = 500;
/// Objects that are written at the same time.
const CONCURRENCY: usize = 8;
/// Attempts to write an object that other clients write at the same time.
const ATTEMPTS: usize = 10;
/// The interval at which the API server is asked if it stores the version.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The number of these intervals until the wait is given up.
const POLLS_MAX: usize = 240;
/// The failures that the message of an error names.
const NAMED_MAX: usize = 20;

/// Why the objects of a kind are not all migrated. Those that are stay so.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The API server refused a request, or did not answer.
    #[error("the cluster: {0}")]
    Cluster(#[from] kube::Error),
    /// The definition cannot be written.
    #[error("{0}: {1}")]
    Write(String, WriteError),
    /// Objects cannot be written. All others are migrated, and the definition still lists the other versions as stored.
    #[error("{} objects are not migrated, and {} are:{}", failures.len(), migrated.written, named(failures))]
    Incomplete {
        /// The objects that are migrated.
        migrated: Migrated,
        /// The objects that are not.
        failures: Vec<MigrateFailure>,
    },
    /// There is no such definition.
    #[error("there is no definition {0}")]
    NotDefined(String),
    /// The definition stores another version than that of the type.
    #[error("the definition stores {0}, not {1}: apply it with this version stored first")]
    OtherVersion(String, String),
    /// The definition changed while the objects were migrated.
    #[error("the definition stores another version meanwhile")]
    Changed,
    /// The API server does not store the version yet.
    #[error("the API server does not store {0} within a minute")]
    NotStored(String),
}

/// The outcome of a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Objects that were written.
    pub written: usize,
    /// Objects that were deleted meanwhile.
    pub gone: usize,
}

/// Why one object is not migrated.
#[derive(Debug)]
pub struct MigrateFailure {
    /// The object.
    pub name: ObjectName,
    /// The last error.
    pub error: WriteError,
}

/// Returns the text of some failures, a line each.
fn named(failures: &[MigrateFailure]) -> String {
    let line = |failure: &MigrateFailure| format!("\n  {}: {}", failure.name, failure.error);
    let more = failures.len().saturating_sub(NAMED_MAX);
    let rest = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    failures.iter().take(NAMED_MAX).map(line).collect::<String>() + &rest
}

/// The state of a kind before or after a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageCheck {
    /// The version in which objects are stored when they are written.
    pub stored: String,
    /// The versions in which objects may be stored.
    pub stored_versions: Vec<String>,
    /// Objects with field managers in a version that is not served.
    pub unserved: usize,
}

impl StorageCheck {
    /// Returns true if there is nothing to migrate.
    pub fn is_done(&self) -> bool {
        self.stored_versions == [self.stored.clone()] && self.unserved == 0
    }
}

/// The parts of a definition that a migration looks at.
struct Plan {
    stored: String,
    stored_versions: Vec<String>,
    /// The API versions that are served, with the group.
    served: BTreeSet<String>,
    group: String,
}

impl Plan {
    fn of(definition: &CustomResourceDefinition) -> Plan {
        let spec = &definition.spec;
        let served = spec.versions.iter().filter(|version| version.served);
        let status = definition.status.as_ref();
        Plan {
            stored: stored(definition).unwrap_or_default().to_owned(),
            stored_versions: status.and_then(|status| status.stored_versions.clone()).unwrap_or_default(),
            served: served.map(|version| format!("{}/{}", spec.group, version.name)).collect(),
            group: format!("{}/", spec.group),
        }
    }

    /// Returns true for an entry of a version of this group that is not served. Nothing can be applied to its object.
    fn is_unserved(&self, entry: &ManagedFieldsEntry) -> bool {
        let version = entry.api_version.as_deref().unwrap_or_default();
        version.starts_with(&self.group) && !self.served.contains(version)
    }
}

async fn definition(client: &Client, name: &str) -> Result<CustomResourceDefinition, MigrateError> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions.get_opt(name).await?.ok_or_else(|| MigrateError::NotDefined(name.to_owned()))
}

fn name_of<K: Object>() -> String {
    format!("{}.{}", K::plural(&()), K::group(&()))
}

type Page<K> = Vec<PartialObjectMeta<K>>;

/// Returns the objects of a kind, page by page.
fn pages<K: Object>(client: &Client) -> impl stream::Stream<Item = Result<Page<K>, MigrateError>> {
    let objects = Api::<PartialObjectMeta<K>>::all(client.clone());
    let first = Some(ListParams::default().limit(PAGE));
    stream::try_unfold((objects, first), async |(objects, params)| {
        let Some(params) = params else { return Ok(None) };
        let page = match objects.list(&params).await {
            // The version of the list is forgotten: begin again. What is migrated costs little.
            Err(kube::Error::Api(status)) if status.code == 410 => {
                objects.list(&ListParams::default().limit(PAGE)).await?
            }
            page => page?,
        };
        let rest = page.metadata.continue_.filter(|token| !token.is_empty());
        let rest = rest.map(|token| ListParams::default().limit(PAGE).continue_token(&token));
        Ok(Some((page.items, (objects, rest))))
    })
}

/// Returns what is left to migrate of a kind.
///
/// # Errors
/// [`MigrateError::Cluster`] and [`MigrateError::NotDefined`].
pub async fn check<K: Object>(client: &Client) -> Result<StorageCheck, MigrateError> {
    let plan = Plan::of(&definition(client, &name_of::<K>()).await?);
    let mut unserved = 0;
    let mut pages = std::pin::pin!(pages::<K>(client));
    while let Some(page) = pages.try_next().await? {
        let entries = page.iter().map(|object| object.metadata.managed_fields.iter().flatten());
        unserved += entries.filter(|entries| entries.clone().any(|entry| plan.is_unserved(entry))).count();
    }
    Ok(StorageCheck { stored: plan.stored, stored_versions: plan.stored_versions, unserved })
}

/// Stores all objects of a kind in the version of the type, which the definition stores.
///
/// # Errors
/// [`MigrateError`]. What is migrated until then stays so; a later call does the rest. An object that cannot be written holds
/// up no other: [`MigrateError::Incomplete`] names it at the end.
pub async fn migrate<K: Object>(writer: &Writer) -> Result<Migrated, MigrateError> {
    let (client, name) = (writer.client(), name_of::<K>());
    let plan = Plan::of(&definition(client, &name).await?);
    if plan.stored != K::version(&()) {
        return Err(MigrateError::OtherVersion(plan.stored, K::version(&()).into_owned()));
    }
    until_stored::<K>(client).await?;
    let (mut migrated, mut failures) = (Migrated::default(), Vec::new());
    let mut pages = std::pin::pin!(pages::<K>(client));
    while let Some(page) = pages.try_next().await? {
        let written = stream::iter(page).map(|object| write(writer, object, &plan));
        let written: Vec<_> = written.buffer_unordered(CONCURRENCY).collect().await;
        for outcome in written {
            match outcome {
                Ok(true) => migrated.written += 1,
                Ok(false) => migrated.gone += 1,
                Err(failure) => failures.push(failure),
            }
        }
        info!(
            written = migrated.written,
            gone = migrated.gone,
            failed = failures.len(),
            "objects of {name} are migrated"
        );
    }
    if !failures.is_empty() {
        return Err(MigrateError::Incomplete { migrated, failures });
    }
    trim(writer, &name, &plan.stored).await?;
    Ok(migrated)
}

/// Waits until the API server stores the version: it reads a definition a moment after that was written.
async fn until_stored<K: Object>(client: &Client) -> Result<(), MigrateError> {
    let version = K::api_version(&()).into_owned();
    let hash = Sha256::digest(format!("{version}/{}", K::kind(&())));
    let hash = serde_json::to_value(ByteString(hash[..8].to_vec())).map_err(kube::Error::SerdeError)?;
    for _ in 0..POLLS_MAX {
        let resources = client.list_api_group_resources(&version).await?.resources;
        let resource = resources.into_iter().find(|resource| resource.name == K::plural(&()));
        if resource.is_some_and(|resource| resource.storage_version_hash.as_deref() == hash.as_str()) {
            return Ok(());
        }
        sleep(POLL_INTERVAL).await;
    }
    Err(MigrateError::NotStored(version))
}

/// Writes an object as it is, and as it is then if other clients write it at the same time. Returns false if it is gone.
async fn write<K: Object>(
    writer: &Writer,
    mut object: PartialObjectMeta<K>,
    plan: &Plan,
) -> Result<bool, MigrateFailure> {
    let name = ObjectName::of(&object);
    let mut attempt = 1;
    let error = loop {
        match write_at_version(writer, &object, plan).await {
            Ok(is_written) => return Ok(is_written),
            Err(WriteError::Conflict) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => break error,
        }
        match read_metadata(writer.client(), &name).await {
            Ok(Some(newer)) => object = newer,
            Ok(None) => return Ok(false),
            Err(error) => break error.into(),
        }
    };
    Err(MigrateFailure { name, error })
}

async fn read_metadata<K: Object>(
    client: &Client,
    name: &ObjectName,
) -> kube::Result<Option<PartialObjectMeta<K>>> {
    let namespace = Some(&name.namespace[..]).filter(|namespace| !namespace.is_empty());
    let url = K::url_path(&(), namespace);
    let request = Request::new(url).get_metadata(&name.name, &GetParams::default());
    match client.request(request.map_err(kube::Error::BuildRequest)?).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if api_error::is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes an object as it is, unless it has changed. Returns false if it is gone.
async fn write_at_version<K: Object>(
    writer: &Writer,
    object: &PartialObjectMeta<K>,
    plan: &Plan,
) -> Result<bool, WriteError> {
    let metadata = object.metadata.clone();
    let name = metadata.name.unwrap_or_default();
    let entries = metadata.managed_fields.unwrap_or_default();
    let served: Vec<_> = entries.iter().filter(|entry| !plan.is_unserved(entry)).collect();
    // Without field managers, so that the patch changes something: another one is not sent.
    let mut sparse = Sparse::<K>::named(&name, metadata.uid, None);
    sparse.metadata.namespace = metadata.namespace;
    // An empty list would be ignored; one empty entry clears the list.
    let served = if served.is_empty() { json!([{}]) } else { json!(served) };
    let patch = json!({"metadata": {"resourceVersion": metadata.resource_version, "managedFields": served}});
    let written = writer.patch(&sparse, patch).await;
    if let Some(uid) = &sparse.meta().uid {
        writer.forget(uid);
    }
    Ok(written?.is_some())
}

/// Takes all versions but one out of the list of the stored ones.
async fn trim(writer: &Writer, name: &str, version: &str) -> Result<(), MigrateError> {
    loop {
        let seen = definition(writer.client(), name).await?;
        let plan = Plan::of(&seen);
        if plan.stored != version {
            return Err(MigrateError::Changed);
        }
        if plan.stored_versions == [version] || writer.is_dry_run() {
            return Ok(());
        }
        let status = json!({"storedVersions": [version]});
        let object = Sparse::<CustomResourceDefinition>::named(name, None, seen.metadata.resource_version);
        match writer.status(&object, &status).await {
            Ok(_) => info!("{name} is stored in {version} alone"),
            // The definition has a new bundle, for example.
            Err(WriteError::Conflict) => {}
            Err(error) => return Err(MigrateError::Write(name.to_owned(), error)),
        }
    }
}
