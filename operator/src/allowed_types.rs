//! The instance types that the definition of BidNodes allows.
//!
//! The API server checks the types that a client writes by the version that it writes. A client of v1 can also write the
//! annotation with further types, which belong to v2beta1, and no schema checks these. So the operator checks them by the same
//! list.

use crate::api::BidNode;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use kube::{Client, CustomResourceExt as _, Resource as _};
use kubebid_controller::Manager;
use kubebid_controller::leader_election::until_done;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tracing::warn;

/// The interval at which the definition is read again.
const INTERVAL: Duration = Duration::from_secs(60);

/// The instance types that the definition allows, as it was last read. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct AllowedTypes(Arc<RwLock<Option<BTreeSet<String>>>>);

impl AllowedTypes {
    /// Reads the definition, and reads it again every minute while the manager runs.
    pub async fn follow(manager: &mut Manager) -> AllowedTypes {
        let client = manager.client().clone();
        let read = until_done("the definition of BidNodes cannot be read", async || read(&client).await);
        let allowed = AllowedTypes(Arc::new(RwLock::new(read.await)));
        let followed = allowed.clone();
        manager.spawn_at_once(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                match self::read(&client).await {
                    Ok(types) => *followed.0.write().unwrap_or_else(PoisonError::into_inner) = types,
                    Err(error) => warn!(%error, "the definition of BidNodes cannot be read: as before"),
                }
            }
        });
        allowed
    }

    /// Calls a function with the types; `None` if any type is allowed.
    pub(crate) fn with<T>(&self, function: impl FnOnce(Option<&BTreeSet<String>>) -> T) -> T {
        function(self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref())
    }
}

async fn read(client: &Client) -> kube::Result<Option<BTreeSet<String>>> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let definition = definitions.get_opt(BidNode::crd_name()).await?;
    Ok(definition.as_ref().and_then(types_of))
}

/// Returns the instance types that a definition allows in the version that the operator reads; `None` if it allows any.
pub(crate) fn types_of(definition: &CustomResourceDefinition) -> Option<BTreeSet<String>> {
    let version = definition.spec.versions.iter().find(|it| it.name == BidNode::version(&()))?;
    let root = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
    let field = root.properties.as_ref()?.get("spec")?.properties.as_ref()?.get("instanceType")?;
    let names = field.enum_.as_ref()?.iter();
    Some(names.filter_map(|name| name.0.as_str().map(str::to_owned)).collect())
}
