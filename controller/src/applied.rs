//! Tells whether an object is as this controller would apply it, so that an unchanged object costs no request.
//!
//! The API server notes in `managedFields` which fields a field manager has set. If these are the fields of the wanted
//! object, and all have the wanted values, an apply would change nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Map, Value};

/// Returns true if applying `wanted` as the field manager `applier` would change nothing of an object. `creator` is the
/// field manager with which it was created.
pub fn is_applied(
    live: &Value,
    managed: &[ManagedFieldsEntry],
    wanted: &Value,
    applier: &str,
    creator: &str,
) -> bool {
    let by = |manager: &str, operation: &str| {
        managed.iter().find(|entry| {
            entry.manager.as_deref() == Some(manager)
                && entry.operation.as_deref() == Some(operation)
                && entry.subresource.as_deref().unwrap_or_default().is_empty()
        })
    };
    if let Some(fields) = by(applier, "Apply").and_then(|entry| entry.fields_v1.as_ref()) {
        return has_values(live, wanted, &fields.0, true) && owns_all(wanted, &fields.0, true);
    }
    // A create owns what the API server has filled in as well. A field that somebody has changed is theirs.
    let created = by(creator, "Update").and_then(|entry| entry.fields_v1.as_ref());
    created.is_some_and(|fields| contains(live, wanted, true) && owns_all(wanted, &fields.0, true))
}

/// Returns true if a part of an object has all wanted values. Defaults of the API server do not count.
pub(crate) fn has_wanted(live: &Value, wanted: &Value) -> bool {
    contains(live, wanted, false)
}

/// Returns true if each field that the manager owns has its wanted value.
fn has_values(live: &Value, wanted: &Value, fields: &Value, is_root: bool) -> bool {
    let Value::Object(owned) = fields else { return true };
    let mut parts = owned.iter().filter(|(key, _)| *key != ".").peekable();
    if parts.peek().is_none() {
        // A value that is owned as a whole has the defaults of the API server in its parts.
        return is_root || contains(live, wanted, false);
    }
    parts.all(|(key, fields)| match element(live, key).zip(element(wanted, key)) {
        Some((live, wanted)) => has_values(live, wanted, fields, false),
        None => false,
    })
}

/// Returns true if the manager owns each field of the wanted object.
fn owns_all(wanted: &Value, fields: &Value, is_root: bool) -> bool {
    let Value::Object(owned) = fields else { return false };
    let children = owned.keys().any(|key| key != ".");
    match wanted {
        // A field without parts is owned as a whole.
        Value::Object(_) | Value::Array(_) if !children => !is_root || is_empty(wanted),
        Value::Object(wanted) => {
            wanted.iter().filter(|(key, _)| !(is_root && is_type(key))).all(|(key, value)| {
                if is_root && key == "metadata" {
                    return metadata_is_owned(value, owned.get("f:metadata"));
                }
                is_null_or_empty(value)
                    || owned.get(&format!("f:{key}")).is_some_and(|fields| owns_all(value, fields, false))
            })
        }
        Value::Array(items) => items.iter().all(|item| {
            owned.iter().any(|(key, fields)| {
                key != "." && matches(item, key) && (key.starts_with("v:") || owns_all(item, fields, false))
            })
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn metadata_is_owned(wanted: &Value, fields: Option<&Value>) -> bool {
    let Value::Object(wanted) = wanted else { return true };
    let owned = fields.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let tracked = wanted.iter().filter(|(key, _)| !["name", "namespace"].contains(&&key[..]));
    let tracked: Map<String, Value> = tracked.map(|(key, value)| (key.clone(), value.clone())).collect();
    tracked.iter().all(|(key, value)| {
        is_null_or_empty(value)
            || owned.get(format!("f:{key}")).is_some_and(|fields| owns_all(value, fields, false))
    })
}

/// Returns true if an object has all wanted values, whoever has set them.
fn contains(live: &Value, wanted: &Value, is_root: bool) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted
            .iter()
            .filter(|(key, value)| !(is_null_or_empty(value) || is_root && is_type(key)))
            .all(|(key, value)| live.get(key).is_some_and(|live| contains(live, value, false))),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len()
                && live.iter().zip(wanted).all(|(live, wanted)| contains(live, wanted, false))
        }
        (live, wanted) => is_same(live, wanted),
    }
}

/// Returns the part of a value that a key of `fieldsV1` names.
fn element<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    if let Some(field) = key.strip_prefix("f:") {
        return value.get(field);
    }
    value.as_array()?.iter().find(|item| matches(item, key))
}

/// Returns true if a key of `fieldsV1` names this element of a list.
fn matches(item: &Value, key: &str) -> bool {
    if let Some(value) = key.strip_prefix("v:") {
        return serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item);
    }
    let Some(keys) = key.strip_prefix("k:") else { return false };
    let Ok(Value::Object(keys)) = serde_json::from_str(keys) else { return false };
    keys.iter().all(|(name, value)| match item.get(name) {
        Some(there) => there == value,
        // The API server fills in the protocol of a port, which is part of its key.
        None => name == "protocol" && value == "TCP",
    })
}

