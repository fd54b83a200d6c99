//! Packs the pods that need room on the nodes of all BidNodes, much as the scheduler would.
//!
//! Each BidNode plans with the packing of the same pods on the same pools and takes its own part of it. So a pod that several
//! BidNodes fit brings one node, and each node is counted with the room that it has or that its type promises.

use super::demand::PendingPod;
use super::resources::Shortage;
use super::room::{NodeTemplate, OpenNode, Room, Spread, is_gpu_short, suits};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;

/// A BidNode as a pool of nodes for pods.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The UID of the BidNode.
    pub uid: String,
    /// The namespace and the name of the BidNode, as in `default/gpu`.
    pub name: String,
    /// Its `weight`: pods go to the pool with the highest weight first.
    pub weight: u32,
    /// The expected price of a node, in micro-dollars per hour, if there is one. It decides between pools of the same weight.
    pub price_micros: Option<u64>,
    /// A new node.
    pub template: NodeTemplate,
    /// The nodes that are initialized and take pods.
    pub open: Vec<OpenNode>,
    /// The nodes that were won and are not initialized. Each has the room that its type promises.
    pub coming: Vec<OpenNode>,
    /// The nodes that are not initialized although they had time to be.
    pub overdue: Vec<OverdueNode>,
    /// The number of bids that wait for a unit, without those of [`Pool::stale_bids`].
    pub bids: usize,
    /// The number of bids that have waited for so long that the next pool gets their pods.
    pub stale_bids: usize,
    /// The number of nodes that it may still bid for.
    pub spare: usize,
    /// The UIDs of pods for which it bids no more, since a node came and did not help them.
    pub not_helped: BTreeSet<String>,
}

/// A node that is not initialized although it had time to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverdueNode {
    /// The name of the node.
    pub name: String,
    /// The thing that it lacks.
    pub lack: Lack,
}

impl OverdueNode {
    /// Returns what the node lacks as a clause, as in `node gpu-0 is ready without nvidia.com/gpu`.
    pub fn clause(&self) -> String {
        match &self.lack {
            Lack::Resource(resource) => format!("node {} is ready without {resource}", self.name),
            Lack::Taint(key) => format!("node {} is ready and keeps the taint {key}", self.name),
        }
    }
}

/// A thing that a ready node lacks to be initialized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// It has nothing of a resource that its type promises.
    Resource(String),
    /// It has a taint that is not of its BidNode, with this key.
    Taint(String),
}

/// The nodes that a pool needs for pods, besides those that are open or coming.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The number of bids that pods need, those that wait already included.
    pub needed: usize,
    /// The pods for which further bids are placed.
    pub pods: Vec<PodName>,
    /// The pods for which this pool bids no more.
    pub not_helped: Vec<NotHelped>,
}

/// A pod that the nodes of a pool do not help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotHelped {
    /// The pod.
    pub pod: PodName,
    /// The reason why a node does not help it.
    pub cause: Cause,
}

/// The name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodName {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub name: String,
    /// The UID of the pod.
    pub uid: String,
}

impl PodName {
    /// Returns the name of a pod.
    pub fn of(pod: &Pod) -> Self {
        let metadata = pod.metadata.clone();
        PodName {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
        }
    }
}

/// The reason why a node of a pool does not help a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The nodes have less of a resource than the type promises: what the pod requests, and what is left for it on an empty node.
    TooSmall(Shortage),
    /// A node lacks a resource of its type, and had time to get it.
    NotInitialized(OverdueNode),
    /// An empty node is there, and the scheduler does not bind the pod to it.
    NotScheduled {
        /// The name of the node.
        node: String,
        /// The message of the scheduler.
        message: String,
    },
    /// The pod waits for its volume, not for a node: the message of the scheduler.
    Volume(String),
}

impl Cause {
    /// Returns the cause as a clause, as in `it requests 64Gi of memory, and a node has 62Gi`.
    pub fn clause(&self) -> String {
        match self {
            Cause::TooSmall(Shortage { resource, requested, available }) => {
                format!("it requests {requested} of {resource}, and an empty node has {available}")
            }
            Cause::NotInitialized(overdue) => overdue.clause(),
            Cause::NotScheduled { node, message } => {
                format!("the scheduler does not bind it to the empty node {node}: {message}")
            }
            Cause::Volume(message) => format!("it waits for a volume: {message}"),
        }
    }

