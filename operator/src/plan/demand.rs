//! Counts the nodes that pods need because no node has room for them, much as the scheduler would.

use k8s_openapi::api::core::v1::{
    Container, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm, Taint, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::{Selector, SelectorExt as _};
use kube_quantity::ParsedQuantity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Quantities by the name of the resource, as in `nvidia.com/gpu`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources(BTreeMap<String, ParsedQuantity>);

impl Resources {
    /// Parses the quantities. One that cannot be parsed is left out.
    pub fn parse<'a>(quantities: impl IntoIterator<Item = (&'a String, &'a Quantity)>) -> Self {
        let parsed = quantities.into_iter().filter_map(|(name, quantity)| {
            ParsedQuantity::try_from(quantity).ok().map(|quantity| (name.clone(), quantity))
        });
        Resources(parsed.collect())
    }

    /// Subtracts the quantities, if there is enough of each. Returns whether there was.
    fn take(&mut self, wanted: &Resources) -> bool {
        let nothing = ParsedQuantity::default();
        let fits = wanted.0.iter().all(|(name, amount)| {
            *amount <= nothing || self.0.get(name).is_some_and(|there| amount <= there)
        });
        if fits {
            for (name, amount) in &wanted.0 {
                if let Some(there) = self.0.get_mut(name) {
                    *there -= amount.clone();
                }
            }
        }
        fits
    }

    fn add(&mut self, other: &Resources) {
        for (name, amount) in &other.0 {
            let sum = self.0.remove(name).unwrap_or_default() + amount.clone();
            self.0.insert(name.clone(), sum);
        }
    }

    fn at_least(&mut self, other: &Resources) {
        for (name, amount) in &other.0 {
            let there = self.0.entry(name.clone()).or_insert_with(|| amount.clone());
            if *there < *amount {
                *there = amount.clone();
            }
        }
    }

    /// Returns what each of several nodes has at least: the least of each resource.
    pub fn smallest(nodes: impl IntoIterator<Item = Resources>) -> Resources {
        let least = nodes.into_iter().reduce(|mut least, node| {
            least.0.retain(|name, _| node.0.contains_key(name));
            for (name, amount) in &mut least.0 {
                if let Some(other) = node.0.get(name).filter(|other| *other < amount) {
                    *amount = other.clone();
                }
            }
            least
        });
        least.unwrap_or_default()
    }

    /// Returns the number of GPUs of any vendor.
    fn gpus(&self) -> ParsedQuantity {
        let gpus = self.0.iter().filter(|(name, _)| name.ends_with("/gpu")).map(|(_, amount)| amount.clone());
        gpus.fold(ParsedQuantity::default(), |sum, amount| sum + amount)
    }

    /// Returns what is left of a node's resources with these pods on it.
    pub fn without<'a>(mut self, pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        for pod in pods {
            for (name, amount) in requests(pod).0 {
                if let Some(there) = self.0.get_mut(&name) {
                    *there -= amount;
                }
            }
        }
        self
    }
}

/// A new node of a BidNode, as the scheduler would see it. Its instance type is not known before it is won.
#[derive(Clone, Debug)]
pub struct NodeTemplate {
    /// Its labels if it is of the first type, of the second one, and so on. A pod must suit all of them.
    pub labels: Vec<BTreeMap<String, String>>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Its allocatable resources, whichever type it has: the least of each.
    pub free: Resources,
    /// The number of GPUs that the pods for the node must request together, so that it is bid for.
    pub min_gpus: u32,
}

/// A node that takes pods, with its free resources and its pods.
#[derive(Clone, Debug)]
pub struct OpenNode {
    /// The resources that no pod requests.
    pub free: Resources,
    /// The pods on the node.
    pub pods: Vec<Arc<Pod>>,
}

impl OpenNode {
    /// Returns the room on the node.
    pub fn room(&self) -> Room<'_> {
        Room { free: self.free.clone(), pods: self.pods.iter().map(AsRef::as_ref).collect() }
    }
}

