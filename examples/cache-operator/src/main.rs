//! `cache-operator`: runs the operator and its webhooks, prints its custom resource definition, moves stored objects into
//! another version, and removes its finalizers.

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use kube::Client;
use kubebid_cache_operator::api::{self, v1beta1::Cache};
use kubebid_cache_operator::children::Images;
use kubebid_cache_operator::controller::{CacheController, FINALIZER, objects};
use kubebid_cache_operator::webhooks::{targets, webhooks};
use kubebid_controller::composite::Composed;
use kubebid_controller::leader_election::Leadership;
use kubebid_controller::process::{self, ProcessArgs, Program};
use kubebid_controller::uninstall::{remove_finalizer_in, uninstall};
use kubebid_controller::{ControllerOptions, Writer};
use kubebid_webhook::authority::plan::Lifetimes;
use kubebid_webhook::authority::{Authority, AuthorityOptions};
use kubebid_webhook::migrate;
use kubebid_webhook::server::{ServerOptions, serve, stop_signal};
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::Notify;

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
    /// Store all Caches in the version that the definition stores
    Migrate(Migrate),
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
    #[arg(long, default_value = "2m", value_name = "TIME", value_parser = process::time)]
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
#[command(next_help_heading = "Webhooks")]
struct WebhookArgs {
    /// Address of the webhooks [default: none]
    #[arg(long, value_name = "ADDRESS")]
    webhook_listen: Option<SocketAddr>,
    /// A name or address by which the API server reaches them; may be repeated
    #[arg(long, default_value = "cache-operator.cache-system.svc", value_name = "NAME")]
    webhook_name: Vec<String>,
    /// The namespace of the Secret with the authority of their certificates
    #[arg(long, default_value = "cache-system", value_name = "NAMESPACE")]
    webhook_namespace: String,
    /// The lifetime of the authority
    #[arg(long, default_value = "720h", value_name = "TIME", value_parser = process::time)]
    webhook_ca_lifetime: Duration,
    /// The lifetime of the certificate of a replica
    #[arg(long, default_value = "24h", value_name = "TIME", value_parser = process::time)]
    webhook_certificate_lifetime: Duration,
    /// A certificate in PEM that somebody else makes, whose authority is in the caBundles
    #[arg(long, value_name = "FILE", requires = "webhook_key")]
    webhook_certificate: Option<PathBuf>,
    /// The key of that certificate in PEM
    #[arg(long, value_name = "FILE", requires = "webhook_certificate")]
    webhook_key: Option<PathBuf>,
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
struct Migrate {
    /// Only say if there is anything to do: then the exit code is 1
    #[arg(long)]
    check: bool,
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
            .mut_arg("lease_namespace", |arg| arg.default_value("cache-system"))
            .mut_arg("renew_deadline_seconds", |arg| {
                arg.default_value("10").help(
                    "The time after which a leader that does not see its Lease stops writing, in seconds",
                )
            })
            .mut_arg("retry_period_seconds", |arg| {
                arg.default_value("2").help("The time between two renewals of the Lease, in seconds")
            })
    };
    Cli::command().mut_subcommand("run", lease).mut_subcommand("uninstall", lease)
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::from_arg_matches(&command_line().get_matches()).unwrap_or_else(|error| error.exit());
    let done = match cli.command {
        Command::Run(run) => run.run().await,
        Command::Crds(crds) => crds.print(),
        Command::Migrate(migrate) => migrate.run().await,
        Command::Uninstall(operator) => operator.remove_finalizers().await,
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

impl Run {
    async fn run(self) -> Result<ExitCode, Box<dyn Error>> {
        let ended = match self.webhooks.webhook_listen {
            None => self.work(None).await?,
            Some(address) => self.work_with_webhooks(address).await?,
        };
        if self.remove_finalizers_on_shutdown {
            self.operator.remove_finalizers().await?;
        }
        Ok(ended)
    }

    /// Serves the webhooks beside the controller. Every replica does, also one that does not lead.
    async fn work_with_webhooks(&self, address: SocketAddr) -> Result<ExitCode, Box<dyn Error>> {
        let client = Client::try_default().await?;
        let authority = self.webhooks.authority(client.clone())?;
        let listener = TcpListener::bind(address)?;
        let is_over = Notify::new();
        let working = async {
            let ended = self.work(Some(&authority)).await;
            is_over.notify_one();
            ended
        };
        let stop = async {
            tokio::select! {
                () = stop_signal() => {}
                () = is_over.notified() => {}
            }
        };
        let serving = async {
            serve(listener, &authority, webhooks(client), ServerOptions::default(), stop).await?;
            Ok(())
        };
        // Requests under way are answered also when the controller has failed.
        let (ended, served): (_, Result<(), Box<dyn Error>>) = tokio::join!(working, serving);
        served?;
        ended
    }

    async fn work(&self, authority: Option<&Authority>) -> Result<ExitCode, Box<dyn Error>> {
        let program = Program::new(NAME, "cache_operator")?;
        process::run(program, &self.operator.process, async |manager| {
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
            if let Some(authority) = authority.cloned() {
                let writer = manager.writer("webhooks");
                // Lists of the older version need the webhook, which needs the authority.
                manager.spawn_at_once(async move { authority.lead(&writer).await });
            }
            Ok(())
        })
        .await
    }
}

impl Crds {
    fn print(self) -> Result<ExitCode, Box<dyn Error>> {
        let definition = api::crd(&self.stored, &self.namespace, NAME)?;
        print!("{}", serde_saphyr::to_string(&definition)?);
        Ok(ExitCode::SUCCESS)
    }
}

impl Migrate {
    async fn run(self) -> Result<ExitCode, Box<dyn Error>> {
        let client = Client::try_default().await?;
        if self.check {
            let check = migrate::check::<Cache>(&client).await?;
            println!("stored: {}; objects may be in {}", check.stored, check.stored_versions.join(", "));
            if check.unserved > 0 {
                println!("{} objects have field managers of a version that is not served", check.unserved);
            }
            return Ok(if check.is_done() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        let writer = Writer::new(client, NAME, "migrate", Leadership::alone(), false);
        let migrated = migrate::migrate::<Cache>(&writer).await?;
        println!("{} objects are written, {} were gone or newer", migrated.written, migrated.skipped);
        Ok(ExitCode::SUCCESS)
    }
}

impl WebhookArgs {
    /// Returns the source of the certificate of this replica.
    fn authority(&self, client: Client) -> Result<Authority, Box<dyn Error>> {
        if let Some((certificate, key)) = self.webhook_certificate.clone().zip(self.webhook_key.clone()) {
            return Ok(Authority::from_files(client, certificate, key, targets()));
        }
        let lifetimes = Lifetimes {
            authority: self.webhook_ca_lifetime.try_into()?,
            leaf: self.webhook_certificate_lifetime.try_into()?,
            ..Lifetimes::default()
        };
        let options = AuthorityOptions {
            namespace: self.webhook_namespace.clone(),
            secret: SECRET.to_owned(),
            names: self.webhook_name.clone(),
            lifetimes,
        };
        Ok(Authority::new(client, options, targets()))
    }
}

impl Operator {
    async fn remove_finalizers(&self) -> Result<ExitCode, Box<dyn Error>> {
        uninstall(NAME, &self.process, async |writer: &Writer| {
            let objects = objects(writer.client(), self.namespace.as_deref());
            for cache in remove_finalizer_in::<Cache>(writer, &objects, FINALIZER).await? {
                println!("{cache} has no finalizer");
            }
            Ok(())
        })
        .await?;
        Ok(ExitCode::SUCCESS)
    }
}
