//! Things that break: nodes, the engine, the API server.

use crate::story::{self, Story};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kubebid_client::v1;
use kubebid_operator::api::{BidNodePhase, BidSlot, LABEL_SLOT_UID};
use kubebid_testkit::Component;
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

const EU: &str = "h100-8x/eu-west";
const NOTICE: Duration = Duration::from_secs(20);
/// Less than the time after which the operator lists everything again.
const SOON: Duration = Duration::from_secs(50);

async fn begin(name: &str, nodes: u32) -> Story {
    let story = Story::begin(name).await;
    fill(&story, nodes).await;
    story
}

async fn fill(story: &Story, nodes: u32) {
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, nodes + 2, 1.0).await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": nodes})).await;
    story.running("gpu", nodes).await;
}

#[tokio::test]
async fn a_node_that_vanishes_is_replaced_and_its_unit_kept_for_a_while() {
    let mut story = Story::without_operator("vanish").await;
    story.start_operator(&["--vanished-for", "1h"]);
    fill(&story, 1).await;
    let node = story.bidnodes().get("gpu").await.unwrap();
    let old = story.nodes_of(&node).await.remove(0).name_any();
    story.nodes().delete(&old, &DeleteParams::default()).await.unwrap();
    story
        .eventually("another node is ready", || async {
            let nodes = story.nodes_of(&node).await;
            nodes.iter().any(|node| node.name_any() != old)
                && !nodes.iter().any(|node| node.name_any() == old)
        })
        .await;
    story.running("gpu", 1).await;
    // The provider may still bring it back.
    assert_eq!(story.market.held().await.len(), 2);
    story
        .eventually("its slot says until when", || async {
            let said = waits_for(&story.slots().get("gpu-0").await.unwrap(), "Released");
            said.0 == "NodeVanished" && said.1.contains("until 2")
        })
        .await;
    story.start_operator(&["--vanished-for", "1s"]);
    story.eventually("it is given back", || async { story.market.held().await.len() == 1 }).await;
}

/// Reason and message of a condition that does not hold.
fn waits_for(slot: &BidSlot, type_: &str) -> (String, String) {
    let conditions = slot.status.iter().flat_map(|status| &status.conditions);
    let mut waits = conditions.filter(|it| it.type_ == type_ && it.status == "False");
    waits.next().map(|it| (it.reason.clone(), it.message.clone())).unwrap_or_default()
}

const NOT_READY_AFTER: &str = "kubebid.io/replace-not-ready-after";

#[tokio::test]
async fn a_node_that_is_not_ready_does_not_count_and_is_replaced_after_a_while() {
    let story = begin("notready", 2).await;
    let node = story.bidnodes().get("gpu").await.unwrap();
    let sick = story.nodes_of(&node).await.remove(0).name_any();
    story.annotate(&story.nodes(), &sick, "testplane.kubebid.io/not-ready", "1").await;
    story
        .until("gpu", "one is active, and nothing is bid for", |status| {
            (status.active_nodes, status.pending_bids, status.phase) == (1, 0, BidNodePhase::NotReady)
        })
        .await;
    story
        .eventually("its slot says so", || async {
            let slots = story.slots().list(&Default::default()).await.unwrap();
            slots.iter().any(|slot| waits_for(slot, "Ready").0 == "NodeNotReady")
        })
        .await;
    story.annotate(&story.bidnodes(), "gpu", NOT_READY_AFTER, "1s").await;
    story
        .eventually("it is replaced", || async {
            let nodes = story.nodes_of(&node).await;
            nodes.len() == 2 && !nodes.iter().any(|node| node.name_any() == sick)
        })
        .await;
    story.running("gpu", 2).await;
    story.eventually("and given back", || async { story.market.held().await.len() == 2 }).await;
}

#[tokio::test]
async fn pods_on_a_node_that_has_gone_silent_hold_nothing_up() {
    let mut story = Story::alone_with_grace("silent", 8).await;
    story.start_operator(&[]);
    fill(&story, 1).await;
    let node = story.bidnodes().get("gpu").await.unwrap();
    let silent = story.nodes_of(&node).await.remove(0);
    let on_it = json!({"nodeSelector": {LABEL_SLOT_UID: silent.labels()[LABEL_SLOT_UID]}});
    story.pod("work", on_it).await;
    let runs = |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()).is_some_and(|phase| phase == "Running")
    };
    story.until_pod("work", "it runs", runs).await;
    // No kubelet says anything from here on: the pod is told to end, and never does.
    story.plane.stop(Component::Kwok);
    story.annotate(&story.bidnodes(), "gpu", NOT_READY_AFTER, "2s").await;
    let gone = || async { story.nodes().get_opt(&silent.name_any()).await.unwrap().is_none() };
    story.eventually("the silent node is given up", gone).await;
    story.eventually("and given back", || async { story.market.held().await.len() == 1 }).await;
    story.plane.restart(Component::Kwok);
    story.annotate(&story.bidnodes(), "gpu", NOT_READY_AFTER, "5m").await;
    story.running("gpu", 1).await;
}