    /// Returns whether a node was bought to learn the cause. It is then remembered for the pod.
    pub fn cost_a_node(&self) -> bool {
        match self {
            Cause::NotInitialized(_) | Cause::NotScheduled { .. } => true,
            Cause::TooSmall(_) | Cause::Volume(_) => false,
        }
    }
}

/// A node while pods are packed.
struct Packed<'a> {
    /// The place of its pool.
    pool: usize,
    room: Room<'a>,
    /// True if the scheduler has seen the node as it is.
    is_settled: bool,
}

/// Sorts pools in the order in which they get pods: the highest weight first, then the lowest expected price, then by name.
pub fn sort(pools: &mut [Pool]) {
    let key = |pool: &Pool| {
        (std::cmp::Reverse(pool.weight), pool.price_micros.unwrap_or(u64::MAX), pool.name.clone())
    };
    pools.sort_by_cached_key(key);
}

/// Packs pods on the nodes of these pools, which are in the order of [`sort`]. Returns the part of each pool.
///
/// A pod goes to the first place that takes it: an open node, a node that is coming, a bid that waits, and then a new bid of
/// the first pool that may place one. Bids that have waited for too long count only for pods that no other pool takes. Large
/// pods are placed first.
pub fn pack(pods: &[PendingPod<'_>], pools: &[Pool]) -> Vec<Part> {
    let mut packing = Packing { pools, nodes: existing(pools), parts: vec![Part::default(); pools.len()] };
    let mut left = Vec::new();
    for pending in largest_first(pods) {
        if pending.missing_volume.is_none() && !packing.place(pending) {
            left.push(pending);
        }
    }
    for (index, pool) in pools.iter().enumerate() {
        packing.parts[index].not_helped = not_helped(pods, &left, pool);
    }
    // In turn: the bids that wait, new bids, and at last bids that have waited for too long.
    let turns: [fn(&Pool) -> usize; 3] = [
        |pool| pool.bids,
        |pool| if pool.stale_bids > 0 { 0 } else { pool.spare },
        |pool| if pool.stale_bids > 0 { pool.stale_bids + pool.spare } else { 0 },
    ];
    for (turn, most) in turns.into_iter().enumerate() {
        for (index, pool) in pools.iter().enumerate() {
            left = packing.bid(index, most(pool), left, turn > 0);
        }
    }
    packing.parts
}

/// The state while pods are packed.
struct Packing<'a> {
    pools: &'a [Pool],
    nodes: Vec<Packed<'a>>,
    parts: Vec<Part>,
}

/// Returns the open nodes of all pools, and then the nodes that are coming.
fn existing(pools: &[Pool]) -> Vec<Packed<'_>> {
    let open = pools.iter().enumerate().flat_map(|(pool, it)| it.open.iter().map(move |node| (pool, node)));
    let coming =
        pools.iter().enumerate().flat_map(|(pool, it)| it.coming.iter().map(move |node| (pool, node)));
    open.chain(coming)
        .map(|(pool, node)| Packed { pool, room: node.room(), is_settled: node.is_settled })
        .collect()
}

