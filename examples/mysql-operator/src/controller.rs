//! The controller of Mysql objects: the kinds of their children, which of them are wanted, and the status.

use crate::api::Mysql;
use crate::children::{
    IMMUTABLE, claim_of, is_more, lacks_password, mysql_of, secret, service, size_of, stateful_set,
};
use crate::status::{CONFLICT, DEGRADED, status};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service};
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::{Client, Resource, ResourceExt as _};
use kubebid_controller::composite::{Child, Children, Composite, Kinds};
use kubebid_controller::object::objects;
use serde_json::{Value, json};

/// The controller of Mysql objects.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "kube's client has none")]
pub struct Mysqls {
    /// The cluster.
    pub client: Client,
    /// The namespace of the objects; all namespaces if it is None.
    pub namespace: Option<String>,
    /// The image of the servers.
    pub image: String,
}

impl Composite for Mysqls {
    type Object = Mysql;
    const NAME: &'static str = "mysqls";
    const WARNINGS: &'static [&'static str] = &[CONFLICT, DEGRADED];

    fn kinds(&self, kinds: &mut Kinds<'_, '_, Mysql>) {
        // No password but a new one is ever in the memory of this process.
        kinds.add_metadata::<Secret>(self.api());
        kinds.add::<Service>(self.api());
        kinds.add::<StatefulSet>(self.api());
        kinds.add_related::<PersistentVolumeClaim>(self.api(), mysql_of);
    }

    fn children(&self, mysql: &Mysql, observed: &Children) -> Vec<Child> {
        // If there is a Secret, this one is not written.
        let secret = secret(mysql, &random_password());
        let is_lost = lacks_password(mysql, observed);
        let secret = if is_lost { Child::kept(secret) } else { Child::created_once(secret) }.inherited();
        let service = Child::applied(service(mysql));
        // The template follows the claim. It cannot be changed: the StatefulSet is created again, without its pod.
        let storage = claim_of(mysql, observed).and_then(size_of).unwrap_or(&mysql.spec.storage);
        let set = Child::applied(stateful_set(mysql, &self.image, storage)).recreated_for(IMMUTABLE);
        [secret, service, set].into_iter().chain(growth(mysql, observed)).collect()
    }

    fn status(&self, mysql: &Mysql, observed: &Children, now: Timestamp) -> Value {
        json!(status(mysql, observed, now))
    }
}

impl Mysqls {
    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        objects(&self.client, self.namespace.as_deref())
    }
}

/// Returns the change of the claim that makes the volume larger, if it has to be.
fn growth(mysql: &Mysql, observed: &Children) -> Option<Child> {
    // The claim of a foreign StatefulSet is not ours.
    observed.get::<StatefulSet>(&mysql.name_any())?;
    let claim = claim_of(mysql, observed)?;
    let resources = json!({"requests": {"storage": mysql.spec.storage}});
    let patch = json!({"spec": {"resources": resources}});
    is_more(&mysql.spec.storage, size_of(claim)?).then(|| Child::patched(claim.clone(), patch))
}

/// Returns 128 random bits in hexadecimal digits.
fn random_password() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
