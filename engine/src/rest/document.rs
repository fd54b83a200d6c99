//! Makes the OpenAPI 3.1 document from the operations and the messages. The comments of the `.proto` are its
//! descriptions.

use super::bind::{Parameter, Shape};
use super::examples;
use super::operation::Operation;
use super::problem;
use super::rpcs::{self, Rpc};
use crate::auth::policy::{self, Need};
use crate::wire::status::{ApiError, Code};
use axum::http::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::example::ExampleBuilder;
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, Parameter as DocumentedParameter, ParameterBuilder, ParameterIn,
    ParameterStyle, PathItem, PathsBuilder,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ComponentsBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::server::ServerBuilder;
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Content, Info, LicenseBuilder, ObjectBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required,
    ResponseBuilder, Schema, Tag,
};

const INTRODUCTION: &str = "The spot market for compute. Every verb is an rpc of `kubebid.auction.v1` with the same \
messages, checks and codes. 64-bit integers are strings of an integer; numbers are read too. Prices are whole \
micro-dollars per node-hour, instants microseconds since the epoch. Refusals are RFC 9457 problems with a stable `code`.";

pub(super) fn document(operations: &[Operation]) -> OpenApi {
    let rpcs = rpcs::all();
    let mut paths = PathsBuilder::new();
    let mut schemas: BTreeMap<String, RefOr<Schema>> = BTreeMap::new();
    let mut answered = BTreeSet::new();
    for operation in operations {
        let rpc = &rpcs[operation.rpc];
        let codes = codes_by_status(operation, rpc, &rpcs);
        answered.extend(codes.values().flatten().copied());
        let item = PathItem::new(http_method(&operation.method), described(operation, rpc, &codes));
        paths = paths.path(operation.path, item);
        for message in [&operation.request, &operation.response] {
            schemas.insert(message.name.clone(), message.schema.clone());
            schemas.extend(message.refers_to.iter().cloned());
        }
    }
    let bearer =
        HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A token of CreateToken."));
    let mut components = ComponentsBuilder::new();
    for code in Code::all().filter(|code| answered.contains(code.word())) {
        let example = ExampleBuilder::new().value(Some(problem::document(ApiError::new(code))));
        components = components.example(code.word(), RefOr::T(example.build()));
    }
    let components = components
        .schemas_from_iter(schemas)
        .schema("Problem", problem_schema())
        .security_scheme("token", SecurityScheme::Http(bearer.build()));
    let mut info = Info::new("KubeBid", env!("CARGO_PKG_VERSION"));
    info.description = Some(INTRODUCTION.to_owned());
    info.license = Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build());
    let server = ServerBuilder::new().url("/").description(Some("The engine that serves this document."));
    let mut components = components.build();
    let paths = paths.build();
    let used = used_schemas(&json!(paths), &components.schemas);
    components.schemas.retain(|name, _| used.contains(name));
    OpenApiBuilder::new()
        .info(info)
        .servers(Some([server.build()]))
        .paths(paths)
        .components(Some(components))
        .security(Some([with_token()]))
        .tags(Some(tags(&rpcs)))
        .build()
}

/// Returns the names of the schemas to which the paths refer, directly or not. A request whose fields are all in
/// the path and the query has no schema of its own.
fn used_schemas(paths: &Value, schemas: &BTreeMap<String, RefOr<Schema>>) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut open = vec![paths.clone()];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                let named = members.get("$ref").and_then(Value::as_str);
                let name = named.and_then(|at| at.strip_prefix("#/components/schemas/"));
                if let Some(name) = name.filter(|name| used.insert((*name).to_owned())) {
                    open.extend(schemas.get(name).map(|schema| json!(schema)));
                }
                open.extend(members.into_values());
            }
            Value::Array(entries) => open.extend(entries),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    used
}

fn with_token() -> SecurityRequirement {
    SecurityRequirement::new("token", Vec::<String>::new())
}

fn tags(rpcs: &BTreeMap<String, Rpc>) -> Vec<Tag> {
    let services: BTreeMap<&str, &str> =
        rpcs.values().map(|rpc| (rpc.service.as_str(), rpc.service_comment.as_str())).collect();
    services
        .into_iter()
        .map(|(name, text)| TagBuilder::new().name(name).description(Some(text)).build())
        .collect()
}

