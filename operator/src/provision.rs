//! Provisioners make machines. All have one trait.

pub mod external;
mod kwok;

pub use external::External;
pub use kwok::Kwok;

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A machine to be made: a unit that a slot holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The UID of the slot: a repeat of an order with the same one makes nothing more.
    pub id: String,
    /// The name for the node, where the provisioner is free to choose.
    pub name: String,
    pub instance_type: String,
    pub region: String,
    /// As the market names it, "type/region:provider#4".
    pub unit: String,
    /// What pods can use of such a node.
    pub allocatable: BTreeMap<String, Quantity>,
    /// Labels that a node of the type has by itself.
    pub labels: BTreeMap<String, String>,
}

/// How far a machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    /// On its way.
    Coming,
    /// It runs, and registers as this node.
    Running { node: String },
    /// It will not run.
    Failed { reason: String },
    /// There is none: it was never ordered, was ended, or is lost.
    Gone,
}

/// The labels that a kubelet gives its node by itself, besides its host's name: those that pods may ask for.
pub fn kubelet_labels(instance_type: &str) -> [(String, String); 3] {
    [
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("node.kubernetes.io/instance-type", instance_type),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
}

/// Makes and ends machines. Every call may be repeated.
///
/// A node arrives bare: with the labels that a kubelet gives itself and the taint `kubebid.io/unregistered`
/// (`NoExecute`), which the operator takes away when it gives the node its labels.
#[async_trait]
pub trait Provisioner: Send + Sync + fmt::Debug {
    /// Orders a machine, or says how far the one that was ordered is.
    async fn create(&self, order: &Order) -> Result<Machine, Fault>;

    /// Returns how far the machine of this order is.
    async fn get(&self, id: &str, node: &str) -> Result<Machine, Fault>;

    /// Ends the machine. One that is not there is ended.
    async fn delete(&self, id: &str, node: Option<&str>) -> Result<(), Fault>;
}

/// Why there is no answer about a machine.
#[derive(Debug, thiserror::Error)]
#[error("the provisioner cannot {doing}: {why}")]
pub struct Fault {
    pub doing: &'static str,
    pub why: String,
    /// The time that it wants to be left alone.
    pub retry_after: Option<Duration>,
}
