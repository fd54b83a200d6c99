//! Each field that the operator sets is changed by hand, and restored.

use crate::story::{PATIENCE, Story};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Resource, ResourceExt as _};
use kubebid_controller::Object;
use kubebid_mysql_operator::children::{self, IMAGE};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tokio::time::timeout;

/// Returns the JSON pointers of all fields of an object that have no fields of their own.
fn leaves(value: &Value, path: &str) -> Vec<String> {
    let below = |(key, value): (String, &Value)| leaves(value, &format!("{path}/{key}"));
    match value {
        // A field name may have a slash in it.
        Value::Object(fields) => {
            fields.iter().map(|(key, it)| (key.replace('/', "~1"), it)).flat_map(below).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, it)| (index.to_string(), it)).flat_map(below).collect()
        }
        Value::Null => Vec::new(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![path.to_owned()],
    }
}

/// Returns the pointer to a wanted field in an object whose lists may have other elements as well.
fn place(object: &Value, wanted: &Value, path: &str) -> Option<String> {
    let (mut object, mut wanted, mut place) = (object, wanted, String::new());
    for step in path.split('/').skip(1) {
        wanted = wanted.pointer(&format!("/{step}"))?;
        let key = ["mountPath", "containerPort", "port", "uid", "name"]
            .iter()
            .find(|key| wanted.get(key).is_some());
        let step = match (object, key) {
            (Value::Array(elements), Some(key)) => {
                elements.iter().position(|element| element.get(key) == wanted.get(key))?.to_string()
            }
            _ => step.to_owned(),
        };
        object = object.pointer(&format!("/{step}"))?;
        place = format!("{place}/{step}");
    }
    Some(place)
}

/// Returns other values for a field, of which the API server may accept some.
fn other_values(value: &Value) -> Vec<Value> {
    match value {
        Value::Bool(is) => vec![json!(!is)],
        Value::Number(number) => vec![json!(number.as_u64().unwrap() + 1)],
        Value::String(text) => vec![
            json!(format!("{text}x")),
            json!(format!("1{text}")),
            json!("OnDelete"),
            json!("Delete"),
            json!("status.hostIP"),
            json!(""),
        ],
        Value::Null | Value::Array(_) | Value::Object(_) => panic!("{value} has fields"),
    }
}

/// Changes each field of a child, and then removes it, and waits until it is as it was. Returns the fields that the API
/// server does not let anybody change.
async fn disturb<K>(story: &Story, wanted: &K) -> BTreeSet<String>
where
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    let mut fixed = BTreeSet::new();
    let (api, name) = (story.api::<K>(), wanted.name_any());
    let wanted = serde_json::to_value(wanted).unwrap();
    let identity = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];
    for path in leaves(&wanted, "").into_iter().filter(|path| !identity.contains(&path.as_str())) {
        let value = wanted.pointer(&path).unwrap();
        let replaced = other_values(value).into_iter().map(Some);
        let mut is_changed = false;
        for other in replaced.chain([None]) {
            let before = serde_json::to_value(api.get(&name).await.unwrap()).unwrap();
            let at = place(&before, &wanted, &path).unwrap();
            let change = match other {
                Some(other) => json!([{"op": "replace", "path": at, "value": other}]),
                None => json!([{"op": "remove", "path": at}]),
            };
            let patch = Patch::Json::<()>(serde_json::from_value(change.clone()).unwrap());
            let changed = loop {
                match api.patch(&name, &PatchParams::default(), &patch).await {
                    // Controllers write the object at the same time.
                    Err(kube::Error::Api(status)) if status.is_conflict() => {}
                    changed => break changed,
                }
            };
            let Ok(changed) = changed else { continue };
            let here =
                |object: &Value| place(object, &wanted, &path).and_then(|at| object.pointer(&at).cloned());
            if here(&serde_json::to_value(changed).unwrap()) == here(&before) {
                // The API server has put a default there.
                continue;
            }
            is_changed = true;
            let is_restored = |object: Option<&K>| {
                object.is_some_and(|object| here(&serde_json::to_value(object).unwrap()) == here(&before))
            };
            let restored = timeout(PATIENCE, await_condition(api.clone(), &name, is_restored)).await;
            restored.unwrap_or_else(|_| panic!("{path} is not restored after {change}")).unwrap();
        }
        if !is_changed {
            fixed.insert(path);
        }
    }
    fixed
}

#[tokio::test]
async fn each_field_of_the_service_is_restored() {
    let story = Story::begin("service-fields").await;
    let mysql = story.running("shop").await;
    let fixed = disturb::<Service>(&story, &children::service(&mysql)).await;
    assert_eq!(fixed.into_iter().collect::<Vec<_>>(), ["/spec/clusterIP"]);
}

#[tokio::test]
async fn each_field_of_the_stateful_set_is_restored() {
    let story = Story::begin("set-fields").await;
    let mysql = story.running("shop").await;
    let fixed =
        disturb::<StatefulSet>(&story, &children::stateful_set(&mysql, IMAGE, &mysql.spec.storage)).await;
    let immutable = [
        "/spec/podManagementPolicy",
        "/spec/selector/",
        "/spec/serviceName",
        "/spec/volumeClaimTemplates/",
        // It is the only volume, and these are the labels of the selector.
        "/spec/template/spec/containers/0/volumeMounts/0/name",
        "/spec/template/metadata/labels/",
        // A word that is not one of three is refused.
        "/spec/template/spec/securityContext/seccompProfile/type",
    ];
    let unexpected: Vec<_> =
        fixed.iter().filter(|path| !immutable.iter().any(|it| path.starts_with(it))).collect();
    assert_eq!(unexpected, Vec::<&String>::new(), "of {fixed:?}");
}