#[tokio::test]
async fn a_node_object_that_others_hold_is_said_to_be() {
    let story = begin("held", 1).await;
    let node = story.bidnodes().get("gpu").await.unwrap();
    let held = story.nodes_of(&node).await.remove(0).name_any();
    let hold = |finalizers: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let params = PatchParams::default();
    story.nodes().patch(&held, &params, &hold(&["example.com/hold"])).await.unwrap();
    story.change("gpu", json!({"minNodes": 0})).await;
    story
        .eventually("its slot says who holds it", || async {
            let slot = story.slots().get_opt("gpu-0").await.unwrap();
            slot.is_some_and(|slot| waits_for(&slot, "Released").0 == "NodeHeld")
        })
        .await;
    story.nodes().patch(&held, &params, &hold(&[])).await.unwrap();
    story.eventually("it is given back", || async { story.market.held().await.is_empty() }).await;
}

#[tokio::test]
async fn pods_have_time_to_leave_a_node_whose_bid_the_engine_has_forgotten() {
    let mut story = Story::without_operator("forgotten").await;
    story.market.open(EU, NOTICE).await;
    story.market.back_up().await;
    story.start_operator(&["--unknown-for", "1s"]);
    story.market.offer(EU, 1, 1.0).await;
    let spec = json!({"instanceType": "h100-8x", "maxBid": 4.5, "nodeSelector": {"pool": story.namespace}});
    story.bid("gpu", spec).await;
    let node = story.running("gpu", 1).await;
    story.deploy("work", &story.namespace, 1);
    let first = story.home_of("work").await;
    story.protect("work");
    // Back to before the bid; others have traded since, so that its number says nothing.
    story.market.restore().await;
    for capacity in 1..=20 {
        story.market.offer(EU, capacity, 1.0).await;
    }
    story
        .eventually("the node is tainted, and another is there", || async {
            let nodes = story.nodes_of(&node).await;
            let tainted = nodes.iter().find(|node| node.name_any() == first);
            nodes.len() == 2 && tainted.is_some_and(|node| !story::taints(node).is_empty())
        })
        .await;
    assert_eq!(story.home_of("work").await, first, "its budget holds it where it is");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(story.client.clone(), &story.namespace);
    budgets.delete("work", &DeleteParams::default()).await.unwrap();
    story
        .eventually("it has moved, and the node is gone", || async {
            let home = story.runs("work").await.and_then(|pod| pod.spec?.node_name);
            home.is_some_and(|home| home != first) && story.nodes_of(&node).await.len() == 1
        })
        .await;
}

#[tokio::test]
async fn deletion_waits_for_an_engine_that_is_away() {
    let mut story = begin("away", 1).await;
    story.market.stop().await;
    story.delete("gpu").await;
    story
        .until("gpu", "it says why it does not go", |status| {
            let said = |it: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
                it.type_ == "Releasing" && it.status == "False" && it.reason == "AuctionUnavailable"
            };
            status.conditions.iter().any(said)
        })
        .await;
    story.market.resume().await;
    story.gone("gpu").await;
    assert!(story.market.held().await.is_empty());
}

#[tokio::test]
async fn an_abandoned_bidnode_goes_without_the_engine() {
    let mut story = begin("abandon", 1).await;
    story.market.stop().await;
    story.annotate(&story.bidnodes(), "gpu", "kubebid.io/abandon", "true").await;
    story.delete("gpu").await;
    story.gone("gpu").await;
}

#[tokio::test]
async fn an_engine_that_restarts_is_found_again() {
    let mut story = begin("restart", 1).await;
    story.market.stop().await;
    story.change("gpu", json!({"minNodes": 3})).await;
    story
        .until("gpu", "it says that the engine is away", |status| {
            status.conditions.iter().any(|it| it.type_ == "AuctionAvailable" && it.status == "False")
        })
        .await;
    story.market.resume().await;
    story.running("gpu", 3).await;
    assert_eq!(story.market.live_bids().await.len(), 3);
}

