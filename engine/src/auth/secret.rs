//! The text form of a token.

use sha2::{Digest, Sha256};
use std::fmt;
use std::fmt::Write;

const PREFIX: &str = "kb_";

/// A token as its bearer sends it: `kb_` and 256 random bits in hexadecimal. Never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Returns a new secret from the operating system's random numbers.
    pub fn random() -> Secret {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).expect("the operating system gives random bits");
        let mut text = PREFIX.to_owned();
        for byte in bits {
            write!(text, "{byte:02x}").expect("a string takes it");
        }
        Secret(text)
    }

    /// Reads a secret. None if the text does not have the form of one.
    pub fn parse(text: &str) -> Option<Secret> {
        let bits = text.strip_prefix(PREFIX)?;
        let fits = bits.len() == 64 && bits.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then(|| Secret(text.to_owned()))
    }

    /// Returns the text. It is shown only once, to the owner.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the SHA-256, which the store keeps.
    pub fn sha256(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_as_it_was_written_and_no_two_are_the_same() {
        let (one, other) = (Secret::random(), Secret::random());
        assert_ne!(one, other);
        assert_ne!(one.sha256(), other.sha256());
        assert_eq!(Secret::parse(one.reveal()).unwrap().sha256(), one.sha256());
        assert_eq!(one.reveal().len(), 67);
    }

    #[test]
    fn a_text_that_is_no_secret_is_refused_and_secrets_are_not_printed() {
        for text in ["", "kb_", "kb_zz", &format!("kb_{}", "g".repeat(64)), &"a".repeat(67)] {
            assert_eq!(Secret::parse(text), None, "{text}");
        }
        assert_eq!(format!("{:?}", Secret::random()), "Secret(…)");
    }
}
