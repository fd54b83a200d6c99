//! Conversion of objects between the versions of a kind, through a hub type. It is pure.
//!
//! A version is a type with [`Version::to_hub`] and [`Version::from_hub`], which may lose what the other side cannot say.
//! The [`Converter`] finds out what is lost: it converts an object there and back, and compares. It keeps each field that
//! differs in the annotation `GROUP/conversion-data` of the converted object, with the value that the field has without it, or in an
//! annotation of its own if the version cannot say it at all: `GROUP/conversion-data-HASH`.
//! Converted back, the field is restored if that value still stands; if a client has changed it, the client's value counts.
//!
//! ```
//! # use kube::CustomResource;
//! # use kubebid_webhook::conversion::{Converter, Version};
//! # use serde::{Deserialize, Serialize};
//! # use serde_json::json;
//! # mod v1beta1 {
//! #     #[derive(kube::CustomResource, serde::Deserialize, serde::Serialize, Clone, Debug, schemars::JsonSchema)]
//! #     #[kube(group = "example.com", version = "v1beta1", kind = "Disk", namespaced)]
//! #     #[serde(rename_all = "camelCase")]
//! #     pub struct DiskSpec {
//! #         pub gigabytes: u64,
//! #         #[serde(default, skip_serializing_if = "Option::is_none")]
//! #         pub fast: Option<bool>,
//! #     }
//! # }
//! # mod v1alpha1 {
//! #     #[derive(kube::CustomResource, serde::Deserialize, serde::Serialize, Clone, Debug, schemars::JsonSchema)]
//! #     #[kube(group = "example.com", version = "v1alpha1", kind = "Disk", namespaced)]
//! #     pub struct DiskSpec {
//! #         pub size: u64,
//! #     }
//! # }
//! // The newest version is the hub as well.
//! impl Version for v1beta1::Disk {
//!     type Hub = v1beta1::Disk;
//!     fn to_hub(self) -> v1beta1::Disk {
//!         self
//!     }
//!     fn from_hub(hub: v1beta1::Disk) -> Self {
//!         hub
//!     }
//! }
//! // The older one cannot say that a disk is fast.
//! impl Version for v1alpha1::Disk {
//!     type Hub = v1beta1::Disk;
//!     fn to_hub(self) -> v1beta1::Disk {
//!         let spec = v1beta1::DiskSpec { gigabytes: self.spec.size, fast: None };
//!         v1beta1::Disk { metadata: self.metadata, spec }
//!     }
//!     fn from_hub(hub: v1beta1::Disk) -> Self {
//!         v1alpha1::Disk { metadata: hub.metadata, spec: v1alpha1::DiskSpec { size: hub.spec.gigabytes } }
//!     }
//! }
//! let disks = Converter::new().version::<v1alpha1::Disk>().version::<v1beta1::Disk>();
//! let disk = json!({
//!     "apiVersion": "example.com/v1beta1", "kind": "Disk", "metadata": {"name": "a"},
//!     "spec": {"gigabytes": 10, "fast": true},
//! });
//! let older = disks.convert(disk.clone(), "example.com/v1alpha1").unwrap();
//! assert_eq!(older["spec"], json!({"size": 10}));
//! assert_eq!(disks.convert(older, "example.com/v1beta1").unwrap(), disk);
//! ```

mod kept;

use crate::metrics;
use kept::Kept;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tracing::warn;

/// The most that the keys and values of all annotations of an object may have in the API server.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;
/// The last part of the annotation with what a version cannot say; the group comes before it. The keys of the annotations with single
/// fields begin with it.
pub const CONVERSION_DATA: &str = "conversion-data";

/// One version of a kind, as kube derives it. Its metadata has labels and annotations only; the converter takes care of
/// the rest, and of the annotation with what is kept.
///
/// Optional fields should be skipped if they are None: a field that is written as `null` and was absent is a difference.
pub trait Version: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static {
    /// The type between all versions. It says everything that they have in common, and may be the type of one of them.
    type Hub: 'static;

