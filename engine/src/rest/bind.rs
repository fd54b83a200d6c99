//! Builds the request message from a path, a query, headers and a body.
//!
//! A parameter is a field of the request message. The path fills some fields, the query the others of a
//! GET, and the body the others of all other verbs. An entry of a list or a map is one parameter of the
//! query, with the singular of the field's name: `state=OPEN&state=CLOSED`, `label=team=vision`. The
//! fields of `filter` are parameters like the others.

use super::operation::Message;
use crate::wire::echo::echo;
use crate::wire::status::ApiError;
use axum::http::Method;
use percent_encoding::percent_decode_str;
use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};

/// The binding of an operation: which parts of a request fill which fields.
pub(super) struct Binding {
    /// The field that the path fills, and the text it fills it with: ("market", "{type}/{region}").
    pub(super) from_path: Option<(Vec<String>, String)>,
    /// Parameters of the query by name; empty if there is a body.
    pub(super) query: BTreeMap<String, Parameter>,
    pub(super) has_body: bool,
    /// True if the message has a `client_key`.
    pub(super) has_key: bool,
}

/// A parameter of the query.
pub(super) struct Parameter {
    /// The field, as a path through messages.
    pub(super) field: Vec<String>,
    pub(super) shape: Shape,
    /// The schema of one entry.
    pub(super) schema: RefOr<Schema>,
    pub(super) description: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A text, a number or a word. JSON accepts a string for each of them.
    Text,
    Flag,
    Texts,
    /// `key=value`.
    Pairs,
}

impl Binding {
    pub(super) fn new(method: &Method, path: &str, request: &Message) -> Binding {
        let has_body = *method != Method::GET && *method != Method::DELETE;
        let from_path = path_field(path).map(|(field, text)| (place_of(&field, request), text));
        let mut query = BTreeMap::new();
        if !has_body {
            collect(request, &request.schema, &[], &mut query);
            query
                .retain(|_, parameter| from_path.as_ref().is_none_or(|(field, _)| *field != parameter.field));
        }
        let has_key = properties(&request.schema).any(|(name, _)| name == "client_key");
        Binding { from_path, query, has_body, has_key }
    }

    /// Names the parameter of the query instead of the field that it fills, which the caller does not know.
    pub(super) fn name_parameter(&self, error: ApiError) -> ApiError {
        let Some(field) = &error.field else { return error };
        let (name, _) = field.split_once('[').unwrap_or((field, ""));
        let filling = self.query.iter().find(|(_, parameter)| parameter.field.join(".") == name);
        let Some((parameter, _)) = filling.filter(|(parameter, _)| *parameter != name) else { return error };
        let rest = error.message.strip_prefix(&**field);
        let message = rest.map_or_else(|| error.message.clone(), |rest| format!("{parameter}{rest}"));
        error.saying(message).at(parameter)
    }
}

/// Returns the field that the parameters of a path fill together.
fn path_field(path: &str) -> Option<(String, String)> {
    let unit = "{type}/{region}/{provider}/{number}";
    if path.contains(unit) {
        return Some(("unit".to_owned(), "{type}/{region}:{provider}#{number}".to_owned()));
    }
    if path.contains("{type}/{region}") {
        return Some(("market".to_owned(), "{type}/{region}".to_owned()));
    }
    let (_, rest) = path.split_once('{')?;
    let (name, _) = rest.split_once('}')?;
    Some((name.to_owned(), format!("{{{name}}}")))
}

/// Returns the path to a field: in the message itself, or in a message that it holds.
fn place_of(field: &str, request: &Message) -> Vec<String> {
    if properties(&request.schema).any(|(name, _)| name == field) {
        return vec![field.to_owned()];
    }
    let holder = properties(&request.schema).find(|(_, schema)| {
        resolve(request, schema).is_some_and(|inner| properties(inner).any(|(name, _)| name == field))
    });
    let (holder, _) = holder.unwrap_or_else(|| panic!("{} has no field {field}", request.name));
    vec![holder.clone(), field.to_owned()]
}

