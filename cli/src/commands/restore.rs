//! `kubebid restore`

use crate::commands::local;
use crate::failure::Failure;
use crate::output::write_line;
use clap::Args;
use kubebid_engine::lifecycle::restore::{RestoreError, restore};
use kubebid_engine::store::StoreLocation;
use std::path::PathBuf;

/// Make an embedded store of a backup; no engine may run on the store
#[derive(Args)]
#[command(after_help = "\
It copies the backup, checks every batch of the copy as `kubebid journal verify` does, gives the journal a
name of its own as `kubebid journal rename` does, and puts the copy in place of the store only then. The
backup stays as it is. A store that is there is moved aside, with its log, if --move-aside says so.
A store in PostgreSQL is restored by pg_restore; docs/operations.md says how.

Examples:
  kubebid restore kubebid-monday.db --store sqlite:kubebid.db
  kubebid restore kubebid-monday.db --store sqlite:kubebid.db --move-aside

Exit codes: 0 the store is there, 1 the backup is damaged or an engine runs on the store, 2 the store is
not in a SQLite file, or a store is there already.")]
pub(crate) struct Restore {
    /// The backup: a file that `kubebid backup` made
    backup: PathBuf,
    /// The store: sqlite:PATH
    #[arg(long, env = "KUBEBID_STORE", value_name = "URL", hide_env_values = true)]
    store: String,
    /// Move a store that is there aside
    #[arg(long)]
    move_aside: bool,
}

impl Restore {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let options = local::store(&self.store)?;
        let restored = restore(&options, &self.backup, self.move_aside).await;
        let restored = restored.map_err(|error| match &error {
            RestoreError::NotAFile => Failure::usage(error.to_string())
                .next("pg_restore --exit-on-error --no-owner --dbname URL FILE; see docs/operations.md"),
            RestoreError::Occupied(_) => Failure::usage(error.to_string())
                .next("name another place, or move it aside with --move-aside"),
            RestoreError::Store(_) | RestoreError::Journal(_) => local::fault(&error),
        })?;
        let StoreLocation::Sqlite(path) = &options.location else { unreachable!("it was restored") };
        let (path, backup) = (path.display(), self.backup.display());
        write_line(&format!(
            "{backup} has {} commands, all of them sound; it ends at {}",
            restored.end.seq, restored.end
        ))?;
        write_line(&format!("the journal {} is called {} here", restored.old, restored.new))?;
        if let Some(aside) = &restored.aside {
            write_line(&format!("the store that was at {path} is {} now", aside.display()))?;
        }
        write_line(&format!("{path} has the store of {backup}"))
    }
}