/// Returns true if two values mean the same: the API server writes quantities in a form of its own.
fn is_same(live: &Value, wanted: &Value) -> bool {
    if live == wanted {
        return true;
    }
    match (live, wanted) {
        (Value::String(live), Value::String(wanted)) => {
            let quantity = |text: &str| kube_quantity::ParsedQuantity::try_from(text).ok();
            quantity(live).is_some_and(|live| quantity(wanted) == Some(live))
        }
        (Value::Object(live), Value::Object(wanted)) => {
            live.len() == wanted.len()
                && wanted.iter().all(|(key, value)| live.get(key).is_some_and(|live| is_same(live, value)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| is_same(live, wanted))
        }
        _ => false,
    }
}

fn is_type(key: &str) -> bool {
    ["apiVersion", "kind", "status"].contains(&key)
}

fn is_null_or_empty(value: &Value) -> bool {
    value.is_null() || is_empty(value)
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(operation: &str, fields: Value) -> Vec<ManagedFieldsEntry> {
        let entry =
            json!({"manager": "x", "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields});
        vec![serde_json::from_value(entry).unwrap()]
    }

    fn service(port: u16, label: Option<&str>) -> Value {
        let labels = label.map(|label| json!({"a": label}));
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s", "namespace": "n", "labels": labels},
            "spec": {"ports": [{"port": port, "name": "main"}], "clusterIP": "None"},
        })
    }

    fn fields() -> Value {
        json!({
            "f:metadata": {"f:labels": {"f:a": {}}},
            "f:spec": {
                "f:clusterIP": {},
                "f:ports": {r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:port": {}, "f:name": {}}},
            },
        })
    }

    fn live() -> Value {
        let mut live = service(80, Some("1"));
        live["spec"]["ports"][0]["protocol"] = json!("TCP");
        live["spec"]["sessionAffinity"] = json!("None");
        live["metadata"]["labels"]["theirs"] = json!("2");
        live
    }

    #[test]
    fn an_object_is_applied_if_we_own_the_wanted_fields_and_they_have_the_wanted_values() {
        let managed = entry("Apply", fields());
        let applied = |live: &Value, wanted: &Value| is_applied(live, &managed, wanted, "x", "x");
        assert!(applied(&live(), &service(80, Some("1"))));
        assert!(!applied(&live(), &service(81, Some("1"))), "another element of a list");
        assert!(!applied(&live(), &service(80, Some("2"))), "another value");
        assert!(!applied(&live(), &service(80, None)), "a field that we own is not wanted any more");
        let mut more = service(80, Some("1"));
        more["spec"]["type"] = json!("ClusterIP");
        assert!(!applied(&live(), &more), "a field that we do not own yet");
        let mut changed = live();
        changed["spec"]["ports"][0]["name"] = json!("other");
        assert!(!applied(&changed, &service(80, Some("1"))), "somebody has changed a value");
        assert!(!is_applied(&live(), &managed, &service(80, Some("1")), "y", "y"));
    }

    #[test]
    fn an_object_that_was_created_is_applied_until_somebody_changes_a_wanted_field() {
        let mut fields = fields();
        fields["f:spec"]["f:sessionAffinity"] = json!({});
        let managed = entry("Update", fields.clone());
        assert!(is_applied(&live(), &managed, &service(80, Some("1")), "x", "x"));
        fields["f:spec"].as_object_mut().unwrap().remove("f:clusterIP");
        let taken = entry("Update", fields);
        assert!(!is_applied(&live(), &taken, &service(80, Some("1")), "x", "x"), "a field is another's");
        assert!(!is_applied(&live(), &managed, &service(80, Some("2")), "x", "x"));
        assert!(!is_applied(&live(), &[], &service(80, Some("1")), "x", "x"));
    }

    #[test]
    fn a_list_that_is_owned_as_a_whole_may_have_defaults_in_its_elements() {
        let managed = entry("Apply", json!({"f:spec": {"f:templates": {}}}));
        let object = |template: Value| json!({"spec": {"templates": [template]}});
        let wanted = object(json!({"size": "1Gi"}));
        let applied = |live: Value| is_applied(&object(live), &managed, &wanted, "x", "x");
        assert!(applied(json!({"size": "1Gi", "mode": "Filesystem"})));
        assert!(!applied(json!({"size": "2Gi", "mode": "Filesystem"})));
    }

    #[test]
    fn quantities_are_compared_by_their_value() {
        let (live, wanted) =
            (json!({"cpu": "1", "memory": "1Gi"}), json!({"cpu": "1000m", "memory": "1024Mi"}));
        assert!(is_same(&live, &wanted));
        assert!(!is_same(&live, &json!({"cpu": "2", "memory": "1Gi"})));
        assert!(!is_same(&json!("a"), &json!("b")));
    }
}
