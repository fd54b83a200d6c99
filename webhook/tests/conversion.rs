//! Round trips of random objects, with and without edits between.

mod kind;

use kind::{DRAIN, conversions, edit};
use kubebid_testkit::for_each_seed;
use serde_json::{Value, json};

const ALPHA: &str = "example.com/v1alpha1";
const BETA: &str = "example.com/v1beta1";
const ANNOTATION: &str = "example.com/conversion-data";
/// The number of seeds of a check.
const SEEDS: u64 = 3_000;

fn convert(object: &Value, version: &str) -> Value {
    conversions().convert(object.clone(), version).unwrap()
}

fn without_data(mut object: Value) -> Value {
    if let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") {
        annotations.retain(|key, _| !key.starts_with("example.com/conversion-data"));
        if annotations.is_empty() {
            object["metadata"].as_object_mut().unwrap().remove("annotations");
        }
    }
    object
}

fn is_round(object: &Value, other: &str) {
    let there = convert(object, other);
    assert_eq!(there["apiVersion"], *other);
    let mut metadata = [object["metadata"].clone(), there["metadata"].clone()];
    for metadata in &mut metadata {
        for key in ["labels", "annotations"] {
            metadata.as_object_mut().unwrap().remove(key);
        }
    }
    assert_eq!(metadata[0], metadata[1]);
    let back = convert(&there, object["apiVersion"].as_str().unwrap());
    assert_eq!(back.to_string(), object.to_string(), "by way of {there:#}");
}

#[test]
fn an_object_is_the_same_after_it_was_converted_there_and_back() {
    for_each_seed(SEEDS, |random| is_round(&kind::random_v1beta1(random), ALPHA));
    for_each_seed(SEEDS, |random| is_round(&kind::random_v1alpha1(random), BETA));
}

#[test]
fn an_object_with_kept_fields_is_the_same_after_it_was_converted_there_and_back() {
    for_each_seed(SEEDS, |random| is_round(&convert(&kind::random_v1alpha1(random), BETA), ALPHA));
    for_each_seed(SEEDS, |random| is_round(&convert(&kind::random_v1beta1(random), ALPHA), BETA));
}

/// Returns the fields of v1beta1 that a field of v1alpha1 stands for, or the other way round.
fn counterparts(pointer: &str) -> &'static [&'static str] {
    match pointer {
        "/spec/size" => &["/spec/gigabytes", "/spec/fast"],
        "/spec/zone" => &["/spec/zones"],
        "/spec/encryptionKey" => &["/spec/encryption"],
        "/spec/mounts" => &["/spec/mounts"],
        "/status/usedGigabytes" => &["/status/usedBytes"],
        "/status/conditions" => &["/status/conditions"],
        "/spec/gigabytes" => &["/spec/size"],
        "/spec/zones" => &["/spec/zone"],
        "/spec/encryption" => &["/spec/encryptionKey"],
        "/status/usedBytes" => &["/status/usedGigabytes"],
        "/spec/drainSeconds" => &["/metadata/annotations/example.com~1drain-seconds"],
        _ => &[],
    }
}

/// Edits one field of an object in another version, and looks what that has changed.
fn edits_change_only_themselves(
    random: &mut fastrand::Rng,
    object: &Value,
    version: &str,
    fields: fn(&mut fastrand::Rng) -> Vec<kind::Edit>,
) {
    let own = object["apiVersion"].as_str().unwrap();
    let mut edited = convert(object, version);
    let mut fields = fields(random);
    let field = fields.swap_remove(random.usize(..fields.len()));
    let pointer = field.0;
    edit(&mut edited, field);
    edited["metadata"]["labels"]["added"] = json!("1");
    let back = convert(&edited, own);
    // The client finds what it has written.
    assert_eq!(without_data(convert(&back, version)), without_data(edited.clone()), "{pointer}");
    // Everything else is as it was.
    let blank = |object: &Value| {
        let mut object = without_data(object.clone());
        object["metadata"]["labels"]["added"] = json!("1");
        if object["metadata"]["annotations"].is_null() {
            object["metadata"]["annotations"] = json!({});
        }
        for counterpart in counterparts(pointer) {
            let (parent, key) = counterpart.rsplit_once('/').unwrap();
            if let Some(Value::Object(parent)) = object.pointer_mut(parent) {
                parent.remove(&key.replace("~1", "/"));
            }
        }
        object
    };
    assert_eq!(blank(&back), blank(object), "{pointer} of {edited:#}");
}

#[test]
fn an_edit_in_the_other_version_changes_only_what_was_edited() {
    for_each_seed(SEEDS, |random| {
        let object = kind::random_v1beta1(random);
        edits_change_only_themselves(random, &object, ALPHA, kind::v1alpha1_fields);
    });
    for_each_seed(SEEDS, |random| {
        let object = kind::random_v1alpha1(random);
        edits_change_only_themselves(random, &object, BETA, kind::v1beta1_fields);
    });
}

