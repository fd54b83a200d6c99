//! Conversions of objects of 4 KB on one core, from the request of the API server to the answer: `cargo bench -p
//! kubebid-webhook`.

#[path = "../tests/kind/mod.rs"]
mod kind;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kubebid_webhook::conversion::Conversions;
use serde_json::{Value, json};
use std::hint::black_box;

/// Objects in a request.
const OBJECTS: u64 = 100;

/// Returns an object as `kubectl apply` and two controllers leave it.
fn object(random: &mut fastrand::Rng) -> Value {
    let mut object = kind::random_v1beta1(random);
    let managers = ["kubectl-client-side-apply", "disk-operator", "kube-controller-manager"].map(|manager| {
        let fields: serde_json::Map<String, Value> =
            (0..22).map(|number| (format!("f:field-number-{number:02}"), json!({".": {}}))).collect();
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "example.com/v1beta1",
            "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields},
        })
    });
    object["metadata"]["managedFields"] = json!(managers);
    let missing = 4096_usize.saturating_sub(object.to_string().len() + 60);
    object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] =
        json!("x".repeat(missing));
    object
}

fn review(objects: &[Value], version: &str) -> Vec<u8> {
    let request =
        json!({"uid": "u", "desiredAPIVersion": format!("example.com/{version}"), "objects": objects});
    let review =
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
    review.to_string().into_bytes()
}

fn answer(conversions: &Conversions, request: &[u8]) -> Vec<Value> {
    let answer: Value = serde_json::from_slice(&conversions.review(request).unwrap()).unwrap();
    answer["response"]["convertedObjects"].as_array().unwrap().clone()
}

fn conversions_of_4_kilobytes(criterion: &mut Criterion) {
    let conversions = kind::conversions();
    let mut random = fastrand::Rng::with_seed(1);
    let objects: Vec<Value> = (0..OBJECTS).map(|_| object(&mut random)).collect();
    let to_older = review(&objects, "v1alpha1");
    let older = answer(&conversions, &to_older);
    let to_newer = review(&older, "v1beta1");
    assert_eq!(answer(&conversions, &to_newer), objects);
    println!(
        "{} bytes per object",
        objects.iter().map(|object| object.to_string().len()).sum::<usize>() / objects.len()
    );
    let mut group = criterion.benchmark_group("conversion");
    group.throughput(Throughput::Elements(OBJECTS));
    for (name, request) in [("keep", to_older), ("restore", to_newer)] {
        group.bench_function(name, |bench| bench.iter(|| conversions.review(black_box(&request)).unwrap()));
    }
    group.finish();
}

criterion_group!(benches, conversions_of_4_kilobytes);
criterion_main!(benches);
