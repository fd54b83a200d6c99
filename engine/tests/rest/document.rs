//! Tests that the OpenAPI document is valid and has every rpc.

use crate::world::World;
use boon::{Compiler, SchemaIndex, Schemas};
use prost::Message;
use prost_types::FileDescriptorSet;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn document() -> Value {
    serde_json::from_str(&kubebid_engine::rest::openapi()).unwrap()
}

fn operations(document: &Value) -> BTreeMap<String, (&str, &str, &Value)> {
    let mut operations = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            let known = operations.insert(id.clone(), (method.as_str(), path.as_str(), operation));
            assert!(known.is_none(), "{id} is there twice");
        }
    }
    operations
}

#[test]
fn every_rpc_has_an_operation() {
    let set = FileDescriptorSet::decode(kubebid_proto::FILE_DESCRIPTOR_SET).unwrap();
    let services = set.file.iter().flat_map(|file| &file.service);
    let rpcs = services.flat_map(|service| &service.method).map(|method| method.name().to_owned());
    let document = document();
    let operations = operations(&document);
    let missing: Vec<String> = rpcs.filter(|rpc| !operations.contains_key(rpc)).collect();
    assert_eq!(missing, ["PlaceBids"]);
}

#[test]
fn the_document_is_of_the_shape_of_openapi_3_1() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
    assert!(document.get("swagger").is_none());
    assert_eq!(document["servers"][0]["url"], "/", "paths are those of the engine that serves it");
    for (id, (method, path, operation)) in operations(&document) {
        assert!(path.starts_with("/v1/"), "{path}");
        let described = |name: &str| operation[name].as_str().is_some_and(|text| !text.is_empty());
        assert!(described("summary") && described("description"), "{id}");
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let names = |place: &str| -> BTreeSet<String> {
            let of = parameters.iter().filter(|parameter| parameter["in"] == place);
            of.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
        };
        let in_path: BTreeSet<String> = path
            .split('/')
            .filter_map(|part| Some(part.strip_prefix('{')?.strip_suffix('}')?.to_owned()))
            .collect();
        assert_eq!(names("path"), in_path, "{id}");
        for parameter in &parameters {
            assert!(parameter["schema"].is_object(), "{id}: {parameter}");
            assert!(parameter["in"] != "path" || parameter["required"] == true, "{id}: {parameter}");
        }
        assert!(operation["responses"]["200"]["description"].is_string(), "{id}");
        for refusal in ["400", "401", "403", "429"] {
            assert!(operation["responses"][refusal]["description"].is_string(), "{id}: {refusal}");
        }
        assert!(operation["responses"]["default"]["content"]["application/problem+json"].is_object(), "{id}");
        let has_body = operation.get("requestBody").is_some();
        assert_eq!(has_body, method != "get" && method != "delete", "{id}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let document = document();
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(references.len() > 100);
    for reference in references {
        let pointer = reference.strip_prefix('#').expect("within the document");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            references.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|value| collect(value, references));
        }
        Value::Array(entries) => entries.iter().for_each(|value| collect(value, references)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn lists_and_maps_of_a_query_are_given_one_by_one() {
    let document = document();
    let operations = operations(&document);
    let (_, _, list) = operations["ListBids"];
    let parameters = list["parameters"].as_array().unwrap();
    let named = |name: &str| parameters.iter().find(|parameter| parameter["name"] == name).unwrap();
    assert_eq!(named("state")["schema"]["type"], "array");
    assert_eq!(named("label")["explode"], true);
    assert_eq!(named("page_size")["schema"]["type"], "integer");
    let (_, _, events) = operations["ListEvents"];
    let names: Vec<&Value> =
        events["parameters"].as_array().unwrap().iter().map(|parameter| &parameter["name"]).collect();
    assert!(names.iter().any(|name| *name == "kind") && !names.iter().any(|name| *name == "filter"));
}

#[tokio::test]
async fn the_document_and_a_page_for_people_are_served_to_anyone() {
    let world = World::new().await;
    let anyone = world.stranger();
    let served = anyone.get("/openapi.json").await;
    assert_eq!((served.status, &served.json["openapi"]), (200, &Value::from("3.1.0")));
    let page = anyone.get("/").await;
    assert_eq!(page.status, 200);
    assert!(page.headers["content-type"].to_str().unwrap().starts_with("text/html"));
    assert!(page.text.contains("/openapi.json"));
}

#[tokio::test]
async fn a_document_that_the_caller_has_is_answered_as_not_modified() {
    let world = World::new().await;
    let stranger = world.stranger();
    let first = stranger.get("/openapi.json").await;
    let tag = first.headers["etag"].to_str().unwrap();
    let again = stranger.send("GET", "/openapi.json", &[("if-none-match", tag)], "").await;
    assert_eq!((again.status, &again.text[..]), (304, ""));
    let other = stranger.send("GET", "/openapi.json", &[("if-none-match", "\"0\"")], "").await;
    assert_eq!((other.status, other.text), (200, first.text));
}

/// Returns values at the limits of what a field accepts.
fn probes() -> Vec<Value> {
    let long = |length: usize| Value::from("a".repeat(length));
    let mut probes = vec![
        Value::Null,
        json!(""),
        json!("a\u{0}b"),
        json!("a b"),
        long(64),
        long(128),
        long(257),
        json!("99999999999999999999"),
        json!("18446744073709551616"),
        json!(-1),
        json!(0),
        json!(1001),
        json!(u64::from(u32::MAX) + 1),
        json!(1e30),
        json!({}),
        json!({ "": "v" }),
        json!({ "k": "a\u{0}b" }),
        json!({ "k": null }),
        json!([null]),
        json!(["a\u{0}b"]),
    ];
    probes.push(json!({ "k".repeat(64): "v" }));
    probes.push(Value::Array(vec![json!("a"); 101]));
    probes
}

/// The document, compiled, to check values against.
struct Checked {
    document: Value,
    schemas: Schemas,
    compiler: Compiler,
}

const AT: &str = "http://x/openapi.json";
const BODY: &str = "/requestBody/content/application~1json";

impl Checked {
    fn new() -> Checked {
        let (schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource(AT, document()).unwrap();
        Checked { document: document(), schemas, compiler }
    }

    /// Returns the pointer to the schema of an operation's body, if it has one.
    fn body(&self, id: &str) -> Option<String> {
        let operations = operations(&self.document);
        let (method, path, operation) = operations[id];
        let schema = operation.pointer(&format!("{BODY}/schema"))?;
        Some(match schema["$ref"].as_str() {
            Some(reference) => reference.trim_start_matches('#').to_owned(),
            None => format!("/paths/{}/{method}{BODY}/schema", path.replace('/', "~1")),
        })
    }

    fn compile(&mut self, pointer: &str) -> SchemaIndex {
        self.compiler.compile(&format!("{AT}#{pointer}"), &mut self.schemas).unwrap()
    }

    fn allows(&self, schema: SchemaIndex, value: &Value) -> bool {
        self.schemas.validate(value, schema).is_ok()
    }
}

/// Returns the path of an operation with a value for each parameter.
fn filled(path: &str) -> String {
    let path = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
    path.collect::<Vec<_>>().join("/")
}

#[test]
fn a_bid_without_a_ceiling_is_not_what_the_document_allows() {
    let mut checked = Checked::new();
    let place = checked.body("PlaceBid").unwrap();
    let place = checked.compile(&place);
    assert!(!checked.allows(place, &json!({})));
    assert!(!checked.allows(place, &json!({ "markets": ["h100-8x/eu-west"], "max_nodes": 1 })));
    let bid = json!({ "markets": ["h100-8x/eu-west"], "max_nodes": 1, "ceiling_micros": 8_000_000 });
    assert!(checked.allows(place, &bid));
    let document = document();
    let operations = operations(&document);
    let needed = |id: &str| operations[id].2["requestBody"]["required"].as_bool().unwrap_or(false);
    assert!(needed("PlaceBid") && needed("CancelBid") && needed("OpenMarket"));
    assert!(!needed("ReportReady") && !needed("AmendBid"), "the path says what they are about");
}

#[test]
fn what_a_request_requires_is_in_its_path_or_its_body() {
    let document = document();
    for (id, (_, _, operation)) in operations(&document) {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let text = parameter["description"].as_str().unwrap_or_default();
            let is_required = parameter["required"].as_bool().unwrap_or(false);
            assert!(is_required || !text.starts_with("Required"), "{id}: {parameter}");
        }
    }
}

#[tokio::test]
async fn examples_are_requests_that_the_engine_understands() {
    let world = World::new().await;
    let admin = world.client("admin");
    let mut checked = Checked::new();
    let document = document();
    for (id, (method, path, operation)) in operations(&document) {
        let Some(schema) = checked.body(&id) else { continue };
        let example = operation.pointer(&format!("{BODY}/example"));
        let needed = operation["requestBody"]["required"].as_bool().unwrap_or(false);
        assert!(example.is_some() || !needed, "{id} has no example");
        let Some(example) = example else { continue };
        let schema = checked.compile(&schema);
        assert!(checked.allows(schema, example), "{id}: {example}");
        let answer = admin.send(&method.to_uppercase(), &filled(path), &[], &example.to_string()).await;
        assert!(answer.code() != "BAD_FIELD" && answer.status < 500, "{id} {example}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_value_that_the_document_allows_is_not_refused_for_its_form() {
    let world = World::new().await;
    let admin = world.client("admin");
    let mut checked = Checked::new();
    let document = document();
    let mut refused = Vec::new();
    for (id, (method, path, operation)) in operations(&document) {
        let Some(schema) = checked.body(&id) else { continue };
        let example = operation.pointer(&format!("{BODY}/example")).cloned().unwrap_or_else(|| json!({}));
        let fields = document.pointer(&schema).unwrap()["properties"].as_object();
        let schema = checked.compile(&schema);
        for name in fields.into_iter().flatten().map(|(name, _)| name) {
            for probe in probes() {
                let mut body = example.clone();
                body[name] = probe;
                if !checked.allows(schema, &body) {
                    continue;
                }
                // A `min_seq` of the future is waited for.
                let headers = [("request-timeout", "1")];
                let (method, body_text) = (method.to_uppercase(), body.to_string());
                let answer = admin.send(&method, &filled(path), &headers, &body_text).await;
                let blamed = answer.field().split(['.', '[']).next() == Some(name);
                if answer.code() == "BAD_FIELD" && blamed {
                    refused.push(format!("{id} {body}: {}", answer.json["detail"]));
                }
                let (status, code) = (answer.status, answer.code());
                let documented = &operation["responses"][status.to_string()]["content"];
                if (400..500).contains(&status)
                    && documented["application/problem+json"]["examples"].get(code).is_none()
                {
                    refused.push(format!("{id} {body}: {status} {code} is not in the document"));
                }
                // A limit would hide what the others are refused for.
                assert_ne!(code, "LIMIT", "{id}: {}", answer.text);
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