#[tokio::test]
async fn an_idle_bidnode_says_soon_that_the_engine_is_away_or_refuses_the_token() {
    let mut story = begin("unseen", 1).await;
    let soon = async |story: &Story, available: &str, words: &str| {
        let said = story.until("gpu", words, |status| {
            let mut conditions = status.conditions.iter().filter(|it| it.type_ == "AuctionAvailable");
            conditions.any(|it| it.status == available && it.message.contains(words))
        });
        timeout(SOON, said).await.unwrap_or_else(|_| panic!("it does not say soon: {words}"));
    };
    story.market.stop().await;
    soon(&story, "False", "no engine is available").await;
    story.market.resume().await;
    soon(&story, "True", "the engine answers").await;
    let list = v1::ListTokensRequest { account: "operator".to_owned(), ..Default::default() };
    for token in story.market.admin().all(list).await.unwrap().tokens {
        let revoke = v1::RevokeTokenRequest { token_id: token.token_id };
        story.market.admin().revoke_token(revoke).await.unwrap();
    }
    soon(&story, "False", "not authenticated").await;
}

#[tokio::test]
async fn an_api_server_that_restarts_with_its_past_forgotten_is_followed_again() {
    let mut story = Story::alone("apiserver").await;
    story.start_operator(&[]);
    fill(&story, 1).await;
    story.plane.compact();
    story.plane.restart(Component::ApiServer);
    story.client = story::client(story.plane).await;
    story.change("gpu", json!({"minNodes": 3})).await;
    let node = story.running("gpu", 3).await;
    assert_eq!(story.market.live_bids().await.len(), 3);
    assert_eq!(story.nodes_of(&node).await.len(), 3);
}

#[tokio::test]
async fn two_of_one_name_in_two_namespaces_do_not_meet() {
    let mut story = Story::alone("twins").await;
    story.start_everywhere();
    fill(&story, 1).await;
    let other = story.neighbour("twins-other").await;
    other.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2})).await;
    let theirs = other.running("gpu", 2).await;
    let ours = story.bidnodes().get("gpu").await.unwrap();
    assert_eq!((story.nodes_of(&ours).await.len(), story.nodes_of(&theirs).await.len()), (1, 2));
    story.delete("gpu").await;
    story.gone("gpu").await;
    assert_eq!(story.nodes_of(&theirs).await.len(), 2);
    assert_eq!(story.market.held().await.len(), 2);
}

/// Three nodes run, and then the engine comes back on a store that ends before their bids.
async fn begin_on_older_store(name: &str, unknown_for: &str) -> Story {
    let mut story = Story::without_operator(name).await;
    story.market.open(EU, NOTICE).await;
    story.market.back_up().await;
    story.start_operator(&["--unknown-for", unknown_for]);
    for capacity in 1..=3 {
        story.market.offer(EU, capacity, 1.0).await;
    }
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 3})).await;
    story.running("gpu", 3).await;
    story.market.restore().await;
    story
}

#[tokio::test]
async fn an_engine_on_an_older_store_is_noticed_and_bid_at_again() {
    let story = begin_on_older_store("older", "2s").await;
    // Slot after slot finds out.
    story
        .until("gpu", "it says that three bids are not known", |status| {
            let mut conditions = status.conditions.iter().filter(|it| it.reason == "BidUnknown");
            conditions.any(|it| it.status == "False" && it.message.contains("does not know 3 bids"))
        })
        .await;
    story.market.offer(EU, 3, 1.0).await;
    let node = story.bidnodes().get("gpu").await.unwrap();
    story.eventually("three nodes are held again", || async { story.market.held().await.len() == 3 }).await;
    story.says("gpu", "BidsKnown", "True", "Known").await;
    story.running("gpu", 3).await;
    story.eventually("and no other is left", || async { story.nodes_of(&node).await.len() == 3 }).await;
}

#[tokio::test]
async fn a_bidnode_whose_bids_an_older_store_does_not_have_can_be_deleted() {
    let story = begin_on_older_store("olderend", "1h").await;
    story.says("gpu", "BidsKnown", "False", "BidUnknown").await;
    story.delete("gpu").await;
    story.gone("gpu").await;
    assert!(story.market.held().await.is_empty());
}

/// A slot goes, and nobody ends what it holds.
async fn lose_slot(story: &mut Story) {
    story.operator = None;
    story.slots().delete("gpu-0", &DeleteParams::default()).await.unwrap();
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    story.slots().patch("gpu-0", &PatchParams::default(), &none).await.unwrap();
}

