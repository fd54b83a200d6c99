//! The plan of an authority: what to do next, from the Secret, the bundles in the cluster, and the time. It is pure.
//!
//! A rotation has three phases. *Announce* puts the next CA into the Secret and into every bundle. *Use* lets it sign, a
//! while after it was read back from every bundle. *Retire* takes the former CA out of the bundles, when the last
//! certificate that it can have signed has expired. So at every time every certificate that is in use verifies against
//! every bundle that a client may have. Whoever goes on after a crash finds all it has to know in the Secret.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Times of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// The time for which a CA is valid. The next one is announced after two thirds of it.
    pub authority: SignedDuration,
    /// The time for which the certificate of a replica is valid. It is renewed after two thirds of it.
    pub leaf: SignedDuration,
    /// The time after which every client has a bundle that was read back.
    pub settle: SignedDuration,
    /// The most by which the clocks of two machines differ. Certificates are valid from so much before they were made.
    pub skew: SignedDuration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Lifetimes {
            authority: SignedDuration::from_hours(30 * 24),
            leaf: SignedDuration::from_hours(24),
            settle: SignedDuration::from_mins(1),
            skew: SignedDuration::from_mins(5),
        }
    }
}

/// Why lifetimes do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LifetimesError {
    /// A time is negative.
    #[error("the time to settle and the clock skew cannot be negative")]
    Negative,
    /// A certificate is renewed after two thirds of its lifetime: for a clock that is ahead it would have expired then.
    #[error("the lifetime of a certificate, {0:#}, must be more than three times the clock skew, {1:#}")]
    Leaf(SignedDuration, SignedDuration),
    /// A CA that expires before the certificates that it signs would cut them short.
    #[error("the lifetime of a CA, {0:#}, must be more than that of a certificate, {1:#}")]
    Authority(SignedDuration, SignedDuration),
    /// The last third of a CA's lifetime is too short for the next one to be trusted everywhere.
    #[error(
        "a third of the lifetime of a CA, {0:#}, must be more than the time to settle and the clock skew together, {1:#}"
    )]
    Rotation(SignedDuration, SignedDuration),
}

impl Lifetimes {
    /// Checks that every certificate and CA has a successor before it expires.
    ///
    /// # Errors
    /// [`LifetimesError`].
    pub fn check(&self) -> Result<(), LifetimesError> {
        let Lifetimes { authority, leaf, settle, skew } = *self;
        if settle.is_negative() || skew.is_negative() {
            return Err(LifetimesError::Negative);
        }
        if leaf / 3 <= skew {
            return Err(LifetimesError::Leaf(leaf, skew));
        }
        if authority <= leaf {
            return Err(LifetimesError::Authority(authority, leaf));
        }
        if authority / 3 <= settle + skew {
            return Err(LifetimesError::Rotation(authority, settle + skew));
        }
        Ok(())
    }
}

/// A CA with its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ca {
    /// The certificate in PEM.
    pub certificate: String,
    /// The private key in PEM.
    pub key: String,
    /// The name by which certificates refer to it.
    pub common_name: String,
    /// The time at which it was made.
    pub made: Timestamp,
    /// The end of its validity.
    pub not_after: Timestamp,
    /// The time for which what it signs is valid. Every replica keeps to it, whatever its own options say.
    pub leaf_seconds: i64,
}

/// Shows no key.
impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Ca");
        shown.field("common_name", &self.common_name).field("made", &self.made).finish_non_exhaustive()
    }
}

impl Ca {
    /// Returns the end of a certificate that this CA signs at a time.
    pub fn leaf_until(&self, now: Timestamp) -> Timestamp {
        (now + SignedDuration::from_secs(self.leaf_seconds)).min(self.not_after)
    }

    /// Returns the time from which another CA should be announced.
    fn rotate_at(&self) -> Timestamp {
        two_thirds(self.made, self.not_after)
    }
}

/// Returns the time at which two thirds of a span are over.
pub(super) fn two_thirds(from: Timestamp, until: Timestamp) -> Timestamp {
    from + until.duration_since(from) * 2 / 3
}

/// A CA that is announced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Announced {
    /// The CA.
    pub ca: Ca,
    /// The time at which it was read back from every bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Timestamp>,
}

