//! Random clusters: pods, BidNodes, and nodes that come late, smaller, without their GPUs, or never. The plans of all BidNodes are
//! carried out until nothing changes, against a scheduler that knows more than the plans do. `KUBEBID_WORLDS` says how many.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubebid_operator::api::SlotPhase;
use kubebid_operator::plan::bidnode::{self, Observation, ObservedSlot};
use kubebid_operator::plan::count::SlotView;
use kubebid_operator::plan::demand::{Demand, SETTLED_AFTER};
use kubebid_operator::plan::packing::{self, Lack, OverdueNode, Pool};
use kubebid_operator::plan::resources::{Resources, requests};
use kubebid_operator::plan::room::{NodeTemplate, OpenNode, Room, Spread, suits};
use kubebid_operator::plan::scope::Scope;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The time between two looks at the world, in seconds: while something changes, and otherwise.
const TICKS: (i64, i64) = (5, 30);
/// The time for which a node beyond `minNodes` may be empty, in seconds.
const EMPTY_AFTER: i64 = 600;
/// The time for a ready node to be initialized, in seconds.
const INITIALIZED_WITHIN: i64 = 900;
/// The time for a bid before the next pool bids, in seconds.
const NEXT_POOL_AFTER: i64 = 120;
/// The worlds end after this time, in seconds: longer than any of them changes.
const END: i64 = 3 * 3_600;

/// How the nodes of a pool come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nodes {
    /// With all that their type promises.
    Good,
    /// Their GPUs are there after this time, in seconds.
    LateGpus(i64),
    /// With less memory than their type promises.
    Smaller,
    /// Their GPUs never come.
    WithoutGpus,
    /// No bid ever wins.
    Never,
}

struct SimPod {
    pod: Arc<Pod>,
    /// True if the scheduler binds it to no node, for a reason that the plans do not know.
    is_refused: bool,
    /// The slot on whose node it runs.
    on: Option<usize>,
}

struct SimSlot {
    pool: usize,
    ordinal: u32,
    bid_at: i64,
    won_at: Option<i64>,
    ready_at: Option<i64>,
    gone: bool,
    was_open: bool,
    pods_changed: i64,
    empty_since: Option<i64>,
}

struct SimPool {
    gpus: u32,
    memory: u32,
    nodes: Nodes,
    weight: u32,
    price: u64,
    /// The pods for which it bids no more.
    not_helped: BTreeSet<String>,
    /// The resources that its nodes were found to have.
    found: Option<Resources>,
    bought: usize,
}

struct World {
    now: i64,
    random: fastrand::Rng,
    pods: Vec<SimPod>,
    pools: Vec<SimPool>,
    slots: Vec<SimSlot>,
}