    /// Returns the object as a hub. Labels and annotations have to be moved as well.
    fn to_hub(self) -> Self::Hub;

    /// Returns the object of this version that says as much as possible of a hub.
    fn from_hub(hub: Self::Hub) -> Self;

    /// Returns true if the object keeps the rules of its schema for fields that the other version cannot say. The API server
    /// checks what a client of the other version writes by the rules of that version only, and any client can write the
    /// annotation: fields are not restored if the object breaks these rules with them. Nor are they if the other version would
    /// show the object in another way with them, so fields that it can say need no rule here.
    fn is_valid(&self) -> bool {
        true
    }

    /// Returns the other fields of this version that a field belongs to, as JSON pointers: if the other version cannot say
    /// the field, it is restored only if these have their values still. A field always belongs to its own value.
    fn belongs_to(_field: &str) -> &'static [&'static str] {
        &[]
    }
}

/// Why an object cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConversionError {
    /// The object has no kind and version, or not those of this converter.
    #[error("{0} is not a kind with a version that can be converted here")]
    UnknownKind(String),
    /// The kind has no such version.
    #[error("{kind} has no version {version}")]
    UnknownVersion {
        /// The kind.
        kind: String,
        /// The version that was asked for.
        version: String,
    },
    /// The object is not of the shape of its version.
    #[error("{kind} {name}: {reason}")]
    Malformed {
        /// The kind and version of the object.
        kind: String,
        /// The name of the object.
        name: String,
        /// The description of the fault.
        reason: String,
    },
}

/// The types of one version, without the type.
struct Functions<H> {
    api_version: String,
    read: fn(&Value) -> serde_json::Result<H>,
    /// Reads an object with restored fields; None if it is not valid with them.
    read_restored: fn(&Value) -> Option<H>,
    write: fn(H) -> serde_json::Result<Value>,
    /// Returns an object as its version writes it, with its defaults.
    rewrite: fn(&Value) -> serde_json::Result<Value>,
    belongs_to: fn(&str) -> &'static [&'static str],
}

/// The versions of one kind.
pub struct Converter<H> {
    group: String,
    kind: String,
    annotation: String,
    versions: Vec<Functions<H>>,
}

impl<H> fmt::Debug for Converter<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions = self.versions.iter().map(|version| &version.api_version);
        write!(f, "Converter({}: ", self.kind)?;
        f.debug_list().entries(versions).finish()?;
        f.write_str(")")
    }
}

impl<H: 'static> Default for Converter<H> {
    fn default() -> Self {
        Converter::new()
    }
}