/// A CA that signs no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Former {
    /// The certificate in PEM.
    pub certificate: String,
    /// The time from which nothing that it signed is valid.
    pub until: Timestamp,
}

/// The content of the Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// The CA that signs.
    pub current: Ca,
    /// The CA that will sign next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Announced>,
    /// The CAs that signed before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<Former>,
}

impl Content {
    /// Returns the first content, with a CA that signs at once: no certificate is in use.
    pub fn first(ca: Ca) -> Content {
        Content { current: ca, next: None, former: Vec::new() }
    }

    /// Returns the certificates that clients have to trust, in PEM. Their order does not depend on which of them signs: after
    /// each change of a definition the API server converts all objects of its kind anew.
    pub fn bundle(&self) -> String {
        let next = self.next.iter().map(|next| &next.ca.certificate);
        let former = self.former.iter().map(|former| &former.certificate);
        let all: BTreeSet<&String> =
            std::iter::once(&self.current.certificate).chain(next).chain(former).collect();
        all.into_iter().map(|certificate| format!("{}\n", certificate.trim_end())).collect()
    }

    /// Returns the content with another CA announced.
    #[must_use]
    pub fn announce(mut self, ca: Ca) -> Content {
        self.next = Some(Announced { ca, seen: None });
        self
    }

    /// Returns the content after the announced CA was read back from every bundle, or not from one (None).
    #[must_use]
    pub fn seen(mut self, at: impl Into<Option<Timestamp>>) -> Content {
        if let Some(next) = &mut self.next {
            next.seen = at.into();
        }
        self
    }

    /// Returns the content whose announced CA signs.
    #[must_use]
    pub fn use_next(mut self, now: Timestamp, lifetimes: &Lifetimes) -> Content {
        if let Some(next) = self.next.take() {
            let current = std::mem::replace(&mut self.current, next.ca);
            // A replica reads the Secret before it signs, so nothing is signed by this CA from a later time.
            let until = current.leaf_until(now) + lifetimes.skew;
            self.former.push(Former { certificate: current.certificate, until });
        }
        self
    }

    /// Returns the content without the CAs that have nothing in use.
    #[must_use]
    pub fn retire(mut self, now: Timestamp) -> Content {
        self.former.retain(|former| former.until > now);
        self
    }
}

/// The next step of the replica that leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make a first CA and write it to the Secret.
    Create,
    /// Write the bundle of the Secret to the targets of these numbers.
    WriteBundles(Vec<usize>),
    /// Make another CA and write it to the Secret, as announced.
    Announce,
    /// Write to the Secret that the announced CA was read back everywhere.
    Seen,
    /// Write to the Secret that the announced CA is not everywhere any more: somebody has changed a bundle, or there is a new
    /// target. The time to settle begins anew when it is read back.
    Unseen,
    /// Write to the Secret that the announced CA signs.
    Use,
    /// Take CAs out of the Secret that have nothing in use.
    Retire,
    /// Do nothing until this time, or until something changes.
    Wait(Timestamp),
}

/// Returns the next step. `bundles` are those of the targets that exist, as they were read before the Secret.
pub fn plan(content: Option<&Content>, bundles: &[String], now: Timestamp, lifetimes: &Lifetimes) -> Step {
    let Some(content) = content else { return Step::Create };
    let wanted = content.bundle();
    let differ: Vec<usize> = (0..bundles.len()).filter(|place| bundles[*place] != wanted).collect();
    if !differ.is_empty() {
        let is_seen = content.next.as_ref().is_some_and(|next| next.seen.is_some());
        return if is_seen { Step::Unseen } else { Step::WriteBundles(differ) };
    }
    if content.former.iter().any(|former| former.until <= now) {
        return Step::Retire;
    }
    let next = match &content.next {
        Some(Announced { seen: None, .. }) => return Step::Seen,
        Some(Announced { seen: Some(seen), .. }) if *seen + lifetimes.settle <= now => return Step::Use,
        None if content.current.rotate_at() <= now => return Step::Announce,
        Some(Announced { seen: Some(seen), .. }) => *seen + lifetimes.settle,
        None => content.current.rotate_at(),
    };
    let retire = content.former.iter().map(|former| former.until).min();
    Step::Wait(retire.map_or(next, |retire| retire.min(next)))
}

#[cfg(test)]
mod tests;