fn resources(gpus: u32, memory: u32) -> Resources {
    let amounts = json!({"nvidia.com/gpu": gpus.to_string(), "memory": format!("{memory}Gi"), "pods": "110"});
    let amounts: BTreeMap<String, _> = serde_json::from_value(amounts).unwrap();
    Resources::parse(&amounts)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let pools = (0..random.usize(1..=3)).map(|_| SimPool {
            gpus: [1, 2, 4, 8][random.usize(..4)],
            memory: [32, 64, 128][random.usize(..3)],
            nodes: match random.u32(..8) {
                0 => Nodes::LateGpus(random.i64(10..600)),
                1 => Nodes::Smaller,
                2 => Nodes::WithoutGpus,
                3 => Nodes::Never,
                _ => Nodes::Good,
            },
            weight: random.u32(..2),
            price: random.u64(1..4),
            not_helped: BTreeSet::new(),
            found: None,
            bought: 0,
        });
        let pools: Vec<_> = pools.collect();
        let pods = (0..random.usize(1..=10)).map(|number| {
            let pool = &pools[random.usize(..pools.len())];
            let (gpus, memory) = (random.u32(1..=pool.gpus), random.u32(1..=pool.memory));
            let apart = random.u32(..5) == 0;
            let pod = sim_pod(number, gpus, memory, apart);
            SimPod { pod: Arc::new(pod), is_refused: random.u32(..10) == 0, on: None }
        });
        let pods = pods.collect();
        World { now: 0, random, pods, pools, slots: Vec::new() }
    }

    fn template(&self, pool: usize) -> NodeTemplate {
        let it = &self.pools[pool];
        let promised = resources(it.gpus, it.memory);
        let free = it.found.as_ref().map_or(promised.clone(), |found| promised.clone().at_most(found));
        NodeTemplate { labels: vec![BTreeMap::new()], taints: Vec::new(), promised, free, min_gpus: 0 }
    }

    /// Returns what the node of a slot has at this moment, if it is ready.
    fn allocatable(&self, slot: &SimSlot) -> Option<Resources> {
        let ready_at = slot.ready_at.filter(|ready| *ready <= self.now && !slot.gone)?;
        let pool = &self.pools[slot.pool];
        Some(match pool.nodes {
            Nodes::WithoutGpus => resources(0, pool.memory),
            Nodes::LateGpus(after) if self.now < ready_at + after => resources(0, pool.memory),
            Nodes::Smaller => resources(pool.gpus, pool.memory * 15 / 16),
            Nodes::Good | Nodes::LateGpus(_) | Nodes::Never => resources(pool.gpus, pool.memory),
        })
    }

    fn is_initialized(&self, slot: &SimSlot) -> bool {
        let promised = self.template(slot.pool).promised;
        self.allocatable(slot).is_some_and(|node| promised.lacking(&node).is_none())
    }

    fn pods_on(&self, slot: usize) -> Vec<Arc<Pod>> {
        self.pods.iter().filter(|pod| pod.on == Some(slot)).map(|pod| Arc::clone(&pod.pod)).collect()
    }

    fn open_node(&self, place: usize) -> OpenNode {
        let slot = &self.slots[place];
        let free = self.allocatable(slot).unwrap_or_else(|| self.template(slot.pool).free);
        let pods = self.pods_on(place);
        OpenNode {
            name: format!("node-{place}"),
            free: free.without(pods.iter().map(AsRef::as_ref)),
            moving_pods: pods.len(),
            pods,
            is_settled: SignedDuration::from_secs(self.now - slot.pods_changed) >= SETTLED_AFTER,
        }
    }

    fn overdue(&self, place: usize) -> Option<OverdueNode> {
        let slot = &self.slots[place];
        let since = self.now - slot.ready_at.filter(|ready| *ready <= self.now)?;
        let lack = Lack::Resource("nvidia.com/gpu".to_owned());
        (!self.is_initialized(slot) && since >= INITIALIZED_WITHIN)
            .then(|| OverdueNode { name: format!("node-{place}"), lack })
    }

    fn pool(&self, pool: usize) -> Pool {
        let it = &self.pools[pool];
        let mut view = Pool {
            uid: pool.to_string(),
            name: pool.to_string(),
            weight: it.weight,
            price_micros: Some(it.price),
            template: self.template(pool),
            open: Vec::new(),
            coming: Vec::new(),
            overdue: Vec::new(),
            bids: 0,
            stale_bids: 0,
            spare: 100,
            not_helped: it.not_helped.clone(),
        };
        for (place, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.pool == pool && !slot.gone)
        {
            if slot.won_at.is_none() {
                let is_stale = self.now - slot.bid_at >= NEXT_POOL_AFTER;
                *(if is_stale { &mut view.stale_bids } else { &mut view.bids }) += 1;
            } else if self.is_initialized(slot) {
                view.open.push(self.open_node(place));
            } else if let Some(overdue) = self.overdue(place) {
                view.overdue.push(overdue);
            } else {
                view.coming.push(OpenNode {
                    free: view.template.free.clone(),
                    is_settled: false,
                    ..self.open_node(place)
                });
            }
        }
        view
    }

    fn observed(&self, place: usize) -> ObservedSlot {
        let slot = &self.slots[place];
        let pods = self.pods_on(place);
        let is_ready = slot.ready_at.is_some_and(|ready| ready <= self.now);
        let overdue = self.overdue(place);
        let is_open = self.is_initialized(slot);
        let view = SlotView {
            name: format!("gpu-{place}"),
            ordinal: slot.ordinal,
            phase: match slot.won_at {
                None => SlotPhase::Bidding,
                Some(_) if is_ready => SlotPhase::Ready,
                Some(_) => SlotPhase::Provisioning,
            },
            leaving: None,
            holds: slot.won_at.is_some(),
            is_coming: slot.won_at.is_some() && !is_open && overdue.is_none(),
            pods: pods.len(),
            empty_for: slot.empty_since.map(|since| SignedDuration::from_secs(self.now - since)),
            not_ready_for: None,
            untainted_for: None,
            replaces: None,
            is_protected: false,
            fits_elsewhere: false,
        };
        let node = is_open.then(|| self.open_node(place));
        ObservedSlot { view, scope: Scope::default(), pods, node, overdue, is_gang_slot: false }
    }

    /// Carries out the plan of one pool. Returns whether it changed anything.
    fn plan(&mut self, pool: usize) -> bool {
        let mut pools: Vec<_> = (0..self.pools.len()).map(|pool| self.pool(pool)).collect();
        packing::sort(&mut pools);
        let places: Vec<_> = (0..self.slots.len())
            .filter(|place| self.slots[*place].pool == pool && !self.slots[*place].gone)
            .collect();
        let unschedulable = self.pods.iter().filter(|pod| pod.on.is_none()).map(|pod| Arc::clone(&pod.pod));
        let plan = bidnode::plan(&Observation {
            now: at(self.now),
            uid: pool.to_string(),
            scope: Scope::default(),
            gang: false,
            min_nodes: 0,
            most_nodes: 100,
            observed_min_nodes: None,
            is_new_generation: false,
            disruption: None,
            empty_after: SignedDuration::from_secs(EMPTY_AFTER),
            unhealthy_after: SignedDuration::from_mins(5),
            slots: places.iter().map(|place| self.observed(*place)).collect(),
            demand: Demand { unschedulable: unschedulable.collect(), ..Demand::default() },
            pools: Some(pools),
            pause: None,
            registration_refused: false,
            resync: Duration::from_secs(60),
        })
        .unwrap();
        let causes = plan.part.not_helped.iter().filter(|it| it.cause.cost_a_node());
        self.pools[pool].not_helped.extend(causes.map(|it| it.pod.uid.clone()));
        for new in &plan.changes.create {
            self.slots.push(SimSlot {
                pool,
                ordinal: new.ordinal,
                bid_at: self.now,
                won_at: None,
                ready_at: None,
                gone: false,
                was_open: false,
                pods_changed: self.now,
                empty_since: None,
            });
        }
        for (name, _) in &plan.changes.release {
            let place = places.iter().copied().find(|place| format!("gpu-{place}") == *name).unwrap();
            assert!(self.pods_on(place).is_empty(), "a node with pods is given up");
            self.slots[place].gone = true;
        }
        !plan.changes.create.is_empty() || !plan.changes.release.is_empty()
    }

    /// Lets the market, the machines and the scheduler go on. Returns whether anything changed.
    fn go_on(&mut self) -> bool {
        let mut changed = false;
        for place in 0..self.slots.len() {
            let slot = &self.slots[place];
            let wins = slot.won_at.is_none() && !slot.gone && self.pools[slot.pool].nodes != Nodes::Never;
            if wins && self.random.u32(..4) == 0 {
                self.pools[slot.pool].bought += 1;
                let ready_at = self.now + self.random.i64(5..300);
                let slot = &mut self.slots[place];
                (slot.won_at, slot.ready_at) = (Some(self.now), Some(ready_at));
                changed = true;
            }
        }
        self.schedule();
        changed
    }

    /// Notes what the operator remembers of nodes: since when each is empty, and what it has.
    fn look(&mut self) {
        for place in 0..self.slots.len() {
            let slot = &self.slots[place];
            let known = self.is_initialized(slot) || self.overdue(place).is_some();
            let is_empty = known && self.pods_on(place).is_empty();
            let since = slot.empty_since.filter(|_| is_empty).or(is_empty.then_some(self.now));
            if self.is_initialized(slot) && !slot.was_open {
                (self.slots[place].was_open, self.slots[place].pods_changed) = (true, self.now);
            }
            let slot = &self.slots[place];
            if self.is_initialized(slot) {
                let found = self.allocatable(slot);
                self.pools[slot.pool].found = found;
            }
            self.slots[place].empty_since = since;
        }
    }

    /// Binds pods to nodes as the scheduler does.
    fn schedule(&mut self) {
        let mut order: Vec<_> = (0..self.pods.len()).filter(|pod| self.pods[*pod].on.is_none()).collect();
        self.random.shuffle(&mut order);
        for index in order {
            let pod = Arc::clone(&self.pods[index].pod);
            if self.pods[index].is_refused {
                continue;
            }
            let fits = |place: &usize| {
                let slot = &self.slots[*place];
                let Some(allocatable) = self.allocatable(slot) else { return false };
                let there = self.pods_on(*place);
                let mut room = Room {
                    free: allocatable.without(there.iter().map(AsRef::as_ref)),
                    pods: there.iter().map(AsRef::as_ref).collect(),
                };
                suits(&pod, &self.template(slot.pool))
                    && room.admit(&pod, &requests(&pod), &Spread::default())
            };
            if let Some(place) = (0..self.slots.len()).find(fits) {
                self.pods[index].on = Some(place);
                self.slots[place].pods_changed = self.now;
            }
        }
    }

    /// Returns whether some pool could run this pod on an empty node of it.
    fn could_run(&self, pod: &SimPod) -> bool {
        let wanted = requests(&pod.pod);
        !pod.is_refused
            && self.pools.iter().any(|pool| match pool.nodes {
                Nodes::Never | Nodes::WithoutGpus => false,
                Nodes::Smaller => resources(pool.gpus, pool.memory * 15 / 16).holds(&wanted),
                Nodes::Good | Nodes::LateGpus(_) => resources(pool.gpus, pool.memory).holds(&wanted),
            })
    }
}

