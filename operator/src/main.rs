//! `kubebid-operator`: runs the operator, and prints its custom resource definitions and admission policies.

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use k8s_openapi::jiff::SignedDuration;
use kube::api::Api;
use kube::{Client, Resource as _, ResourceExt as _};
use kubebid_controller::leader_election::until_done;
use kubebid_controller::process::{self, ProcessArgs, Program};
use kubebid_controller::{Manager, Object, Writer, config_file, uninstall};
use kubebid_operator::api::{
    ANNOTATION_MANAGED_LABELS, BidNode, BidSlot, FINALIZER, NodePoolLabelSet, POOL_LABELS, PREVIOUS_SUFFIX,
};
use kubebid_operator::control::{self, LabelOptions, Options};
use kubebid_operator::crds::{self, CrdOptions};
use kubebid_operator::engine::Engine;
use kubebid_operator::market::{self, Account, InstanceType, Market, Offer};
use kubebid_operator::metrics::{self, ActiveNodes};
use kubebid_operator::plan::labels::LabelRules;
use kubebid_operator::plan::slot::Limits;
use kubebid_operator::policy;
use kubebid_operator::provisioner::external::{self, External, ExternalOptions};
use kubebid_operator::provisioner::{Kwok, Provisioner};
use std::error::Error;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// The Kubernetes operator of KubeBid: turns BidNodes into nodes by bidding for them, and labels the nodes of pools
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
    Policy(Policy),
    ProvisionerApi(ProvisionerApi),
    Uninstall(Uninstall),
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
  kubebid-operator run --controllers labels                      labels of node pools alone

Exit codes: 1 the cluster or a setting is at fault, 2 the command line is wrong, 3 another replica leads now.
KUBEBID_LOG says what is logged, as in `info` or `kubebid_operator=debug`.")]
struct Run {
    /// Engines of one exchange, tried in this order
    #[arg(long, env = "KUBEBID_ENDPOINTS", value_delimiter = ',', default_value = "http://127.0.0.1:7440")]
    endpoints: Vec<String>,
    /// A file with the token of the tenant that bids; read again when it changes. The controller of BidNodes needs it
    #[arg(long, env = "KUBEBID_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
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
    /// The controllers that run [default: bidnodes, and labels if NodePoolLabelSet is defined in the cluster]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES", help_heading = "Controllers")]
    controllers: Option<Vec<Controller>>,
    #[command(flatten)]
    labels: LabelArgs,
    #[command(flatten)]
    process: ProcessArgs,
}

/// A controller, or several that belong together.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Controller {
    /// Nodes by bidding: BidNodes and BidSlots
    Bidnodes,
    /// Labels of the nodes of pools: NodePoolLabelSets
    Labels,
    /// The market itself: InstanceTypes, Markets and Accounts; the token is an administrator's
    Markets,
    /// Supply: Offers; the token is a provider's
    Offers,
}

/// The settings of node pool labels.
#[derive(Args)]
struct LabelArgs {
    /// The namespace whose NodePoolLabelSets count
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "kubebid-system",
        help_heading = "Labels of node pools"
    )]
    label_set_namespace: String,
    #[command(flatten)]
    pools: PoolArgs,
    /// The annotation of a node with the keys that came from its set; the one beside it ends in -previous
    #[arg(long, value_name = "NAME", default_value = ANNOTATION_MANAGED_LABELS, value_parser = annotation, help_heading = "Labels of node pools")]
    managed_labels_annotation: String,
}

