//! `kubebid-operator`: runs the operator, and prints its custom resource definitions.

use clap::{Args, Parser, Subcommand, ValueEnum};
use k8s_openapi::jiff::SignedDuration;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use kubebid_controller::Manager;
use kubebid_controller::leader_election::until_done;
use kubebid_controller::process::{self, ProcessArgs, Program};
use kubebid_operator::control::{self, Options};
use kubebid_operator::crds;
use kubebid_operator::engine::Engine;
use kubebid_operator::metrics::{self, ActiveNodes};
use kubebid_operator::plan::slot::Limits;
use kubebid_operator::provisioner::external::{self, External, ExternalOptions};
use kubebid_operator::provisioner::{Kwok, Provisioner};
use std::error::Error;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The Kubernetes operator of KubeBid: turns BidNodes into nodes by bidding for them
#[derive(Parser)]
#[command(name = "kubebid-operator", version, term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<Run>),
    Crds(Crds),
    ProvisionerApi(ProvisionerApi),
}

/// Run the operator
#[derive(Args)]
#[command(after_help = "\
The cluster is that of the Pod it runs in, or of the kubeconfig. At the engine it is one tenant: its token says which.

Examples:
  kubebid-operator run --endpoints https://market.example --token-file /run/secrets/kubebid/token
  kubebid-operator run --watch-namespace team-a --alone          beside a local market, for one namespace
  kubebid-operator run --provisioner external --provisioner-url https://machines.example \\
      --provisioner-token-file /run/secrets/machines/token       machines of the provider's own (see provisioner-api)

Exit codes: 1 the cluster or a setting is at fault, 2 the command line is wrong, 3 another replica leads now.
KUBEBID_LOG says what is logged, as in `info` or `kubebid_operator=debug`.")]
struct Run {
    /// Engines of one exchange, tried in this order
    #[arg(long, env = "KUBEBID_ENDPOINTS", value_delimiter = ',', default_value = "http://127.0.0.1:7440")]
    endpoints: Vec<String>,
    /// A file with the token of the tenant that bids; read again when it changes
    #[arg(long, env = "KUBEBID_TOKEN_FILE", value_name = "FILE")]
    token_file: PathBuf,
    /// A file with authorities to trust besides those of the system, as PEM
    #[arg(long, env = "KUBEBID_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The namespace of the BidNodes [default: all]
    #[arg(long, value_name = "NAMESPACE")]
    watch_namespace: Option<String>,
    /// The provisioner, which makes the machines
    #[arg(long, env = "KUBEBID_PROVISIONER", value_enum, default_value = "kwok")]
    provisioner: ProvisionerKind,
    /// The time that a machine of KWOK takes to come, at least and at most, in milliseconds
    #[arg(long, value_name = "LEAST..MOST", default_value = "500..3000", value_parser = span)]
    kwok_delay_ms: (u64, u64),
    /// The address of the provider's server, for `--provisioner external`
    #[arg(
        long,
        env = "KUBEBID_PROVISIONER_URL",
        value_name = "URL",
        required_if_eq("provisioner", "external"),
        help_heading = "External provisioner"
    )]
    provisioner_url: Option<String>,
    /// A file with the bearer token for that server; read for every call
    #[arg(
        long,
        env = "KUBEBID_PROVISIONER_TOKEN_FILE",
        value_name = "FILE",
        help_heading = "External provisioner"
    )]
    provisioner_token_file: Option<PathBuf>,
    /// A file with authorities to trust for that server besides those of the system, as PEM
    #[arg(
        long,
        env = "KUBEBID_PROVISIONER_CA_FILE",
        value_name = "FILE",
        help_heading = "External provisioner"
    )]
    provisioner_ca_file: Option<PathBuf>,
    /// The longest time for a machine to come, and then for its node to be ready, before both are given back, as in 15m
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = time, help_heading = "Limits")]
    machine_within: SignedDuration,
    /// The longest time for the pods of a node that is given up without a notice to leave
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = time, help_heading = "Limits")]
    drain_within: SignedDuration,
    /// The time for which the unit of a node that vanished is kept, unless its provider says that it is lost
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = time, help_heading = "Limits")]
    vanished_for: SignedDuration,
    /// The time after which a bid that the engine does not know is placed again
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = time, help_heading = "Limits")]
    unknown_for: SignedDuration,
    #[command(flatten)]
    process: ProcessArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum ProvisionerKind {
    /// Node objects that KWOK brings to life: for local markets and tests
    Kwok,
    /// The provider's own server, over HTTP: `kubebid-operator provisioner-api` prints the contract
    External,
}

/// Print the custom resource definitions
#[derive(Args)]
#[command(after_help = "\
Examples:
  kubebid-operator crds | kubectl apply -f -
  kubebid-operator crds --instance-types h200-8x,b200-8x | kubectl apply -f -")]
