//! Admission policies, printed as YAML.

use crate::api::{NodePoolLabelSet, TAINT_UNREGISTERED};
use crate::control::LabelOptions;
use kube::Resource as _;
use serde_json::{Value, json};

/// The name of the policy and of its binding.
pub const LABELS: &str = "node-pool-labels.kubebid.io";

/// Returns a MutatingAdmissionPolicy and its binding, which put the labels of NodePoolLabelSets into the first write of
/// each Node, with the annotations that the operator would write: no pod is bound to a node that has no labels yet. Nodes of
/// BidNodes are left to the operator, which labels them before pods can be bound to them.
///
/// The policy is evaluated once for each set.
pub fn labels(options: &LabelOptions) -> [Value; 2] {
    let rules = &options.rules;
    let pool_labels = list(&rules.pool_labels);
    let (managed, previous) = (quoted(&rules.managed_annotation), quoted(&rules.previous_annotation));
    // The same as `plan::labels`, for a node that remembers nothing.
    let labels = "object.metadata.?labels.orValue({})";
    let names_pool = format!("{pool_labels}.filter(key, key in {labels} && {labels}[key] != '')[?0]");
    let is_in_pool = format!("{names_pool}.optMap(key, {labels}[key]).orValue('') == params.metadata.name");
    let is_new = format!("!({managed} in object.metadata.?annotations.orValue({{}}))");
    let is_bare = format!(
        "!object.?spec.?taints.orValue([]).exists(taint, taint.key == {})",
        quoted(TAINT_UNREGISTERED)
    );
    let counts = "!has(params.metadata.deletionTimestamp) && \
                  params.metadata.?annotations['labels.banzaicloud.io/paused'].orValue('') != 'true'";
    let is_own_pool = format!(
        "{pool_labels}.all(key, params.spec.labels[?key].orValue(params.metadata.name) == params.metadata.name)"
    );
    let condition = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": LABELS},
        "spec": {
            // A node without labels for a moment is better than no node.
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "paramKind": {
                "apiVersion": NodePoolLabelSet::api_version(&()),
                "kind": NodePoolLabelSet::kind(&()),
            },
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]},
            ]},
            "matchConditions": [
                condition("in-pool", &is_in_pool),
                condition("not-of-a-bidnode", &is_bare),
                condition("not-labelled", &is_new),
                condition("set-counts", counts),
                condition("own-pool", &is_own_pool),
            ],
            "variables": [
                condition("labels", labels),
                condition("namesPool", &format!("{names_pool}.orValue('')")),
                condition("keys", "params.spec.labels.map(key, key).filter(key, key != variables.namesPool).sort()"),
                condition("previous", "variables.keys.filter(key, key in variables.labels)"),
                condition("managedText", r#"'["' + variables.keys.join('","') + '"]'"#),
                condition(
                    "previousText",
                    r#"'{' + variables.previous.map(key, '"' + key + '":"' + variables.labels[key] + '"').join(',') + '}'"#,
                ),
            ],
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": format!(
                "variables.keys == [] ? Object{{}} : Object{{metadata: Object.metadata{{labels: params.spec.labels, \
                 annotations: variables.previous == [] ? {{{managed}: variables.managedText}} : \
                 {{{managed}: variables.managedText, {previous}: variables.previousText}}}}}}"
            )}}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": LABELS},
        "spec": {
            "policyName": LABELS,
            "paramRef": {
                "namespace": options.namespace, "selector": {}, "parameterNotFoundAction": "Allow",
            },
        },
    });
    [policy, binding]
}

/// Returns the policy and its binding as a stream of YAML documents.
///
/// # Errors
/// A value that YAML cannot hold.
pub fn labels_yaml(options: &LabelOptions) -> Result<String, serde_saphyr::ser::Error> {
    let mut text = String::new();
    for object in labels(options) {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object)?);
    }
    Ok(text)
}

/// Returns a string as CEL spells it. Names of labels have no quotes.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{text}'")
}

/// Returns a list of strings as CEL spells it.
pub(crate) fn list<S: AsRef<str>>(texts: &[S]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", texts.join(", "))
}
