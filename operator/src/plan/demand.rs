//! Counts the nodes that pods need and no node has room for.

use k8s_openapi::api::core::v1::{
    Container, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm, Taint, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::{Selector, SelectorExt as _};
use kube_quantity::ParsedQuantity;
use std::collections::BTreeMap;

/// Amounts by the name of the resource, as in `nvidia.com/gpu`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources(BTreeMap<String, ParsedQuantity>);

impl Resources {
    /// Parses the amounts. One that cannot be read is left out.
    pub fn parse<'a>(quantities: impl IntoIterator<Item = (&'a String, &'a Quantity)>) -> Self {
        let parsed = quantities.into_iter().filter_map(|(name, quantity)| {
            ParsedQuantity::try_from(quantity).ok().map(|quantity| (name.clone(), quantity))
        });
        Resources(parsed.collect())
    }

    /// Takes the amounts away, if there is enough of each.
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

    /// GPUs of any maker.
    fn gpus(&self) -> ParsedQuantity {
        let gpus = self.0.iter().filter(|(name, _)| name.ends_with("/gpu")).map(|(_, amount)| amount.clone());
        gpus.fold(ParsedQuantity::default(), |sum, amount| sum + amount)
    }

    /// Returns what is left of a node with these pods.
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

/// A node as the scheduler would see it.
#[derive(Clone, Debug)]
pub struct Shape {
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub free: Resources,
    /// The number of GPUs its pods have to request together, so that such a node is made.
    pub min_gpus: u32,
}

/// What is free on a node, and the pods that it has.
#[derive(Clone, Debug, Default)]
pub struct Room<'a> {
    pub free: Resources,
    pub pods: Vec<&'a Pod>,
}

impl<'a> Room<'a> {
    /// Takes a pod in, if there is enough of everything and no pod keeps another away.
    fn admit(&mut self, pod: &'a Pod, wanted: &Resources) -> bool {
        let admits = !self.pods.iter().any(|there| repels(pod, there) || repels(there, pod));
        let admits = admits && self.free.take(wanted);
        if admits {
            self.pods.push(pod);
        }
        admits
    }

    /// GPUs that its pods request.
    fn gpus(&self) -> ParsedQuantity {
        self.pods.iter().fold(ParsedQuantity::default(), |sum, pod| sum + requests(pod).gpus())
    }
}

/// Returns how many nodes of this shape have to be made for these pods, first fit, after what still fits on `ready`
/// ones.
pub fn nodes_needed<'a>(pods: impl IntoIterator<Item = &'a Pod>, shape: &Shape, ready: &[Room<'a>]) -> usize {
    let mut nodes = ready.to_vec();
    for pod in pods.into_iter().filter(|pod| suits(pod, shape)) {
        let wanted = requests(pod);
        if nodes.iter_mut().any(|node| node.admit(pod, &wanted)) {
            continue;
        }
        let mut fresh = Room { free: shape.free.clone(), pods: Vec::new() };
        if fresh.admit(pod, &wanted) {
            nodes.push(fresh);
        }
    }
    let least = Quantity(shape.min_gpus.to_string());
    let least = ParsedQuantity::try_from(&least).unwrap_or_default();
    nodes.iter().skip(ready.len()).filter(|node| node.gpus() >= least).count()
}

/// Returns whether all of these pods find room on these nodes, which suit them.
pub fn fit<'a>(pods: impl IntoIterator<Item = &'a Pod>, nodes: &[Room<'a>]) -> bool {
    let mut nodes = nodes.to_vec();
    pods.into_iter().all(|pod| {
        let wanted = requests(pod);
        nodes.iter_mut().any(|node| node.admit(pod, &wanted))
    })
}

/// Returns whether a pod may not be on one node with another: by its required anti-affinity.
fn repels(pod: &Pod, other: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let terms = anti.and_then(|anti| anti.required_during_scheduling_ignored_during_execution.as_ref());
    terms.into_iter().flatten().any(|term| term.topology_key == HOSTNAME && selects(term, pod, other))
}

fn selects(term: &PodAffinityTerm, pod: &Pod, other: &Pod) -> bool {
    let namespace = |pod: &Pod| pod.metadata.namespace.clone().unwrap_or_default();
    let named = term.namespaces.as_deref().unwrap_or_default();
    // The labels of namespaces are not known: a selector of some is taken to select all.
    let in_reach = term.namespace_selector.is_some()
        || named.contains(&namespace(other))
        || named.is_empty() && namespace(pod) == namespace(other);
    let Some(selector) = term.label_selector.clone() else { return false };
    let Ok(selector) = Selector::try_from(selector) else { return false };
    in_reach && selector.matches(&other.metadata.labels.clone().unwrap_or_default())
}

