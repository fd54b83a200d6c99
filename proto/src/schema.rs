//! OpenAPI schemas of all messages, read off their descriptors: the comments of the `.proto` are the
//! descriptions, and the shapes are those of the JSON.

use crate::FILE_DESCRIPTOR_SET;
use crate::v1::*;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type as Kind};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, KnownFormat, ObjectBuilder, RefBuilder, Schema, SchemaFormat,
    SchemaType, Type,
};
use utoipa::{PartialSchema, ToSchema};

const PACKAGE: &str = ".kubebid.auction.v1.";

/// Digits of an integer in a request. The largest integer of 64 bits has twenty digits, so nineteen always fit.
const UINT64: &str = "^[0-9]{1,19}$";
/// Digits of an integer that may be negative.
const INT64: &str = "^-?[0-9]{1,19}$";
/// The largest amount of a request that may be negative, in micro-dollars.
const SIGNED_MOST: i64 = 1_000_000_000_000_000_000;
/// Matches text without control characters.
const PLAIN: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";
/// Matches the name that a request gives to something.
const NAME: &str = "^[A-Za-z0-9._-]{1,63}$";
/// Matches such a name, or no name.
const NAME_OR_NONE: &str = "^[A-Za-z0-9._-]{0,63}$";
/// Matches the name that a request gives to a market.
const MARKET: &str = "^[A-Za-z0-9._-]{1,63}/[A-Za-z0-9._-]{1,63}$";

/// Matches an address of a node.
const ADDRESS: &str = "^[A-Za-z0-9.:_%][A-Za-z0-9.:_%-]{0,252}$";
/// Matches the name of a user on a node, or no name.
const USER: &str = "^([A-Za-z0-9._][A-Za-z0-9._-]{0,62})?$";
/// Matches text that may have several lines.
const LINES: &str = r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$";

/// Matches bytes in base64, padded.
const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

/// The most addresses or ports of a node.
const ACCESS_ENTRIES: usize = 16;
/// The longest `node_config` in base64, in characters.
const NODE_CONFIG: usize = 4 * 16_384usize.div_ceil(3);

/// The beginning of the comment of a field that a request must have.
const REQUIRED: &str = "Required";

/// The fields of requests that have a pattern of their own.
const PATTERNS: [(&str, &str); 12] = [
    ("PlaceBidRequest.instance_type", NAME_OR_NONE),
    ("QuoteBidRequest.instance_type", NAME_OR_NONE),
    ("PutAccountRequest.name", NAME),
    ("CreateTokenRequest.account", NAME),
    ("FundAccountRequest.account", NAME),
    ("SetBudgetRequest.account", NAME),
    ("InstanceType.name", NAME),
    ("OpenMarketRequest.market", MARKET),
    ("CloseMarketRequest.market", MARKET),
    ("NodeAccess.addresses", ADDRESS),
    ("NodeAccess.user", USER),
    ("NodeAccess.notes", LINES),
];

/// Returns the maximum length of a request's text field, in characters; `None` if the engine made the text.
fn longest(field: &str) -> Option<usize> {
    match field {
        "cursor" | "page_token" => None,
        "client_key" => Some(128),
        "market" | "markets" => Some(127),
        "unit" => Some(212),
        "notes" => Some(4096),
        _ => Some(256),
    }
}

/// Returns the maximum of a request's number field.
fn greatest(field: &str) -> u32 {
    match field {
        // A value of a map: the ports of a node.
        "value" => 65_535,
        _ => u32::MAX,
    }
}

/// Returns an example of a field by its name, in the JSON of answers.
fn example(field: &str) -> Option<Value> {
    let text = match field {
        "market" | "markets" => "h100-8x/eu-west",
        "unit" => "h100-8x/eu-west:acme#4",
        "instance_type" => "h100-8x",
        "region" => "eu-west",
        "provider" => "acme",
        "tenant" | "account" => "vision",
        "client_key" => "train-7",
        "bid" | "bids" => "12",
        "allocation" | "allocations" => "14",
        "seq" | "min_seq" => "16",
        "kinds" => "notice_started",
        "rule" => "R4",
        "retry_after_us" => "250000",
        "notice_us" => "120000000",
        "min_runtime_us" => "3600000000",
        "start_timeout_us" => "600000000",
        "min_charge_us" => "60000000",
        "bar_us" => "3600000000",
        "duration_us" => "1800000000",
        "renewal_us" => "300000000",
        "runway_us" => "86400000000",
        "node_time_us" => "7200000000",
        _ if field.ends_with("_us") => "1767225600000000",
        _ if field.ends_with("_micros") => "2500000",
        "capacity" | "nodes" | "max_nodes" | "units" => return Some(2.into()),
        "page_size" => return Some(100.into()),
        _ => return None,
    };
    Some(text.into())
}

macro_rules! described {
    ($($type:path = $name:literal,)*) => {$(
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                SCHEMAS[$name].schema.clone()
            }
        }

        impl ToSchema for $type {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }

            fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                referenced($name, schemas);
            }
        }
    )*};
}

include!(concat!(env!("OUT_DIR"), "/kubebid.auction.v1.schema.rs"));