fn collect(
    request: &Message,
    schema: &RefOr<Schema>,
    scope: &[String],
    query: &mut BTreeMap<String, Parameter>,
) {
    for (name, schema) in properties(schema) {
        let field = [scope, std::slice::from_ref(name)].concat();
        let singular = || name.strip_suffix('s').unwrap_or(name).to_owned();
        let mut add = |name: String, shape, schema: RefOr<Schema>, description| {
            query.insert(name, Parameter { field: field.clone(), shape, schema, description });
        };
        match schema {
            RefOr::Ref(reference) => match resolve(request, schema) {
                Some(inner) if properties(inner).next().is_some() => {
                    let inner = inner.clone();
                    collect(request, &inner, &field, query);
                }
                Some(_) | None => {
                    add(name.clone(), Shape::Text, schema.clone(), Some(reference.description.clone()));
                }
            },
            RefOr::T(Schema::Array(array)) => {
                let utoipa::openapi::schema::ArrayItems::RefOrSchema(items) = &array.items else { continue };
                add(singular(), Shape::Texts, (**items).clone(), array.description.clone());
            }
            RefOr::T(Schema::Object(object)) if object.additional_properties.is_some() => {
                let pair = utoipa::openapi::ObjectBuilder::new()
                    .schema_type(Type::String)
                    .pattern(Some("^[^=]+=.*$"));
                add(singular(), Shape::Pairs, pair.build().into(), object.description.clone());
            }
            RefOr::T(Schema::Object(object)) => {
                let flag = matches!(object.schema_type, SchemaType::Type(Type::Boolean));
                let shape = if flag { Shape::Flag } else { Shape::Text };
                add(name.clone(), shape, schema.clone(), object.description.clone());
            }
            RefOr::T(_) => unreachable!("{} has no such fields", request.name),
        }
    }
}

fn properties(schema: &RefOr<Schema>) -> impl Iterator<Item = (&String, &RefOr<Schema>)> {
    let object = match schema {
        RefOr::T(Schema::Object(object)) => Some(object),
        RefOr::T(_) | RefOr::Ref(_) => None,
    };
    object.into_iter().flat_map(|object| &object.properties)
}

/// Returns the schema to which a field of the message refers.
fn resolve<'a>(request: &'a Message, schema: &RefOr<Schema>) -> Option<&'a RefOr<Schema>> {
    let RefOr::Ref(reference) = schema else { return None };
    let name = reference.ref_location.rsplit('/').next()?;
    request.refers_to.iter().find(|(known, _)| known == name).map(|(_, schema)| schema)
}

/// The fields that a request gave, before they are decoded into a message.
#[derive(Debug, Default)]
pub(super) struct Given {
    fields: Map<String, Value>,
    body: Option<axum::body::Bytes>,
}

impl Given {
    pub(super) fn set(&mut self, field: &[String], value: Value) {
        *slot(&mut self.fields, field) = value;
    }

    pub(super) fn set_body(&mut self, body: axum::body::Bytes) {
        self.body = Some(body).filter(|body| !body.is_empty());
    }

    /// Takes the parameters of a query.
    pub(super) fn set_query(&mut self, binding: &Binding, query: &str) -> Result<(), ApiError> {
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (decoded("query", name)?, value);
            let Some(parameter) = binding.query.get(&name) else {
                return Err(ApiError::bad_field(&*name, "is no parameter here"));
            };
            let value = decoded(&name, value)?;
            let slot = slot(&mut self.fields, &parameter.field);
            match parameter.shape {
                Shape::Texts => match slot.as_array_mut() {
                    Some(entries) => entries.push(value.into()),
                    None => *slot = Value::Array(vec![value.into()]),
                },
                Shape::Pairs => {
                    let Some((key, value)) = value.split_once('=') else {
                        return Err(ApiError::bad_field(&*name, "is not KEY=VALUE"));
                    };
                    if !slot.is_object() {
                        *slot = Value::Object(Map::new());
                    }
                    let pairs = slot.as_object_mut().expect("made above");
                    if pairs.insert(key.to_owned(), value.into()).is_some() {
                        return Err(ApiError::bad_field(&*name, format_args!("names {} twice", echo(key))));
                    }
                }
                Shape::Text | Shape::Flag if !slot.is_null() => {
                    return Err(ApiError::bad_field(&*name, "is given twice"));
                }
                Shape::Text => *slot = value.into(),
                Shape::Flag => {
                    *slot = match value.as_str() {
                        "true" | "" => true.into(),
                        "false" => false.into(),
                        _ => return Err(ApiError::bad_field(&*name, "is neither true nor false")),
                    };
                }
            }
        }
        Ok(())
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// The wrong field, with its line and column in the body.
    pub(super) fn read<Q: DeserializeOwned>(self) -> Result<Q, ApiError> {
        let Some(body) = self.body else { return from_value(Value::Object(self.fields)) };
        serde_json::from_slice(&body).map(|Once| ()).or_else(|error| blame_twice(&error))?;
        // The original text is read, because only it has line numbers.
        let mut reader = serde_json::Deserializer::from_slice(&body);
        let message: Q = serde_path_to_error::deserialize(&mut reader).map_err(|error| blame(&error))?;
        reader
            .end()
            .map_err(|error| ApiError::bad_field("body", format_args!("has more after the end: {error}")))?;
        if self.fields.is_empty() {
            return Ok(message);
        }
        let mut merged: Map<String, Value> = serde_json::from_slice(&body)
            .map_err(|error| ApiError::bad_field("body", format_args!("is no object: {error}")))?;
        merge(&mut merged, self.fields, "")?;
        from_value(Value::Object(merged))
    }
}