/// The pods that may need nodes of a BidNode.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    /// The pods that the scheduler finds no node for.
    pub unschedulable: Vec<Arc<Pod>>,
    /// The pods on nodes that the market takes.
    pub displaced: Vec<Arc<Pod>>,
    /// All pods of the controllers of displaced pods that are terminating.
    pub siblings: Vec<Arc<Pod>>,
    /// A new node of the BidNode, if the engine has said what it would be.
    pub template: Option<NodeTemplate>,
    /// The allocatable resources of nodes that are won and do not take pods yet. They are those of the type that was won.
    pub coming: Vec<Resources>,
}

impl Demand {
    /// Returns the pods that need room.
    pub fn pods(&self) -> Vec<&Pod> {
        let unschedulable: Vec<_> = self.unschedulable.iter().map(AsRef::as_ref).collect();
        let displaced: Vec<_> = self.displaced.iter().map(AsRef::as_ref).collect();
        pods_to_place(&unschedulable, &displaced, &self.siblings)
    }

    /// Returns the number of nodes that the pods need besides these ready ones, those that are coming included; `None` if it
    /// is not known what a node of the BidNode would be.
    pub fn nodes_needed(&self, ready: &[Room<'_>]) -> Option<usize> {
        let pods = self.pods();
        if pods.is_empty() {
            return Some(0);
        }
        Some(nodes_needed(pods, self.template.as_ref()?, ready, &self.coming))
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
    /// Places a pod, if its requests fit and no anti-affinity forbids it. Returns whether it was placed.
    fn admit(&mut self, pod: &'a Pod, wanted: &Resources) -> bool {
        let admits = !self.pods.iter().any(|there| repels(pod, there) || repels(there, pod));
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

/// Returns the number of nodes for the pods that do not fit on the ready nodes, by first fit: on the nodes that are coming,
/// and then on new ones.
pub fn nodes_needed<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    template: &NodeTemplate,
    ready: &[Room<'a>],
    coming: &[Resources],
) -> usize {
    let mut nodes = ready.to_vec();
    nodes.extend(coming.iter().map(|free| Room { free: free.clone(), pods: Vec::new() }));
    for pod in pods.into_iter().filter(|pod| suits(pod, template)) {
        let wanted = requests(pod);
        if nodes.iter_mut().any(|node| node.admit(pod, &wanted)) {
            continue;
        }
        let mut fresh = Room { free: template.free.clone(), pods: Vec::new() };
        if fresh.admit(pod, &wanted) {
            nodes.push(fresh);
        }
    }
    let least = Quantity(template.min_gpus.to_string());
    let least = ParsedQuantity::try_from(&least).unwrap_or_default();
    let used = nodes.iter().skip(ready.len()).filter(|node| !node.pods.is_empty());
    used.filter(|node| node.gpus() >= least).count()
}

/// Returns whether all of these pods find room on these nodes. Their labels and taints are not compared.
pub fn fit<'a>(pods: impl IntoIterator<Item = &'a Pod>, nodes: &[Room<'a>]) -> bool {
    let mut nodes = nodes.to_vec();
    pods.into_iter().all(|pod| {
        let wanted = requests(pod);
        nodes.iter_mut().any(|node| node.admit(pod, &wanted))
    })
}

/// Returns whether the required anti-affinity of a pod forbids another pod on its node.
fn repels(pod: &Pod, other: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let terms = anti.and_then(|anti| anti.required_during_scheduling_ignored_during_execution.as_ref());
    terms.into_iter().flatten().any(|term| term.topology_key == HOSTNAME && selects(term, pod, other))
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

/// Returns the pods that need room: unschedulable pods, and pods whose node goes. A pod that is terminating counts until its
/// successor is unschedulable or has a node. A pod without a controller has no successor. `siblings` are all pods of
/// the controllers of the terminating pods.
fn pods_to_place<'a>(
    unschedulable: &[&'a Pod],
    displaced: &[&'a Pod],
    siblings: &[impl AsRef<Pod>],
) -> Vec<&'a Pod> {
    let mut ending: BTreeMap<&str, Vec<&'a Pod>> = BTreeMap::new();
    let mut moves = Vec::new();
    for pod in displaced {
        match controller(pod) {
            // Without any grace left the pod is as good as gone, and its times do not say when it was evicted.
            Some(_) if is_ending(pod) && pod.metadata.deletion_grace_period_seconds == Some(0) => {}
            Some(controller) if is_ending(pod) => ending.entry(controller).or_default().push(pod),
            Some(_) => moves.push(*pod),
            None => {}
        }
    }
    for (controller, mut pods) in ending {
        let mut successors: Vec<_> = siblings
            .iter()
            .map(AsRef::as_ref)
            .filter(|pod| self::controller(pod) == Some(controller) && is_provided_for(pod))
            .map(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
            .collect();
        pods.sort_by_key(|pod| evicted_at(pod));
        successors.sort_unstable();
        for created in successors {
            // A pod that is older than the first eviction is no successor.
            if pods.first().is_some_and(|pod| created.is_none_or(|created| Some(created) >= evicted_at(pod)))
            {
                pods.remove(0);
            }
        }
        moves.extend(pods);
    }
    unschedulable.iter().copied().chain(moves).collect()
}

fn is_ending(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Returns whether a pod has a node, or is counted because it is unschedulable.
fn is_provided_for(pod: &Pod) -> bool {
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    !is_ending(pod) && (bound || is_unschedulable(pod))
}

/// Returns the latest time at which the pod can have been evicted: its grace may have been cut since. The API server's
/// times are in whole seconds.
fn evicted_at(pod: &Pod) -> Option<Timestamp> {
    let ends = pod.metadata.deletion_timestamp.as_ref()?.0;
    let whole = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let grace = pod.metadata.deletion_grace_period_seconds.max(whole).unwrap_or_default();
    Some(ends - SignedDuration::from_secs(grace.saturating_add(1)))
}

/// Returns the UID of the controller of a pod.
pub fn controller(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// Returns whether the scheduler finds no node for a pod.
pub fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let ending = pod.metadata.deletion_timestamp.is_some();
    !bound
        && !ending
        && conditions.into_iter().any(|condition| {
            condition.type_ == "PodScheduled"
                && condition.status == "False"
                && condition.reason.as_deref() == Some("Unschedulable")
        })
}

/// Returns whether labels, affinity and taints allow the pod on such a node, whichever type it has.
fn suits(pod: &Pod, template: &NodeTemplate) -> bool {
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

/// Returns the resources that the scheduler reserves for a pod: the sum of its containers, or its largest init container
/// together with the sidecars that started before it; and one of `pods`.
fn requests(pod: &Pod) -> Resources {
    let mut sum = Resources::default();
    let Some(spec) = &pod.spec else { return sum };
    for container in &spec.containers {
        sum.add(&of_container(container));
    }
    let mut sidecars = Resources::default();
    let mut starting = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let mut at_once = sidecars.clone();
        at_once.add(&of_container(container));
        starting.at_least(&at_once);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&of_container(container));
        }
    }
    sum.add(&sidecars);
    sum.at_least(&starting);
    sum.add(&Resources::parse(spec.overhead.iter().flatten()));
    sum.add(&Resources::parse([(&"pods".to_owned(), &Quantity("1".to_owned()))]));
    sum
}

fn of_container(container: &Container) -> Resources {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    Resources::parse(requests.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn asks(gpus: u32) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": gpus.to_string()}}}],
               "tolerations": [{"key": "gpu", "operator": "Exists"}]})
    }

    fn template() -> NodeTemplate {
        let free = [("cpu", "8"), ("memory", "64Gi"), ("nvidia.com/gpu", "8"), ("pods", "110")];
        let free: BTreeMap<String, Quantity> =
            free.into_iter().map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).collect();
        NodeTemplate {
            labels: vec![BTreeMap::from([("pool".to_owned(), "gpu".to_owned())])],
            taints: vec![Taint { key: "gpu".into(), effect: "NoSchedule".into(), ..Taint::default() }],
            free: Resources::parse(&free),
            min_gpus: 0,
        }
    }

    fn resources(of: &[(&str, &str)]) -> Resources {
        let of: BTreeMap<String, Quantity> =
            of.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect();
        Resources::parse(&of)
    }

    /// Returns the number of nodes that these pods need while none is coming.
    fn nodes_needed<'a>(
        pods: impl IntoIterator<Item = &'a Pod>,
        template: &NodeTemplate,
        ready: &[Room<'a>],
    ) -> usize {
        super::nodes_needed(pods, template, ready, &[])
    }

    fn room<'a>(free: Resources) -> Room<'a> {
        Room { free, pods: Vec::new() }
    }

    fn needed(specs: &[Value]) -> usize {
        let pods: Vec<_> = specs.iter().cloned().map(pod).collect();
        nodes_needed(&pods, &template(), &[])
    }

    fn with(mut spec: Value, key: &str, value: Value) -> Value {
        spec[key] = value;
        spec
    }

    #[test]
    fn pods_share_nodes_first_fit() {
        assert_eq!(needed(&[]), 0);
        assert_eq!(needed(&[asks(4), asks(4)]), 1);
        assert_eq!(needed(&[asks(5), asks(5), asks(3), asks(3)]), 2);
        assert_eq!(needed(&[asks(9)]), 0, "no node of the type is large enough");
    }

    #[test]
    fn of_a_set_of_types_the_least_of_each_resource_counts() {
        let large = resources(&[("cpu", "64"), ("memory", "64Gi"), ("nvidia.com/gpu", "8"), ("pods", "110")]);
        let small = resources(&[("cpu", "96"), ("memory", "1Ti"), ("nvidia.com/gpu", "4"), ("pods", "50")]);
        let least = resources(&[("cpu", "64"), ("memory", "64Gi"), ("nvidia.com/gpu", "4"), ("pods", "50")]);
        assert_eq!(Resources::smallest([large.clone(), small]), least);
        let without_gpus = Resources::smallest([large, resources(&[("cpu", "8")])]);
        assert_eq!(without_gpus, resources(&[("cpu", "8")]));
        assert_eq!(Resources::smallest([]), Resources::default());
    }

    #[test]
    fn a_node_that_is_won_has_the_room_of_its_type() {
        let gpus = |count: &str| resources(&[("nvidia.com/gpu", count), ("pods", "110")]);
        let small = NodeTemplate { free: gpus("4"), ..template() };
        let pods = [pod(asks(4)), pod(asks(4)), pod(asks(4))];
        let needed = |coming: &[Resources]| super::nodes_needed(&pods, &small, &[], coming);
        assert_eq!(needed(&[]), 3);
        assert_eq!(needed(&[gpus("4")]), 3);
        assert_eq!(needed(&[gpus("8")]), 2);
        assert_eq!(needed(&[gpus("8"), gpus("8"), gpus("8")]), 2, "one that no pod needs does not count");
    }

    #[test]
    fn a_pod_must_suit_every_type_of_a_set() {
        let labels = |kind: &str| BTreeMap::from([("type".to_owned(), kind.to_owned())]);
        let both = NodeTemplate { labels: vec![labels("a"), labels("b")], ..template() };
        let affine = |operator: &str, values: &[&str]| {
            let term = json!({"matchExpressions": [{"key": "type", "operator": operator, "values": values}]});
            let required = json!({"nodeSelectorTerms": [term]});
            let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
            pod(with(asks(1), "affinity", json!({"nodeAffinity": affinity})))
        };
        let needed = |pod: Pod| nodes_needed([&pod], &both, &[]);
        assert_eq!(needed(pod(asks(1))), 1);
        assert_eq!(needed(pod(with(asks(1), "nodeSelector", json!({"type": "a"})))), 0);
        assert_eq!((needed(affine("In", &["a"])), needed(affine("In", &["a", "b"]))), (0, 1));
        assert_eq!((needed(affine("NotIn", &["b"])), needed(affine("NotIn", &["c"]))), (0, 1));
    }

    #[test]
    fn what_fits_on_a_ready_node_needs_no_other() {
        let pods = [pod(asks(4)), pod(asks(8))];
        let half = template().free.without(&[pod(asks(4))]);
        assert_eq!(nodes_needed(&pods, &template(), &[room(half)]), 1);
    }

    #[test]
    fn pods_fit_on_others_all_or_not() {
        let half = || room(template().free.without(&[pod(asks(4))]));
        assert!(fit(&[pod(asks(4)), pod(asks(2))], &[half(), half()]));
        assert!(!fit(&[pod(asks(3)), pod(asks(3))], &[half()]));
        assert!(fit(&[], &[]));
    }

    #[test]
    fn pods_that_keep_each_other_away_need_a_node_each() {
        let labelled = |app: &str| {
            let term = json!({"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"});
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
            let mut pod = pod(with(asks(1), "affinity", json!({"podAntiAffinity": required})));
            pod.metadata.labels = Some(BTreeMap::from([("app".to_owned(), app.to_owned())]));
            pod
        };
        let two = [labelled("a"), labelled("a")];
        assert_eq!(nodes_needed(&two, &template(), &[]), 2);
        let taken = Room { free: template().free, pods: vec![&two[0]] };
        assert_eq!(nodes_needed(&two[1..], &template(), std::slice::from_ref(&taken)), 1);
        assert!(!fit(&two[1..], std::slice::from_ref(&taken)));
        // One that is kept away by the other counts as well, and one that no selector matches does not.
        let (mut mild, other) = (pod(asks(1)), labelled("b"));
        assert_eq!(nodes_needed([&mild], &template(), std::slice::from_ref(&taken)), 0);
        mild.metadata.labels = two[0].metadata.labels.clone();
        assert_eq!(nodes_needed([&mild], &template(), std::slice::from_ref(&taken)), 1);
        assert_eq!(nodes_needed([&other, &pod(asks(1))], &template(), &[]), 1);
    }

    #[test]
    fn pods_that_request_too_few_gpus_together_bring_no_node() {
        let small = NodeTemplate { taints: Vec::new(), min_gpus: 4, ..template() };
        let cpu = || pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}));
        assert_eq!(nodes_needed(&[cpu(), cpu(), cpu()], &small, &[]), 0);
        assert_eq!(nodes_needed(&[cpu(), pod(asks(3))], &small, &[]), 0);
        assert_eq!(nodes_needed(&[cpu(), pod(asks(2)), pod(asks(2))], &small, &[]), 1);
    }

    #[test]
    fn a_pod_whose_node_goes_counts_once_with_its_successor() {
        let of = |controller: &str, ending: bool| {
            let mut pod = pod(asks(8));
            let owner =
                json!({"apiVersion": "v1", "kind": "C", "name": "c", "uid": controller, "controller": true});
            pod.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
            pod.metadata.deletion_timestamp =
                ending.then(|| serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
            pod
        };
        let unschedulable = |mut pod: Pod| {
            let condition = json!({"conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
            pod.status = Some(serde_json::from_value(condition).unwrap());
            pod
        };
        let count = |asking: &[Pod], going: &[Pod]| {
            let siblings: Vec<_> = asking.iter().cloned().map(unschedulable).map(Arc::new).collect();
            pods_to_place(&asking.iter().collect::<Vec<_>>(), &going.iter().collect::<Vec<_>>(), &siblings)
                .len()
        };
        assert_eq!(count(&[], &[of("a", false)]), 1);
        assert_eq!(count(&[], &[of("a", true)]), 1);
        assert_eq!(count(&[of("a", false)], &[of("a", true)]), 1);
        assert_eq!(count(&[of("a", false)], &[of("a", true), of("a", true)]), 2);
        assert_eq!(count(&[of("b", false)], &[of("a", true)]), 2);
        assert_eq!(count(&[], &[pod(asks(8))]), 0, "no controller replaces it");
    }

    #[test]
    fn a_pod_that_is_ending_does_not_count_once_its_successor_has_a_node() {
        let of = |created: i64, evicted: Option<i64>, node: Option<&str>| {
            let time = |second: i64| Time(Timestamp::from_second(second).unwrap());
            let mut pod = pod(with(asks(8), "nodeName", json!(node)));
            let owner = json!({"apiVersion": "v1", "kind": "C", "name": "c", "uid": "a", "controller": true});
            pod.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
            pod.metadata.creation_timestamp = Some(time(created));
            pod.metadata.deletion_timestamp = evicted.map(|second| time(second + 30));
            pod.metadata.deletion_grace_period_seconds = evicted.map(|_| 30);
            Arc::new(pod)
        };
        let count = |going: &[Arc<Pod>], siblings: &[Arc<Pod>]| {
            pods_to_place(&[], &going.iter().map(AsRef::as_ref).collect::<Vec<_>>(), siblings).len()
        };
        let ending = of(0, Some(100), Some("old"));
        assert_eq!(count(std::slice::from_ref(&ending), &[]), 1, "its successor is not there yet");
        assert_eq!(
            count(std::slice::from_ref(&ending), &[of(100, None, None)]),
            1,
            "not seen by the scheduler"
        );
        assert_eq!(count(std::slice::from_ref(&ending), &[of(100, None, Some("new"))]), 0);
        assert_eq!(
            count(std::slice::from_ref(&ending), &[of(50, None, Some("new"))]),
            1,
            "a sibling, no more"
        );
        let mut cut = Pod::clone(&ending);
        cut.metadata.deletion_grace_period_seconds = Some(0);
        assert_eq!(count(&[Arc::new(cut)], &[]), 0, "as good as gone");
        let two = [ending, of(0, Some(200), Some("old"))];
        assert_eq!(count(&two, &[of(101, None, Some("new"))]), 1);
        assert_eq!(count(&two, &[of(101, None, Some("new")), of(201, None, Some("new"))]), 0);
        assert_eq!(count(&two, &[of(201, None, Some("new")), of(202, None, Some("new"))]), 0);
    }

    #[test]
    fn a_node_must_have_the_labels_and_no_taint_against_the_pod() {
        let selector = |value: &str| with(asks(1), "nodeSelector", json!({"pool": value}));
        assert_eq!(needed(&[selector("gpu")]), 1);
        assert_eq!(needed(&[selector("cpu")]), 0);
        assert_eq!(needed(&[with(asks(1), "tolerations", json!([]))]), 0);
        assert_eq!(needed(&[with(asks(1), "tolerations", json!([{"operator": "Exists"}]))]), 1);
        let other = json!([{"key": "gpu", "value": "x"}]);
        assert_eq!(needed(&[with(asks(1), "tolerations", other)]), 0);
    }

    #[test]
    fn required_affinity_is_looked_at() {
        let affinity = |operator: &str, values: &[&str]| {
            let term = json!({"matchExpressions": [{"key": "pool", "operator": operator, "values": values}]});
            let required = json!({"nodeSelectorTerms": [term]});
            with(
                asks(1),
                "affinity",
                json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}),
            )
        };
        assert_eq!(needed(&[affinity("In", &["gpu", "cpu"])]), 1);
        assert_eq!(needed(&[affinity("NotIn", &["gpu"])]), 0);
        assert_eq!(needed(&[affinity("Exists", &[])]), 1);
        assert_eq!(needed(&[affinity("DoesNotExist", &[])]), 0);
    }

    #[test]
    fn initial_containers_and_sidecars_count_as_they_run() {
        let container = |gpus: u32, policy: Option<&str>| {
            let mut it =
                json!({"name": "i", "resources": {"requests": {"nvidia.com/gpu": gpus.to_string()}}});
            if let Some(policy) = policy {
                it["restartPolicy"] = json!(policy);
            }
            it
        };
        let spec = |init: Value| with(asks(4), "initContainers", init);
        assert_eq!(needed(&[spec(json!([container(4, None)])), asks(4)]), 1);
        assert_eq!(needed(&[spec(json!([container(5, None)])), asks(4)]), 2);
        assert_eq!(needed(&[spec(json!([container(1, Some("Always"))])), asks(4)]), 2);
    }
}
