//! Fields that a version cannot say, with the values that they belong to.
//!
//! In the annotation they stand by the version that can say them, and by their JSON pointer:
//!
//! ```json
//! {"v1beta1": {"/spec/fast": {"value": true, "while": {"/spec/fast": null}}}}
//! ```
//!
//! If an object is converted to v1beta1 and has no `/spec/fast` then, the field becomes `true`. A field without `value` is
//! removed. An absent value that a field belongs to is written as `null`.
//!
//! A field that the version cannot say at all, such as this one, has an annotation of its own, of the same form, whose key has a
//! hash at its end. Each leaf of an object has one. Server-side apply that takes the field away compares the objects in all versions in which somebody has applied, and
//! takes away in each what is gone *by its path*: a part of the text of an annotation has none, and would come back.

use serde_json::{Map, Value, json};

/// The content of the annotations.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Kept(Map<String, Value>);

impl Kept {
    /// Takes the annotations with this key, and those of single fields, out of all annotations, and parses them. One that a client has
    /// spoiled is as good as none.
    pub(super) fn take(annotations: &mut Map<String, Value>, key: &str) -> Kept {
        let mut kept = Kept(parse(annotations.remove(key)));
        let is_own = |other: &String| other.strip_prefix(key).is_some_and(|rest| rest.starts_with('-'));
        let own: Vec<String> = annotations.keys().filter(|other| is_own(other)).cloned().collect();
        for key in own {
            for (version, fields) in parse(annotations.remove(&key)) {
                let Value::Object(fields) = fields else { continue };
                let Value::Object(all) = kept.0.entry(version).or_insert_with(|| json!({})) else { continue };
                for (pointer, field) in fields.into_iter().filter(|(it, field)| is_unsayable(it, field)) {
                    merge(all.entry(pointer).or_insert(Value::Null), field);
                }
            }
        }
        kept
    }

    /// Returns the annotations, with their keys.
    pub(super) fn annotations(&self, key: &str) -> Vec<(String, Value)> {
        let (mut common, mut annotations) = (Map::new(), Vec::new());
        for (version, fields) in &self.0 {
            let Value::Object(fields) = fields else { continue };
            let (own, others): (Vec<_>, Vec<_>) =
                fields.iter().partition(|(pointer, field)| is_unsayable(pointer, field));
            if !others.is_empty() {
                let others = others.into_iter().map(|(pointer, field)| (pointer.clone(), field.clone()));
                common.insert(version.clone(), Value::Object(others.collect()));
            }
            for (pointer, field) in own {
                let others = field.get("while").cloned().unwrap_or_default();
                for (path, value) in leaves(field.get("value").unwrap_or(&Value::Null)) {
                    let key = format!("{key}-{:016x}", hash_of(&format!("{version} {pointer}{path}")));
                    let field = json!({version: {pointer: {"value": value, "while": others}}});
                    annotations.push((key, field.to_string().into()));
                }
            }
        }
        if !common.is_empty() {
            annotations.push((key.to_owned(), Value::Object(common).to_string().into()));
        }
        annotations
    }

    /// Takes out what is kept for a version, and returns an object of this version with it, where the values stand that it
    /// belongs to; None if nothing is kept.
    pub(super) fn restore(&mut self, version: &str, object: &Value) -> Option<Value> {
        let Some(Value::Object(fields)) = self.0.remove(version) else { return None };
        let mut object = object.clone();
        let stands: Vec<_> = fields
            .into_iter()
            .filter(|(pointer, field)| is_restorable(pointer) && still_stands(&object, field))
            .collect();
        for (pointer, mut field) in stands {
            if let Some(elements) = field.get("elements").and_then(Value::as_array) {
                if let Some(Value::Array(list)) = object.pointer_mut(&pointer) {
                    restore_elements(list, elements);
                }
                continue;
            }
            let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
            // A parent that is gone took its fields along.
            let Some(Value::Object(parent)) = object.pointer_mut(parent) else { continue };
            let key = key.replace("~1", "/").replace("~0", "~");
            match field.as_object_mut().and_then(|field| field.remove("value")) {
                Some(value) => parent.insert(key, value),
                None => parent.remove(&key),
            };
        }
        Some(object)
    }

    /// Keeps for a version what an object of it says and `back` does not, which is the object after it was converted there
    /// and back.
    pub(super) fn keep(
        &mut self,
        version: &str,
        object: &Value,
        back: &Value,
        belongs_to: fn(&str) -> &'static [&'static str],
    ) {
        let mut fields = Map::new();
        compare("", Some(object), Some(back), &mut fields);
        for (pointer, field) in &mut fields {
            let others = belongs_to(pointer).iter();
            let others =
                others.map(|other| ((*other).to_owned(), back.pointer(other).cloned().unwrap_or_default()));
            let others: Map<String, Value> = others.collect();
            if let (Some(field), false) = (field.as_object_mut(), others.is_empty()) {
                let values = field.entry("while").or_insert_with(|| json!({}));
                values.as_object_mut().expect("it is a map").extend(others);
            }
        }
        if fields.is_empty() {
            self.0.remove(version);
        } else {
            self.0.insert(version.to_owned(), Value::Object(fields));
        }
    }
}

