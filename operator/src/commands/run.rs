//! `run`: runs the controllers, and the webhook that converts BidNodes.

use super::labels::LabelArgs;
use super::{Done, PROGRAM, WEBHOOK_SECRET, WEBHOOK_SERVICE, lease_namespace};
use crate::Cli;
use bytes::Bytes;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, ValueEnum};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::SignedDuration;
use kube::api::Api;
use kube::{Client, CustomResourceExt as _, Resource as _, ResourceExt as _};
use kubebid_controller::leader_election::until_done;
use kubebid_controller::output;
use kubebid_controller::process::{ProcessArgs, Program};
use kubebid_controller::{Manager, api_error};
use kubebid_operator::allowed_types::AllowedTypes;
use kubebid_operator::api::{BidNode, NodePoolLabelSet};
use kubebid_operator::control::{self, Options};
use kubebid_operator::conversion::conversions;
use kubebid_operator::engine::Engine;
use kubebid_operator::journal::JournalOptions;
use kubebid_operator::market;
use kubebid_operator::metrics::{self, BidNodeMetrics};
use kubebid_operator::plan::slot::Limits;
use kubebid_operator::provisioner::external::{External, ExternalOptions};
use kubebid_operator::provisioner::{Kwok, Provisioner};
use kubebid_webhook::authority::Target;
use kubebid_webhook::process::{self, Service, WebhookArgs};
use kubebid_webhook::server::Webhooks;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// The most bytes of a file to set nodes up with, as the engine accepts them.
const NODE_CONFIG_MAX_BYTES: usize = 16 * 1024;

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
#[command(mut_arg("lease_namespace", lease_namespace))]
pub(crate) struct Run {
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
    /// A file to set nodes up with, at most 16 KiB, as user data of cloud-init: for the provider of each node, and for
    /// the provisioner
    #[arg(long, env = "KUBEBID_NODE_CONFIG", value_name = "FILE")]
    node_config: Option<PathBuf>,
    /// The longest time for a machine to come, and then for its node to be ready, before both are given back, as in 15m
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = time, help_heading = "Limits")]
    machine_within: SignedDuration,
    /// The longest time for the pods of a node that is given up without a notice to leave
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = time, help_heading = "Limits")]
    drain_within: SignedDuration,
    /// The time for which the unit of a node that vanished is kept, unless its provider says that it is lost
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = time, help_heading = "Limits")]
    vanished_for: SignedDuration,
    /// The time after which a node whose bid the engine does not know is given up and bid for again, a fifth of all at a time
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time, help_heading = "Limits")]
    unknown_for: SignedDuration,
    /// The identity of the engine's journal, if it is another one than the operator remembers: nodes whose bids it does not know are
    /// given up only after that
    #[arg(long, value_name = "UUID", help_heading = "Limits")]
    accept_journal: Option<String>,
    /// The time for which a bid that pods need waits, before the next BidNode that they fit bids instead
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = time, help_heading = "Limits")]
    next_pool_after: SignedDuration,
    /// The controllers that run [default: bidnodes, and labels if NodePoolLabelSet is defined in the cluster]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES", help_heading = "Controllers")]
    controllers: Option<Vec<Controller>>,
    #[command(flatten)]
    labels: LabelArgs,
    #[command(flatten)]
    webhooks: WebhookArgs,
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

#[derive(Clone, Copy, ValueEnum)]
enum ProvisionerKind {
    /// Node objects that KWOK brings to life: for local markets and tests
    Kwok,
    /// The provider's own server, over HTTP: `kubebid-operator provisioner-api` prints the contract
    External,
}

