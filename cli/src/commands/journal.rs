//! `kubebid journal`

use crate::commands::local;
use crate::failure::{Exit, Failure, note};
use crate::output::write_line;
use clap::{Args, Subcommand};
use kubebid_core::{Auction, Exchange, StampedCommand};
use kubebid_engine::runtime::recovery::command_of;
use kubebid_engine::store::{Journal as Stored, Store, StoreLocation, log_of_sqlite};
use market_sim::jsonl::format_command;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

/// The journal of commands, read beside a running engine or without one
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  kubebid journal verify --store sqlite:kubebid.db
  kubebid journal replay --store postgres://kubebid@db/kubebid --up-to 5000
  kubebid journal export --store sqlite:kubebid.db report.jsonl && market-sim play report.jsonl")]
pub(crate) enum Journal {
    /// Check every batch: checksums, order, that each continues the one before, that each record is a command
    Verify(Where),
    /// Apply the commands from the beginning on and print the hash of the state
    Replay {
        #[command(flatten)]
        place: Where,
        /// Up to this command: to compare a journal with an older copy of it [default: all]
        #[arg(long, value_name = "SEQ")]
        up_to: Option<u64>,
    },
    /// Give the journal of a restored copy a name of its own, so that cursors of the lost future are answered GONE.
    /// No engine may run on it
    Rename(Where),
    /// Write the commands as `market-sim play` reads them: how a bug is reported
    Export {
        #[command(flatten)]
        place: Where,
        /// File to write [default: standard output]
        file: Option<PathBuf>,
    },
}

#[derive(Args)]
pub(crate) struct Where {
    /// The store: sqlite:PATH or postgres://…
    #[arg(long, env = "KUBEBID_STORE", value_name = "URL", hide_env_values = true)]
    store: String,
}

impl Journal {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self {
            Journal::Verify(place) => {
                let end = each(&place, None, |_| Ok(())).await?;
                write_line(&format!(
                    "{} commands, all of them sound; the journal {} ends at {}",
                    end.commands, end.id, end.place
                ))?;
                if let StoreLocation::Sqlite(file) = local::store(&place.store)?.location
                    && let Some(log) = log_of_sqlite(&file)
                {
                    note(format_args!(
                        "note: a part of it may be in {} alone: a copy needs both files, or `kubebid backup`",
                        log.display()
                    ));
                }
            }
            Journal::Replay { place, up_to } => {
                let mut exchange = Exchange::new();
                let started = Instant::now();
                let end = each(&place, up_to, |command| {
                    exchange.apply(&command);
                    Ok(())
                })
                .await?;
                let seconds = started.elapsed().as_secs_f64();
                write_line(&format!("{} commands in {seconds:.1} s", end.commands))?;
                write_line(&format!("state hash {:032x}", exchange.state_hash()))?;
            }
            Journal::Rename(place) => rename(&place).await?,
            Journal::Export { place, file } => {
                let output: Box<dyn Write> = match &file {
                    Some(path) => Box::new(File::create(path)?),
                    None => Box::new(io::stdout().lock()),
                };
                let mut output = BufWriter::new(output);
                each(&place, None, |command| writeln!(output, "{}", format_command(&command))).await?;
                output.flush()?;
            }
        }
        Ok(())
    }
}

async fn rename(place: &Where) -> Result<(), Failure> {
    let options = local::store(&place.store)?;
    let store = Store::open(&options).await.map_err(|error| local::fault(&error))?;
    let renamed = store.rename_journal().await.map_err(|error| local::fault(&error))?;
    store.close().await.map_err(|error| local::fault(&error))?;
    let Some((old, new)) = renamed else {
        return Err(Failure::new(Exit::Fault, "an engine leads on this store").next("stop it first"));
    };
    write_line(&format!("the journal {old} is called {new} here"))
}

struct End {
    commands: u64,
    id: String,
    place: String,
}

/// Gives every command, or those up to one, to `take`, in order.
async fn each(
    place: &Where,
    up_to: Option<u64>,
    mut take: impl FnMut(StampedCommand) -> io::Result<()>,
) -> Result<End, Failure> {
    let options = local::store(&place.store)?;
    let journal = Stored::open_to_read(&options).await.map_err(|error| local::fault(&error))?;
    let head = journal.head().await.map_err(|error| local::fault(&error))?;
    let bar = local::progress_bar("commands");
    let up_to = up_to.unwrap_or(u64::MAX);
    bar.set_length(head.seq.min(up_to));
    let mut reader = journal.read_from(1);
    let mut end = End { commands: 0, id: journal.id().to_string(), place: "its beginning".to_owned() };
    loop {
        let batches = reader.next_chunk().await.map_err(|error| local::fault(&error))?;
        if batches.is_empty() || end.commands >= up_to {
            bar.finish_and_clear();
            return Ok(end);
        }
        for batch in batches {
            for record in batch.records().take_while(|record| record.seq <= up_to) {
                end.commands = record.seq;
                let command =
                    command_of(record).map_err(|error| Failure::new(Exit::Fault, error.to_string()))?;
                take(command)?;
            }
            end.place = batch.end().to_string();
            bar.set_position(end.commands);
        }
    }
}