impl<H: 'static> Converter<H> {
    /// Returns a converter without versions.
    pub fn new() -> Self {
        Converter {
            group: String::new(),
            kind: String::new(),
            annotation: String::new(),
            versions: Vec::new(),
        }
    }

    /// Adds a version.
    ///
    /// # Panics
    /// If it is a version of another kind or group than those before, or is there already.
    #[must_use]
    pub fn version<V: Version<Hub = H>>(mut self) -> Self {
        let (group, kind) = (V::group(&()).into_owned(), V::kind(&()).into_owned());
        let api_version = V::api_version(&()).into_owned();
        if !self.versions.is_empty() {
            assert!(self.kind == kind && self.group == group, "{api_version} {kind} is another kind");
        }
        assert!(self.find(&api_version).is_none(), "{api_version} {kind} is there already");
        self.annotation = format!("{group}/{CONVERSION_DATA}");
        (self.group, self.kind) = (group, kind);
        self.versions.push(Functions {
            api_version,
            read: |object| V::deserialize(object).map(V::to_hub),
            read_restored: |object| V::deserialize(object).ok().filter(V::is_valid).map(V::to_hub),
            write: |hub| serde_json::to_value(V::from_hub(hub)),
            rewrite: |object| serde_json::to_value(V::deserialize(object)?),
            belongs_to: V::belongs_to,
        });
        self
    }

    fn find(&self, api_version: &str) -> Option<&Functions<H>> {
        self.versions.iter().find(|version| version.api_version == api_version)
    }

    /// Returns the object in a version, which is named by group and version. An object that has that version is returned
    /// as it is.
    ///
    /// # Errors
    /// [`ConversionError`], with the name of the object.
    pub fn convert(&self, object: Value, api_version: &str) -> Result<Value, ConversionError> {
        let mut object = map_of(Some(object));
        let (from, kind) = (text_of(object.remove("apiVersion")), text_of(object.remove("kind")));
        let mut metadata = map_of(object.remove("metadata"));
        let parts = Parts {
            api_version: from,
            kind,
            name: text_of(metadata.get("name").cloned()),
            labels: map_of(metadata.remove("labels")),
            annotations: map_of(metadata.remove("annotations")),
            fields: object,
        };
        let parts = self.convert_parts(parts, api_version)?;
        for (key, map) in [("labels", parts.labels), ("annotations", parts.annotations)] {
            if !map.is_empty() {
                metadata.insert(key.to_owned(), Value::Object(map));
            }
        }
        let mut object = parts.fields;
        object.insert("apiVersion".to_owned(), Value::String(parts.api_version));
        object.insert("kind".to_owned(), Value::String(parts.kind));
        object.insert("metadata".to_owned(), Value::Object(metadata));
        Ok(Value::Object(object))
    }

    /// Returns an object of a file as the API server would store it: with the defaults of its version, and with numbers as the
    /// version writes them. What is neither is not changed.
    ///
    /// # Errors
    /// [`ConversionError`], with the name of the object.
    fn with_defaults(&self, mut object: Value) -> Result<Value, ConversionError> {
        let text = |key: &str| text_of(object.get(key).cloned());
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let version = self.find(&api_version).filter(|_| kind == self.kind);
        let version = version.ok_or_else(|| ConversionError::UnknownKind(format!("{api_version} {kind}")))?;
        let rewritten = (version.rewrite)(&object).map_err(|error| ConversionError::Malformed {
            kind: format!("{api_version} {kind}"),
            name: text_of(object.pointer("/metadata/name").cloned()),
            reason: error.to_string(),
        })?;
        let mut rewritten = map_of(Some(rewritten));
        rewritten.remove("metadata");
        fill_in(&mut object, Value::Object(rewritten));
        Ok(object)
    }

    fn convert_parts(&self, object: Parts, api_version: &str) -> Result<Parts, ConversionError> {
        let from = &object.api_version;
        let source = self.find(from).filter(|_| object.kind == self.kind);
        let source = source.ok_or_else(|| ConversionError::UnknownKind(format!("{from} {}", object.kind)))?;
        let target = self.find(api_version).ok_or_else(|| ConversionError::UnknownVersion {
            kind: self.kind.clone(),
            version: api_version.to_owned(),
        })?;
        if from == api_version {
            return Ok(object);
        }
        let Parts { api_version: from, kind, name, labels, mut annotations, fields } = object;
        let malformed = |error: serde_json::Error| ConversionError::Malformed {
            kind: format!("{from} {kind}"),
            name: name.clone(),
            reason: error.to_string(),
        };
        let mut kept = Kept::take(&mut annotations, &self.annotation);
        let given = with_metadata(fields, labels, annotations);
        let plain = tidy((target.write)((source.read)(&given).map_err(malformed)?).map_err(malformed)?);
        let back_of = |hub: H| (source.write)(hub).map(tidy).map_err(malformed);
        // What a client has written into the annotation may not be of the shape of the version.
        let restored = kept
            .restore(version_of(&target.api_version), &plain)
            .filter(|object| size_of(object["metadata"]["annotations"].as_object()) <= ANNOTATIONS_BYTES_MAX)
            .and_then(|object| Some(((target.read_restored)(&object)?, object)))
            .map(|(hub, object)| Ok((object, back_of(hub)?)))
            .transpose()?;
        // A restored field is one that the source cannot say: the object looks the same there without it.
        let (converted, back) = match restored {
            Some((object, back)) if back == given => (object, back),
            restored => {
                let plain_back = back_of((target.read)(&plain).map_err(malformed)?)?;
                restored.filter(|(_, back)| *back == plain_back).unwrap_or((plain, plain_back))
            }
        };
        kept.keep(version_of(&source.api_version), &given, &back, source.belongs_to);

        let mut fields = map_of(Some(converted));
        let (labels, mut annotations) = take_metadata(&mut fields);
        let kept = Map::from_iter(kept.annotations(&self.annotation));
        if !kept.is_empty() {
            if size_of(Some(&annotations)) + size_of(Some(&kept)) <= ANNOTATIONS_BYTES_MAX {
                annotations.extend(kept);
            } else {
                // An object that the API server refuses would fail the list that it is in.
                warn!(
                    kind,
                    name,
                    version = api_version,
                    "no room in the annotations for fields that this version cannot say"
                );
                metrics::dropped_fields();
            }
        }
        Ok(Parts { api_version: api_version.to_owned(), kind, name, labels, annotations, fields })
    }
}

