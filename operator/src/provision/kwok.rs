//! Machines of KWOK: a Node object, and nothing behind it.

use super::{Fault, Machine, Order, Provisioner};
use crate::api::TAINT_UNREGISTERED;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// On a node: the order that it was made for.
const ANNOTATION_ORDER: &str = "kubebid.io/order";

/// Makes Node objects, each after a random delay.
#[derive(Debug)]
pub struct Kwok {
    nodes: Api<Node>,
    delay: RangeInclusive<Duration>,
    coming: Mutex<BTreeMap<String, Instant>>,
}

impl Kwok {
    pub fn new(client: Client, delay: RangeInclusive<Duration>) -> Self {
        Kwok { nodes: Api::all(client), delay, coming: Mutex::default() }
    }

    /// Whether the machine has been on its way for long enough.
    fn has_come(&self, id: &str) -> bool {
        let (least, most) = (*self.delay.start(), *self.delay.end());
        let delay = least + most.saturating_sub(least).mul_f64(fastrand::f64());
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        let come = *coming.entry(id.to_owned()).or_insert_with(|| Instant::now() + delay) <= Instant::now();
        if come {
            coming.remove(id);
        }
        come
    }
}

fn fault(doing: &'static str) -> impl FnOnce(kube::Error) -> Fault {
    move |error| Fault { doing, why: error.to_string() }
}

fn is_of(node: &Node, id: &str) -> bool {
    node.annotations().get(ANNOTATION_ORDER).is_some_and(|order| order == id)
}

#[async_trait]
impl Provisioner for Kwok {
    async fn create(&self, order: &Order) -> Result<Machine, Fault> {
        let there = self.nodes.get_opt(&order.name).await.map_err(fault("look for a node"))?;
        let running = || Machine::Running { node: order.name.clone() };
        match there {
            Some(node) if is_of(&node, &order.id) => return Ok(running()),
            Some(_) => {
                let reason = format!("there is another node with the name {}", order.name);
                return Ok(Machine::Failed { reason });
            }
            None => {}
        }
        if !self.has_come(&order.id) {
            return Ok(Machine::Coming);
        }
        match self.nodes.create(&PostParams::default(), &bare(order)).await {
            Ok(_) => Ok(running()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Machine::Coming),
            Err(error) => Err(fault("make a node")(error)),
        }
    }

    async fn get(&self, id: &str, node: &str) -> Result<Machine, Fault> {
        let there = self.nodes.get_opt(node).await.map_err(fault("look for a node"))?;
        Ok(match there {
            Some(node) if is_of(&node, id) => Machine::Running { node: node.name_any() },
            Some(_) | None => Machine::Gone,
        })
    }

    async fn delete(&self, id: &str, node: Option<&str>) -> Result<(), Fault> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        let Some(name) = node else { return Ok(()) };
        let there = self.nodes.get_opt(name).await.map_err(fault("look for a node"))?;
        let Some(node) = there.filter(|node| is_of(node, id)) else { return Ok(()) };
        let preconditions = Preconditions { uid: node.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.nodes.delete(name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(error) => Err(fault("delete a node")(error)),
        }
    }
}

/// The node as its kubelet would register it.
fn bare(order: &Order) -> Node {
    let mut labels = order.labels.clone();
    for (key, value) in [
        ("kubernetes.io/hostname", order.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("node.kubernetes.io/instance-type", order.instance_type.as_str()),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    let mut allocatable = order.allocatable.clone();
    allocatable
        .entry("pods".to_owned())
        .or_insert_with(|| k8s_openapi::apimachinery::pkg::api::resource::Quantity("110".to_owned()));
    let annotations = [(ANNOTATION_ORDER, order.id.as_str()), ("kwok.x-k8s.io/node", "fake")];
    Node {
        metadata: ObjectMeta {
            name: Some(order.name.clone()),
            labels: Some(labels),
            annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(format!("kubebid://{}", order.unit)),
            taints: Some(vec![Taint {
                key: TAINT_UNREGISTERED.to_owned(),
                effect: "NoExecute".to_owned(),
                ..Taint::default()
            }]),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            capacity: Some(allocatable.clone()),
            allocatable: Some(allocatable),
            ..NodeStatus::default()
        }),
    }
}