fn beta(spec: Value) -> Value {
    json!({"apiVersion": BETA, "kind": "Disk", "metadata": {"name": "d"}, "spec": spec})
}

#[test]
fn what_a_version_cannot_say_is_kept_with_the_value_it_belongs_to() {
    let disk = beta(json!({"gigabytes": 10, "zones": ["a", "b"], "fast": true}));
    let mut older = convert(&disk, ALPHA);
    let mut kept = json!({"v1beta1": {}});
    let annotations = older["metadata"]["annotations"].as_object().unwrap();
    for (_, text) in annotations.iter().filter(|(key, _)| key.starts_with(ANNOTATION)) {
        let one: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        kept["v1beta1"].as_object_mut().unwrap().extend(one["v1beta1"].as_object().unwrap().clone());
    }
    let wanted = json!({"v1beta1": {
        "/spec/fast": {"value": true, "while": {"/spec/fast": null, "/spec/gigabytes": 10}},
        "/spec/zones": {"value": ["a", "b"], "while": {"/spec/zones": ["a"]}},
    }});
    assert_eq!(kept, wanted);
    older["spec"]["zone"] = json!("c");
    let back = convert(&older, BETA);
    assert_eq!(back["spec"], json!({"gigabytes": 10, "zones": ["c"], "fast": true}));
    older["spec"]["size"] = json!("11Gi");
    assert_eq!(convert(&older, BETA)["spec"], json!({"gigabytes": 11, "zones": ["c"]}));
    let nothing = convert(&beta(json!({"gigabytes": 10, "zones": ["a"]})), ALPHA);
    assert_eq!(nothing["metadata"], json!({"name": "d"}), "there is nothing to keep");
}

#[test]
fn an_element_of_a_list_is_restored_if_it_is_as_it_was() {
    let mounts = json!([{"path": "/a", "readOnly": true}, {"path": "/b", "readOnly": false}]);
    let mut older = convert(&beta(json!({"gigabytes": 1, "zones": ["a"], "mounts": mounts})), ALPHA);
    older["spec"]["mounts"] = json!(["/c", "/b"]);
    let mounts = &convert(&older, BETA)["spec"]["mounts"];
    assert_eq!(*mounts, json!([{"path": "/c"}, {"path": "/b", "readOnly": false}]));
}

#[test]
fn a_kept_field_goes_with_its_parent() {
    let encryption = json!({"key": "k", "rotateDays": 3});
    let mut older = convert(&beta(json!({"gigabytes": 1, "zones": ["a"], "encryption": encryption})), ALPHA);
    older["spec"].as_object_mut().unwrap().remove("encryptionKey");
    assert_eq!(convert(&older, BETA)["spec"], json!({"gigabytes": 1, "zones": ["a"]}));
}

#[test]
fn an_annotation_that_is_a_field_of_the_other_version_moves() {
    let older = convert(&beta(json!({"gigabytes": 1, "zones": ["a"], "drainSeconds": 30})), ALPHA);
    assert_eq!(older["metadata"]["annotations"], json!({DRAIN: "30"}));
    assert_eq!(convert(&older, BETA)["metadata"], json!({"name": "d"}));
}

#[test]
fn a_spoiled_annotation_is_as_good_as_none() {
    let field = |pointer: &str, value: Value, belongs_to: Value| {
        json!({"v1beta1": {pointer: {"value": value, "while": belongs_to}}}).to_string()
    };
    for text in [
        "",
        "{",
        "[]",
        "{\"v1beta1\": 7}",
        "{\"v1beta1\": {\"x\": 1, \"/spec/zones\": {\"elements\": [1]}}}",
        // A value that the version does not take, one that belongs to no other, and fields that are not the object's.
        &field("/spec/gigabytes", json!("many"), json!({"/spec/gigabytes": 1})),
        &field("/spec/fast", json!(true), json!({})),
        &field("/kind", json!("Pod"), json!({"/spec/gigabytes": 1})),
        &field("/metadata/name", json!("b"), json!({"/spec/gigabytes": 1})),
        &field("/metadata/annotations/not a key", json!("b"), json!({"/spec/gigabytes": 1})),
    ] {
        let mut disk = beta(json!({"gigabytes": 1, "zones": ["a"]}));
        disk["apiVersion"] = json!(ALPHA);
        disk["spec"] = json!({"size": "1Gi", "zone": "a"});
        disk["metadata"]["annotations"] = json!({"example.com/conversion-data": text});
        let converted = convert(&disk, BETA);
        assert_eq!(converted["spec"], json!({"gigabytes": 1, "zones": ["a"]}), "{text}");
        let kept: Vec<_> = converted["metadata"].as_object().unwrap().keys().collect();
        assert!(kept.iter().all(|key| ["name", "annotations"].contains(&key.as_str())), "{converted}");
        assert_eq!(
            (&converted["kind"], &converted["metadata"]["name"]),
            (&disk["kind"], &disk["metadata"]["name"])
        );
    }
}

