//! Objects with the bundle of a webhook: definitions with a conversion webhook, and configurations of admission webhooks.

use crate::sparse::Sparse;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Client, Resource};
use kubebid_controller::writer::{WriteError, Writer};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;

/// An object that says which CAs a client of our webhooks trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A definition with a conversion webhook, by name.
    Definition(String),
    /// A configuration of webhooks that change objects, by name.
    Mutating(String),
    /// A configuration of webhooks that check objects, by name.
    Validating(String),
}

/// The bundle of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bundle {
    /// The bundle in PEM; empty if there is none, or its webhooks do not agree on one.
    pub(super) text: String,
    /// The names that clients expect in the certificate.
    pub(super) server_names: Vec<String>,
    /// The names of the webhooks in a configuration.
    pub(super) webhooks: Vec<String>,
    pub(super) uid: Option<String>,
    pub(super) version: Option<String>,
}

/// The kinds of objects that have a bundle.
trait Bundled: Resource<DynamicType = ()> + Send + Sync + 'static {
    /// Returns the configurations of clients, each with its name. One that has no webhook has none.
    fn clients(object: &Sparse<Self>) -> Vec<(String, &Value)>
    where
        Self: Sized;

    /// Returns the fields that set a bundle.
    fn fields(bundle: &Value, webhooks: &[String]) -> Value;
}

impl Bundled for CustomResourceDefinition {
    fn clients(object: &Sparse<Self>) -> Vec<(String, &Value)> {
        let webhook = object.get("/spec/conversion/webhook/clientConfig");
        webhook.into_iter().map(|client| (String::new(), client)).collect()
    }

    fn fields(bundle: &Value, _: &[String]) -> Value {
        json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}})
    }
}

fn clients_of<K: Bundled>(object: &Sparse<K>) -> Vec<(String, &Value)> {
    let webhooks = object.get("/webhooks").and_then(Value::as_array);
    let client = |webhook: &'_ Value| webhook["name"].as_str().unwrap_or_default().to_owned();
    webhooks.into_iter().flatten().map(|webhook| (client(webhook), &webhook["clientConfig"])).collect()
}

fn fields_of(bundle: &Value, webhooks: &[String]) -> Value {
    let webhooks = webhooks.iter().map(|name| json!({"name": name, "clientConfig": {"caBundle": bundle}}));
    json!({"webhooks": webhooks.collect::<Vec<_>>()})
}

impl Bundled for MutatingWebhookConfiguration {
    fn clients(object: &Sparse<Self>) -> Vec<(String, &Value)> {
        clients_of(object)
    }

    fn fields(bundle: &Value, webhooks: &[String]) -> Value {
        fields_of(bundle, webhooks)
    }
}

impl Bundled for ValidatingWebhookConfiguration {
    fn clients(object: &Sparse<Self>) -> Vec<(String, &Value)> {
        clients_of(object)
    }

    fn fields(bundle: &Value, webhooks: &[String]) -> Value {
        fields_of(bundle, webhooks)
    }
}

/// Returns the bundle of an object; None if the object is absent or has no webhook: no client comes by way of it.
fn bundle_of<K: Bundled>(object: Option<Sparse<K>>) -> Option<Bundle> {
    let object = object?;
    let clients = K::clients(&object);
    let text = |client: &Value| {
        let bytes = serde_json::from_value::<ByteString>(client["caBundle"].clone()).unwrap_or_default();
        String::from_utf8(bytes.0).unwrap_or_default()
    };
    let first = text(clients.first()?.1);
    let agree = clients.iter().all(|(_, client)| text(client) == first);
    let server_names: BTreeSet<String> =
        clients.iter().filter_map(|(_, client)| server_name(client)).collect();
    Some(Bundle {
        text: if agree { first } else { String::new() },
        server_names: server_names.into_iter().collect(),
        webhooks: clients.into_iter().map(|(name, _)| name).collect(),
        uid: object.metadata.uid,
        version: object.metadata.resource_version,
    })
}

/// Returns the name that the API server expects in the certificate of a webhook.
fn server_name(client: &Value) -> Option<String> {
    let text = |pointer: &str| client.pointer(pointer).and_then(Value::as_str);
    match (text("/service/name"), text("/service/namespace"), text("/url")) {
        (Some(name), Some(namespace), _) => Some(format!("{name}.{namespace}.svc")),
        (_, _, Some(url)) => {
            let url: http::Uri = url.parse().ok()?;
            Some(url.host()?.trim_matches(['[', ']']).to_owned())
        }
        _ => None,
    }
}

fn api<K: Bundled<Scope = k8s_openapi::ClusterResourceScope>>(client: &Client) -> Api<Sparse<K>> {
    Api::all(client.clone())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Target::Definition(_) => "CustomResourceDefinition",
            Target::Mutating(_) => "MutatingWebhookConfiguration",
            Target::Validating(_) => "ValidatingWebhookConfiguration",
        };
        write!(f, "{kind} {}", self.name())
    }
}

type Follows = BoxStream<'static, Result<Option<Bundle>, watcher::Error>>;

impl Target {
    fn name(&self) -> &str {
        match self {
            Target::Definition(name) | Target::Mutating(name) | Target::Validating(name) => name,
        }
    }

    /// Reads the bundle.
    pub(super) async fn read(&self, client: &Client) -> Result<Option<Bundle>, kube::Error> {
        let name = self.name();
        Ok(match self {
            Target::Definition(_) => bundle_of(api::<CustomResourceDefinition>(client).get_opt(name).await?),
            Target::Mutating(_) => {
                bundle_of(api::<MutatingWebhookConfiguration>(client).get_opt(name).await?)
            }
            Target::Validating(_) => {
                bundle_of(api::<ValidatingWebhookConfiguration>(client).get_opt(name).await?)
            }
        })
    }

    /// Returns the bundle whenever the object changes.
    pub(super) fn follow(&self, client: &Client) -> Follows {
        fn follow<K>(client: &Client, name: &str) -> Follows
        where
            K: Bundled<Scope = k8s_openapi::ClusterResourceScope>,
        {
            watch_object(api::<K>(client), name).default_backoff().map_ok(bundle_of).boxed()
        }
        match self {
            Target::Definition(name) => follow::<CustomResourceDefinition>(client, name),
            Target::Mutating(name) => follow::<MutatingWebhookConfiguration>(client, name),
            Target::Validating(name) => follow::<ValidatingWebhookConfiguration>(client, name),
        }
    }

    /// Writes the bundle, and no other field, unless the object has changed since `seen`: then another replica may have
    /// written a newer one.
    pub(super) async fn write(&self, writer: &Writer, seen: &Bundle, text: &str) -> Result<(), WriteError> {
        async fn write<K: Bundled>(
            writer: &Writer,
            name: &str,
            seen: &Bundle,
            text: &str,
        ) -> Result<(), WriteError> {
            let bundle = serde_json::to_value(ByteString(text.as_bytes().to_vec()));
            let bundle = bundle.map_err(kube::Error::SerdeError)?;
            let object = Sparse::<K>::named(name, seen.uid.clone(), seen.version.clone());
            writer.apply(&object.with(K::fields(&bundle, &seen.webhooks))).await.map(|_| ())
        }
        let name = self.name();
        match self {
            Target::Definition(_) => write::<CustomResourceDefinition>(writer, name, seen, text).await,
            Target::Mutating(_) => write::<MutatingWebhookConfiguration>(writer, name, seen, text).await,
            Target::Validating(_) => write::<ValidatingWebhookConfiguration>(writer, name, seen, text).await,
        }
    }
}