/// An object without the metadata that no conversion touches.
struct Parts {
    api_version: String,
    kind: String,
    name: String,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    fields: Map<String, Value>,
}

/// Returns the part of an API version after the group.
fn version_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}

fn text_of(value: Option<Value>) -> String {
    if let Some(Value::String(text)) = value { text } else { String::new() }
}

fn map_of(value: Option<Value>) -> Map<String, Value> {
    if let Some(Value::Object(map)) = value { map } else { Map::new() }
}

/// Returns an object whose metadata has these labels and annotations, and nothing else.
fn with_metadata(
    mut object: Map<String, Value>,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
) -> Value {
    let metadata = [("labels", labels), ("annotations", annotations)];
    let metadata = metadata.map(|(key, map)| (key.to_owned(), Value::Object(map)));
    object.remove("apiVersion");
    object.remove("kind");
    object.insert("metadata".to_owned(), Value::Object(Map::from_iter(metadata)));
    Value::Object(object)
}

/// Takes labels and annotations out of an object.
fn take_metadata(object: &mut Map<String, Value>) -> (Map<String, Value>, Map<String, Value>) {
    let mut metadata = map_of(object.remove("metadata"));
    (map_of(metadata.remove("labels")), map_of(metadata.remove("annotations")))
}

/// Returns an object that a version has written, with a map of labels and a map of annotations, also if they are empty.
fn tidy(object: Value) -> Value {
    let mut object = map_of(Some(object));
    let (labels, annotations) = take_metadata(&mut object);
    with_metadata(object, labels, annotations)
}

/// Returns the size of annotations as the API server counts it.
fn size_of(annotations: Option<&Map<String, Value>>) -> usize {
    annotations.into_iter().flatten().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}

/// Adds what an object lacks and its version writes, and writes numbers as the version does.
fn fill_in(object: &mut Value, rewritten: Value) {
    match (object, rewritten) {
        (Value::Object(object), Value::Object(rewritten)) => {
            for (key, value) in rewritten.into_iter().filter(|(_, value)| !value.is_null()) {
                match object.get_mut(&key) {
                    Some(there) => fill_in(there, value),
                    None => drop(object.insert(key, value)),
                }
            }
        }
        (Value::Array(list), Value::Array(rewritten)) if list.len() == rewritten.len() => {
            list.iter_mut().zip(rewritten).for_each(|(item, rewritten)| fill_in(item, rewritten));
        }
        (Value::Number(number), Value::Number(rewritten)) if number.as_f64() == rewritten.as_f64() => {
            *number = rewritten;
        }
        _ => {}
    }
}