/// On nodes, of Kubernetes: which node it is.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Pods that want a node: those that are unschedulable, and those whose node goes. One that is ending counts until
/// its successor asks for a node or has one, and one that has no controller has no successor. `siblings` are all pods
/// of the controllers of those that are ending.
pub fn seekers<'a>(
    unschedulable: &[&'a Pod],
    displaced: &[&'a Pod],
    siblings: &[impl AsRef<Pod>],
) -> Vec<&'a Pod> {
    let mut ending: BTreeMap<&str, Vec<&'a Pod>> = BTreeMap::new();
    let mut moves = Vec::new();
    for pod in displaced {
        match controller(pod) {
            // Without any grace left it is as good as gone, and its times say nothing of its eviction.
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
            // One that is older than the eviction of the first is nobody's successor.
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

/// It has a node, or is counted because it asks for one.
fn is_provided_for(pod: &Pod) -> bool {
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    !is_ending(pod) && (bound || is_unschedulable(pod))
}

/// Returns when the pod was told to end, at the latest: its grace may have been cut since. Times of the API server
/// are in whole seconds.
fn evicted_at(pod: &Pod) -> Option<Timestamp> {
    let ends = pod.metadata.deletion_timestamp.as_ref()?.0;
    let whole = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let grace = pod.metadata.deletion_grace_period_seconds.max(whole).unwrap_or_default();
    Some(ends - SignedDuration::from_secs(grace.saturating_add(1)))
}

/// The UID of what made the pod.
pub fn controller(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// Returns whether the scheduler says that it finds no node for the pod.
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

/// Labels, affinity and taints allow the pod on such a node, and it asks for one: a pod that would run anywhere is
/// nobody's reason to buy a node for, unless that node has no taint against it.
fn suits(pod: &Pod, shape: &Shape) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let selected =
        spec.node_selector.iter().flatten().all(|(key, value)| shape.labels.get(key) == Some(value));
    let terms = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let affine =
        terms.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| term_holds(term, shape)));
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let tolerated = shape
        .taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)));
    selected && affine && tolerated
}

fn term_holds(term: &NodeSelectorTerm, shape: &Shape) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let by_name = term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty());
    !by_name && !expressions.is_empty() && expressions.iter().all(|expression| holds(expression, shape))
}

fn holds(expression: &NodeSelectorRequirement, shape: &Shape) -> bool {
    let value = shape.labels.get(&expression.key);
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

/// Returns what the scheduler sets aside for a pod: its containers together, or its largest initial one beside the
/// sidecars that started before; and one place.
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
    use std::sync::Arc;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn asks(gpus: u32) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": gpus.to_string()}}}],
               "tolerations": [{"key": "gpu", "operator": "Exists"}]})
    }

    fn shape() -> Shape {
        let free = [("cpu", "8"), ("memory", "64Gi"), ("nvidia.com/gpu", "8"), ("pods", "110")];
        let free: BTreeMap<String, Quantity> =
            free.into_iter().map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).collect();
        Shape {
            labels: BTreeMap::from([("pool".to_owned(), "gpu".to_owned())]),
            taints: vec![Taint { key: "gpu".into(), effect: "NoSchedule".into(), ..Taint::default() }],
            free: Resources::parse(&free),
            min_gpus: 0,
        }
    }

    fn room<'a>(free: Resources) -> Room<'a> {
        Room { free, pods: Vec::new() }
    }

    fn needed(specs: &[Value]) -> usize {
        let pods: Vec<_> = specs.iter().cloned().map(pod).collect();
        nodes_needed(&pods, &shape(), &[])
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
    fn what_fits_on_a_ready_node_needs_no_other() {
        let pods = [pod(asks(4)), pod(asks(8))];
        let half = shape().free.without(&[pod(asks(4))]);
        assert_eq!(nodes_needed(&pods, &shape(), &[room(half)]), 1);
    }

    #[test]
    fn pods_fit_on_others_all_or_not() {
        let half = || room(shape().free.without(&[pod(asks(4))]));
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
        assert_eq!(nodes_needed(&two, &shape(), &[]), 2);
        let taken = Room { free: shape().free, pods: vec![&two[0]] };
        assert_eq!(nodes_needed(&two[1..], &shape(), std::slice::from_ref(&taken)), 1);
        assert!(!fit(&two[1..], std::slice::from_ref(&taken)));
        // One that is kept away by the other counts as well, and one that nobody selects does not.
        let (mut mild, other) = (pod(asks(1)), labelled("b"));
        assert_eq!(nodes_needed([&mild], &shape(), std::slice::from_ref(&taken)), 0);
        mild.metadata.labels = two[0].metadata.labels.clone();
        assert_eq!(nodes_needed([&mild], &shape(), std::slice::from_ref(&taken)), 1);
        assert_eq!(nodes_needed([&other, &pod(asks(1))], &shape(), &[]), 1);
    }

    #[test]
    fn pods_that_request_too_few_gpus_together_bring_no_node() {
        let small = Shape { taints: Vec::new(), min_gpus: 4, ..shape() };
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
            seekers(&asking.iter().collect::<Vec<_>>(), &going.iter().collect::<Vec<_>>(), &siblings).len()
        };
        assert_eq!(count(&[], &[of("a", false)]), 1);
        assert_eq!(count(&[], &[of("a", true)]), 1);
        assert_eq!(count(&[of("a", false)], &[of("a", true)]), 1);
        assert_eq!(count(&[of("a", false)], &[of("a", true), of("a", true)]), 2);
        assert_eq!(count(&[of("b", false)], &[of("a", true)]), 2);
        assert_eq!(count(&[], &[pod(asks(8))]), 0, "nobody makes it again");
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
            seekers(&[], &going.iter().map(AsRef::as_ref).collect::<Vec<_>>(), siblings).len()
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
