//! JSON values whose objects have each key once. `serde_json` alone takes the last one.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// The reason for which a text is no such value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotUnique {
    /// The field with the error, with dots, if it is one field.
    pub(crate) field: Option<String>,
    /// The reason.
    pub(crate) message: String,
}

/// Parses a JSON value.
pub(crate) fn parse_unique(text: &str) -> Result<Value, NotUnique> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let twice = error.inner().to_string().starts_with(TWICE);
        NotUnique {
            field: twice.then_some(path),
            message: if twice { TWICE.to_owned() } else { error.inner().to_string() },
        }
    });
    let Unique(value) = value?;
    deserializer.end().map_err(|error| NotUnique { field: None, message: error.to_string() })?;
    Ok(value)
}

const TWICE: &str = "it is there twice";

struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Unique(value)) = values.next_element()? {
            all.push(value);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                // Refused while its value is read, so that the path of the error names the key.
                entries.next_value_seed(Twice)?;
            } else {
                object.insert(key, entries.next_value::<Unique>()?.0);
            }
        }
        Ok(Value::Object(object))
    }
}

/// Refuses the value of a key that is there twice.
struct Twice;

impl<'de> DeserializeSeed<'de> for Twice {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, _: D) -> Result<(), D::Error> {
        Err(D::Error::custom(TWICE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_that_of_serde_json_and_a_key_that_is_there_twice_is_named() {
        let text = r#"{"a": [1, -2, 2.5, null, true, {"b": "c"}], "d": {}}"#;
        assert_eq!(parse_unique(text), Ok(serde_json::from_str(text).expect("JSON")));
        for (text, field) in [
            (r#"{"a": 1, "a": 1}"#, "a"),
            (r#"{"a": {"b": 1, "c": 2, "b": {"d": 3}}}"#, "a.b"),
            (r#"{"a": [0, {"b": 1, "b": 2}]}"#, "a[1].b"),
            (r#"{"a": 1, "\u0061": 2}"#, "a"),
        ] {
            let error = NotUnique { field: Some(field.to_owned()), message: "it is there twice".to_owned() };
            assert_eq!(parse_unique(text), Err(error), "{text}");
        }
        for text in ["", "{", "{} {}", "[1,]", "nan", "1e999"] {
            assert_eq!(parse_unique(text).expect_err(text).field, None, "{text}");
        }
    }
}