fn described(
    operation: &Operation,
    rpc: &Rpc,
    codes: &BTreeMap<u16, BTreeSet<&'static str>>,
) -> OperationBuilder {
    let mut described = OperationBuilder::new()
        .operation_id(Some(operation.id))
        .tag(rpc.service.clone())
        .summary(rpc.comment.split_once('.').map(|(sentence, _)| sentence))
        .description(Some(rpc.comment.clone()))
        .response("200", answer(operation))
        .response("default", any_refusal());
    for (status, codes) in codes {
        described = described.response(status.to_string(), refusal(codes));
    }
    if policy::need(&rpc.path) == Some(Need::Markets) {
        described = described.security(with_token()).security(SecurityRequirement::default());
    }
    for name in path_parameters(operation.path) {
        described = described.parameter(path_parameter(operation, name));
    }
    for (name, parameter) in &operation.binding.query {
        described = described.parameter(query_parameter(name, parameter));
    }
    if operation.binding.has_key && operation.binding.has_body {
        described = described
            .parameter(header("Idempotency-Key", "As `client_key` of the body; the two may not differ."));
    }
    if operation.streams {
        described = described.parameter(header("Last-Event-ID", "As `cursor`, before which it counts."));
    }
    if operation.binding.has_body {
        let schema = body_schema(operation);
        let needed = if requires(operation, &schema) { Required::True } else { Required::False };
        let content =
            ContentBuilder::new().schema(Some(schema)).example(examples::body(operation.id)).build();
        let body = RequestBodyBuilder::new().content("application/json", content).required(Some(needed));
        described = described.request_body(Some(body.build()));
    }
    described
}

fn answer(operation: &Operation) -> ResponseBuilder {
    let schema = RefOr::Ref::<Schema>(Ref::from_schema_name(&operation.response.name));
    let (kind, text) = if operation.streams {
        (
            "text/event-stream",
            "Server-sent events. An event `events` or `prices` has one of these as `data`, and as `id` the cursor to go on from, by \
             `cursor` or `Last-Event-ID`. A frame without events only moves the \
             cursor. An event `problem` has a Problem as `data` and no `id`, and ends the stream. A comment \
             after 10 seconds of silence says that the connection lives.",
        )
    } else {
        ("application/json", "Done, or known.")
    };
    ResponseBuilder::new().description(text).content(kind, Content::new(Some(schema)))
}

/// Returns the refusals that an operation answers as a status from 400 to 499, by status: those that the comment
/// of the rpc names, and those that any operation may answer.
fn codes_by_status(
    operation: &Operation,
    rpc: &Rpc,
    rpcs: &BTreeMap<String, Rpc>,
) -> BTreeMap<u16, BTreeSet<&'static str>> {
    let mut named = words(&rpc.service_comment);
    let mut refusals = Some(refusals_of(&rpc.comment));
    while let Some(text) = refusals {
        named.extend(words(text));
        // "Refusals: those of PlaceBid."
        let other = text.split_once("those of ").and_then(|(_, name)| rpcs.get(name.trim_end_matches('.')));
        refusals = other.map(|rpc| refusals_of(&rpc.comment));
    }
    let mut general = vec![Code::BadField, Code::Unauthenticated, Code::Forbidden, Code::Limit];
    general.extend(operation.binding.has_body.then_some(Code::TooLarge));
    let is_answered = |code: &Code| general.contains(code) || named.contains(code.word());
    let mut codes: BTreeMap<u16, BTreeSet<&str>> = BTreeMap::new();
    for code in Code::all().filter(is_answered).filter(|code| code.http() < 500) {
        codes.entry(code.http()).or_default().insert(code.word());
    }
    codes
}

/// Returns the part of a comment that lists the refusals.
fn refusals_of(comment: &str) -> &str {
    comment.find("Refusals").map_or("", |at| &comment[at..])
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(|letter: char| !letter.is_ascii_uppercase() && letter != '_').collect()
}

fn refusal(codes: &BTreeSet<&'static str>) -> ResponseBuilder {
    let mut content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem")));
    for code in codes {
        let example = RefOr::Ref(Ref::new(format!("#/components/examples/{code}")));
        content = content.examples_from_iter([(*code, example)]);
    }
    let codes: Vec<&str> = codes.iter().copied().collect();
    let text = format!("Refused: {}.", codes.join(", "));
    ResponseBuilder::new().description(text).content("application/problem+json", content.build())
}

