//! `kubebid man`

use crate::failure::{Exit, Failure};
use clap::{Args, CommandFactory as _};
use std::path::PathBuf;

/// Write the manual pages
#[derive(Args)]
#[command(after_help = "\
Examples:
  kubebid man ~/.local/share/man/man1 && man kubebid-bid-place")]
pub(crate) struct Man {
    /// Folder for one page a command; it is made if it is not there
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let written = std::fs::create_dir_all(&self.folder)
            .and_then(|()| clap_mangen::generate_to(crate::Cli::command(), &self.folder));
        written.map_err(|error| Failure::new(Exit::Fault, format!("{}: {error}", self.folder.display())))
    }
}
