//! `cache-operator`: runs the operator and its webhooks, prints its custom resource definition, moves stored objects into
//! another version, converts files, and removes its finalizers.

// `println!` panics if nothing can be written: see `kubebid_controller::output`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use kubebid_cache_operator::api::{self, v1beta1::Cache};
use kubebid_cache_operator::children::Images;
use kubebid_cache_operator::controller::{CacheController, FINALIZER};
use kubebid_cache_operator::conversion::conversions;
use kubebid_cache_operator::webhooks::{targets, webhooks};
use kubebid_controller::composite::Composed;
use kubebid_controller::object::objects;
use kubebid_controller::output;
use kubebid_controller::process::{ProcessArgs, Program, time};
use kubebid_controller::uninstall::{LeaseHeld, remove_finalizer_in, uninstall};
use kubebid_controller::{ControllerOptions, Writer};
use kubebid_webhook::process::{self, ConvertArgs, MigrateArgs, Service, WebhookArgs};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

/// The name of the program: reporter of its events, field manager of what it creates, name of its Lease.
const NAME: &str = "cache-operator";
/// The Secret with the authority of the webhooks' certificates.
const SECRET: &str = "cache-operator-webhooks";

/// Runs caches in Kubernetes: Redis, Valkey and memcached, one set of servers for each Cache object
#[derive(Parser)]
#[command(name = NAME, version, term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the operator
    Run(Box<Run>),
    /// Print the custom resource definition
    Crds(Crds),
    /// Store all Caches in the version that the definition stores, and forget versions that are not served
    Migrate(MigrateArgs),
    /// Print the objects of files with their Caches in another version, as YAML
    Convert(ConvertArgs),
    /// Remove the finalizers of all Caches, so that they can be deleted without the operator; no replica may run
    Uninstall(Box<Operator>),
}

#[derive(Args)]
struct Run {
    /// The image of Redis
    #[arg(long, default_value = "redis:7", value_name = "IMAGE", help_heading = "Images")]
    redis_image: String,
    /// The image of memcached
    #[arg(long, default_value = "memcached:1.6", value_name = "IMAGE", help_heading = "Images")]
    memcached_image: String,
    /// The image of Valkey
    #[arg(long, default_value = "valkey/valkey:8", value_name = "IMAGE", help_heading = "Images")]
    valkey_image: String,
    /// The time after which a deleted cache goes even if a server could not be emptied
    #[arg(long, default_value = "2m", value_name = "TIME", value_parser = time)]
    flush_limit: Duration,
    /// Remove the finalizers of all Caches when the process is told to stop, unless another replica leads
    #[arg(long)]
    remove_finalizers_on_shutdown: bool,
    #[command(flatten)]
    webhooks: WebhookArgs,
    #[command(flatten)]
    operator: Operator,
}

#[derive(Args)]
struct Crds {
    /// The version that is stored
    #[arg(long, default_value = api::STORED, value_name = "VERSION")]
    stored: String,
    /// The namespace of the Service of the webhooks
    #[arg(long, default_value = "cache-system", value_name = "NAMESPACE")]
    namespace: String,
}

#[derive(Args)]
struct Operator {
    /// Only Caches of this namespace [default: all namespaces]
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    process: ProcessArgs,
}

/// Returns the command line, with this operator's own defaults for the leader election.
fn command_line() -> clap::Command {
    let lease = |command: clap::Command| {
        command
            .mut_arg("renew_deadline_seconds", |arg| {
                arg.default_value("10").help(
                    "The time after which a leader that does not see its Lease stops writing, in seconds",
                )
            })
            .mut_arg("retry_period_seconds", |arg| {
                arg.default_value("2").help("The time between two renewals of the Lease, in seconds")
            })
    };
    // It runs outside the cluster, and takes the Lease of the replicas there.
    let of_manifests = |uninstall: clap::Command| {
        uninstall.mut_arg("lease_namespace", |arg| {
            arg.default_value("cache-system").help("The namespace of the Lease by which one replica leads")
        })
    };
    let command = Cli::command().mut_subcommand("run", lease);
    command.mut_subcommand("uninstall", |uninstall| of_manifests(lease(uninstall)))
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = command_line().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = cli.unwrap_or_else(|said| output::exit(&said));
    let done = match cli.command {
        Command::Run(run) => run.run().await,
        Command::Crds(crds) => crds.print(),
        Command::Migrate(args) => args.run::<Cache>(NAME).await,
        Command::Convert(args) => convert(&args),
        Command::Uninstall(operator) => operator.remove_finalizers().await,
    };
    done.unwrap_or_else(|error| {
        output::note(format_args!("error: {error}"));
        ExitCode::FAILURE
    })
}

impl Run {
    async fn run(self) -> Result<ExitCode, Box<dyn Error>> {
        let ended = self.work().await?;
        if self.remove_finalizers_on_shutdown {
            match self.operator.remove_finalizers().await {
                // Another replica leads: it goes on, or removes them when it ends.
                Err(error) if error.is::<LeaseHeld>() => {}
                removed => drop(removed?),
            }
        }
        Ok(ended)
    }

    async fn work(&self) -> Result<ExitCode, Box<dyn Error>> {
        let program = Program::new(NAME, "cache_operator")?;
        let service = Service { name: NAME, secret: SECRET, targets: targets(), webhooks };
        process::run(program, &self.operator.process, &self.webhooks, service, async |manager| {
            let images = Images {
                redis: self.redis_image.clone(),
                memcached: self.memcached_image.clone(),
                valkey: self.valkey_image.clone(),
            };
            let caches = CacheController {
                client: manager.client().clone(),
                namespace: self.operator.namespace.clone(),
                images,
                flush_limit: self.flush_limit,
            };
            let concurrency = self.operator.process.concurrency.unwrap_or(5);
            let objects = objects(&caches.client, caches.namespace.as_deref());
            let options = ControllerOptions { concurrency, ..ControllerOptions::default() };
            manager.add(Composed::new(caches), objects, options);
            Ok(())
        })
        .await
    }
}

impl Crds {
    fn print(self) -> Result<ExitCode, Box<dyn Error>> {
        let definition = api::crd(&self.stored, &self.namespace, NAME)?;
        output::print(serde_saphyr::to_string(&definition)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn convert(args: &ConvertArgs) -> Result<ExitCode, Box<dyn Error>> {
    output::print(args.convert(&conversions())?)?;
    Ok(ExitCode::SUCCESS)
}

impl Operator {
    async fn remove_finalizers(&self) -> Result<ExitCode, Box<dyn Error>> {
        uninstall(NAME, &[], &self.process, async |writer: &Writer| {
            let objects = objects(writer.client(), self.namespace.as_deref());
            for cache in remove_finalizer_in::<Cache>(writer, &objects, FINALIZER).await? {
                output::print(format_args!("{cache} has no finalizer\n"))?;
            }
            Ok(())
        })
        .await?;
        Ok(ExitCode::SUCCESS)
    }
}
