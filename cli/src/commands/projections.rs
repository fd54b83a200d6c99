//! `kubebid projections`

use crate::commands::local;
use crate::failure::Failure;
use crate::output::write_line;
use clap::Subcommand;
use kubebid_engine::lifecycle::rebuild::rebuild;

/// The readable tables beside the journal
#[derive(Subcommand)]
pub(crate) enum Projections {
    /// Empty the tables and fill them again from the journal; the engine has to be stopped
    Rebuild {
        /// The store: sqlite:PATH or postgres://…
        #[arg(long, env = "KUBEBID_STORE", value_name = "URL", hide_env_values = true)]
        store: String,
    },
}

impl Projections {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let Projections::Rebuild { store } = self;
        let options = local::store(&store)?;
        let bar = local::progress_bar("commands");
        let rebuilt = rebuild(&options, |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        rebuilt.await.map_err(|error| local::fault(&error))?;
        bar.finish_and_clear();
        write_line("the tables are those of the journal")
    }
}
