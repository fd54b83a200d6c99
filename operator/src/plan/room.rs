//! Room on a node: whether the scheduler would place a pod there.

use super::resources::{Resources, requests};
use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm, Taint, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::{Selector, SelectorExt as _};
use kube_quantity::ParsedQuantity;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A new node of a BidNode, as the scheduler would see it. Its instance type is not known before it is won.
#[derive(Clone, Debug)]
pub struct NodeTemplate {
    /// Its labels if it is of the first type, of the second one, and so on. A pod must suit all of them.
    pub labels: Vec<BTreeMap<String, String>>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// The resources that its type promises, whichever type it has: the least of each.
    pub promised: Resources,
    /// The resources that are left for pods on an empty node: what nodes of the type were found to have, without the requests of
    /// daemon sets.
    pub free: Resources,
    /// The number of GPUs that the pods for the node must request together, so that it is bid for.
    pub min_gpus: u32,
}

/// A node with its free resources and its pods.
#[derive(Clone, Debug)]
pub struct OpenNode {
    /// The name of the node.
    pub name: String,
    /// The resources that no pod requests.
    pub free: Resources,
    /// The pods on the node.
    pub pods: Vec<Arc<Pod>>,
    /// The number of pods on the node that are of no daemon set.
    pub moving_pods: usize,
    /// True if the node has had the same pods for so long that the scheduler has seen it as it is.
    pub is_settled: bool,
}

impl OpenNode {
    /// Returns the room on the node.
    pub fn room(&self) -> Room<'_> {
        Room { free: self.free.clone(), pods: self.pods.iter().map(AsRef::as_ref).collect() }
    }
}

/// The free resources of a node, and the pods on it.
#[derive(Clone, Debug, Default)]
pub struct Room<'a> {
    /// The resources that no pod requests.
    pub free: Resources,
    /// The pods on the node.
    pub pods: Vec<&'a Pod>,
}

impl<'a> Room<'a> {
    /// Places a pod, if its requests fit and nothing else forbids it: a host port, affinity, anti-affinity, or the spread over nodes.
    /// Returns whether it was placed.
    pub fn admit(&mut self, pod: &'a Pod, wanted: &Resources, spread: &Spread) -> bool {
        let keeps_away =
            |there: &&Pod| repels(pod, there) || repels(there, pod) || shares_host_port(pod, there);
        let admits =
            !self.pods.iter().any(keeps_away) && attracts(pod, &self.pods) && spread.allows(pod, &self.pods);
        let admits = admits && self.free.take(wanted);
        if admits {
            self.pods.push(pod);
        }
        admits
    }

    /// Returns the number of GPUs that its pods request.
    fn gpus(&self) -> ParsedQuantity {
        self.pods.iter().fold(ParsedQuantity::default(), |sum, pod| sum + requests(pod).gpus())
    }
}

/// Returns whether the pods of a new node request fewer GPUs than the BidNode demands.
pub fn is_gpu_short(room: &Room<'_>, min_gpus: u32) -> bool {
    let least = Quantity(min_gpus.to_string());
    room.gpus() < ParsedQuantity::try_from(&least).unwrap_or_default()
}

/// Returns whether all of these pods find room on these nodes. Their labels and taints are not compared.
pub fn fit<'a>(pods: impl IntoIterator<Item = &'a Pod>, nodes: &[Room<'a>]) -> bool {
    let mut nodes = nodes.to_vec();
    pods.into_iter().all(|pod| {
        let wanted = requests(pod);
        let spread = Spread::of(pod, nodes.iter());
        nodes.iter_mut().any(|node| node.admit(pod, &wanted, &spread))
    })
}

/// Returns whether the required anti-affinity of a pod forbids another pod on its node.
fn repels(pod: &Pod, other: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let terms = anti.and_then(|anti| anti.required_during_scheduling_ignored_during_execution.as_ref());
    terms.into_iter().flatten().any(|term| term.topology_key == HOSTNAME && selects(term, pod, other))
}

/// Returns whether the required affinity of a pod to pods of the same node allows it beside these. A pod that its own term
/// selects may be the first.
fn attracts(pod: &Pod, there: &[&Pod]) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let affinity = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let terms = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let mut terms = terms.into_iter().flatten().filter(|term| term.topology_key == HOSTNAME);
    terms.all(|term| selects(term, pod, pod) || there.iter().any(|other| selects(term, pod, other)))
}

