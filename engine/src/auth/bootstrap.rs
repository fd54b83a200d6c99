//! Creates the first administrator and its token.

use super::Secret;
use crate::runtime::clock;
use crate::store::{Account, Fault, Limits, NewToken, Role, Store};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tracing::{info, warn};

/// The account of the first administrator.
const ADMIN: &str = "admin";

/// Why the first administrator could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The file cannot be read, or cannot be created.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file has no token of ours.
    #[error("{path} holds no token; remove it to have one made", path = .0.display())]
    NoToken(PathBuf),
    /// Others than the owner of the file may read or change it.
    #[error(
        "{path} has mode {mode:o}: others than its owner may read or change it; chmod 600 {path}, and revoke the token if \
         somebody may have read it",
        path = path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Fault),
}

/// Sets up the first administrator if a file for its token is named, and warns if the store has none.
pub async fn bootstrap(store: &Store, path: Option<&Path>) -> Result<(), BootstrapError> {
    if let Some(path) = path {
        bootstrap_admin(store, path).await?;
    }
    Ok(warn_without_administrator(store).await?)
}

/// Makes sure that the file holds a token of an administrator. Creates the file, readable for its owner
/// only, if it is missing, and the account and the token if the store does not have them. A token that was revoked
/// stays so: an engine with other administrators starts all the same.
pub async fn bootstrap_admin(store: &Store, path: &Path) -> Result<(), BootstrapError> {
    let secret = read_or_make(path)?;
    let rows = store.rows();
    let created_at_us = clock::wall().0;
    if rows.account(ADMIN).await?.is_none() {
        rows.put_account(&Account { name: ADMIN.to_owned(), limits: Limits::default(), created_at_us })
            .await?;
    }
    match rows.token(&secret.sha256()).await? {
        Some(token) if token.revoked_at_us.is_some() => {
            warn!(path = %path.display(), "the token of this file was revoked; remove the file to have another made");
        }
        Some(_) => {}
        None => {
            rows.add_token(&NewToken {
                sha256: secret.sha256(),
                account: ADMIN.to_owned(),
                roles: [Role::Admin].into(),
                note: "made by serve --admin-token-file".to_owned(),
                created_at_us,
            })
            .await?;
            info!(path = %path.display(), "registered the first administrator's token");
        }
    }
    Ok(())
}

/// Warns if no token of an administrator is left: without one no market can be opened, and no account made.
async fn warn_without_administrator(store: &Store) -> Result<(), Fault> {
    if !store.rows().has_token(Role::Admin).await? {
        warn!("no administrator has a token; start with --admin-token-file FILE to have one made");
    }
    Ok(())
}

fn read_or_make(path: &Path) -> Result<Secret, BootstrapError> {
    let failed = |source| BootstrapError::File { path: path.to_owned(), source };
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            let secret = Secret::random();
            writeln!(file, "{}", secret.reveal()).and_then(|()| file.sync_all()).map_err(failed)?;
            Ok(secret)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mut file = File::open(path).map_err(failed)?;
            let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
            // The group may read it, because Kubernetes has no other way to mount a Secret for
            // a user.
            if mode & 0o027 != 0 {
                return Err(BootstrapError::Exposed { path: path.to_owned(), mode });
            }
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(failed)?;
            Secret::parse(text.trim()).ok_or_else(|| BootstrapError::NoToken(path.to_owned()))
        }
        Err(error) => Err(failed(error)),
    }
}