/// The labels that name a pool.
#[derive(Args)]
struct PoolArgs {
    /// The labels with the name of a node's pool: the first that has a value counts
    #[arg(long, value_delimiter = ',', value_name = "KEYS", default_values = POOL_LABELS, value_parser = label_key, help_heading = "Labels of node pools")]
    pool_labels: Vec<String>,
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
  kubebid-operator crds --instance-types h200-8x,b200-8x | kubectl apply -f -
  kubebid-operator crds --reserved-label-domains example.com | kubectl apply -f -
  kubebid-operator crds --market | kubectl apply -f -")]
struct Crds {
    /// Print those of the market itself instead: InstanceType, Market, Account and Offer
    #[arg(long)]
    market: bool,
    /// The instance types that a BidNode may name; an empty list for any
    #[arg(long, value_delimiter = ',', default_values = crds::INSTANCE_TYPES, num_args = 0..)]
    instance_types: Vec<String>,
    /// Domains whose labels a NodePoolLabelSet may not set, with their subdomains, besides kubernetes.io, k8s.io and
    /// kubebid.io
    #[arg(long, value_delimiter = ',', value_name = "DOMAINS", value_parser = domain)]
    reserved_label_domains: Vec<String>,
    #[command(flatten)]
    pools: PoolArgs,
}

/// Print admission policies
#[derive(Args)]
struct Policy {
    #[command(subcommand)]
    policy: PolicyKind,
}

#[derive(Subcommand)]
enum PolicyKind {
    Labels(LabelPolicy),
}

/// Print a MutatingAdmissionPolicy that puts the labels of NodePoolLabelSets into the first write of each Node
#[derive(Args)]
#[command(after_help = "\
It needs Kubernetes 1.36. No pod is bound to a node that has no labels yet. If the API server
cannot evaluate the policy, the operator labels the node a moment later. Nodes of BidNodes need no
policy: the operator labels them before pods can be bound to them.

Example:
  kubebid-operator policy labels | kubectl apply -f -")]
struct LabelPolicy {
    #[command(flatten)]
    labels: LabelArgs,
}

/// Print the contract of `--provisioner external`, as OpenAPI 3.1
#[derive(Args)]
#[command(after_help = "\
Three calls: PUT, GET and DELETE of /v1/machines/{id}. Their server makes the machines.

Example:
  kubebid-operator provisioner-api > provisioner.json")]
struct ProvisionerApi {}

/// Remove the operator's finalizers, so that its objects and definitions can be deleted without it
#[derive(Args)]
#[command(after_help = "\
End all replicas first. What the objects stand for stays: bids and nodes of BidNodes, offers at the
engine. To end these too, delete the objects and wait, while the operator still runs.

Examples:
  kubectl scale -n kubebid-system deployment/kubebid-operator --replicas 0
  kubebid-operator uninstall --dry-run                  which objects have a finalizer
  kubebid-operator uninstall")]
struct Uninstall {
    #[command(flatten)]
    process: ProcessArgs,
}

impl Uninstall {
    async fn run(self) -> Result<ExitCode, Box<dyn Error>> {
        uninstall::uninstall("kubebid-operator", &self.process, async |writer| {
            let external = "market.kubebid.io/external";
            let mut removed = 0;
            removed += without_finalizer::<BidNode>(writer, FINALIZER).await?;
            removed += without_finalizer::<BidSlot>(writer, FINALIZER).await?;
            removed += without_finalizer::<InstanceType>(writer, external).await?;
            removed += without_finalizer::<Market>(writer, external).await?;
            removed += without_finalizer::<Account>(writer, external).await?;
            removed += without_finalizer::<Offer>(writer, external).await?;
            println!("{removed} objects had a finalizer of the operator");
            Ok(())
        })
        .await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Removes a finalizer from all objects of a kind, and names them.
async fn without_finalizer<K: Object>(writer: &Writer, finalizer: &str) -> Result<usize, Box<dyn Error>> {
    let removed = uninstall::remove_finalizer::<K>(writer, finalizer).await?;
    for object in &removed {
        println!("{} {object}", K::kind(&()));
    }
    Ok(removed.len())
}

fn span(text: &str) -> Result<(u64, u64), String> {
    let (least, most) = text.split_once("..").ok_or("write it as in 500..3000")?;
    let parse = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    let (least, most) = (parse(least)?, parse(most)?);
    if least > most { Err(format!("{least} is more than {most}")) } else { Ok((least, most)) }
}

/// Parses the key of a label.
fn label_key(text: &str) -> Result<String, String> {
    let (prefix, name) = text.rsplit_once('/').unwrap_or(("a", text));
    domain(prefix)?;
    let is_name = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    let ends = |text: &str| text.starts_with(is_alphanumeric) && text.ends_with(is_alphanumeric);
    if name.len() <= 63 && ends(name) && name.chars().all(is_name) {
        Ok(text.to_owned())
    } else {
        Err("it is no key of a label".to_owned())
    }
}

/// Parses the name of an annotation that has another beside it.
fn annotation(text: &str) -> Result<String, String> {
    label_key(&format!("{text}{PREVIOUS_SUFFIX}"))?;
    Ok(text.to_owned())
}

/// Parses a DNS domain.
fn domain(text: &str) -> Result<String, String> {
    let is_part = |part: &str| {
        part.starts_with(is_alphanumeric)
            && part.ends_with(is_alphanumeric)
            && part.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-')
    };
    if text.len() <= 253 && text.split('.').all(is_part) {
        Ok(text.to_owned())
    } else {
        Err("it is no domain".to_owned())
    }
}

fn is_alphanumeric(it: char) -> bool {
    it.is_ascii_alphanumeric()
}

fn time(text: &str) -> Result<SignedDuration, String> {
    SignedDuration::try_from(process::time(text)?).map_err(|error| error.to_string())
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match config_file::parse::<Cli>("run", "KUBEBID_OPERATOR_").command {
        Command::Run(run) => run.run().await,
        Command::Crds(crds) => crds.yaml().and_then(|yaml| print(&yaml)),
        Command::Policy(Policy { policy: PolicyKind::Labels(policy) }) => {
            policy::labels_yaml(&policy.labels.options()).map_err(Into::into).and_then(|yaml| print(&yaml))
        }
        Command::ProvisionerApi(ProvisionerApi {}) => external::document()
            .to_pretty_json()
            .map_err(Into::into)
            .and_then(|json| print(&format!("{json}\n"))),
        Command::Uninstall(uninstall) => uninstall.run().await,
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
        Err(fault) if fault.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        written => Ok(written.map(|()| ExitCode::SUCCESS)?),
    }
}

impl Crds {
    fn yaml(self) -> Result<String, Box<dyn Error>> {
        let yaml = if self.market { crds::market_yaml() } else { crds::yaml(&self.options()) };
        Ok(yaml?)
    }

    fn options(self) -> CrdOptions {
        CrdOptions {
            instance_types: self.instance_types,
            reserved_label_domains: self.reserved_label_domains,
            pool_labels: self.pools.pool_labels,
        }
    }
}

impl LabelArgs {
    fn options(&self) -> LabelOptions {
        LabelOptions {
            namespace: self.label_set_namespace.clone(),
            rules: LabelRules::new(self.pools.pool_labels.clone(), &self.managed_labels_annotation),
        }
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
        let runs = |it: Controller| match &self.controllers {
            Some(controllers) => controllers.contains(&it),
            None => matches!(it, Controller::Bidnodes | Controller::Labels),
        };
        let trades = [Controller::Bidnodes, Controller::Markets, Controller::Offers];
        if trades.into_iter().any(runs) && self.token_file.is_none() {
            let missing = "these controllers call the engine, which needs --token-file <FILE>";
            Cli::command().error(ErrorKind::MissingRequiredArgument, missing).exit();
        }
        process::run(program, &self.process, async |manager| {
            let client = manager.client().clone();
            let cluster = if trades.into_iter().any(runs) {
                until_done("the cluster has no name", async || cluster_uid(&client).await).await
            } else {
                String::new()
            };
            let bidnodes = if runs(Controller::Bidnodes) {
                Some(self.options(manager, &cluster, &active_nodes)?)
            } else {
                None
            };
            if runs(Controller::Markets) {
                market::add_markets(manager, &self.engine_client()?, &cluster);
            }
            if runs(Controller::Offers) {
                let namespace = self.watch_namespace.as_deref();
                market::add_offers(manager, &self.engine_client()?, &cluster, namespace);
            }
            let labels = if runs(Controller::Labels) && self.labels_are_defined(&client).await? {
                Some(self.labels.options())
            } else {
                None
            };
            control::add(manager, bidnodes, labels, self.process.concurrency);
            Ok(())
        })
        .await
    }

    /// Returns whether NodePoolLabelSet is defined in the cluster. The operator does without it if nobody asked for it.
    async fn labels_are_defined(&self, client: &Client) -> Result<bool, Box<dyn Error>> {
        let version = NodePoolLabelSet::api_version(&());
        let asked = until_done("the cluster does not say what is defined", async || {
            match client.list_api_group_resources(&version).await {
                Ok(list) => Ok(list.resources.iter().any(|it| it.kind == NodePoolLabelSet::kind(&()))),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
                Err(error) => Err(error.to_string()),
            }
        });
        let is_defined = asked.await;
        let missing = "NodePoolLabelSet is not defined in the cluster: see kubebid-operator crds";
        if !is_defined && self.controllers.is_some() {
            return Err(missing.into());
        }
        if !is_defined {
            warn!("{missing}; the controller of labels does not run until the next start");
        }
        Ok(is_defined)
    }

    /// Returns a client of the engine.
    fn engine_client(&self) -> Result<kubebid_client::Client, Box<dyn Error>> {
        let mut client = kubebid_client::Client::builder()
            .endpoints(self.endpoints.iter().map(String::as_str))
            .token_file(self.token_file.clone().unwrap_or_default());
        if let Some(file) = &self.ca_file {
            client = client.ca_file(file);
        }
        Ok(client.build()?.with_deadline(Duration::from_secs(5)))
    }

    /// Returns what the operator works with while it leads.
    fn options(
        &self,
        manager: &Manager,
        cluster: &str,
        active_nodes: &Arc<ActiveNodes>,
    ) -> Result<Options, Box<dyn Error>> {
        let engine = Arc::new(Engine::new(self.engine_client()?, cluster.to_owned()));
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
