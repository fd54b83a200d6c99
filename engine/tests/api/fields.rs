//! The fields of the requests of all methods, from the descriptors of the proto, and requests that have one of them.

use kubebid_engine::auth::policy::POLICY;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

/// A field of a request, or of a message within it.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// The gRPC path of the method.
    pub(crate) method: &'static str,
    /// The name of the message that has the field.
    pub(crate) message: String,
    /// The numbers and names of the fields that lead to it. The field itself is the last one.
    path: Vec<(u32, String)>,
    descriptor: FieldDescriptorProto,
    is_map: bool,
}

/// A value of a field.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Number(u64),
    Text(String),
}

impl Field {
    /// Returns the name of the field in its message.
    pub(crate) fn name(&self) -> &str {
        self.descriptor.name()
    }

    /// Returns the name of the field in errors, as in "filter.bids".
    pub(crate) fn place(&self) -> String {
        self.path.iter().map(|(_, name)| &name[..]).collect::<Vec<_>>().join(".")
    }

    pub(crate) fn is_repeated(&self) -> bool {
        self.descriptor.label() == Label::Repeated
    }

    pub(crate) fn is_text(&self) -> bool {
        self.descriptor.r#type() == Type::String
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self.descriptor.r#type(), Type::Uint64 | Type::Uint32 | Type::Enum | Type::Bool)
    }

    /// Encodes a request in which only this field is set, once for each value. A map gets the values
    /// as its keys.
    pub(crate) fn set(&self, values: &[Value]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for value in values {
            let tag = self.descriptor.number() as u32;
            match value {
                Value::Text(key) if self.is_map => {
                    let mut entry = Vec::new();
                    add_text(1, key.as_bytes(), &mut entry);
                    if self.name() == "ports" {
                        encode_key(2, WireType::Varint, &mut entry);
                        encode_varint(22, &mut entry);
                    }
                    add_text(tag, &entry, &mut bytes);
                }
                Value::Text(text) => add_text(tag, text.as_bytes(), &mut bytes),
                Value::Number(number) => {
                    encode_key(tag, WireType::Varint, &mut bytes);
                    encode_varint(*number, &mut bytes);
                }
            }
        }
        let around = self.path.iter().rev().skip(1);
        around.fold(bytes, |inner, (tag, _)| {
            let mut outer = Vec::new();
            add_text(*tag, &inner, &mut outer);
            outer
        })
    }

    /// Returns `count` different values that the field accepts.
    pub(crate) fn values(&self, count: usize) -> Vec<Value> {
        (0..count)
            .map(|n| match (self.descriptor.r#type(), self.name()) {
                (Type::String, "addresses") => Value::Text(format!("host{n}")),
                (Type::Bytes, _) => Value::Text(format!("byte{n}")),
                (Type::String, "kinds") => Value::Text("bid_placed".to_owned()),
                (Type::String, _) => Value::Text(format!("a/b{n}")),
                (Type::Message, _) if self.is_map => Value::Text(format!("key{n}")),
                (Type::Message, _) => Value::Text(String::new()),
                _ => Value::Number(1),
            })
            .collect()
    }
}

fn add_text(tag: u32, text: &[u8], bytes: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, bytes);
    encode_varint(text.len() as u64, bytes);
    bytes.extend_from_slice(text);
}

/// Returns all fields of all requests, including those of the messages within them.
pub(crate) fn all() -> Vec<Field> {
    let set = FileDescriptorSet::decode(kubebid_proto::FILE_DESCRIPTOR_SET).unwrap();
    let messages: Vec<&DescriptorProto> = set.file.iter().flat_map(|file| &file.message_type).collect();
    let methods = set.file.iter().flat_map(|file| &file.service).flat_map(|service| &service.method);
    let mut fields = Vec::new();
    for rpc in methods {
        let found = POLICY.iter().find(|(path, _)| path.ends_with(&format!("/{}", rpc.name())));
        collect(found.unwrap().0, rpc.input_type(), &[], &messages, &mut fields);
    }
    fields
}

fn collect(
    method: &'static str,
    message: &str,
    scope: &[(u32, String)],
    messages: &[&DescriptorProto],
    fields: &mut Vec<Field>,
) {
    let name = message.rsplit('.').next().unwrap();
    let message = messages.iter().find(|known| known.name() == name).expect("a message of ours");
    for field in &message.field {
        let step = (field.number() as u32, field.name().to_owned());
        let path = [scope, &[step]].concat();
        let inner = field.type_name().rsplit('.').next().unwrap();
        let is_map = message.nested_type.iter().any(|nested| nested.name() == inner);
        let descriptor = field.clone();
        fields.push(Field { method, message: name.to_owned(), path: path.clone(), descriptor, is_map });
        if field.r#type() == Type::Message && !is_map {
            collect(method, field.type_name(), &path, messages, fields);
        }
    }
}
