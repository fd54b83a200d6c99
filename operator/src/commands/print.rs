//! The commands that print: definitions, admission policies, and the contract of the external provisioner.

use super::labels::{LabelArgs, PoolArgs, domain};
use super::{Done, WEBHOOK_SERVICE, print};
use clap::{Args, Subcommand};
use kubebid_operator::crds::{self, CrdOptions, WebhookService};
use kubebid_operator::policy;
use kubebid_operator::provisioner::external;

/// Print the custom resource definitions
#[derive(Args)]
#[command(after_help = "\
Examples:
  kubebid-operator crds | kubectl apply -f -
  kubebid-operator crds --instance-types h200-8x,b200-8x | kubectl apply -f -
  kubebid-operator crds --reserved-label-domains example.com | kubectl apply -f -
  kubebid-operator crds --webhook | kubectl apply -f -               also v2beta1 of BidNode
  kubebid-operator crds --market | kubectl apply -f -")]
pub(crate) struct Crds {
    /// Print those of the market itself instead: InstanceType, Market, Account and Offer
    #[arg(long)]
    market: bool,
    /// Serve v2beta1 of BidNode, which the webhook of the operator converts
    #[arg(long, conflicts_with = "market")]
    webhook: bool,
    /// The namespace of the Service of the webhook
    #[arg(long, default_value = "kubebid-system", value_name = "NAMESPACE", requires = "webhook")]
    webhook_namespace: String,
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

impl Crds {
    pub(crate) fn run(self) -> Done {
        let yaml = if self.market { crds::market_yaml() } else { crds::yaml(&self.options()) };
        print(&yaml?)
    }

    fn options(self) -> CrdOptions {
        CrdOptions {
            instance_types: self.instance_types,
            reserved_label_domains: self.reserved_label_domains,
            pool_labels: self.pools.pool_labels,
            webhook: self.webhook.then_some(WebhookService {
                namespace: self.webhook_namespace,
                name: WEBHOOK_SERVICE.to_owned(),
            }),
        }
    }
}

/// Print admission policies
#[derive(Args)]
pub(crate) struct Policy {
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

impl Policy {
    pub(crate) fn run(&self) -> Done {
        let PolicyKind::Labels(policy) = &self.policy;
        print(&policy::labels_yaml(&policy.labels.options())?)
    }
}

/// Print the contract of `--provisioner external`, as OpenAPI 3.1
#[derive(Args)]
#[command(after_help = "\
Three calls: PUT, GET and DELETE of /v1/machines/{id}. Their server makes the machines.

Example:
  kubebid-operator provisioner-api > provisioner.json")]
pub(crate) struct ProvisionerApi {}

impl ProvisionerApi {
    pub(crate) fn run(&self) -> Done {
        print(&format!("{}\n", external::document().to_pretty_json()?))
    }
}
