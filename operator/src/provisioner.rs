//! Provisioners: they make and end the machines that nodes run on. All implement one trait.

pub mod external;
mod kwok;

pub use external::External;
pub use kwok::Kwok;

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubebid_client::v1;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// An order of a machine for a unit that a slot holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The UID of the slot. A repeated order with the same id makes no second machine.
    pub id: String,
    /// The name for the node, if the provisioner can choose it.
    pub name: String,
    /// The instance type.
    pub instance_type: String,
    /// The region.
    pub region: String,
    /// The unit, as in `h100-8x/eu-west:acme#4`.
    pub unit: String,
    /// The resources that pods can use on such a node.
    pub allocatable: BTreeMap<String, Quantity>,
    /// The labels that a node of the type has by itself.
    pub labels: BTreeMap<String, String>,
}

/// The state of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    /// The machine is being made.
    Coming,
    /// The machine runs.
    Running {
        /// The name of the node that it registers as.
        node: String,
    },
    /// The machine will not run.
    Failed {
        /// The reason, for people.
        reason: String,
    },
    /// There is no machine: it was never ordered, was ended, or is lost.
    Gone,
}

/// Returns the labels that a kubelet gives its node by itself, without the host name.
pub fn kubelet_labels(instance_type: &str) -> [(String, String); 3] {
    [
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("node.kubernetes.io/instance-type", instance_type),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
}

/// Returns the name for the node of a slot, for provisioners that can choose it.
pub(crate) fn node_name(slot: &str, uid: &str) -> String {
    format!("{slot}-{}", uid.get(..5).unwrap_or_default())
}

/// Makes and ends machines. Every call is idempotent.
///
/// A node registers with the labels that a kubelet gives itself and with the taint `kubebid.io/unregistered` (`NoExecute`),
/// which the operator removes when it gives the node its labels.
#[async_trait]
pub trait Provisioner: Send + Sync + fmt::Debug {
    /// Orders a machine, or returns the state of the machine that was ordered.
    async fn create(&self, order: &Order) -> Result<Machine, Fault>;

    /// Returns the state of the machine of this order. `node` is the name of its node.
    async fn get(&self, id: &str, node: &str) -> Result<Machine, Fault>;

    /// Returns the way to reach the machine of this order, if the provisioner knows one.
    async fn access(&self, _id: &str) -> Result<Option<v1::NodeAccess>, Fault> {
        Ok(None)
    }

    /// Ends the machine. A machine that does not exist is ended.
    async fn delete(&self, id: &str, node: Option<&str>) -> Result<(), Fault>;
}

/// A call that a provisioner did not answer, or refused.
#[derive(Debug, thiserror::Error)]
#[error("the provisioner cannot {doing}: {why}")]
pub struct Fault {
    /// The purpose of the call, as in "order a machine".
    pub doing: &'static str,
    /// The error message.
    pub why: String,
    /// The least time before the next call, if the provisioner asks for one.
    pub retry_after: Option<Duration>,
}