struct Crds {
    /// The instance types that a BidNode may name; an empty list for any
    #[arg(long, value_delimiter = ',', default_values = crds::INSTANCE_TYPES, num_args = 0..)]
    instance_types: Vec<String>,
}

/// Print the contract of `--provisioner external`, as OpenAPI 3.1
#[derive(Args)]
#[command(after_help = "\
Three calls: PUT, GET and DELETE of /v1/machines/{id}. Their server makes the machines.

Example:
  kubebid-operator provisioner-api > provisioner.json")]
struct ProvisionerApi {}

fn span(text: &str) -> Result<(u64, u64), String> {
    let (least, most) = text.split_once("..").ok_or("write it as in 500..3000")?;
    let parse = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    let (least, most) = (parse(least)?, parse(most)?);
    if least > most { Err(format!("{least} is more than {most}")) } else { Ok((least, most)) }
}

fn time(text: &str) -> Result<SignedDuration, String> {
    SignedDuration::try_from(process::time(text)?).map_err(|error| error.to_string())
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(run) => run.run().await,
        Command::Crds(crds) => {
            crds::yaml(&crds.instance_types).map_err(Into::into).and_then(|yaml| print(&yaml))
        }
        Command::ProvisionerApi(ProvisionerApi {}) => external::document()
            .to_pretty_json()
            .map_err(Into::into)
            .and_then(|json| print(&format!("{json}\n"))),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

/// Writes to standard output. A reader that goes away, as `head` does, is no error.
fn print(text: &str) -> Result<ExitCode, Box<dyn Error>> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(fault) if fault.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        written => Ok(written.map(|()| ExitCode::SUCCESS)?),
    }
}

impl Run {
    async fn run(self) -> Result<ExitCode, Box<dyn Error>> {
        let active_nodes = Arc::<ActiveNodes>::default();
        let rendered = Arc::clone(&active_nodes);
        let program = Program {
            name: "kubebid-operator",
            log_variable: "KUBEBID_LOG",
            metrics: metrics::install()?,
            more_metrics: Arc::new(move || rendered.render()),
            // A slot that fails has most likely been refused by the engine, which is asked again with care.
            backoff: Duration::from_millis(400)..=Duration::from_secs(60),
            on_pass: metrics::reconciled,
        };
        process::run(program, &self.process, async |manager| {
            let client = manager.client().clone();
            let asked = until_done("the cluster has no name", async || cluster_uid(&client).await);
            let options = self.options(manager, &asked.await, &active_nodes)?;
            control::add(manager, options, self.process.concurrency);
            Ok(())
        })
        .await
    }

    /// Returns what the operator works with while it leads.
    fn options(
        &self,
        manager: &Manager,
        cluster: &str,
        active_nodes: &Arc<ActiveNodes>,
    ) -> Result<Options, Box<dyn Error>> {
        let mut client_of_engine = kubebid_client::Client::builder()
            .endpoints(self.endpoints.iter().map(String::as_str))
            .token_file(&self.token_file);
        if let Some(file) = &self.ca_file {
            client_of_engine = client_of_engine.ca_file(file);
        }
        let client_of_engine = client_of_engine.build()?.with_deadline(Duration::from_secs(5));
        let engine = Arc::new(Engine::new(client_of_engine, cluster.to_owned()));
        let provisioner: Arc<dyn Provisioner> = match self.provisioner {
            ProvisionerKind::Kwok => {
                let (least, most) = self.kwok_delay_ms;
                let delay = Duration::from_millis(least)..=Duration::from_millis(most);
                Arc::new(Kwok::new(manager.writer("kwok"), delay))
            }
            ProvisionerKind::External => Arc::new(External::new(ExternalOptions {
                url: self.provisioner_url.clone().unwrap_or_default(),
                token_file: self.provisioner_token_file.clone(),
                ca_file: self.provisioner_ca_file.clone(),
            })?),
        };
        Ok(Options {
            engine,
            provisioner,
            active_nodes: Arc::clone(active_nodes),
            namespace: self.watch_namespace.clone(),
            limits: Limits {
                machine: self.machine_within,
                drain: self.drain_within,
                vanished: self.vanished_for,
                unknown: self.unknown_for,
                ..Limits::default()
            },
        })
    }
}

/// Returns the name of the cluster: the UID of its `kube-system` namespace.
async fn cluster_uid(client: &Client) -> Result<String, String> {
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let system = tokio::time::timeout(Duration::from_secs(5), namespaces.get("kube-system")).await;
    let system = system.map_err(|_| "no answer within 5 s")?.map_err(|error| error.to_string())?;
    system.uid().ok_or_else(|| "kube-system has no UID".to_owned())
}