fn any_refusal() -> ResponseBuilder {
    let schema = RefOr::Ref::<Schema>(Ref::from_schema_name("Problem"));
    ResponseBuilder::new()
        .description("Any other refusal: RFC 9457, with the stable code of the refusal.")
        .content("application/problem+json", Content::new(Some(schema)))
}

/// Returns the schema of the request's body, without the fields that the path fills.
fn body_schema(operation: &Operation) -> RefOr<Schema> {
    let Some((field, _)) = &operation.binding.from_path else {
        return Ref::from_schema_name(&operation.request.name).into();
    };
    let mut schema = operation.request.schema.clone();
    if let (RefOr::T(Schema::Object(object)), [field]) = (&mut schema, &field[..]) {
        object.properties.remove(field);
        object.required.retain(|required| required != field);
    }
    schema
}

/// Returns true if a body with this schema must have a field.
fn requires(operation: &Operation, body: &RefOr<Schema>) -> bool {
    let schema = match body {
        RefOr::Ref(_) => &operation.request.schema,
        RefOr::T(_) => body,
    };
    match schema {
        RefOr::T(Schema::Object(object)) => !object.required.is_empty(),
        RefOr::T(_) | RefOr::Ref(_) => false,
    }
}

fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn path_parameter(operation: &Operation, name: &str) -> DocumentedParameter {
    let properties = match &operation.request.schema {
        RefOr::T(Schema::Object(object)) => Some(&object.properties),
        RefOr::T(_) | RefOr::Ref(_) => None,
    };
    let schema = properties.and_then(|properties| properties.get(name)).cloned();
    let text = || {
        let example = match name {
            "type" => "h100-8x",
            "region" => "eu-west",
            "provider" => "acme",
            "number" => "4",
            _ => return ObjectBuilder::new().schema_type(Type::String).build().into(),
        };
        ObjectBuilder::new().schema_type(Type::String).examples([json!(example)]).build().into()
    };
    let parameter =
        ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
    parameter.schema(Some(schema.unwrap_or_else(text))).build()
}

fn query_parameter(name: &str, parameter: &Parameter) -> DocumentedParameter {
    let documented = ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(parameter.description.clone());
    match parameter.shape {
        Shape::Text | Shape::Flag => documented.schema(Some(parameter.schema.clone())).build(),
        Shape::Texts | Shape::Pairs => {
            let entries = ArrayBuilder::new().items(parameter.schema.clone());
            documented.schema(Some(entries)).style(Some(ParameterStyle::Form)).explode(Some(true)).build()
        }
    }
}

fn header(name: &str, text: &str) -> DocumentedParameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(text))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

fn http_method(method: &Method) -> HttpMethod {
    match method.as_str() {
        "GET" => HttpMethod::Get,
        "POST" => HttpMethod::Post,
        "PUT" => HttpMethod::Put,
        "PATCH" => HttpMethod::Patch,
        "DELETE" => HttpMethod::Delete,
        other => unreachable!("no operation is {other}"),
    }
}

fn problem_schema() -> RefOr<Schema> {
    let codes: Vec<Value> = crate::wire::status::Code::all().map(|code| code.word().into()).collect();
    let text = |description: &str| {
        ObjectBuilder::new().schema_type(Type::String).description(Some(description.to_owned()))
    };
    let status = ObjectBuilder::new().schema_type(Type::Integer).description(Some("The HTTP status."));
    ObjectBuilder::new()
        .description(Some("Why a request was refused (RFC 9457)."))
        .property("type", text("A URI for the code."))
        .property("title", text("The code in words."))
        .property("status", status)
        .property("detail", text("One sentence for people. It may change."))
        .property("code", text("The stable code.").enum_values(Some(codes)).examples([json!("NOT_A_TICK")]))
        .property("field", text("The field to blame, where a single one is."))
        .property("seq", text("The number of the refused command, where it was numbered."))
        .property("retry_after_us", text("For how long to wait before trying again, where that is of use."))
        .property(
            "metadata",
            ObjectBuilder::new()
                .schema_type(Type::Object)
                .description(Some("More, by name: `limit` says which one is reached."))
                .additional_properties(Some(ObjectBuilder::new().schema_type(Type::String))),
        )
        .required("type")
        .required("title")
        .required("status")
        .required("detail")
        .required("code")
        .build()
        .into()
}