impl<'a> Packing<'a> {
    /// Places a pod on a node that is open or coming. Returns whether it was placed.
    fn place(&mut self, pending: &PendingPod<'a>) -> bool {
        let suited: Vec<bool> = self.pools.iter().map(|pool| suits(pending.pod, &pool.template)).collect();
        let spread = Spread::of(
            pending.pod,
            self.nodes.iter().filter(|node| suited[node.pool]).map(|node| &node.room),
        );
        let takes = |node: &mut Packed<'a>| {
            // The scheduler knows more than this packing: it has seen the node as it is, and not bound the pod to it.
            let is_refused = node.is_settled && pending.refused.is_some();
            suited[node.pool] && !is_refused && node.room.admit(pending.pod, &pending.wanted, &spread)
        };
        self.nodes.iter_mut().any(takes)
    }

    /// Packs pods on at most this number of further nodes of a pool. Returns the pods that are left. A node whose pods request too
    /// few GPUs is not bid for.
    fn bid(
        &mut self,
        index: usize,
        most: usize,
        pods: Vec<&'a PendingPod<'a>>,
        is_new: bool,
    ) -> Vec<&'a PendingPod<'a>> {
        let pool = &self.pools[index];
        let (pods, mut left): (Vec<_>, Vec<_>) =
            pods.into_iter().partition(|pending| is_helped(pending, pool));
        let mut fresh: Vec<(Room<'a>, Vec<&'a PendingPod<'a>>)> = Vec::new();
        for pending in pods {
            let there = self.nodes.iter().map(|node| &node.room).chain(fresh.iter().map(|(room, _)| room));
            let spread = Spread::of(pending.pod, there);
            if let Some((_, pods)) = fresh
                .iter_mut()
                .find_map(|node| node.0.admit(pending.pod, &pending.wanted, &spread).then_some(node))
            {
                pods.push(pending);
                continue;
            }
            let mut room = Room { free: pool.template.free.clone(), pods: Vec::new() };
            if fresh.len() < most && room.admit(pending.pod, &pending.wanted, &spread) {
                fresh.push((room, vec![pending]));
            } else {
                left.push(pending);
            }
        }
        let part = &mut self.parts[index];
        for (room, pods) in fresh {
            if is_gpu_short(&room, pool.template.min_gpus) {
                left.extend(pods);
                continue;
            }
            part.needed += 1;
            if is_new {
                part.pods.extend(pods.iter().map(|pending| PodName::of(pending.pod)));
            }
        }
        left
    }
}

/// Returns the pods that suit a pool and that no node of it helps, with the causes. `left` are the pods that no node takes.
fn not_helped(pods: &[PendingPod<'_>], left: &[&PendingPod<'_>], pool: &Pool) -> Vec<NotHelped> {
    let volumes = pods.iter().filter_map(|pending| {
        let message = pending.missing_volume?;
        Some((pending, Cause::Volume(message.to_owned())))
    });
    let others = left.iter().filter_map(|pending| Some((*pending, cause(pending, pool)?)));
    let suited = volumes.chain(others).filter(|(pending, _)| suits(pending.pod, &pool.template));
    suited.map(|(pending, cause)| NotHelped { pod: PodName::of(pending.pod), cause }).collect()
}

/// Returns whether a new node of a pool helps a pod, as far as it is known.
fn is_helped(pending: &PendingPod<'_>, pool: &Pool) -> bool {
    suits(pending.pod, &pool.template)
        && !pool.not_helped.contains(pending.pod.metadata.uid.as_deref().unwrap_or_default())
        && cause(pending, pool).is_none()
}

/// Returns why a new node of a pool does not help a pod that suits it; `None` if it does, or if that is not known. A pod that is
/// too large for the type was not made for this pool.
fn cause(pending: &PendingPod<'_>, pool: &Pool) -> Option<Cause> {
    let wanted = &pending.wanted;
    let template = &pool.template;
    if !template.promised.holds(wanted) {
        return None;
    }
    if let Some(shortage) = template.free.shortage(wanted) {
        return Some(Cause::TooSmall(shortage));
    }
    if let Some(overdue) = pool.overdue.first() {
        return Some(Cause::NotInitialized(overdue.clone()));
    }
    let message = pending.refused?;
    let empty = pool.open.iter().find(|node| node.is_settled && node.moving_pods == 0)?;
    Some(Cause::NotScheduled { node: empty.name.clone(), message: message.to_owned() })
}

/// Returns the pods in the order in which they are placed: the one that requests the most GPUs first, then the most memory, then
/// the most processors.
fn largest_first<'a>(pods: &'a [PendingPod<'a>]) -> Vec<&'a PendingPod<'a>> {
    let mut sorted: Vec<_> = pods.iter().collect();
    sorted.sort_by_cached_key(|pending| std::cmp::Reverse(pending.wanted.size()));
    sorted
}

#[cfg(test)]
mod tests;