#[test]
fn what_is_kept_for_the_version_of_the_object_itself_is_stale() {
    let stale = json!({"v1beta1": {"/spec/fast": {"value": true, "while": {"/spec/fast": null}}}});
    let mut disk = beta(json!({"gigabytes": 1, "zones": ["a"]}));
    disk["metadata"]["annotations"] = json!({"example.com/conversion-data": stale.to_string()});
    assert_eq!(convert(&convert(&disk, ALPHA), BETA)["spec"].get("fast"), None);
}

#[test]
fn a_review_is_answered_in_order_or_not_at_all() {
    let review = |objects: Value| {
        let request = json!({"uid": "u", "desiredAPIVersion": ALPHA, "objects": objects});
        let review =
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
        let answer = conversions().review(review.to_string().as_bytes()).unwrap();
        serde_json::from_slice::<Value>(&answer).unwrap()
    };
    let disks: Vec<Value> = (1..=3).map(|size| beta(json!({"gigabytes": size, "zones": ["a"]}))).collect();
    let answer = review(json!(disks));
    assert_eq!(answer["kind"], "ConversionReview");
    assert_eq!(answer["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(answer["response"]["uid"], "u");
    assert_eq!(answer["response"]["result"]["status"], "Success");
    let sizes: Vec<&Value> = answer["response"]["convertedObjects"].as_array().unwrap().iter().collect();
    let sizes: Vec<&Value> = sizes.into_iter().map(|disk| &disk["spec"]["size"]).collect();
    assert_eq!(sizes, ["1Gi", "2Gi", "3Gi"]);

    for broken in [beta(json!({"gigabytes": "many", "zones": []})), json!({"kind": "Disk"}), json!(7)] {
        let answer = review(json!([disks[0], broken]));
        assert_eq!(answer["response"]["result"]["status"], "Failure", "{broken}");
        assert!(!answer["response"]["result"]["message"].as_str().unwrap().is_empty());
        assert_eq!(answer["response"]["convertedObjects"], json!([]));
    }
    assert!(conversions().review(b"{}").is_err());
}

#[test]
fn a_failure_names_the_object() {
    let message = conversions().convert(beta(json!({"gigabytes": "many", "zones": []})), ALPHA).unwrap_err();
    assert_eq!(
        message.to_string(),
        "example.com/v1beta1 Disk d: invalid type: string \"many\", expected u64"
    );
    let missing = conversions().convert(beta(json!({})), "example.com/v2").unwrap_err();
    assert_eq!(missing.to_string(), "Disk has no version example.com/v2");
}

#[test]
fn annotations_that_are_full_have_no_room_for_kept_fields() {
    let full = "x".repeat((256 << 10) - 100);
    let disk = |own: &str| {
        let mut disk = beta(json!({"gigabytes": 10, "zones": ["a"], "fast": true}));
        disk["metadata"]["annotations"] = json!({"own": own});
        convert(&disk, ALPHA)
    };
    let annotations = disk("x")["metadata"]["annotations"].as_object().unwrap().clone();
    assert!(annotations.keys().any(|key| key.starts_with(ANNOTATION)));
    // With more the API server would refuse the object, and the list that it is in.
    assert_eq!(disk(&full)["metadata"]["annotations"], json!({"own": full}));
}

/// Returns what is left of an object of v1alpha1 after server-side apply in v1beta1, as structured-merge-diff prunes: each path that
/// is there before the fields were taken away, and not after, is removed from what was there before.
fn pruned(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return before.clone() };
    let fields = before.iter().filter_map(|(key, value)| Some((key.clone(), pruned(value, after.get(key)?))));
    Value::Object(fields.collect())
}

#[test]
fn a_field_that_server_side_apply_takes_away_does_not_come_back() {
    let fields = json!({
        "gigabytes": 1, "zones": ["a", "b"], "fast": true, "drainSeconds": 30, "encryption": {"key": "k", "rotateDays": 3},
    });
    for pointer in ["/fast", "/encryption/rotateDays", "/drainSeconds"] {
        let whole = beta(fields.clone());
        let mut less = whole.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        less["spec"].pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
        let left = pruned(&convert(&whole, ALPHA), &convert(&less, ALPHA));
        assert_eq!(convert(&left, BETA), less, "{pointer} by way of {left:#}");
    }
}

#[test]
fn fields_of_an_earlier_program_are_in_one_annotation() {
    let kept = json!({"v1beta1": {"/spec/fast": {"value": true, "while": {"/spec/fast": null}}}});
    let metadata = json!({"name": "d", "annotations": {ANNOTATION: kept.to_string()}});
    let older = json!({
        "apiVersion": ALPHA, "kind": "Disk", "metadata": metadata, "spec": {"size": "1Gi", "zone": "a"},
    });
    assert_eq!(convert(&older, BETA)["spec"]["fast"], true);
}
