//! KWOK provisioner: makes Node objects without machines, for local markets and tests.

use super::{Fault, Machine, Order, Provisioner, kubelet_labels};
use crate::api::TAINT_UNREGISTERED;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use kube::ResourceExt as _;
use kube::api::{Api, ObjectMeta};
use kubebid_controller::Writer;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The annotation of a node with the id of the order that it was made for.
const ANNOTATION_ORDER: &str = "kubebid.io/order";

/// Makes Node objects, each after a random delay.
#[derive(Debug)]
pub struct Kwok {
    nodes: Api<Node>,
    writer: Writer,
    delay: RangeInclusive<Duration>,
    coming: Mutex<BTreeMap<String, Instant>>,
}

impl Kwok {
    /// Creates a provisioner whose nodes come after a random delay from this range.
    pub fn new(writer: Writer, delay: RangeInclusive<Duration>) -> Self {
        Kwok { nodes: Api::all(writer.client().clone()), writer, delay, coming: Mutex::default() }
    }

    /// Returns whether the machine has been on its way for long enough.
    fn has_come(&self, id: &str) -> bool {
        let (least, most) = (*self.delay.start(), *self.delay.end());
        let delay = least + most.saturating_sub(least).mul_f64(fastrand::f64());
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        *coming.entry(id.to_owned()).or_insert_with(|| Instant::now() + delay) <= Instant::now()
    }
}

fn fault<E: Display>(doing: &'static str) -> impl FnOnce(E) -> Fault {
    move |error| Fault { doing, why: error.to_string(), retry_after: None }
}

fn is_of(node: &Node, id: &str) -> bool {
    node.annotations().get(ANNOTATION_ORDER).is_some_and(|order| order == id)
}

#[async_trait]
impl Provisioner for Kwok {
    async fn create(&self, order: &Order) -> Result<Machine, Fault> {
        if !self.has_come(&order.id) {
            return Ok(Machine::Coming);
        }
        let running = Machine::Running { node: order.name.clone() };
        if self.writer.create(&bare(order)).await.map_err(fault("make a node"))?.is_some() {
            return Ok(running);
        }
        Ok(match self.nodes.get_opt(&order.name).await.map_err(fault("look for a node"))? {
            Some(node) if is_of(&node, &order.id) => running,
            Some(_) => {
                Machine::Failed { reason: format!("there is another node with the name {}", order.name) }
            }
            None => Machine::Coming,
        })
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
        self.writer.delete(&node).await.map_err(fault("delete a node"))
    }
}

/// Returns the node as its kubelet would register it.
fn bare(order: &Order) -> Node {
    let mut labels = order.labels.clone();
    labels.insert("kubernetes.io/hostname".to_owned(), order.name.clone());
    labels.extend(kubelet_labels(&order.instance_type));
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
            capacity: Some(order.allocatable.clone()),
            allocatable: Some(order.allocatable.clone()),
            ..NodeStatus::default()
        }),
    }
}
