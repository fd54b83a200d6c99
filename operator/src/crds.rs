//! Custom resource definitions, made from the Rust types.

use crate::api::{BidNode, BidSlot, NodePoolLabelSet, POOL_LABELS};
use crate::market::{Account, InstanceType, Market, Offer};
use crate::policy::list;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    ValidationRule,
};
use kube::CustomResourceExt as _;

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
}

impl Default for CrdOptions {
    fn default() -> CrdOptions {
        CrdOptions {
            instance_types: INSTANCE_TYPES.map(str::to_owned).to_vec(),
            reserved_label_domains: Vec::new(),
            pool_labels: POOL_LABELS.map(str::to_owned).to_vec(),
        }
    }
}

/// Returns all definitions.
pub fn all(options: &CrdOptions) -> [CustomResourceDefinition; 3] {
    let mut bidnode = BidNode::crd();
    if let Some(schema) =
        root(&mut bidnode).and_then(|root| property(property(root, "spec")?, "instanceType"))
        && !options.instance_types.is_empty()
    {
        schema.enum_ = Some(options.instance_types.iter().map(|name| JSON(name.as_str().into())).collect());
    }
    let mut label_set = NodePoolLabelSet::crd();
    if let Some(root) = root(&mut label_set) {
        root.x_kubernetes_validations.get_or_insert_default().extend(label_rules(options));
    }
    let mut crds = [bidnode, BidSlot::crd(), label_set];
    crds.iter_mut().filter_map(root).for_each(known_formats);
    crds
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
/// A value that YAML cannot hold.
pub fn yaml(options: &CrdOptions) -> Result<String, serde_saphyr::ser::Error> {
    documents(all(options))
}

/// Returns the definitions of the market's objects as a stream of YAML documents.
///
/// # Errors
/// A value that YAML cannot hold.
pub fn market_yaml() -> Result<String, serde_saphyr::ser::Error> {
    let mut crds = [InstanceType::crd(), Market::crd(), Account::crd(), Offer::crd()];
    crds.iter_mut().filter_map(root).for_each(known_formats);
    documents(crds)
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

/// Returns the schema of the objects of a definition.
fn root(crd: &mut CustomResourceDefinition) -> Option<&mut JSONSchemaProps> {
    crd.spec.versions.first_mut()?.schema.as_mut()?.open_api_v3_schema.as_mut()
}

fn property<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> Option<&'a mut JSONSchemaProps> {
    schema.properties.as_mut()?.get_mut(name)
}
