//! Conversion of manifests, which are files with objects in YAML or JSON, for the command `convert` of a program.

use crate::conversion::{ConversionError, Conversions};
use serde_json::Value;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Why manifests cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A file cannot be read.
    #[error("{0}: {1}")]
    Read(PathBuf, io::Error),
    /// It is not valid JSON.
    #[error("the JSON cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// It is not valid YAML.
    #[error("the YAML cannot be read: {0}")]
    Yaml(#[from] serde_saphyr::Error),
    /// The objects cannot be written as YAML.
    #[error("the YAML cannot be written: {0}")]
    Write(#[from] serde_saphyr::ser::Error),
    /// An object cannot be converted.
    #[error(transparent)]
    Conversion(#[from] ConversionError),
}

/// Returns the objects of files in a version, which is named without its group, as documents of YAML. `-` is the standard
/// input. See [`convert`].
///
/// # Errors
/// [`ManifestError`].
pub fn convert_files(
    conversions: &Conversions,
    files: &[PathBuf],
    version: &str,
) -> Result<String, ManifestError> {
    let mut converted = String::new();
    for file in files {
        let text = if file == Path::new("-") {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map(|_| text)
        } else {
            std::fs::read_to_string(file)
        };
        let text = text.map_err(|error| ManifestError::Read(file.clone(), error))?;
        converted.push_str(&convert(conversions, &text, version)?);
    }
    Ok(converted)
}

/// Returns the objects of a text in a version, which is named without its group, as documents of YAML. The text is YAML, or
/// JSON if it begins with a brace. Objects of another version get the defaults of that first, as the API server gives them. The
/// items of lists are converted as well. Objects of other kinds stay as they are, and comments are lost.
///
/// # Errors
/// [`ManifestError`]. Nothing is converted then.
pub fn convert(conversions: &Conversions, text: &str, version: &str) -> Result<String, ManifestError> {
    let documents: Vec<Value> = if text.trim_start().starts_with('{') {
        serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>()?
    } else {
        // The caller's own file may be large.
        serde_saphyr::from_multiple_with_options(text, serde_saphyr::options! { budget: None })?
    };
    let mut converted = String::new();
    for document in documents {
        let document = convert_object(conversions, document, version)?;
        converted.push_str("---\n");
        converted.push_str(&serde_saphyr::to_string(&document)?);
    }
    Ok(converted)
}

fn convert_object(
    conversions: &Conversions,
    mut object: Value,
    version: &str,
) -> Result<Value, ConversionError> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let in_version = api_version.rsplit_once('/').map(|(group, _)| format!("{group}/{version}"));
    if let Some(api_version) = in_version.filter(|_| conversions.has_kind(&api_version, &kind)) {
        return conversions.convert_from_file(object, &api_version);
    }
    let items = object.get_mut("items").and_then(Value::as_array_mut);
    let Some(items) = items.filter(|_| kind.ends_with("List")) else { return Ok(object) };
    let mut item_version = None;
    for item in items {
        *item = convert_object(conversions, item.take(), version)?;
        item_version = item.get("apiVersion").cloned();
    }
    // A list of one kind has the version of its items; `List` is a kind of v1.
    if let Some(item_version) = item_version.filter(|_| kind != "List") {
        object["apiVersion"] = item_version;
    }
    Ok(object)
}