impl Run {
    pub(crate) async fn run(&self) -> Done {
        let bidnode_metrics = Arc::<BidNodeMetrics>::default();
        let rendered = Arc::clone(&bidnode_metrics);
        let program = Program {
            name: PROGRAM,
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
            output::exit(&Cli::command().error(ErrorKind::MissingRequiredArgument, missing));
        }
        let service = Service {
            name: WEBHOOK_SERVICE,
            secret: WEBHOOK_SECRET,
            targets: vec![Target::Definition(BidNode::crd_name().to_owned())],
            webhooks: |_| Webhooks::new().conversions(conversions()),
        };
        process::run(program, &self.process, &self.webhooks, service, async |manager| {
            let client = manager.client().clone();
            let cluster = if trades.into_iter().any(runs) {
                until_done("the cluster has no name", async || cluster_uid(&client).await).await
            } else {
                String::new()
            };
            let bidnodes = if runs(Controller::Bidnodes) {
                let allowed_types = AllowedTypes::follow(manager).await;
                Some(self.options(manager, &cluster, &bidnode_metrics, allowed_types)?)
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
                Err(error) if api_error::is_not_found(&error) => Ok(false),
                Err(error) => Err(api_error::message(&error)),
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

    /// Returns where the journal of the engine is remembered: beside the Lease, if there is one.
    fn journal_options(&self, manager: &Manager) -> JournalOptions {
        let lease_namespace = self.process.lease_namespace(manager.client());
        let own = self.watch_namespace.as_deref().filter(|_| self.process.alone);
        let lease = self.process.lease_name.as_deref().unwrap_or(PROGRAM);
        JournalOptions {
            namespace: own.unwrap_or(lease_namespace).to_owned(),
            name: format!("{lease}-journal"),
            accepted: self.accept_journal.clone(),
        }
    }

    /// Returns the content of the file to set nodes up with.
    fn node_config(&self) -> Result<Option<Bytes>, String> {
        let Some(path) = &self.node_config else { return Ok(None) };
        let content = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        match content.len() {
            bytes if bytes > NODE_CONFIG_MAX_BYTES => {
                Err(format!("{} has {bytes} bytes; {NODE_CONFIG_MAX_BYTES} are allowed", path.display()))
            }
            _ => Ok(Some(content.into())),
        }
    }

    /// Returns what the operator works with while it leads.
    fn options(
        &self,
        manager: &Manager,
        cluster: &str,
        bidnode_metrics: &Arc<BidNodeMetrics>,
        allowed_types: AllowedTypes,
    ) -> Result<Options, Box<dyn Error>> {
        let node_config = self.node_config()?;
        let engine = Engine::new(self.engine_client()?, cluster.to_owned());
        let engine = Arc::new(engine.with_node_config(node_config.clone().unwrap_or_default()));
        let provisioner: Arc<dyn Provisioner> = match self.provisioner {
            ProvisionerKind::Kwok => {
                let (least, most) = self.kwok_delay_ms;
                let delay = Duration::from_millis(least)..=Duration::from_millis(most);
                Arc::new(Kwok::new(manager.writer("kwok"), delay))
            }
            ProvisionerKind::External => {
                let external = External::new(ExternalOptions {
                    url: self.provisioner_url.clone().unwrap_or_default(),
                    token_file: self.provisioner_token_file.clone(),
                    ca_file: self.provisioner_ca_file.clone(),
                })?;
                Arc::new(external.with_node_config(node_config))
            }
        };
        Ok(Options {
            engine,
            provisioner,
            bidnode_metrics: Arc::clone(bidnode_metrics),
            namespace: self.watch_namespace.clone(),
            limits: Limits {
                machine: self.machine_within,
                drain: self.drain_within,
                vanished: self.vanished_for,
                unknown: self.unknown_for,
                next_pool: self.next_pool_after,
                ..Limits::default()
            },
            journal: self.journal_options(manager),
            allowed_types,
        })
    }
}

/// Returns the name of the cluster: the UID of its `kube-system` namespace.
async fn cluster_uid(client: &Client) -> Result<String, String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let system = tokio::time::timeout(Duration::from_secs(5), namespaces.get("kube-system")).await;
    let system = system.map_err(|_| "no answer within 5 s")?.map_err(|error| error.to_string())?;
    system.uid().ok_or_else(|| "kube-system has no UID".to_owned())
}

fn span(text: &str) -> Result<(u64, u64), String> {
    let (least, most) = text.split_once("..").ok_or("write it as in 500..3000")?;
    let parse = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    let (least, most) = (parse(least)?, parse(most)?);
    if least > most { Err(format!("{least} is more than {most}")) } else { Ok((least, most)) }
}

fn time(text: &str) -> Result<SignedDuration, String> {
    SignedDuration::try_from(kubebid_controller::process::time(text)?).map_err(|error| error.to_string())
}
