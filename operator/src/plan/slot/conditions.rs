//! The conditions of a slot: how far it is, what it waits for, and until when.

use super::Limits;
use crate::api::{BidSlotStatus, SlotPhase};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The bid has a unit.
const ALLOCATED: &str = "Allocated";
/// The node is ready, and stays.
const READY: &str = "Ready";
/// The machine is ended, and the unit given back.
const RELEASED: &str = "Released";

/// What keeps a slot from its next step, besides what its phase says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The engine does not answer, with its words.
    Auction(String),
    /// The provisioner does not answer, with its words.
    Provisioner(String),
    /// Others hold the deleted Node object with a finalizer, since then.
    Held(Timestamp),
    /// The engine refuses what it is asked for, with its words.
    Refused(String),
    /// The API server refuses the labels or taints of the node, with its words.
    Registration(String),
    /// The Node object of this name does not prove that it is the slot's machine.
    Unproven(String),
}

/// What there is to say besides the status.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    pub obstacle: Option<&'a Obstacle>,
    /// Its node is there and ready.
    pub node_ready: bool,
    pub limits: Limits,
    pub generation: Option<i64>,
    pub now: Timestamp,
}

struct Said {
    type_: &'static str,
    holds: bool,
    reason: String,
    message: String,
}

/// The conditions of a slot whose status is otherwise as it is to be written.
pub fn conditions(status: &BidSlotStatus, facts: &Facts<'_>) -> Vec<Condition> {
    let mut said = vec![allocated(status, &facts.limits)];
    if status.phase >= SlotPhase::Awarded {
        said.push(ready(status, facts));
    }
    if status.phase >= SlotPhase::Notice {
        said.push(released(status, &facts.limits));
    }
    if let Some(obstacle) = facts.obstacle
        && let Some(last) = said.iter_mut().rfind(|condition| !condition.holds)
    {
        let (reason, message) = hindered(obstacle, &facts.limits);
        // An engine that is away is so in many words: the first ones stay.
        let was = status.conditions.iter().find(|was| was.type_ == last.type_ && was.reason == reason);
        last.message = was.map_or(message, |was| was.message.clone());
        last.reason = reason.to_owned();
    }
    said.into_iter().map(|said| condition(said, status, facts)).collect()
}

fn condition(said: Said, status: &BidSlotStatus, facts: &Facts<'_>) -> Condition {
    let holds = if said.holds { "True" } else { "False" };
    let before = status.conditions.iter().find(|was| was.type_ == said.type_ && was.status == holds);
    Condition {
        type_: said.type_.to_owned(),
        status: holds.to_owned(),
        reason: said.reason,
        message: said.message,
        last_transition_time: before.map_or(Time(facts.now), |was| was.last_transition_time.clone()),
        observed_generation: facts.generation,
    }
}

fn said(type_: &'static str, holds: bool, reason: impl Into<String>, message: String) -> Said {
    Said { type_, holds, reason: reason.into(), message }
}

fn allocated(status: &BidSlotStatus, limits: &Limits) -> Said {
    if let Some(since) = status.lost_time.as_ref().filter(|_| status.phase < SlotPhase::Notice) {
        let message = format!(
            "the engine does not know bid {} since {}; it is given up and another placed{}",
            status.bid.unwrap_or_default(),
            since.0,
            until(Some(since), limits.unknown).replace(" until ", " at ")
        );
        return said(ALLOCATED, false, "BidUnknown", message);
    }
    if let Some(unit) = &status.unit {
        return said(ALLOCATED, true, "Allocated", format!("it has unit {unit}"));
    }
    let reason = status.reason.clone();
    if status.phase > SlotPhase::Bidding {
        return said(ALLOCATED, false, reason.unwrap_or_else(|| "GivenUp".into()), "it has no unit".into());
    }
    match (status.bid, reason.as_deref()) {
        (Some(bid), _) => {
            let message = format!("bid {bid} waits in the market for as long as its BidNode wants a node");
            said(ALLOCATED, false, "BidWaits", message)
        }
        (None, Some("NoPrice")) => {
            let message = "no market of the type is open to bid in; looked for every 2 seconds";
            said(ALLOCATED, false, "NoPrice", message.to_owned())
        }
        (None, Some("MaxBidBelowTick")) => {
            let message = "maxBid is below the smallest price of its markets; looked at every minute";
            said(ALLOCATED, false, "MaxBidBelowTick", message.to_owned())
        }
        (None, Some(reason)) => {
            said(ALLOCATED, false, reason, status.message.clone().unwrap_or_else(|| "it is bid for".into()))
        }
        (None, None) => said(ALLOCATED, false, "NotBidYet", "it is about to be bid for".into()),
    }
}

