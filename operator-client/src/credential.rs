//! The token: given once, or kept in a file that may change.

use crate::Error;
use crate::error::unreadable;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

/// The interval at which a token file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The value of the header `authorization`.
pub(crate) type Bearer = MetadataValue<Ascii>;

#[derive(Debug)]
pub(crate) enum Credential {
    None,
    Fixed(Bearer),
    File { path: PathBuf, read: Mutex<Read> },
}

/// A token file as it was read last.
#[derive(Debug)]
pub(crate) struct Read {
    bearer: Bearer,
    stamp: Stamp,
    looked_at: Instant,
}

/// The metadata of a file that differ if it was changed.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl Credential {
    pub(crate) fn fixed(secret: &str) -> Result<Self, Error> {
        bearer(secret).map(Credential::Fixed).map_err(|why| Error::Config(format!("the token {why}")))
    }

    pub(crate) fn file(path: &Path) -> Result<Self, Error> {
        let (bearer, stamp) = read(path)?;
        let read = Read { bearer, stamp, looked_at: Instant::now() };
        Ok(Credential::File { path: path.to_owned(), read: Mutex::new(read) })
    }

    /// Returns the token, read again from its file if that has changed.
    pub(crate) fn bearer(&self) -> Option<Bearer> {
        match self {
            Credential::None => None,
            Credential::Fixed(bearer) => Some(bearer.clone()),
            Credential::File { path, read } => Some(current(path, read, LOOK)),
        }
    }

    /// Puts the token into the metadata of a call, and says which it was.
    pub(crate) fn authorize(&self, metadata: &mut MetadataMap) -> Option<Bearer> {
        let bearer = self.bearer()?;
        metadata.insert("authorization", bearer.clone());
        Some(bearer)
    }

    /// Returns whether there is another token than the one that was refused.
    pub(crate) fn renewed(&self, refused: Option<&Bearer>) -> bool {
        match self {
            Credential::None | Credential::Fixed(_) => false,
            Credential::File { path, read } => Some(&current(path, read, Duration::ZERO)) != refused,
        }
    }
}

/// Returns the token of a file. The file is read again if it has changed since it was last looked at, at least `age`
/// ago. A stat of a local file is quicker than a thread that does it. While the file cannot be read, as between two
/// versions of it, its last token stands.
fn current(path: &Path, last: &Mutex<Read>, age: Duration) -> Bearer {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if last.looked_at.elapsed() < age {
        return last.bearer.clone();
    }
    last.looked_at = Instant::now();
    if age.is_zero() || stamp(path).is_ok_and(|stamp| stamp != last.stamp) {
        match read(path) {
            Ok((bearer, stamp)) => (last.bearer, last.stamp) = (bearer, stamp),
            Err(error) => tracing::warn!(%error, "the token file is unreadable, its last token stands"),
        }
    }
    last.bearer.clone()
}

fn read(path: &Path) -> Result<(Bearer, Stamp), Error> {
    let fault = |error| unreadable("token file", path, &error);
    let stamp = stamp(path).map_err(fault)?;
    let secret = fs::read_to_string(path).map_err(fault)?;
    let bearer = bearer(secret.trim())
        .map_err(|why| Error::Config(format!("the token in {} {why}", path.display())))?;
    Ok((bearer, stamp))
}

fn stamp(path: &Path) -> std::io::Result<Stamp> {
    let metadata = fs::metadata(path)?;
    Ok(Stamp { modified: metadata.modified().ok(), bytes: metadata.len() })
}

fn bearer(secret: &str) -> Result<Bearer, &'static str> {
    if secret.is_empty() {
        return Err("is empty");
    }
    let mut bearer =
        Bearer::try_from(format!("Bearer {secret}")).map_err(|_| "has characters that no token has")?;
    bearer.set_sensitive(true);
    Ok(bearer)
}