fn parse(annotation: Option<Value>) -> Map<String, Value> {
    let text = annotation.as_ref().and_then(Value::as_str);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Returns true if the version that has the annotation cannot say a field at all: the field has a value, and is absent there.
fn is_unsayable(pointer: &str, field: &Value) -> bool {
    field.get("value").is_some()
        && field.pointer("/while").and_then(|it| it.get(pointer)) == Some(&Value::Null)
}

/// Returns the leaves of a value, each with its path and as a value that has this leaf alone.
fn leaves(value: &Value) -> Vec<(String, Value)> {
    let Some(fields) = value.as_object().filter(|fields| !fields.is_empty()) else {
        return vec![(String::new(), value.clone())];
    };
    let of_field = |(key, value): (&String, &Value)| {
        let key = key.clone();
        let wrapped =
            move |(path, leaf): (String, Value)| (format!("/{}{path}", escaped(&key)), json!({&key: leaf}));
        leaves(value).into_iter().map(wrapped)
    };
    fields.iter().flat_map(of_field).collect()
}

/// Adds the fields of a value to another one.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Returns the FNV-1a hash of a text, which is the same in all versions of the program.
fn hash_of(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns true if a field may come from the annotation, which any client can write: none of the type and of the metadata
/// but annotations.
fn is_restorable(pointer: &str) -> bool {
    match pointer.strip_prefix("/metadata/annotations/") {
        Some(key) => is_annotation_key(&key.replace("~1", "/").replace("~0", "~")),
        None => !["/apiVersion", "/kind", "/metadata"].iter().any(|part| {
            pointer.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }),
    }
}

/// Returns true if the API server accepts the key of an annotation.
fn is_annotation_key(key: &str) -> bool {
    let is_part = |part: &str, length_max: usize, others: &str| {
        let is_edge = |letter: Option<char>| letter.is_some_and(|it| it.is_ascii_alphanumeric());
        part.len() <= length_max
            && is_edge(part.chars().next())
            && is_edge(part.chars().last())
            && part.chars().all(|it| it.is_ascii_alphanumeric() || others.contains(it))
    };
    match key.rsplit_once('/') {
        Some((prefix, name)) => {
            let is_domain = prefix.len() <= 253 && prefix.split('.').all(|label| is_part(label, 253, "-"));
            is_domain && is_part(name, 63, "-_.")
        }
        None => is_part(key, 63, "-_."),
    }
}

/// Returns true if an object has all values that a kept field belongs to. A field that belongs to none is not ours.
fn still_stands(object: &Value, field: &Value) -> bool {
    match field.get("while").and_then(Value::as_object) {
        Some(values) if !values.is_empty() => {
            values.iter().all(|(pointer, value)| object.pointer(pointer).unwrap_or(&Value::Null) == value)
        }
        Some(_) | None => field.get("elements").is_some(),
    }
}

/// Notes what differs between a value and what is left of it, field by field. A list is compared element by element if it
/// has its length still, and as a whole otherwise.
fn compare(pointer: &str, value: Option<&Value>, back: Option<&Value>, fields: &mut Map<String, Value>) {
    match (value, back) {
        (value, back) if value == back => {}
        (Some(Value::Object(value)), Some(Value::Object(back))) => {
            for (key, value) in value {
                compare(&format!("{pointer}/{}", escaped(key)), Some(value), back.get(key), fields);
            }
            for (key, back) in back.iter().filter(|(key, _)| !value.contains_key(*key)) {
                compare(&format!("{pointer}/{}", escaped(key)), None, Some(back), fields);
            }
        }
        (Some(Value::Array(value)), Some(Value::Array(back))) if value.len() == back.len() => {
            let pairs = value.iter().zip(back).map(|(value, back)| json!({"value": value, "while": back}));
            fields.insert(pointer.to_owned(), json!({"elements": pairs.collect::<Vec<_>>()}));
        }
        (value, back) => {
            let mut field = Map::new();
            if let Some(value) = value {
                field.insert("value".to_owned(), value.clone());
            }
            field.insert("while".to_owned(), json!({pointer: back}));
            fields.insert(pointer.to_owned(), Value::Object(field));
        }
    }
}

/// Restores the elements of a list that stand still, each once.
fn restore_elements(list: &mut [Value], elements: &[Value]) {
    let mut elements: Vec<&Value> = elements.iter().collect();
    for item in list {
        if let Some(place) = elements.iter().position(|element| element.get("while") == Some(item)) {
            *item = elements.remove(place).get("value").cloned().unwrap_or_default();
        }
    }
}

/// Returns a key as a part of a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