/// A message or an enum, by its name within the package, as in `Bid.State`.
struct Described {
    schema: RefOr<Schema>,
    /// The names that the schema refers to.
    refers_to: BTreeSet<String>,
}

static SCHEMAS: LazyLock<BTreeMap<String, Described>> = LazyLock::new(|| {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("the build made the descriptors");
    let read = read_from_callers(&set);
    let mut schemas = BTreeMap::new();
    for file in &set.file {
        let comments = Comments::of(file);
        for (at, message) in file.message_type.iter().enumerate() {
            describe(&mut schemas, &comments, &read, "", &[4, at as i32], message);
        }
        for (at, kind) in file.enum_type.iter().enumerate() {
            schemas.insert(kind.name().to_owned(), described_enum(&comments, &[5, at as i32], kind));
        }
    }
    schemas
});

/// All that the schema of `name` refers to, directly or not.
fn referenced(name: &str, schemas: &mut Vec<(String, RefOr<Schema>)>) {
    let mut seen = BTreeSet::new();
    let mut open = vec![name];
    while let Some(name) = open.pop() {
        for next in &SCHEMAS[name].refers_to {
            if seen.insert(next) {
                schemas.push((next.clone(), SCHEMAS[next].schema.clone()));
                open.push(next);
            }
        }
    }
}

fn describe(
    schemas: &mut BTreeMap<String, Described>,
    comments: &Comments,
    read: &BTreeSet<String>,
    scope: &str,
    path: &[i32],
    message: &DescriptorProto,
) {
    let name = format!("{scope}{}", message.name());
    let is_read = read.contains(&name);
    let mut object = ObjectBuilder::new().description(comments.at(path));
    if is_read {
        // A field that is not known is refused.
        object = object.additional_properties(Some(AdditionalProperties::FreeForm(false)));
    }
    if name == "NodeAccess" {
        // One with nothing in it is refused.
        object = object.min_properties(Some(1));
    }
    let mut refers_to = BTreeSet::new();
    for (at, field) in message.field.iter().enumerate() {
        let description = comments.at(&[path, &[2, at as i32]].concat());
        let needed = description.as_deref().is_some_and(|text| text.starts_with(REQUIRED));
        refers_to.extend(referred(message, field));
        object = object.property(field.name(), described_field(message, field, description, is_read));
        if needed || !is_read && field.oneof_index.is_none() {
            object = object.required(field.name());
        }
    }
    schemas.insert(name.clone(), Described { schema: object.build().into(), refers_to });

    let scope = format!("{name}.");
    for (at, inner) in message.nested_type.iter().enumerate().filter(|(_, inner)| !is_map_entry(inner)) {
        describe(schemas, comments, read, &scope, &[path, &[3, at as i32]].concat(), inner);
    }
    for (at, kind) in message.enum_type.iter().enumerate() {
        let described = described_enum(comments, &[path, &[4, at as i32]].concat(), kind);
        schemas.insert(format!("{scope}{}", kind.name()), described);
    }
}

fn described_field(
    message: &DescriptorProto,
    field: &FieldDescriptorProto,
    description: Option<String>,
    is_read: bool,
) -> RefOr<Schema> {
    if let Some(entry) = map_entry(message, field) {
        let value = one(message, &entry.field[1], None, is_read);
        let keys = match field.name() {
            "labels" => Some(PLAIN),
            "ports" => Some(NAME),
            _ => None,
        };
        let key = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(63));
        let most = if field.name() == "ports" { ACCESS_ENTRIES } else { 64 };
        return ObjectBuilder::new()
            .max_properties(is_read.then_some(most))
            .property_names(keys.filter(|_| is_read).map(|keys| key.pattern(Some(keys)).build()))
            .schema_type(Type::Object)
            .description(description)
            .additional_properties(Some(value))
            .build()
            .into();
    }
    if field.label() == Label::Repeated {
        let most = match (message.name(), field.name()) {
            ("PlaceBidsRequest", "bids") => 1000,
            ("NodeAccess", _) => ACCESS_ENTRIES,
            _ => 100,
        };
        return ArrayBuilder::new()
            .description(description)
            .items(one(message, field, None, is_read))
            .max_items(is_read.then_some(most))
            .build()
            .into();
    }
    one(message, field, description, is_read)
}