/// Returns whether containers of two pods ask for the same port of the node.
fn shares_host_port(pod: &Pod, other: &Pod) -> bool {
    let theirs: BTreeSet<_> = host_ports(other).collect();
    host_ports(pod).any(|port| theirs.contains(&port))
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = (i32, &str)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.filter_map(|port| Some((port.host_port?, port.protocol.as_deref().unwrap_or("TCP"))))
}

/// The bounds of a pod's spread constraints: for each, the number of selected pods below which a node takes the pod.
#[derive(Clone, Debug, Default)]
pub struct Spread(Vec<(Selector, usize)>);

impl Spread {
    /// Returns the bounds for a pod among these nodes, by its constraints over nodes that must hold.
    pub fn of<'a, 'b: 'a>(pod: &Pod, nodes: impl Iterator<Item = &'a Room<'b>>) -> Spread {
        let constraints = pod.spec.iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
        let of_nodes: Vec<_> = constraints
            .filter(|it| it.topology_key == HOSTNAME && it.when_unsatisfiable == "DoNotSchedule")
            .collect();
        if of_nodes.is_empty() {
            return Spread::default();
        }
        let nodes: Vec<_> = nodes.collect();
        let bounds = of_nodes.into_iter().filter_map(|constraint| {
            let selector = Selector::try_from(constraint.label_selector.clone()?).ok()?;
            let too_few =
                constraint.min_domains.is_some_and(|least| nodes.len() < usize::try_from(least).unwrap_or(0));
            let least =
                nodes.iter().map(|node| selected(&selector, pod, &node.pods)).min().filter(|_| !too_few);
            let skew = usize::try_from(constraint.max_skew).unwrap_or(1);
            Some((selector, least.unwrap_or(0) + skew))
        });
        Spread(bounds.collect())
    }

    fn allows(&self, pod: &Pod, there: &[&Pod]) -> bool {
        self.0.iter().all(|(selector, most)| selected(selector, pod, there) < *most)
    }
}

/// Returns the number of pods in the namespace of a pod that a selector selects.
fn selected(selector: &Selector, pod: &Pod, there: &[&Pod]) -> usize {
    let is_selected = |other: &&&Pod| {
        other.metadata.namespace == pod.metadata.namespace
            && selector.matches(&other.metadata.labels.clone().unwrap_or_default())
    };
    there.iter().filter(is_selected).count()
}

fn selects(term: &PodAffinityTerm, pod: &Pod, other: &Pod) -> bool {
    let namespace = |pod: &Pod| pod.metadata.namespace.clone().unwrap_or_default();
    let named = term.namespaces.as_deref().unwrap_or_default();
    // The labels of namespaces are not known: a namespace selector is taken to select all namespaces.
    let in_reach = term.namespace_selector.is_some()
        || named.contains(&namespace(other))
        || named.is_empty() && namespace(pod) == namespace(other);
    let Some(selector) = term.label_selector.clone() else { return false };
    let Ok(selector) = Selector::try_from(selector) else { return false };
    in_reach && selector.matches(&other.metadata.labels.clone().unwrap_or_default())
}

/// The label of Kubernetes that has the host name of a node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Returns whether labels, affinity and taints allow the pod on such a node, whichever type it has.
pub fn suits(pod: &Pod, template: &NodeTemplate) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let selects = |labels: &BTreeMap<String, String>| {
        spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
    };
    let terms = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let is_affine = |labels: &BTreeMap<String, String>| {
        terms.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| term_holds(term, labels)))
    };
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let tolerated = template
        .taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)));
    tolerated && template.labels.iter().all(|labels| selects(labels) && is_affine(labels))
}

fn term_holds(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let by_name = term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty());
    !by_name && !expressions.is_empty() && expressions.iter().all(|expression| holds(expression, labels))
}

fn holds(expression: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&expression.key);
    let values = expression.values.as_deref().unwrap_or_default();
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
    match expression.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value).zip(number(values.first())).is_some_and(|(there, than)| there > than),
        "Lt" => number(value).zip(number(values.first())).is_some_and(|(there, than)| there < than),
        _ => false,
    }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().filter(|effect| !effect.is_empty());
    let key = toleration.key.as_deref().filter(|key| !key.is_empty());
    let exists = toleration.operator.as_deref() == Some("Exists");
    effect.is_none_or(|effect| effect == taint.effect)
        && match key {
            None => exists,
            Some(key) => {
                key == taint.key
                    && (exists
                        || toleration.value.as_deref().unwrap_or_default()
                            == taint.value.as_deref().unwrap_or_default())
            }
        }
}
