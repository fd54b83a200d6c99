//! The instance types that the definition of BidNodes allows.
//!
//! The API server checks the types that a client writes by the version that it writes. A client of v1 can also write the
//! annotation with further types, which belong to v2beta1, and no schema checks these. So the operator checks them by the same
//! list, and they count only while v2beta1 is served.

use crate::api::{BidNode, v2beta1};
use crate::plan::scope::Scope;
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
pub struct AllowedTypes(Arc<RwLock<Definition>>);

/// The definition, as far as it says which types count.
#[derive(Debug, Default)]
struct Definition {
    /// The types; `None` if any type is allowed.
    types: Option<BTreeSet<String>>,
    /// True if clients may write v2beta1.
    serves_v2beta1: bool,
}

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
                    Ok(read) => *followed.0.write().unwrap_or_else(PoisonError::into_inner) = read,
                    Err(error) => warn!(%error, "the definition of BidNodes cannot be read: as before"),
                }
            }
        });
        allowed
    }

    /// Returns the scope of a BidNode, with the types of it that count.
    pub(crate) fn scope_of(&self, bidnode: &BidNode) -> Scope {
        let definition = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if definition.serves_v2beta1 {
            Scope::of_bidnode(bidnode, definition.types.as_ref())
        } else {
            Scope::of_v1(bidnode)
        }
    }
}

async fn read(client: &Client) -> kube::Result<Definition> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let definition = definitions.get_opt(BidNode::crd_name()).await?;
    Ok(definition
        .map(|it| Definition { types: types_of(&it), serves_v2beta1: serves_v2beta1(&it) })
        .unwrap_or_default())
}

fn serves_v2beta1(definition: &CustomResourceDefinition) -> bool {
    let name = v2beta1::BidNode::version(&());
    definition.spec.versions.iter().any(|version| version.name == name && version.served)
}

/// Returns the instance types that a definition allows in the version that the operator reads; `None` if it allows any.
pub(crate) fn types_of(definition: &CustomResourceDefinition) -> Option<BTreeSet<String>> {
    let version = definition.spec.versions.iter().find(|it| it.name == BidNode::version(&()))?;
    let root = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
    let field = root.properties.as_ref()?.get("spec")?.properties.as_ref()?.get("instanceType")?;
    let names = field.enum_.as_ref()?.iter();
    Some(names.filter_map(|name| name.0.as_str().map(str::to_owned)).collect())
}