fn ready(status: &BidSlotStatus, facts: &Facts<'_>) -> Said {
    let until = || until(status.since.as_ref(), facts.limits.machine);
    match status.phase {
        SlotPhase::Ready if !facts.node_ready => {
            let message = "the node was ready and is not: its BidNode says for how long that may be";
            said(READY, false, "NodeNotReady", message.to_owned())
        }
        SlotPhase::Ready => said(READY, true, "NodeReady", "the node is ready".into()),
        SlotPhase::Registered => said(
            READY,
            false,
            "NodeNotReady",
            format!("the node is to be ready{}, or is given back", until()),
        ),
        SlotPhase::Pending | SlotPhase::Bidding | SlotPhase::Awarded | SlotPhase::Provisioning => said(
            READY,
            false,
            "MachineOrdered",
            format!("its machine is to come{}, or is given back", until()),
        ),
        SlotPhase::Notice
        | SlotPhase::Draining
        | SlotPhase::Releasing
        | SlotPhase::Released
        | SlotPhase::Failed => {
            let reason = status.reason.clone().unwrap_or_else(|| "GivenUp".into());
            said(READY, false, reason, "it is given up".into())
        }
    }
}

fn released(status: &BidSlotStatus, limits: &Limits) -> Said {
    let reason = status.reason.clone().unwrap_or_else(|| "GivenUp".into());
    match status.phase {
        SlotPhase::Released | SlotPhase::Failed => said(RELEASED, true, reason, "nothing is held".into()),
        SlotPhase::Releasing if status.missing_time.is_some() => {
            let until = until(status.missing_time.as_ref(), limits.vanished);
            said(RELEASED, false, "NodeVanished", format!("the unit is kept for its node{until}"))
        }
        SlotPhase::Releasing => {
            said(RELEASED, false, "Releasing", "the machine is ended and the unit given back".into())
        }
        SlotPhase::Draining => {
            let until = match &status.deadline {
                Some(Time(deadline)) => format!(" until {deadline}, when the node ends"),
                None => until(status.drain_time.as_ref(), limits.drain),
            };
            said(RELEASED, false, "Draining", format!("its pods have time to leave{until}"))
        }
        SlotPhase::Pending
        | SlotPhase::Bidding
        | SlotPhase::Awarded
        | SlotPhase::Provisioning
        | SlotPhase::Registered
        | SlotPhase::Ready
        | SlotPhase::Notice => {
            let message = "waits until all nodes under notice are tainted and bids stand in their place: \
                           for a quarter of the notice, at most 30 seconds";
            said(RELEASED, false, "OthersFirst", message.to_owned())
        }
    }
}

fn hindered(obstacle: &Obstacle, limits: &Limits) -> (&'static str, String) {
    match obstacle {
        Obstacle::Refused(why) => {
            ("Refused", format!("the engine is asked again, less and less often: {why}"))
        }
        Obstacle::Registration(why) => ("RegistrationRefused", why.clone()),
        Obstacle::Unproven(node) => {
            let message = format!(
                "node {node} has neither the provider ID nor the taint value of its machine, and is not touched"
            );
            ("NodeUnproven", message)
        }
        Obstacle::Auction(why) => ("AuctionUnavailable", format!("waits for as long as it takes: {why}")),
        Obstacle::Provisioner(why) => {
            ("ProvisionerUnavailable", format!("it is asked again and again: {why}"))
        }
        Obstacle::Held(since) => {
            let until = until(Some(&Time(*since)), limits.held);
            ("NodeHeld", format!("others hold the Node object with a finalizer, and are waited for{until}"))
        }
    }
}

