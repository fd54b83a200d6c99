//! Conversion of files.

mod kind;

use kind::conversions;
use kubebid_webhook::manifests::{ManifestError, convert, convert_files};
use serde_json::{Value, json};

fn disk(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Disk", "metadata": {"name": name}, "spec": spec})
}

fn documents(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(yaml).unwrap()
}

const YAML: &str = r#"# A disk, and what goes with it.
apiVersion: example.com/v1alpha1
kind: Disk
metadata:
  name: "no"
spec: {size: 10Gi, zone: a}
---
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
data: {answer: "yes", number: "012", text: "a\nb\n"}
"#;

#[test]
fn the_objects_of_a_file_are_converted_and_those_of_other_kinds_stay() {
    let converted = convert(&conversions(), YAML, "v1beta1").unwrap();
    let data = json!({"answer": "yes", "number": "012", "text": "a\nb\n"});
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}, "data": data});
    let wanted = [disk("v1beta1", "no", json!({"gigabytes": 10, "zones": ["a"]})), other];
    assert_eq!(documents(&converted), wanted, "{converted}");
    // A reader of YAML 1.1, such as kubectl, takes these for texts as well.
    for text in [r#"name: "no""#, r#"answer: "yes""#, r#"number: "012""#] {
        assert!(converted.contains(text) || converted.contains(&text.replace('"', "'")), "{converted}");
    }
    assert_eq!(convert(&conversions(), &converted, "v1beta1").unwrap(), converted);
}

#[test]
fn a_file_is_the_same_after_it_was_converted_there_and_back() {
    let mut random = fastrand::Rng::with_seed(1);
    let disks: Vec<Value> = (0..200).map(|_| kind::random_v1beta1(&mut random)).collect();
    let text: String = disks.iter().map(Value::to_string).collect();
    let older = convert(&conversions(), &text, "v1alpha1").unwrap();
    assert!(documents(&older).iter().all(|disk| disk["apiVersion"] == "example.com/v1alpha1"));
    assert_eq!(documents(&convert(&conversions(), &older, "v1beta1").unwrap()), disks);
}

#[test]
fn the_items_of_lists_are_converted() {
    let items = [disk("v1alpha1", "a", json!({"size": "1Gi", "zone": "a"}))];
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
    let mixed = json!({"apiVersion": "v1", "kind": "List", "items": [items[0], pod]});
    let typed = json!({"apiVersion": "example.com/v1alpha1", "kind": "DiskList", "items": items});
    let converted = convert(&conversions(), &format!("{mixed}\n{typed}"), "v1beta1").unwrap();
    let newer = disk("v1beta1", "a", json!({"gigabytes": 1, "zones": ["a"]}));
    let wanted = [
        json!({"apiVersion": "v1", "kind": "List", "items": [newer, pod]}),
        json!({"apiVersion": "example.com/v1beta1", "kind": "DiskList", "items": [newer]}),
    ];
    assert_eq!(documents(&converted), wanted);
}

#[test]
fn what_cannot_be_converted_is_an_error_with_its_name() {
    let refused = |text: &str, version: &str| convert(&conversions(), text, version).unwrap_err();
    assert_eq!(refused(YAML, "v3").to_string(), "Disk has no version example.com/v3");
    let broken = disk("v1alpha1", "broken", json!({"size": 1})).to_string();
    assert!(refused(&broken, "v1beta1").to_string().starts_with("example.com/v1alpha1 Disk broken: "));
    assert!(matches!(refused("{", "v1beta1"), ManifestError::Json(_)));
    assert!(matches!(refused("a: [", "v1beta1"), ManifestError::Yaml(_)));
    let absent = convert_files(&conversions(), &["absent.yaml".into()], "v1beta1").unwrap_err();
    assert!(absent.to_string().starts_with("absent.yaml: "), "{absent}");
}
