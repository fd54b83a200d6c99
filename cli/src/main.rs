//! The `kubebid` command.

// `println!` panics if nothing can be written: `output::write_line` and `failure::note`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod advice;
mod args;
mod commands;
mod config;
mod failure;
mod output;
mod profile;
mod suggestion;
mod telemetry;
mod time;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use commands::Command;
use config::Connection;
use failure::{Exit, Failure};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;
use suggestion::Names;
use tokio::runtime::{Builder, Runtime};

/// The engine allocates for every request, on many threads (docs/decisions/0052).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: &str = "\
Examples:
  kubebid up                                                 a market on this machine, to try things
  kubebid price                                              what every market costs
  kubebid bid quote h100-8x/eu-west --nodes 4                what it takes to get 4 nodes now
  kubebid bid place h100-8x/eu-west --max 16 --nodes 4       bid for them, at most $16 a node-hour
  kubebid explain bid 12                                     why it has not all it wants
  kubebid alloc list                                         the nodes one holds, and notices
  kubebid watch events                                       what happens, as it happens
  kubebid --as provider offer put h100-8x/eu-west --capacity 8 --reserve 1.20

Exit codes:
  0  done
  1  a fault: of the engine, or in writing the answer
  2  the command itself is wrong: its flags, the profile, an endpoint
  3  the engine refused
  4  what the command names is not there, or is someone else's
  5  no token, an unknown one, or one without the right role
  6  no engine answered in time: away or busy
  7  what --wait waits for did not come in time";

/// A self-hosted spot market for compute: bid for nodes, offer them, watch the price.
#[derive(Parser)]
#[command(name = "kubebid", version = kubebid_client::VERSION, after_help = EXAMPLES, term_width = 100, subcommand_required = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

fn main() -> ExitCode {
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches)?;
        Ok((matches, cli))
    });
    let (matches, cli) = match parsed {
        Ok(parsed) => parsed,
        Err(said) => return output::explain(&said),
    };
    let names = Names::of(&matches);
    let run = async {
        match cli.command.run(&cli.connection).await {
            Err(failure) => Err(names.improve(failure, &cli.connection).await),
            Ok(()) => Ok(()),
        }
    };
    let done = match runtime() {
        Ok(runtime) => {
            let done = runtime.block_on(run);
            // A read of a store that does not answer is not waited for.
            runtime.shutdown_timeout(Duration::from_secs(1));
            done
        }
        Err(error) => Err(Failure::new(Exit::Fault, format!("no threads to run on: {error}"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.exit == Exit::Denied => {
            let withheld = cli.connection.withheld_token();
            withheld.into_iter().fold(failure, Failure::next).report()
        }
        Err(failure) => failure.report(),
    }
}

/// One core is left to the thread that owns the exchange: with a worker for each, it and the store wait for their
/// turn (docs/decisions/0052).
fn runtime() -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Builder::new_multi_thread().worker_threads(cores.saturating_sub(1).max(1)).enable_all().build()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_commands_are_well_formed() {
        super::Cli::command().debug_assert();
    }
}