fn one(
    message: &DescriptorProto,
    field: &FieldDescriptorProto,
    description: Option<String>,
    is_read: bool,
) -> RefOr<Schema> {
    let object = ObjectBuilder::new().description(description.clone()).examples(example(field.name()));
    match field.r#type() {
        Kind::Message | Kind::Enum => {
            return RefBuilder::new()
                .ref_location_from_schema_name(local(field.type_name()))
                .description(description)
                .build()
                .into();
        }
        // A number is accepted, a string is given.
        Kind::Uint64 if is_read => object
            .schema_type(SchemaType::Array(vec![Type::String, Type::Integer]))
            .format(Some(SchemaFormat::Custom("uint64".into())))
            .minimum(Some(0))
            .maximum(Some(u64::MAX))
            .pattern(Some(UINT64)),
        Kind::Uint64 => object
            .schema_type(Type::String)
            .format(Some(SchemaFormat::Custom("uint64".into())))
            .pattern(Some("^[0-9]{1,20}$")),
        Kind::Int64 if is_read => object
            .schema_type(SchemaType::Array(vec![Type::String, Type::Integer]))
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(-SIGNED_MOST))
            .maximum(Some(SIGNED_MOST))
            .pattern(Some(INT64)),
        Kind::Int64 => object
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .pattern(Some(INT64)),
        Kind::Uint32 => object
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::Custom("uint32".into())))
            .minimum(Some(u8::from(field.name() == "value")))
            .maximum(is_read.then(|| greatest(field.name()))),
        Kind::Bool => object.schema_type(Type::Boolean),
        Kind::String if is_read => {
            let name = format!("{}.{}", message.name(), field.name());
            let own = PATTERNS.iter().find(|(known, _)| *known == name).map(|(_, pattern)| *pattern);
            let longest = if own.is_some_and(|own| own != LINES) { None } else { longest(field.name()) };
            object.schema_type(Type::String).pattern(Some(own.unwrap_or(PLAIN))).max_length(longest)
        }
        Kind::String => object.schema_type(Type::String),
        Kind::Bytes => object
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Byte)))
            .pattern(is_read.then_some(BASE64))
            .max_length(is_read.then_some(NODE_CONFIG)),
        Kind::Double
        | Kind::Float
        | Kind::Int32
        | Kind::Fixed64
        | Kind::Fixed32
        | Kind::Group
        | Kind::Sfixed32
        | Kind::Sfixed64
        | Kind::Sint32
        | Kind::Sint64 => unreachable!("{} is of a kind that this API does not use", field.name()),
    }
    .build()
    .into()
}

fn described_enum(comments: &Comments, path: &[i32], kind: &EnumDescriptorProto) -> Described {
    let mut description = comments.at(path).unwrap_or_default();
    let mut words = Vec::new();
    for (at, value) in kind.value.iter().enumerate().skip(1) {
        let comment = comments.at(&[path, &[2, at as i32]].concat()).unwrap_or_default();
        description.push_str(&format!("\n- {}: {comment}", value.name()));
        words.push(value.name().to_owned());
    }
    let schema = ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(description))
        .enum_values(Some(words));
    Described { schema: schema.build().into(), refers_to: BTreeSet::new() }
}

/// The names of all messages that callers send, or that are part of such a message: in those nothing is written
/// by the engine, so only what its comment calls required is.
fn read_from_callers(set: &FileDescriptorSet) -> BTreeSet<String> {
    let mut fields = BTreeMap::new();
    let mut open = Vec::new();
    for file in &set.file {
        for message in &file.message_type {
            collect(&mut fields, "", message);
        }
        let methods = file.service.iter().flat_map(|service| &service.method);
        open.extend(methods.map(|method| local(method.input_type()).to_owned()));
    }
    let mut read = BTreeSet::new();
    while let Some(name) = open.pop() {
        if read.insert(name.clone()) {
            open.extend(fields.get(&name).into_iter().flatten().cloned());
        }
    }
    read
}

fn collect(fields: &mut BTreeMap<String, Vec<String>>, scope: &str, message: &DescriptorProto) {
    let name = format!("{scope}{}", message.name());
    for inner in &message.nested_type {
        collect(fields, &format!("{name}."), inner);
    }
    fields.insert(name, message.field.iter().flat_map(|field| referred(message, field)).collect());
}

/// The message or enum that a field has, or that the values of a map have.
fn referred(message: &DescriptorProto, field: &FieldDescriptorProto) -> Option<String> {
    let field = map_entry(message, field).map_or(field, |entry| &entry.field[1]);
    field.type_name.as_deref().map(|name| local(name).to_owned())
}

fn map_entry<'a>(message: &'a DescriptorProto, field: &FieldDescriptorProto) -> Option<&'a DescriptorProto> {
    let name = field.type_name.as_deref()?.rsplit('.').next()?;
    message.nested_type.iter().find(|inner| is_map_entry(inner) && inner.name() == name)
}

fn is_map_entry(message: &DescriptorProto) -> bool {
    message.options.as_ref().is_some_and(|options| options.map_entry())
}

/// `.kubebid.auction.v1.Bid.State` as `Bid.State`.
fn local(name: &str) -> &str {
    name.strip_prefix(PACKAGE).expect("all messages are of this package")
}

/// The comments of one file by the paths of what they stand before.
struct Comments<'a>(BTreeMap<&'a [i32], &'a str>);

impl<'a> Comments<'a> {
    fn of(file: &'a FileDescriptorProto) -> Self {
        let locations = file.source_code_info.iter().flat_map(|info| &info.location);
        Comments(locations.map(|place| (&place.path[..], place.leading_comments())).collect())
    }

    fn at(&self, path: &[i32]) -> Option<String> {
        let lines = self.0.get(path)?.trim().lines().map(str::trim).collect::<Vec<_>>();
        Some(lines.join("\n"))
    }
}
