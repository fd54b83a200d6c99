//! Custom resource definitions, made from the Rust types.

use crate::api::{BidNode, BidSlot, NodePoolLabelSet, POOL_LABELS, v2beta1};
use crate::market::{Account, InstanceType, Market, Offer};
use crate::policy::list;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    ValidationRule,
};
use kube::core::crd::MergeError;
use kube::{CustomResourceExt as _, Resource as _};
use kubebid_webhook::definition::merge;

/// The instance types that a BidNode may name by default.
pub const INSTANCE_TYPES: [&str; 5] = ["h100-8x", "h100-4x", "a100-8x", "a100-4x", "l40s-4x"];
/// The domains that a NodePoolLabelSet never sets labels of, with their subdomains.
pub const RESERVED_LABEL_DOMAINS: [&str; 3] = ["kubernetes.io", "k8s.io", "kubebid.io"];

/// The options of the definitions.
#[derive(Clone, Debug)]
pub struct CrdOptions {
    /// The instance types that a BidNode may name; any if the list is empty.
    pub instance_types: Vec<String>,
    /// The domains, besides [`RESERVED_LABEL_DOMAINS`], that a NodePoolLabelSet may not set labels of.
    pub reserved_label_domains: Vec<String>,
    /// The labels with the name of a node's pool. A set may give them its own name, and no other.
    pub pool_labels: Vec<String>,
    /// The webhook that converts BidNodes. Without one, v2beta1 is defined and not served.
    pub webhook: Option<WebhookService>,
}

/// The Service of the webhook that converts BidNodes.
#[derive(Clone, Debug)]
pub struct WebhookService {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub name: String,
}

/// Why the definitions cannot be printed.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// The versions of BidNode make no definition.
    #[error("BidNode: {0}")]
    Version(#[from] MergeError),
    /// A definition cannot be written.
    #[error("the YAML cannot be written: {0}")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

impl Default for CrdOptions {
    fn default() -> CrdOptions {
        CrdOptions {
            instance_types: INSTANCE_TYPES.map(str::to_owned).to_vec(),
            reserved_label_domains: Vec::new(),
            pool_labels: POOL_LABELS.map(str::to_owned).to_vec(),
            webhook: None,
        }
    }
}

/// Returns all definitions.
///
/// # Errors
/// [`CrdError`].
pub fn all(options: &CrdOptions) -> Result<[CustomResourceDefinition; 3], CrdError> {
    let mut label_set = NodePoolLabelSet::crd();
    for root in roots(&mut label_set) {
        root.x_kubernetes_validations.get_or_insert_default().extend(label_rules(options));
    }
    let mut crds = [bidnode(options)?, BidSlot::crd(), label_set];
    crds.iter_mut().flat_map(roots).for_each(known_formats);
    Ok(crds)
}

/// Returns the definition of BidNodes, which are stored in the version that the operator reads.
fn bidnode(options: &CrdOptions) -> Result<CustomResourceDefinition, CrdError> {
    let versions = vec![BidNode::crd(), v2beta1::BidNode::crd()];
    let (namespace, name) =
        options.webhook.as_ref().map_or(("", ""), |service| (&service.namespace[..], &service.name[..]));
    let mut bidnode = merge(versions, &BidNode::version(&()), namespace, name)?;
    if options.webhook.is_none() {
        bidnode.spec.conversion = None;
        let newer = v2beta1::BidNode::version(&());
        for version in bidnode.spec.versions.iter_mut().filter(|version| version.name == newer) {
            version.served = false;
        }
    }
    let names = options.instance_types.iter().map(|name| JSON(name.as_str().into()));
    for spec in roots(&mut bidnode).filter_map(|root| property(root, "spec")) {
        let schema = spec.properties.as_mut().and_then(|fields| {
            if fields.contains_key("instanceType") {
                return fields.get_mut("instanceType");
            }
            match fields.get_mut("instanceTypes")?.items.as_mut()? {
                JSONSchemaPropsOrArray::Schema(items) => Some(&mut **items),
                JSONSchemaPropsOrArray::Schemas(_) => None,
            }
        });
        if let Some(schema) = schema.filter(|_| !options.instance_types.is_empty()) {
            schema.enum_ = Some(names.clone().collect());
        }
    }
    Ok(bidnode)
}

/// Returns the rules about the keys of a NodePoolLabelSet.
fn label_rules(options: &CrdOptions) -> [ValidationRule; 2] {
    let pool_labels = list(&options.pool_labels);
    let reserved: Vec<&str> = RESERVED_LABEL_DOMAINS
        .into_iter()
        .chain(options.reserved_label_domains.iter().map(String::as_str))
        .collect();
    let pattern = reserved.join("|").replace('.', "[.]");
    let rule = |rule: String, message: String| ValidationRule {
        rule,
        message: Some(message),
        field_path: Some(".spec.labels".to_owned()),
        ..ValidationRule::default()
    };
    [
        rule(
            format!(
                "self.spec.labels.all(key, key in {pool_labels} || !key.matches('^([^/]*[.])?({pattern})/'))"
            ),
            format!("labels of {} and their subdomains are reserved", reserved.join(", ")),
        ),
        rule(
            format!(
                "{pool_labels}.all(key, !(key in self.spec.labels) || self.spec.labels[key] == self.metadata.name)"
            ),
            "a label that names the pool may only have the name of this set".to_owned(),
        ),
    ]
}

/// Replaces formats of unsigned numbers, which OpenAPI does not have: `kubectl apply` warns about unknown formats. Each number
/// has a minimum.
fn known_formats(schema: &mut JSONSchemaProps) {
    if matches!(schema.format.as_deref(), Some("uint32" | "uint64")) {
        schema.format = Some("int64".to_owned());
    }
    schema.properties.iter_mut().flat_map(|all| all.values_mut()).for_each(known_formats);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        known_formats(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        known_formats(values);
    }
}

/// Returns the definitions of the operator's own objects as a stream of YAML documents.
///
/// # Errors
/// [`CrdError`].
pub fn yaml(options: &CrdOptions) -> Result<String, CrdError> {
    Ok(documents(all(options)?)?)
}

/// Returns the definitions of the market's objects as a stream of YAML documents.
///
/// # Errors
/// [`CrdError`].
pub fn market_yaml() -> Result<String, CrdError> {
    let mut crds = [InstanceType::crd(), Market::crd(), Account::crd(), Offer::crd()];
    crds.iter_mut().flat_map(roots).for_each(known_formats);
    Ok(documents(crds)?)
}

fn documents(
    crds: impl IntoIterator<Item = CustomResourceDefinition>,
) -> Result<String, serde_saphyr::ser::Error> {
    let mut text = String::new();
    for crd in crds {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd)?);
    }
    Ok(text)
}

/// Returns the schemas of the objects of a definition, one for each version.
fn roots(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    crd.spec.versions.iter_mut().filter_map(|it| it.schema.as_mut()?.open_api_v3_schema.as_mut())
}

fn property<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> Option<&'a mut JSONSchemaProps> {
    schema.properties.as_mut()?.get_mut(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allowed_types::types_of;

    #[test]
    fn the_operator_reads_the_types_that_a_definition_was_made_for() {
        let types = |options: &CrdOptions| types_of(&all(options).unwrap()[0]);
        assert_eq!(types(&CrdOptions::default()), Some(INSTANCE_TYPES.map(str::to_owned).into()));
        assert_eq!(types(&CrdOptions { instance_types: Vec::new(), ..CrdOptions::default() }), None);
    }
}