/// A converter of any hub.
trait AnyConverter: Send + Sync {
    fn with_defaults(&self, object: Value) -> Result<Value, ConversionError>;
    fn convert(&self, object: Value, api_version: &str) -> Result<Value, ConversionError>;
    fn convert_parts(&self, object: Parts, api_version: &str) -> Result<Parts, ConversionError>;
}

impl<H: 'static> AnyConverter for Converter<H> {
    fn with_defaults(&self, object: Value) -> Result<Value, ConversionError> {
        Converter::with_defaults(self, object)
    }

    fn convert(&self, object: Value, api_version: &str) -> Result<Value, ConversionError> {
        Converter::convert(self, object, api_version)
    }

    fn convert_parts(&self, object: Parts, api_version: &str) -> Result<Parts, ConversionError> {
        Converter::convert_parts(self, object, api_version)
    }
}

/// The converters of several kinds. Cheap to clone.
#[derive(Clone, Default)]
pub struct Conversions {
    /// The converters by group and kind.
    converters: BTreeMap<(String, String), Arc<dyn AnyConverter>>,
}

impl fmt::Debug for Conversions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.converters.keys()).finish()
    }
}

impl Conversions {
    /// Returns no converters.
    pub fn new() -> Conversions {
        Conversions::default()
    }

