//! `kubebid-operator`: runs the operator, and prints its custom resource definitions and admission policies.

// `println!` panics if nothing can be written: see `kubebid_controller::output`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod commands;

use clap::{Parser, Subcommand};
use commands::print::{Crds, Policy, ProvisionerApi};
use commands::run::Run;
use commands::uninstall::Uninstall;
use commands::{Done, PROGRAM, print};
use kubebid_controller::{config_file, output};
use kubebid_operator::api::BidNode;
use kubebid_operator::conversion::conversions;
use kubebid_webhook::process::{ConvertArgs, MigrateArgs};
use std::process::ExitCode;

/// The Kubernetes operator of KubeBid: turns BidNodes into nodes by bidding for them, and labels the nodes of pools
#[derive(Parser)]
#[command(name = PROGRAM, version = kubebid_client::VERSION, term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<Run>),
    Crds(Crds),
    Policy(Policy),
    ProvisionerApi(ProvisionerApi),
    /// Print the objects of files with their BidNodes in another version, as YAML
    #[command(after_help = "\
It needs no cluster. The versions are v1 and v2beta1. Objects of other kinds stay as they are, lists
are looked through, and comments are lost.

Examples:
  kubebid-operator convert --to v2beta1 -f bidnodes.yaml
  kubectl get bidnodes -A -o yaml | kubebid-operator convert --to v2beta1 -f -")]
    Convert(ConvertArgs),
    /// Store all BidNodes in the version that the definition stores, and forget versions that are not served
    #[command(after_help = "\
It may run beside the operator and all clients, and may be interrupted and run again.

Examples:
  kubebid-operator migrate --check                      exit code 1 if there is anything to do
  kubebid-operator migrate")]
    Migrate(MigrateArgs),
    Uninstall(Uninstall),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match config_file::parse::<Cli>("run", "KUBEBID_OPERATOR_").command {
        Command::Run(run) => run.run().await,
        Command::Crds(crds) => crds.run(),
        Command::Policy(policy) => policy.run(),
        Command::ProvisionerApi(api) => api.run(),
        Command::Convert(args) => convert(&args),
        Command::Migrate(args) => args.run::<BidNode>(PROGRAM).await,
        Command::Uninstall(uninstall) => uninstall.run().await,
    };
    done.unwrap_or_else(|error| {
        output::note(format_args!("error: {error}"));
        ExitCode::FAILURE
    })
}

fn convert(args: &ConvertArgs) -> Done {
    print(&args.convert(&conversions())?)
}
