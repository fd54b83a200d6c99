//! Admission webhooks that fill in defaults and warn. They refuse nothing: a rule that must hold belongs into the schema, as
//! CEL, where it holds without a webhook as well.

use json_patch::Patch;
use k8s_openapi::ByteString;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use serde_json::Value;

/// Fills in defaults. It is pure.
pub trait Mutate: Send + Sync + 'static {
    /// Changes an object before it is stored.
    fn mutate(&self, object: &mut Value);
}

impl<F: Fn(&mut Value) + Send + Sync + 'static> Mutate for F {
    fn mutate(&self, object: &mut Value) {
        self(object);
    }
}

/// Looks for what a user should know about an object.
pub trait Validate: Send + Sync + 'static {
    /// Returns warnings about an object that is about to be stored, a sentence each.
    fn warnings(&self, object: Value) -> impl Future<Output = Vec<String>> + Send;
}

/// Returns the object under review; None if it is deleted.
fn object_of(request: &AdmissionRequest<DynamicObject>) -> Result<Option<Value>, serde_json::Error> {
    request.object.as_ref().map(serde_json::to_value).transpose()
}

fn request_of(body: &[u8]) -> Result<AdmissionRequest<DynamicObject>, serde_json::Error> {
    let review: AdmissionReview<DynamicObject> = serde_json::from_slice(body)?;
    review.try_into().map_err(serde::de::Error::custom)
}

fn written(mut response: AdmissionResponse) -> Result<Vec<u8>, serde_json::Error> {
    let patch = response.patch.take();
    let mut review = serde_json::to_value(response.into_review())?;
    if let Some(patch) = patch {
        // kube writes a list of numbers, the API says base64.
        review["response"]["patch"] = serde_json::to_value(ByteString(patch))?;
    }
    serde_json::to_vec(&review)
}

/// Returns the answer to an AdmissionReview, with a JSON patch if there are defaults to fill in.
///
/// # Errors
/// A body that is no AdmissionReview with a request.
pub fn mutated(webhook: &impl Mutate, body: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let request = request_of(body)?;
    let mut response = AdmissionResponse::from(&request);
    if let Some(before) = object_of(&request)? {
        let mut after = before.clone();
        webhook.mutate(&mut after);
        let patch: Patch = json_patch::diff(&before, &after);
        if !patch.0.is_empty() {
            response = response.with_patch(patch).map_err(serde::de::Error::custom)?;
        }
    }
    written(response)
}

/// Returns the answer to an AdmissionReview, with warnings.
///
/// # Errors
/// A body that is no AdmissionReview with a request.
pub async fn validated(webhook: &impl Validate, body: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let request = request_of(body)?;
    let mut response = AdmissionResponse::from(&request);
    if let Some(object) = object_of(&request)? {
        let warnings = webhook.warnings(object).await;
        response.warnings = Some(warnings).filter(|warnings| !warnings.is_empty());
    }
    written(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn review(object: Value) -> Vec<u8> {
        let kind = json!({"group": "example.com", "version": "v1", "kind": "Disk"});
        let resource = json!({"group": "example.com", "version": "v1", "resource": "disks"});
        let request = json!({
            "uid": "u", "kind": kind, "resource": resource, "operation": "CREATE", "dryRun": false, "object": object,
            "userInfo": {}, "name": "d", "namespace": "n",
        });
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        review.to_string().into_bytes()
    }

    fn disk(spec: Value) -> Value {
        json!({"apiVersion": "example.com/v1", "kind": "Disk", "metadata": {"name": "d"}, "spec": spec})
    }

    fn response(answer: &[u8]) -> Value {
        serde_json::from_slice::<Value>(answer).unwrap()["response"].clone()
    }

    fn three_replicas(object: &mut Value) {
        if object["spec"]["replicas"].is_null() {
            object["spec"]["replicas"] = json!(3);
        }
    }

    #[test]
    fn a_default_is_a_patch() {
        let answer = response(&mutated(&three_replicas, &review(disk(json!({})))).unwrap());
        assert_eq!((&answer["uid"], &answer["allowed"]), (&json!("u"), &json!(true)));
        assert_eq!(answer["patchType"], "JSONPatch");
        let patch: Vec<u8> = serde_json::from_value::<ByteString>(answer["patch"].clone()).unwrap().0;
        let patch: Patch = serde_json::from_slice(&patch).unwrap();
        let mut object = disk(json!({}));
        json_patch::patch(&mut object, &patch).unwrap();
        assert_eq!(object["spec"], json!({"replicas": 3}));
    }

    #[test]
    fn nothing_to_fill_in_is_no_patch() {
        for object in [disk(json!({"replicas": 1})), Value::Null] {
            let answer = response(&mutated(&three_replicas, &review(object)).unwrap());
            assert_eq!((&answer["allowed"], answer.get("patch")), (&json!(true), None));
        }
        assert!(mutated(&three_replicas, b"{}").is_err());
    }

    struct Small;

    impl Validate for Small {
        async fn warnings(&self, object: Value) -> Vec<String> {
            let is_small = object["spec"]["replicas"] == 1;
            is_small.then(|| "one replica is few".to_owned()).into_iter().collect()
        }
    }

    #[tokio::test]
    async fn a_warning_refuses_nothing() {
        let answer = response(&validated(&Small, &review(disk(json!({"replicas": 1})))).await.unwrap());
        assert_eq!((&answer["allowed"], &answer["warnings"]), (&json!(true), &json!(["one replica is few"])));
        let answer = response(&validated(&Small, &review(disk(json!({})))).await.unwrap());
        assert_eq!((&answer["allowed"], answer.get("warnings")), (&json!(true), None));
    }
}
