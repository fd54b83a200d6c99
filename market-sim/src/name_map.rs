//! Converts names of a trace into names of the market.
//!
//! A trace calls its instance types, regions and tenants what it likes. A market is called `type/region`, and an
//! engine takes only some letters. A name that fits stays as it is; every other name gets a substitute, which
//! reports translate back.

use std::collections::HashMap;

/// Longest part of a market's name, and longest name of an account, that an engine takes, in bytes.
const BYTES_MAX: usize = 63;

/// A one-to-one map of names: no two names of the trace share a name of the market.
#[derive(Debug, Default)]
pub(crate) struct NameMap {
    market_of: HashMap<String, String>,
    trace_of: HashMap<String, String>,
    substitutes: u64,
}

impl NameMap {
    /// Reserves a name for an account that is not in the trace. Returns false if it is taken.
    pub(crate) fn claim(&mut self, name: &str) -> bool {
        let free = !self.trace_of.contains_key(name);
        if free {
            self.trace_of.insert(name.to_owned(), name.to_owned());
        }
        free
    }

    /// Returns the name of the market for a name of the trace, the same one each time.
    pub(crate) fn market_name(&mut self, name: &str) -> &str {
        if !self.market_of.contains_key(name) {
            let mut given = name.to_owned();
            while !fits(&given) || self.trace_of.contains_key(&given) {
                self.substitutes += 1;
                given = format!("name-{}", self.substitutes);
            }
            self.trace_of.insert(given.clone(), name.to_owned());
            self.market_of.insert(name.to_owned(), given);
        }
        &self.market_of[name]
    }

    /// Returns the name of the trace for a name of the market. A name that was never given stands for itself.
    pub(crate) fn trace_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.trace_of.get(name).map_or(name, String::as_str)
    }
}

fn fits(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_stays_and_every_other_name_gets_one_of_its_own() {
        let mut names = NameMap::default();
        assert!(names.claim("provider-1"));
        let long = "x".repeat(64);
        let all = ["gpu.8_x-1", "a/b", "a/c", "", "ä", &long, "name-1", "provider-1"];
        let given: Vec<String> = all.iter().map(|name| names.market_name(name).to_owned()).collect();
        assert_eq!(given[0], "gpu.8_x-1");
        assert!(given.iter().all(|name| fits(name) && name != "provider-1"), "{given:?}");
        for (name, given) in all.iter().zip(&given) {
            assert_eq!(names.market_name(name), given);
            assert_eq!(names.trace_name(given), *name);
        }
        assert!(!names.claim("provider-1") && !names.claim(&given[0]));
    }
}
