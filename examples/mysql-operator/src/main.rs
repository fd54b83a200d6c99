//! `mysql-operator`: runs the operator, prints its custom resource definition, and gives its objects up.

// `println!` panics if nothing can be written: see `kubebid_controller::output`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use kube::api::ListParams;
use kubebid_controller::composite::Composed;
use kubebid_controller::object::objects;
use kubebid_controller::output;
use kubebid_controller::process::{self, ProcessArgs, Program};
use kubebid_controller::uninstall::uninstall;
use kubebid_controller::{ControllerOptions, ObjectName, Writer};
use kubebid_mysql_operator::api::{self, Mysql};
use kubebid_mysql_operator::children::IMAGE;
use kubebid_mysql_operator::controller::Mysqls;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

/// The name of the program: reporter of its events, field manager of what it creates.
const NAME: &str = "mysql-operator";
/// The shortest time between two passes over one object.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Runs MySQL servers in Kubernetes, one for each Mysql object
#[derive(Parser)]
#[command(name = NAME, version, term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the operator
    Run(Run),
    /// Print the custom resource definition
    Crds,
    /// Delete the Mysql objects and leave their servers running; no replica of the operator may run
    Uninstall(Operator),
}

#[derive(Args)]
struct Run {
    /// The image of the servers
    #[arg(long, default_value = IMAGE, value_name = "IMAGE")]
    image: String,
    #[command(flatten)]
    operator: Operator,
}

#[derive(Args)]
struct Operator {
    /// Only Mysql objects of this namespace [default: all namespaces]
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    process: ProcessArgs,
}

/// Returns the command line, with this operator's own defaults for the leader election.
fn command_line() -> clap::Command {
    let lease = |command: clap::Command| {
        command
            .mut_arg("lease_namespace", |arg| arg.env("SPACE"))
            .mut_arg("lease_name", |arg| {
                arg.default_value("mysql-controller-leader").help("The name of the Lease")
            })
            .mut_arg("lease_seconds", |arg| arg.default_value("30"))
            .mut_arg("renew_deadline_seconds", |arg| {
                arg.default_value("15").help(
                    "The time after which a leader that does not see its Lease stops writing, in seconds",
                )
            })
            .mut_arg("retry_period_seconds", |arg| {
                arg.default_value("5").help("The time between two renewals of the Lease, in seconds")
            })
            .mut_arg("identity", |arg| arg.env("INSTANCEIDENTITY"))
    };
    Cli::command().mut_subcommand("run", lease).mut_subcommand("uninstall", lease)
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = command_line().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = cli.unwrap_or_else(|said| output::exit(&said));
    let done = match cli.command {
        Command::Run(run) => run.run().await,
        Command::Crds => print_crds(),
        Command::Uninstall(operator) => operator.uninstall().await,
    };
    done.unwrap_or_else(|error| {
        output::note(format_args!("error: {error}"));
        ExitCode::FAILURE
    })
}

impl Run {
    async fn run(self) -> Result<ExitCode, Box<dyn Error>> {
        let program = Program::new(NAME, "mysql_operator")?;
        process::run(program, &self.operator.process, async |manager| {
            let (client, namespace) = (manager.client().clone(), self.operator.namespace.clone());
            let mysqls_of = objects(&client, namespace.as_deref());
            let mysqls = Mysqls { client, namespace, image: self.image.clone() };
            let concurrency = self.operator.process.concurrency.unwrap_or(5);
            let options =
                ControllerOptions { concurrency, min_interval: MIN_INTERVAL, ..ControllerOptions::default() };
            manager.add(Composed::new(mysqls), mysqls_of, options);
            Ok(())
        })
        .await
    }
}

fn print_crds() -> Result<ExitCode, Box<dyn Error>> {
    output::print(serde_saphyr::to_string(&api::crd())?)?;
    Ok(ExitCode::SUCCESS)
}

impl Operator {
    async fn uninstall(self) -> Result<ExitCode, Box<dyn Error>> {
        uninstall(NAME, &[], &self.process, async |writer: &Writer| {
            let mysqls = objects::<Mysql>(writer.client(), self.namespace.as_deref());
            // Metadata has the same shape in all versions: an object that this version cannot read is deleted too.
            for mysql in mysqls.list_metadata(&ListParams::default()).await? {
                writer.delete_orphaning(&mysql).await?;
                output::print(format_args!("{} is deleted; its server runs on\n", ObjectName::of(&mysql)))?;
            }
            Ok(())
        })
        .await?;
        Ok(ExitCode::SUCCESS)
    }
}
