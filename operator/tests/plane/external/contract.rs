//! Holds calls and their answers to the OpenAPI document, whoever makes them.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{Response, header};
use axum::middleware::Next;
use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// `operator/openapi/provisioner.json`, as it is given to providers.
struct Contract {
    document: Value,
    schemas: Schemas,
    /// By how the document refers to it.
    compiled: BTreeMap<String, SchemaIndex>,
}

static CONTRACT: LazyLock<Contract> = LazyLock::new(|| {
    let document: Value = serde_json::from_str(include_str!("../../../openapi/provisioner.json")).unwrap();
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let place = "https://kubebid.io/provisioner.json";
    compiler.add_resource(place, document.clone()).unwrap();
    let names = document["components"]["schemas"].as_object().unwrap().keys();
    let references = names.map(|name| format!("#/components/schemas/{name}"));
    let compiled = references
        .map(|reference| {
            let schema = compiler.compile(&format!("{place}{reference}"), &mut schemas).unwrap();
            (reference, schema)
        })
        .collect();
    Contract { document, schemas, compiled }
});

impl Contract {
    /// Whether a body is one of those that the document allows, or none where it has none.
    fn check(&self, content: &Value, kind: Option<&str>, body: &Bytes) -> Result<(), String> {
        let Some(contents) = content.as_object().filter(|contents| !contents.is_empty()) else {
            return if body.is_empty() {
                Ok(())
            } else {
                Err(format!("nothing is to be said, and is: {body:?}"))
            };
        };
        let kind = kind.ok_or("it does not say what its body is")?;
        let schema = contents.get(kind).ok_or(format!("{kind} is none of {:?}", contents.keys()))?;
        let schema = self.compiled[schema["schema"]["$ref"].as_str().unwrap()];
        let body: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        self.schemas.validate(&body, schema).map_err(|error| format!("{error:#}"))
    }
}

/// Passes a call on, and fails where it or its answer is not in the document.
pub(crate) async fn keep(request: Request, next: Next) -> Response<Body> {
    let (call, body) = request.into_parts();
    let asked = format!("{} {}", call.method, call.uri.path());
    let id = call.uri.path().strip_prefix("/v1/machines/").unwrap_or_else(|| panic!("{asked}"));
    assert!(!id.is_empty() && !id.contains('/'), "{asked}");
    let operation = &CONTRACT.document["paths"]["/v1/machines/{id}"][call.method.as_str().to_lowercase()];
    assert!(operation.is_object(), "{asked}");
    let kind = |headers: &axum::http::HeaderMap| {
        headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap().to_owned())
    };
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let said = CONTRACT.check(&operation["requestBody"]["content"], kind(&call.headers).as_deref(), &body);
    said.unwrap_or_else(|why| panic!("{asked}: {why}"));

    let (answer, body) = next.run(Request::from_parts(call, body.into())).await.into_parts();
    let asked = format!("{asked}: {}", answer.status);
    let responses = &operation["responses"];
    let response = responses.get(answer.status.as_str()).unwrap_or(&responses["default"]);
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let said = CONTRACT.check(&response["content"], kind(&answer.headers).as_deref(), &body);
    said.unwrap_or_else(|why| panic!("{asked}: {why}"));
    Response::from_parts(answer, body.into())
}

#[test]
fn what_is_not_in_the_document_is_found() {
    let put = &CONTRACT.document["paths"]["/v1/machines/{id}"]["put"];
    let content = &put["responses"]["200"]["content"];
    let check = |kind, body: &str| CONTRACT.check(content, kind, &Bytes::copy_from_slice(body.as_bytes()));
    let json = Some("application/json");
    check(json, r#"{"state": "running", "node": "rack-1"}"#).unwrap();
    for (kind, body) in [
        (None, r#"{"state": "coming"}"#),
        (Some("text/plain"), r#"{"state": "coming"}"#),
        (json, r#"{"state": "asleep"}"#),
        (json, r#"{"state": "running"}"#),
        (json, "coming"),
    ] {
        check(kind, body).expect_err(body);
    }
    CONTRACT.check(&Value::Null, json, &Bytes::from_static(b"{}")).expect_err("a body where there is none");
}
