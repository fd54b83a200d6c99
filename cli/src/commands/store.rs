//! `kubebid store`

use crate::commands::local;
use crate::failure::Failure;
use crate::output::write_line;
use clap::Subcommand;
use kubebid_engine::readmodel::TABLES;
use kubebid_engine::store::{GrantError, grant_reader};
use std::fs;
use std::path::PathBuf;

/// The store of an engine
#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Let a role of PostgreSQL read bids, allocations, events, prices and charges with SQL
    #[command(after_help = "\
The role may read the tables of docs/sql.md: for psql, Grafana or a BI tool. It may not read the journal,
accounts and tokens. It sees what all tenants do. A role that the command creates may log in, and its
transactions are read-only.

Run it as the owner of the store, who must be allowed to create roles, or create the role before:
  psql -c 'CREATE ROLE kubebid_reader LOGIN'

Examples:
  kubebid store grant-reader --store postgres://kubebid@db/kubebid --password-file reader.password
  psql postgres://kubebid_reader@db/kubebid -c 'SELECT state, count(*) FROM bids GROUP BY state'

Exit codes: 0 the role may read, 1 the database refused, 2 the store is not in PostgreSQL, or the
role writes to it.")]
    GrantReader {
        /// The store: postgres://…
        #[arg(long, env = "KUBEBID_STORE", value_name = "URL", hide_env_values = true)]
        store: String,
        /// The role; it is created if it does not exist
        #[arg(long, default_value = "kubebid_reader")]
        role: String,
        /// A file with the password of the role [default: its password stays as it is]
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
}

impl StoreCommand {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let StoreCommand::GrantReader { store, role, password_file } = self;
        let options = local::store(&store)?;
        let password = match &password_file {
            Some(file) => Some(fs::read_to_string(file).map_err(|error| {
                Failure::usage(format!("{}: {error}", file.display())).next("name a file that can be read")
            })?),
            None => None,
        };
        let password = password.as_deref().map(str::trim_end);
        grant_reader(&options, &role, password, &TABLES).await.map_err(|error| match &error {
            GrantError::Sqlite | GrantError::Writer(_) => Failure::usage(error.to_string()),
            GrantError::NoTable(_) | GrantError::Store(_) => local::fault(&error),
        })?;
        write_line(&format!("{role} may read {}", TABLES.join(", ")))
    }
}