fn from_value<Q: DeserializeOwned>(value: Value) -> Result<Q, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| blame(&error))
}

/// Merges values of the path and the headers into the body. Refuses a body that contradicts them.
fn merge(body: &mut Map<String, Value>, given: Map<String, Value>, scope: &str) -> Result<(), ApiError> {
    for (name, value) in given {
        let field = if scope.is_empty() { name.clone() } else { format!("{scope}.{name}") };
        match (body.get_mut(&name), value) {
            (Some(Value::Object(inner)), Value::Object(value)) => merge(inner, value, &field)?,
            (Some(said), value) => {
                let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                if text(said) != text(&value) {
                    return Err(ApiError::bad_field(field, "is given twice, and not the same"));
                }
            }
            (None, value) => {
                body.insert(name, value);
            }
        }
    }
    Ok(())
}

fn slot<'a>(fields: &'a mut Map<String, Value>, field: &[String]) -> &'a mut Value {
    let (last, scope) = field.split_last().expect("a field has a name");
    let mut here = fields;
    for name in scope {
        let inner = here.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
        here = inner.as_object_mut().expect("messages are objects");
    }
    here.entry(last.clone()).or_insert(Value::Null)
}

fn decoded(name: &str, text: &str) -> Result<String, ApiError> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| ApiError::bad_field(name, "is not UTF-8"))
}

/// Reads JSON and keeps nothing of it. Fails if an object has a key twice, because programs differ in
/// which of the two counts.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Once, D::Error> {
        json.deserialize_any(Once)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Once;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON")
    }

    fn visit_unit<E>(self) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_str<E>(self, _: &str) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Once, A::Error> {
        while let Some(Once) = entries.next_element()? {}
        Ok(Once)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Once, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(A::Error::custom(format_args!("{TWICE}{key}")));
            }
            keys.insert(key);
            entries.next_value::<Once>()?;
        }
        Ok(Once)
    }
}

/// Refuses a key that appears twice. Other errors are found later.
fn blame_twice(error: &serde_json::Error) -> Result<(), ApiError> {
    let said = error.to_string();
    let Some(key) = said.strip_prefix(TWICE) else { return Ok(()) };
    Err(ApiError::bad_field("body", format_args!("has a key twice: {}", echo(key))))
}

const TWICE: &str = "twice: ";

/// Returns the message of serde, in which quoted text is cut: "unknown field `…`, expected …".
fn without_long_quotes(said: &str) -> String {
    let Some(begin) = said.find(['`', '"']) else { return said.to_owned() };
    let (before, quoted) = said.split_at(begin + 1);
    let mark = &said[begin..=begin];
    // The expected words are ours. The text may have quotes too, so the last quote counts.
    let end =
        quoted.rfind(&format!("{mark}, expected")).or_else(|| quoted.rfind(mark)).unwrap_or(quoted.len());
    let (text, behind) = quoted.split_at(end);
    format!("{before}{}{behind}", echo(text))
}

fn blame(error: &serde_path_to_error::Error<serde_json::Error>) -> ApiError {
    let (inner, path) = (error.inner(), error.path().to_string());
    let said = inner.to_string();
    let said = without_long_quotes(&said);
    let field = if path == "." || path == "?" { "body".to_owned() } else { path };
    if inner.is_syntax() || inner.is_eof() || inner.is_io() {
        return ApiError::bad_field("body", format_args!("is not JSON: {said}"));
    }
    if let Some(at) = BAD_INTEGER_MESSAGES.iter().find_map(|words| said.strip_prefix(words)) {
        return ApiError::bad_field(field, format_args!("is not a whole number that fits{at}"));
    }
    let said = said.replace("expected struct kubebid.auction.v1.", "expected an object, ");
    let said = said
        .replace("expected expected one of", "expected one of")
        .replace("expected a sequence", "expected a list");
    ApiError::bad_field(field, format_args!("cannot be read: {said}"))
}

/// The messages of serde, pbjson and the standard library about a number that is not whole or does not fit.
const BAD_INTEGER_MESSAGES: [&str; 5] = [
    "data did not match any variant of untagged enum Content",
    "invalid digit found in string",
    "number too large to fit in target type",
    "number too small to fit in target type",
    "cannot parse integer from empty string",
];
