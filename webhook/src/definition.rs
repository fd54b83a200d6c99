//! Definitions of kinds with several versions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig,
    WebhookConversion,
};
use kube::core::crd::{MergeError, merge_crds};

/// Returns one definition of the definitions of all versions, which stores one of them and converts by the webhook of a
/// service. It has no bundle: that belongs to the authority.
///
/// The stored version should be the one that Kubernetes prefers, which is the newest stable one: namespace deletion and
/// garbage collection use it, and need no webhook then.
///
/// # Errors
/// Definitions of different kinds, and a stored version that is not among them.
pub fn merge(
    versions: Vec<CustomResourceDefinition>,
    stored: &str,
    namespace: &str,
    service: &str,
) -> Result<CustomResourceDefinition, MergeError> {
    let mut definition = merge_crds(versions, stored)?;
    let service = ServiceReference {
        namespace: namespace.to_owned(),
        name: service.to_owned(),
        path: Some("/convert".to_owned()),
        port: None,
    };
    let client_config = WebhookClientConfig { service: Some(service), ..WebhookClientConfig::default() };
    let webhook = WebhookConversion {
        client_config: Some(client_config),
        conversion_review_versions: vec!["v1".to_owned()],
    };
    let conversion = CustomResourceConversion { strategy: "Webhook".to_owned(), webhook: Some(webhook) };
    definition.spec.conversion = Some(conversion);
    Ok(definition)
}

/// Returns the version that a definition stores.
pub fn stored(definition: &CustomResourceDefinition) -> Option<&str> {
    definition.spec.versions.iter().find(|version| version.storage).map(|version| &version.name[..])
}