fn sim_pod(number: usize, gpus: u32, memory: u32, apart: bool) -> Pod {
    let requests = json!({"nvidia.com/gpu": gpus.to_string(), "memory": format!("{memory}Gi")});
    let term =
        json!({"labelSelector": {"matchLabels": {"apart": "true"}}, "topologyKey": "kubernetes.io/hostname"});
    let anti = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": requests}}]});
    if apart {
        spec["affinity"] = anti;
    }
    let uid = format!("pod-{number}");
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/9 nodes are available", "lastTransitionTime": "1970-01-01T00:00:00Z"});
    serde_json::from_value(json!({
        "metadata": {"name": uid, "namespace": "default", "uid": uid, "labels": {"apart": apart.to_string()}},
        "spec": spec, "status": {"conditions": [condition]},
    }))
    .unwrap()
}

/// The sums of a world at its end.
#[derive(Default)]
struct Sums {
    bought: usize,
    held: usize,
    vain: usize,
    running: usize,
    pods: usize,
}

/// Plays a world to its end and checks it.
fn play(seed: u64) -> Sums {
    let mut world = World::new(seed);
    while world.now < END {
        let mut order: Vec<_> = (0..world.pools.len()).collect();
        world.random.shuffle(&mut order);
        let mut changed = false;
        for pool in order {
            world.look();
            changed |= world.plan(pool);
        }
        changed |= world.go_on();
        world.now += if changed { TICKS.0 } else { TICKS.1 };
    }
    let held: Vec<_> = (0..world.slots.len())
        .filter(|place| !world.slots[*place].gone && world.slots[*place].won_at.is_some())
        .collect();
    let used = held.iter().filter(|place| !world.pods_on(**place).is_empty()).count();
    let about = format!("seed {seed}: {:?}", world.pools.iter().map(|pool| pool.nodes).collect::<Vec<_>>());
    for pod in &world.pods {
        assert!(pod.on.is_some() || !world.could_run(pod), "{about}: {:?} waits", pod.pod.metadata.name);
    }
    assert_eq!(used, held.len(), "{about}: nodes without pods are held at rest");
    let bought: usize = world.pools.iter().map(|pool| pool.bought).sum();
    // A pod brings at most one node that could help it, one more if the scheduler binds another pod to that one, and one in vain of each pool
    // whose nodes are not as promised, or of every pool if the scheduler refuses it.
    let bad =
        world.pools.iter().filter(|pool| matches!(pool.nodes, Nodes::Smaller | Nodes::WithoutGpus)).count();
    let refused = world.pods.iter().filter(|pod| pod.is_refused).count();
    let most = world.pods.len() * (2 + bad) + refused * world.pools.len();
    assert!(bought <= most, "{about}: {bought} bought, {used} used");
    let vain = bought - used;
    let running = world.pods.iter().filter(|pod| pod.on.is_some()).count();
    Sums { bought, held: held.len(), vain, running, pods: world.pods.len() }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test has no command line")]
fn at_rest_every_pod_that_can_run_runs_and_no_node_is_bought_in_vain_twice() {
    let worlds = std::env::var("KUBEBID_WORLDS").ok().and_then(|count| count.parse().ok()).unwrap_or(10);
    let mut sums = Sums::default();
    for seed in 0..worlds {
        let of = play(seed);
        sums.bought += of.bought;
        sums.held += of.held;
        sums.vain += of.vain;
        sums.running += of.running;
        sums.pods += of.pods;
    }
    println!(
        "{worlds} worlds: {} pods, {} run; {} nodes bought, {} held at rest, {} in vain",
        sums.pods, sums.running, sums.bought, sums.held, sums.vain
    );
}
