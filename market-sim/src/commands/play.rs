//! `market-sim play`: answers commands, one JSON object a line.

use super::stdout::{end_with_the_reader, note};
use clap::Args;
use indicatif::ProgressBar;
use kubebid_report::text::printable_lines;
use market_sim::file::{COMMANDS, FileError, open, text_of};
use market_sim::jsonl::{self, PlayError, PrintDetail};
use std::io::{ErrorKind, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    /// File of commands; .gz is unpacked [default: standard input]
    file: Option<PathBuf>,
    /// Ask the slow reference model instead of the exchange
    #[arg(long)]
    model: bool,
    /// Answer with seq, at_us and events only, without the state of the market
    #[arg(long)]
    events_only: bool,
}

const HELP: &str = r#"Example: one market, one unit, one bid that gets it.

  market-sim play <<'END'
  {"at_us": 0, "command": "OpenMarket", "market": "h100/eu", "rules": {}}
  {"at_us": 0, "command": "PutOffer", "provider": "p", "market": "h100/eu", "capacity": 1, "reserve": 1000}
  {"at_us": 1000000, "command": "PlaceBid", "tenant": "a", "markets": ["h100/eu"], "ceiling": 1500, "max_nodes": 1}
  END

Commands (at_us always; key, an idempotency key, where there is an account):
  OpenMarket         market, rules
  ChangeRules        market, rules
  PutOffer           provider, market, capacity, reserve
  WithdrawUnit       provider, unit
  ReportUnitLost     provider, unit
  ResumeUnits        provider, unit or market
  PlaceBid           tenant, markets or instance_type, ceiling, max_nodes
                     [min_nodes, tif, expire_at_us, on_preemption]
  AmendBid           tenant, bid [ceiling, max_nodes]
  CancelBid          tenant, bid, mode
  ReleaseAllocation  tenant, allocation
  ReportReady        allocation [by]
  Fund               account, add or set or unlimited (true); needs a key
  SetBudget          account [monthly, roll_over]; without monthly it ends
  SetRenewal         renewal_us
  AdvanceTime

Amounts are whole micro-dollars. An answer has `funds`, `reserved` and `available` of each funded account.
Prices are whole micro-dollars per node-hour, times microseconds. A bid is named by the number of the
command that placed it, an allocation by its order from 1, a unit market:provider#number.

Exit codes: 0 all answered; 1 could not read or write; 2 a line that is no command (named on stderr)."#;

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let shown = if arguments.events_only { PrintDetail::Events } else { PrintDetail::Everything };
    let input = match &arguments.file {
        None => text_of(Box::new(stdin().lock()), "standard input", &COMMANDS, false),
        Some(path) => open(path, &COMMANDS, &ProgressBar::hidden()),
    };
    let input = match input {
        Ok(input) => input,
        // A market without commands has no answers.
        Err(FileError::Empty { .. }) => return ExitCode::SUCCESS,
        Err(error) => return super::complain(&error),
    };
    let mut auction = market_sim::auction(arguments.model);
    end_with_the_reader();
    match jsonl::play(input, stdout().lock(), auction.as_mut(), shown) {
        Ok(()) => ExitCode::SUCCESS,
        Err(PlayError::Write(fault)) if fault.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            note(format_args!("market-sim: {}", printable_lines(&error.to_string())));
            match error {
                PlayError::BadLine { .. } => ExitCode::from(2),
                PlayError::Read(_) | PlayError::Write(_) => ExitCode::from(1),
            }
        }
    }
}