#[tokio::test]
async fn a_lease_whose_slot_is_gone_is_ended() {
    let mut story = begin("slotless", 2).await;
    let before: Vec<_> = story.market.held().await.into_iter().map(|held| held.allocation).collect();
    lose_slot(&mut story).await;
    story.start_operator(&[]);
    story
        .eventually("two nodes are held, of which one is new", || async {
            let held = story.market.held().await;
            held.len() == 2 && held.iter().filter(|held| before.contains(&held.allocation)).count() == 1
        })
        .await;
    let node = story.running("gpu", 2).await;
    story.eventually("its node is gone", || async { story.nodes_of(&node).await.len() == 2 }).await;
}

#[tokio::test]
async fn a_bidnode_whose_slot_is_gone_can_be_deleted() {
    let mut story = begin("slotlessend", 1).await;
    let node = story.bidnodes().get("gpu").await.unwrap();
    story.operator = None;
    story.delete("gpu").await;
    lose_slot(&mut story).await;
    story.start_operator(&[]);
    story.gone("gpu").await;
    assert!(story.market.held().await.is_empty());
    assert!(story.nodes_of(&node).await.is_empty());
}

#[tokio::test]
async fn an_api_server_that_is_away_is_waited_for_at_the_start_and_later() {
    let mut story = Story::alone("apiaway").await;
    let namespace = story.namespace.clone();
    story.plane.stop(Component::ApiServer);
    story.start_operator(&["--lease-name", "op", "--lease-namespace", &namespace, "--lease-seconds", "9"]);
    story
        .eventually("it says what it waits for", || async {
            story.operator.as_ref().unwrap().log().contains("the cluster cannot be asked: to be tried again")
        })
        .await;
    story.plane.restart(Component::ApiServer);
    story.client = story::client(story.plane).await;
    fill(&story, 1).await;
    story.plane.stop(Component::ApiServer);
    story
        .eventually("it acts no more", || async {
            let log = story.operator.as_ref().unwrap().log();
            log.contains("stood still") || log.contains("the lease is lost")
        })
        .await;
    story.plane.restart(Component::ApiServer);
    story.client = story::client(story.plane).await;
    story.change("gpu", json!({"minNodes": 2})).await;
    story.running("gpu", 2).await;
    assert!(story.operator.as_mut().unwrap().lives(), "it is the same process");
    assert_eq!(story.market.live_bids().await.len(), 2);
}

#[tokio::test]
async fn nodes_stay_while_the_engine_has_another_journal_until_that_is_accepted() {
    const JOURNAL: &str = "6f1c9a52-98a1-4d0c-9f1e-3b1c2d4e5f60";
    let mut story = Story::without_operator("journal").await;
    story.market.open(EU, NOTICE).await;
    story.market.back_up().await;
    story.start_operator(&["--unknown-for", "1s"]);
    story.market.offer(EU, 1, 1.0).await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5})).await;
    let bidnode = story.running("gpu", 1).await;
    let node = story.nodes_of(&bidnode).await[0].metadata.uid.clone();
    story.market.replace_journal(JOURNAL).await;
    for capacity in 1..=20 {
        story.market.offer(EU, capacity, 1.0).await;
    }
    let said = story.says("gpu", "JournalAccepted", "False", "JournalDiffers").await;
    assert!(said.contains(&format!("start the operator with --accept-journal {JOURNAL}")), "{said}");
    story.says("gpu", "BidsKnown", "False", "BidUnknown").await;
    // A restart forgets nothing.
    story.start_operator(&["--unknown-for", "1s", "--accept-journal", "another"]);
    story.says("gpu", "JournalAccepted", "False", "JournalDiffers").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let nodes = story.nodes_of(&bidnode).await;
    assert_eq!((nodes.len(), &nodes[0].metadata.uid), (1, &node));
    assert!(story::taints(&nodes[0]).is_empty());
    assert!(story.market.live_bids().await.is_empty(), "nothing is bid for in its place");

    story.start_operator(&["--unknown-for", "1s", "--accept-journal", JOURNAL]);
    story
        .eventually("another node has taken its place", || async {
            let nodes = story.nodes_of(&bidnode).await;
            nodes.len() == 1 && nodes[0].metadata.uid != node
        })
        .await;
    story.says("gpu", "BidsKnown", "True", "Known").await;
    // The next start needs no flag.
    story.start_operator(&[]);
    story.running("gpu", 1).await;
}
