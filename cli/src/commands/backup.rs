//! `kubebid backup`

use crate::commands::local;
use crate::failure::Failure;
use crate::output::write_line;
use clap::Args;
use kubebid_engine::store::{StoreLocation, copy_sqlite};
use std::path::PathBuf;

/// Copy an embedded store, also while an engine runs on it
#[derive(Args)]
#[command(after_help = "\
The copy is of one moment: no acknowledged command before it is missing, none after it is there.
A store in PostgreSQL is copied by pg_dump; docs/operations.md says how, and how both are restored.

Examples:
  kubebid backup --store sqlite:kubebid.db kubebid-monday.db
  kubebid journal verify --store sqlite:kubebid-monday.db
  kubebid restore kubebid-monday.db --store sqlite:kubebid.db --move-aside

Exit codes: 0 the copy is there and complete, 1 it could not be made, 2 the store is not in a
SQLite file or the copy is there already.")]
pub(crate) struct Backup {
    /// The store: sqlite:PATH
    #[arg(long, env = "KUBEBID_STORE", value_name = "URL", hide_env_values = true)]
    store: String,
    /// Path of the copy; nothing may be there
    copy: PathBuf,
}

impl Backup {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let options = local::store(&self.store)?;
        let StoreLocation::Sqlite(file) = &options.location else {
            return Err(Failure::usage("a store in PostgreSQL is copied by pg_dump")
                .next("pg_dump --format custom --file FILE URL; see docs/operations.md"));
        };
        if self.copy.exists() {
            return Err(Failure::usage(format!("{} is there already", self.copy.display()))
                .next("name another file, or remove it"));
        }
        copy_sqlite(file, &self.copy, options.patience).await.map_err(|error| local::fault(&error))?;
        write_line(&format!("{} is a copy of {}", self.copy.display(), file.display()))
    }
}