fn until(since: Option<&Time>, limit: SignedDuration) -> String {
    since.map(|Time(since)| format!(" until {}", *since + limit)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn slot(phase: SlotPhase, reason: &str) -> BidSlotStatus {
        BidSlotStatus {
            phase,
            reason: Some(reason.into()),
            since: Some(Time(at(0))),
            bid: (phase > SlotPhase::Pending).then_some(7),
            unit: (phase > SlotPhase::Bidding).then(|| "h100-8x/eu-west:acme#0".into()),
            ..BidSlotStatus::default()
        }
    }

    fn facts(now: i64, obstacle: Option<&Obstacle>) -> Facts<'_> {
        Facts { obstacle, node_ready: true, limits: Limits::default(), generation: None, now: at(now) }
    }

    /// "-" before what is not so, with its reason.
    #[track_caller]
    fn check(status: &BidSlotStatus, obstacle: Option<&Obstacle>, expect: &str) -> Vec<Condition> {
        let conditions = conditions(status, &facts(1, obstacle));
        let said: Vec<_> = conditions
            .iter()
            .map(|it| {
                let sign = if it.status == "True" { "" } else { "-" };
                format!("{sign}{}:{}", it.type_, it.reason)
            })
            .collect();
        assert_eq!(said.join(" "), expect);
        conditions
    }

    #[test]
    fn every_wait_has_its_reason() {
        check(&BidSlotStatus::default(), None, "-Allocated:NotBidYet");
        check(&slot(SlotPhase::Pending, "NoPrice"), None, "-Allocated:NoPrice");
        check(&slot(SlotPhase::Bidding, "BidWaits"), None, "-Allocated:BidWaits");
        let provisioning = slot(SlotPhase::Provisioning, "MachineOrdered");
        let said = check(&provisioning, None, "Allocated:Allocated -Ready:MachineOrdered");
        assert_eq!(said[1].message, "its machine is to come until 1970-01-01T00:15:00Z, or is given back");
        check(&slot(SlotPhase::Ready, "NodeReady"), None, "Allocated:Allocated Ready:NodeReady");
        let draining =
            BidSlotStatus { drain_time: Some(Time(at(60))), ..slot(SlotPhase::Draining, "ScaleDown") };
        let said = check(&draining, None, "Allocated:Allocated -Ready:ScaleDown -Released:Draining");
        assert_eq!(said[2].message, "its pods have time to leave until 1970-01-01T00:16:00Z");
        let failed = slot(SlotPhase::Failed, "MachineLate");
        check(&failed, None, "Allocated:Allocated -Ready:MachineLate Released:MachineLate");
    }

    #[test]
    fn an_obstacle_is_the_reason_of_what_it_keeps_from_being_so() {
        let held = Obstacle::Held(at(0));
        let releasing = slot(SlotPhase::Releasing, "Preempted");
        let said = check(&releasing, Some(&held), "Allocated:Allocated -Ready:Preempted -Released:NodeHeld");
        assert!(said[2].message.ends_with("until 1970-01-01T00:02:00Z"), "{}", said[2].message);
        let silent = Facts { node_ready: false, ..facts(1, None) };
        let said = conditions(&slot(SlotPhase::Ready, "NodeReady"), &silent);
        assert_eq!((said[1].status.as_str(), said[1].reason.as_str()), ("False", "NodeNotReady"));
        // One that is ready waits for nobody.
        let away = Obstacle::Auction("nobody there".into());
        check(&slot(SlotPhase::Ready, "NodeReady"), Some(&away), "Allocated:Allocated Ready:NodeReady");
        check(&slot(SlotPhase::Bidding, "BidWaits"), Some(&away), "-Allocated:AuctionUnavailable");
    }

    #[test]
    fn what_is_said_again_in_other_words_is_not_written_again() {
        let mut status = slot(SlotPhase::Bidding, "BidWaits");
        let first = Obstacle::Auction("after 1 try".into());
        status.conditions = conditions(&status, &facts(1, Some(&first)));
        let second = Obstacle::Auction("after 2 tries".into());
        assert_eq!(conditions(&status, &facts(9, Some(&second))), status.conditions);
        let back = conditions(&status, &facts(9, None));
        assert_eq!((back[0].reason.as_str(), back[0].last_transition_time.0), ("BidWaits", at(1)));
    }
}