    /// Adds the converter of a kind.
    #[must_use]
    pub fn kind<H: 'static>(mut self, converter: Converter<H>) -> Conversions {
        self.converters.insert((converter.group.clone(), converter.kind.clone()), Arc::new(converter));
        self
    }

    /// Returns the object in a version of its kind, which is named by group and version.
    ///
    /// # Errors
    /// [`ConversionError`].
    pub fn convert(&self, object: Value, api_version: &str) -> Result<Value, ConversionError> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        self.find(text("apiVersion"), text("kind"))?.convert(object, api_version)
    }

    /// Returns an object of a file in a version of its kind, which is named by group and version. The API server fills in the
    /// defaults of what it stores, and a file may lack them: they are filled in before, since a default is nothing to keep.
    ///
    /// # Errors
    /// [`ConversionError`].
    pub(crate) fn convert_from_file(
        &self,
        mut object: Value,
        api_version: &str,
    ) -> Result<Value, ConversionError> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let converter = self.find(text("apiVersion"), text("kind"))?;
        if text("apiVersion") != api_version {
            object = converter.with_defaults(object)?;
        }
        converter.convert(object, api_version)
    }

    /// Returns true if objects of a kind can be converted.
    pub(crate) fn has_kind(&self, api_version: &str, kind: &str) -> bool {
        self.find(api_version, kind).is_ok()
    }

    fn find(&self, api_version: &str, kind: &str) -> Result<&dyn AnyConverter, ConversionError> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let converter = self.converters.get(&(group.to_owned(), kind.to_owned()));
        converter
            .map(|found| &**found)
            .ok_or_else(|| ConversionError::UnknownKind(format!("{api_version} {kind}")))
    }

    /// Returns the answer to a ConversionReview in JSON, as a ConversionReview in JSON: all objects in their order, or the
    /// first failure.
    ///
    /// # Errors
    /// A body that is no ConversionReview with a request.
    pub fn review(&self, body: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
        let review: Review<'_> = serde_json::from_slice(body)?;
        let request = review.request;
        // A list of thousands of objects is never in memory as a whole, but as text.
        let mut converted = Vec::with_capacity(body.len());
        let mut failure = None;
        for object in &request.objects {
            let convert =
                std::panic::AssertUnwindSafe(|| self.convert_text(object, &request.desired_api_version));
            let object = match std::panic::catch_unwind(convert) {
                Ok(Ok(object)) => object,
                Ok(Err(message)) => {
                    failure = Some(message);
                    break;
                }
                Err(_) => {
                    failure = Some("the conversion panicked".to_owned());
                    break;
                }
            };
            if !converted.is_empty() {
                converted.push(b',');
            }
            serde_json::to_writer(&mut converted, &object)?;
        }
        let result = match &failure {
            None => json!({"status": "Success"}),
            Some(message) => {
                warn!(message, "a conversion failed");
                metrics::failed_conversion();
                json!({"status": "Failure", "message": message, "reason": "ConversionFailed"})
            }
        };
        if failure.is_some() {
            converted.clear();
        }
        let (kind, version, uid) = (json!(review.kind), json!(review.api_version), json!(request.uid));
        let head = format!(
            r#"{{"kind":{kind},"apiVersion":{version},"response":{{"uid":{uid},"result":{result},"convertedObjects":["#
        );
        let mut answer = Vec::with_capacity(head.len() + converted.len() + 3);
        answer.extend_from_slice(head.as_bytes());
        answer.append(&mut converted);
        answer.extend_from_slice(b"]}}");
        Ok(answer)
    }

    /// Converts an object in JSON. The metadata that no conversion touches, most of an object, is copied as text.
    fn convert_text<'a>(&self, object: &'a RawValue, api_version: &str) -> Result<TextObject<'a>, String> {
        self.try_convert_text(object, api_version).map_err(|error| error.to_string())
    }

    fn try_convert_text<'a>(
        &self,
        object: &'a RawValue,
        api_version: &str,
    ) -> Result<TextObject<'a>, Box<dyn std::error::Error>> {
        let mut texts: BTreeMap<String, &'a RawValue> = serde_json::from_str(object.get())?;
        let metadata = texts.remove("metadata").map_or("{}", |metadata| metadata.get());
        let mut metadata: BTreeMap<String, &'a RawValue> = serde_json::from_str(metadata)?;
        let text =
            |text: Option<&RawValue>| text.map_or(Ok(String::new()), |text| serde_json::from_str(text.get()));
        let map = |text: Option<&RawValue>| {
            let map = text.map(|text| serde_json::from_str::<Option<Map<String, Value>>>(text.get()));
            map.transpose().map(|map| map.flatten().unwrap_or_default())
        };
        let mut fields = Map::new();
        let (from, kind) = (text(texts.remove("apiVersion"))?, text(texts.remove("kind"))?);
        for (key, field) in texts {
            fields.insert(key, serde_json::from_str(field.get())?);
        }
        let converter = self.find(&from, &kind)?;
        let parts = Parts {
            api_version: from,
            kind,
            name: text(metadata.get("name").copied())?,
            labels: map(metadata.remove("labels"))?,
            annotations: map(metadata.remove("annotations"))?,
            fields,
        };
        Ok(TextObject { parts: converter.convert_parts(parts, api_version)?, metadata })
    }
}

/// A converted object with the metadata that was not touched.
struct TextObject<'a> {
    parts: Parts,
    metadata: BTreeMap<String, &'a RawValue>,
}

impl Serialize for TextObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("apiVersion", &self.parts.api_version)?;
        map.serialize_entry("kind", &self.parts.kind)?;
        map.serialize_entry("metadata", &TextMetadata(self))?;
        for (key, field) in &self.parts.fields {
            map.serialize_entry(key, field)?;
        }
        map.end()
    }
}

struct TextMetadata<'a>(&'a TextObject<'a>);

impl Serialize for TextMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in &self.0.metadata {
            map.serialize_entry(key, value)?;
        }
        let parts = &self.0.parts;
        for (key, value) in [("labels", &parts.labels), ("annotations", &parts.annotations)] {
            if !value.is_empty() {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    }
}

/// A ConversionReview whose objects are still text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: String,
    api_version: String,
    #[serde(borrow)]
    request: ReviewRequest<'a>,
}

#[derive(Deserialize)]
struct ReviewRequest<'a> {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    #[serde(borrow)]
    objects: Vec<&'a RawValue>,
}
