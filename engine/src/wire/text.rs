//! Checks texts of requests: their length and characters.

use super::status::ApiError;
use crate::store::Labels;
use kubebid_core::units::{AccountName, ClientKey, InstanceType, MarketName, UnitName};
use std::collections::BTreeMap;

const NAME: usize = 63;
const MARKET: usize = 2 * NAME + 1;
/// The longest name of a unit.
pub(crate) const UNIT: usize = MARKET + NAME + 22;
const KEY: usize = 128;
/// The most labels of a bid, or of a filter.
pub(super) const LABELS: usize = 64;
const LABEL_KEY: usize = 63;
const LABEL_VALUE: usize = 256;
/// The most bytes of all keys and values together.
const LABELS_BYTES: usize = 2048;
/// The longest text that explains something, in bytes.
pub(crate) const NOTE: usize = 256;

/// Checks that a text has at most `most` bytes and no control characters.
pub(crate) fn text(field: &str, text: &str, most: usize) -> Result<(), ApiError> {
    if text.len() > most {
        return Err(ApiError::bad_field(field, format!("has {} bytes; {most} are allowed", text.len())));
    }
    // Nearly all texts have only these characters, and many can be checked at a time.
    let plain = text.bytes().fold(true, |plain, byte| plain & (b' '..=b'~').contains(&byte));
    if !plain && text.chars().any(char::is_control) {
        return Err(ApiError::bad_field(field, "has control characters"));
    }
    Ok(())
}

/// Checks a name that the request defines: letters, digits, ".", "_", "-".
pub(crate) fn name(field: &str, name: &str) -> Result<(), ApiError> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
    if name.is_empty() || name.len() > NAME || !name.chars().all(fits) {
        let what = format!("is not 1 to {NAME} letters, digits, \".\", \"_\" or \"-\"");
        return Err(ApiError::bad_field(field, what));
    }
    Ok(())
}

/// Reads the name of an account.
pub(crate) fn account(field: &str, text: &str) -> Result<AccountName, ApiError> {
    name(field, text)?;
    Ok(AccountName::new(text))
}

/// Reads the name of a market that may be open.
pub(crate) fn market(field: &str, market: &str) -> Result<MarketName, ApiError> {
    text(field, market, MARKET)?;
    Ok(MarketName::new(market))
}

/// Reads the name of a market to open.
pub(crate) fn new_market(field: &str, market: &str) -> Result<MarketName, ApiError> {
    let parts = market.split_once('/').filter(|(kind, region)| name("", kind).and(name("", region)).is_ok());
    if parts.is_none() {
        let what = "is not \"type/region\", each 1 to 63 letters, digits, \".\", \"_\" or \"-\"";
        return Err(ApiError::bad_field(field, what));
    }
    Ok(MarketName::new(market))
}

/// Reads the name of an instance type.
pub(crate) fn instance_type(field: &str, text: &str) -> Result<InstanceType, ApiError> {
    name(field, text)?;
    Ok(InstanceType::new(text))
}

/// Reads the name of a unit.
pub(crate) fn unit(field: &str, unit: &str) -> Result<UnitName, ApiError> {
    text(field, unit, UNIT)?;
    Ok(UnitName::parse(unit))
}

/// Reads a client key; None if it is empty.
pub(crate) fn client_key(key: &str) -> Result<Option<ClientKey>, ApiError> {
    text("client_key", key, KEY)?;
    Ok((!key.is_empty()).then(|| ClientKey::new(key)))
}

/// Reads the labels of a bid, or those that a list asks for.
pub(crate) fn labels(field: &str, labels: BTreeMap<String, String>) -> Result<Labels, ApiError> {
    if labels.len() > LABELS {
        return Err(ApiError::bad_field(
            field,
            format!("has {} entries; {LABELS} are allowed", labels.len()),
        ));
    }
    for (key, value) in &labels {
        if key.is_empty() {
            return Err(ApiError::bad_field(field, "has an empty key"));
        }
        text(&format!("{field}.key"), key, LABEL_KEY).map_err(|error| error.at(field))?;
        text(&format!("{field}.value"), value, LABEL_VALUE).map_err(|error| error.at(field))?;
    }
    let bytes: usize = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > LABELS_BYTES {
        let what = format!("have {bytes} bytes in all; {LABELS_BYTES} are allowed");
        return Err(ApiError::bad_field(field, what));
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_market_to_open_is_called_type_and_region() {
        for good in ["h100-8x/eu-west", "a.b_c/1"] {
            assert!(new_market("market", good).is_ok(), "{good}");
        }
        let long = format!("{}/x", "a".repeat(64));
        for bad in
            ["", "/", "h100", "h100/", "/eu", "a/b/c", "a b/c", "a/b:c", "a/b#1", "ä/b", "a\0/b", &long]
        {
            assert_eq!(new_market("market", bad).unwrap_err().field.as_deref(), Some("market"), "{bad:?}");
        }
    }

    #[test]
    fn labels_are_few_and_short() {
        let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        assert!(labels("labels", one(&"k".repeat(63), &"v".repeat(256))).is_ok());
        assert!(labels("labels", one("k", "")).is_ok());
        for (key, value) in [("", "v"), (&*"k".repeat(64), "v"), ("k", &*"v".repeat(257)), ("k", "a\0")] {
            assert_eq!(labels("labels", one(key, value)).unwrap_err().field.as_deref(), Some("labels"));
        }
        let many = |count: u32| (0..count).map(|n| (n.to_string(), String::new())).collect();
        assert!(labels("labels", many(64)).is_ok());
        assert!(labels("labels", many(65)).is_err());
        let long = |count: u32| (0..count).map(|n| (n.to_string(), "v".repeat(255))).collect();
        assert!(labels("labels", long(8)).is_ok());
        assert!(labels("labels", long(9)).is_err(), "64 long ones would be 28 KB of a bid, for ever");
    }

    #[test]
    fn a_key_has_at_most_128_bytes() {
        assert_eq!(client_key("").unwrap(), None);
        assert!(client_key(&"k".repeat(128)).unwrap().is_some());
        assert!(client_key(&"k".repeat(129)).is_err());
    }
}
