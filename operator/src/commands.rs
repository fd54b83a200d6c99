//! The commands of `kubebid-operator`, and the names that several of them use.

pub(crate) mod labels;
pub(crate) mod print;
pub(crate) mod run;
pub(crate) mod uninstall;

use clap::Arg;
use kubebid_controller::output;
use std::error::Error;
use std::process::ExitCode;

/// The name of the program: reporter of its events, name of its Lease.
pub(crate) const PROGRAM: &str = "kubebid-operator";
/// The Service of the webhook that converts BidNodes.
const WEBHOOK_SERVICE: &str = "kubebid-operator-webhook";
/// The Secret with the authority of the webhook's certificates.
const WEBHOOK_SECRET: &str = "kubebid-operator-webhook";

/// Gives the flag `--lease-namespace` the namespace of the manifests: `uninstall` runs outside the cluster, and takes the Lease
/// of the replicas there.
fn lease_namespace(flag: Arg) -> Arg {
    flag.default_value("kubebid-system").help("The namespace of the Lease by which one replica leads")
}

/// The outcome of a command.
pub(crate) type Done = Result<ExitCode, Box<dyn Error>>;

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Done {
    Ok(output::print(text).map(|()| ExitCode::SUCCESS)?)
}
