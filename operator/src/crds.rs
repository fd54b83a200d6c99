//! Custom resource definitions, made from the Rust types.

use crate::api::{BidNode, BidSlot};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

/// The instance types that a BidNode may name by default.
pub const INSTANCE_TYPES: [&str; 5] = ["h100-8x", "h100-4x", "a100-8x", "a100-4x", "l40s-4x"];

/// Returns both definitions. A BidNode may name only these instance types, or any if the list is empty.
pub fn all<S: AsRef<str>>(instance_types: &[S]) -> [CustomResourceDefinition; 2] {
    let mut bidnode = BidNode::crd();
    if let Some(schema) = instance_type(&mut bidnode)
        && !instance_types.is_empty()
    {
        schema.enum_ = Some(instance_types.iter().map(|name| JSON(name.as_ref().into())).collect());
    }
    let mut crds = [bidnode, BidSlot::crd()];
    for schema in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions).filter_map(|it| it.schema.as_mut()) {
        schema.open_api_v3_schema.iter_mut().for_each(known_formats);
    }
    crds
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

/// Returns both definitions as a stream of YAML documents.
pub fn yaml<S: AsRef<str>>(instance_types: &[S]) -> Result<String, serde_saphyr::ser::Error> {
    let mut text = String::new();
    for crd in all(instance_types) {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd)?);
    }
    Ok(text)
}

/// Returns the schema of the instance type of a BidNode.
fn instance_type(crd: &mut CustomResourceDefinition) -> Option<&mut JSONSchemaProps> {
    let version = crd.spec.versions.first_mut()?;
    let root = version.schema.as_mut()?.open_api_v3_schema.as_mut()?;
    let spec = root.properties.as_mut()?.get_mut("spec")?;
    spec.properties.as_mut()?.get_mut("instanceType")
}
