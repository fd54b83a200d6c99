//! Conditions of a slot: what it has reached, what it waits for, and until when.

use super::Limits;
use crate::api::{BidSlotStatus, SlotPhase};
use crate::plan::gang::{COMPLETE, REGROUPING, REPLACING};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// True if the bid has a unit.
const ALLOCATED: &str = "Allocated";
/// True if the node is ready and stays.
const READY: &str = "Ready";
/// True if the machine is ended and the unit is given back.
const RELEASED: &str = "Released";

/// A hindrance to the next step of a slot that its phase does not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The engine does not answer; with the error message.
    EngineUnavailable(String),
    /// The provisioner does not answer; with the error message.
    ProvisionerUnavailable(String),
    /// Another finalizer holds the Node object, which was deleted at this time.
    NodeHeld(Timestamp),
    /// The engine refuses a request; with the error message.
    Refused(String),
    /// The API server refuses the labels or taints of the node; with the error message.
    RegistrationRefused(String),
    /// The Node object of this name does not prove that it is the slot's machine.
    NodeUnproven(String),
}

/// The input of [`conditions`] besides the status.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The hindrance to the next step.
    pub obstacle: Option<&'a Obstacle>,
    /// True if the slot's node exists and is ready.
    pub node_ready: bool,
    /// The time-outs of the slot.
    pub limits: Limits,
    /// The generation of the slot.
    pub generation: Option<i64>,
    /// The time at which the conditions are computed.
    pub now: Timestamp,
}

/// A condition without its times.
struct Verdict {
    type_: &'static str,
    holds: bool,
    reason: String,
    message: String,
}

/// Returns the conditions of a slot with this status.
pub fn conditions(status: &BidSlotStatus, facts: &Facts<'_>) -> Vec<Condition> {
    let mut verdicts = vec![allocated(status, &facts.limits)];
    if status.phase >= SlotPhase::Awarded {
        verdicts.push(ready(status, facts));
    }
    if status.phase >= SlotPhase::Notice {
        verdicts.push(released(status, &facts.limits));
    }
    if let Some(obstacle) = facts.obstacle
        && let Some(last) = verdicts.iter_mut().rfind(|verdict| !verdict.holds)
    {
        let (reason, message) = hindered(obstacle, &facts.limits);
        // The error messages of an outage differ: the first one stays.
        let was = status.conditions.iter().find(|was| was.type_ == last.type_ && was.reason == reason);
        last.message = was.map_or(message, |was| was.message.clone());
        last.reason = reason.to_owned();
    }
    verdicts.into_iter().map(|verdict| condition(verdict, status, facts)).collect()
}

fn condition(verdict: Verdict, status: &BidSlotStatus, facts: &Facts<'_>) -> Condition {
    let holds = if verdict.holds { "True" } else { "False" };
    let before = status.conditions.iter().find(|was| was.type_ == verdict.type_ && was.status == holds);
    Condition {
        type_: verdict.type_.to_owned(),
        status: holds.to_owned(),
        reason: verdict.reason,
        message: verdict.message,
        last_transition_time: before.map_or(Time(facts.now), |was| was.last_transition_time.clone()),
        observed_generation: facts.generation,
    }
}

fn verdict(type_: &'static str, holds: bool, reason: impl Into<String>, message: String) -> Verdict {
    Verdict { type_, holds, reason: reason.into(), message }
}

fn allocated(status: &BidSlotStatus, limits: &Limits) -> Verdict {
    if let Some(since) = status.lost_time.as_ref().filter(|_| status.phase < SlotPhase::Notice) {
        let message = format!(
            "the engine does not know bid {} since {}; it is given up and another placed{}",
            status.bid.unwrap_or_default(),
            since.0,
            until(Some(since), limits.unknown).replace(" until ", " at ")
        );
        return verdict(ALLOCATED, false, "BidUnknown", message);
    }
    if let Some(unit) = &status.unit {
        return verdict(ALLOCATED, true, "Allocated", format!("it has unit {unit}"));
    }
    let reason = status.reason.clone();
    if status.phase > SlotPhase::Bidding {
        return verdict(
            ALLOCATED,
            false,
            reason.unwrap_or_else(|| "GivenUp".into()),
            "it has no unit".into(),
        );
    }
    match (status.bid, reason.as_deref()) {
        (Some(bid), Some(COMPLETE)) => {
            verdict(ALLOCATED, true, COMPLETE, format!("bid {bid} has all nodes of the gang"))
        }
        (Some(_), Some(reason @ (REPLACING | REGROUPING))) => {
            verdict(ALLOCATED, false, reason, status.message.clone().unwrap_or_default())
        }
        (Some(bid), _) => {
            let message = format!("bid {bid} waits in the market; see `kubebid explain bid {bid}`");
            verdict(ALLOCATED, false, "BidWaits", message)
        }
        (None, Some("NoPrice")) => {
            let message = "no market of the type is open to bid in; looked for every 2 seconds";
            verdict(ALLOCATED, false, "NoPrice", message.to_owned())
        }
        (None, Some("MaxBidBelowTick")) => {
            let message = "maxBid is below the smallest price of its markets; looked at every minute";
            verdict(ALLOCATED, false, "MaxBidBelowTick", message.to_owned())
        }
        (None, Some(reason)) => verdict(
            ALLOCATED,
            false,
            reason,
            status.message.clone().unwrap_or_else(|| "it is bid for".into()),
        ),
        (None, None) => verdict(ALLOCATED, false, "NotBidYet", "it is about to be bid for".into()),
    }
}

fn ready(status: &BidSlotStatus, facts: &Facts<'_>) -> Verdict {
    let until = || until(status.since.as_ref(), facts.limits.machine);
    match status.phase {
        SlotPhase::Ready if !facts.node_ready => {
            let message = "the node was ready and is not: its BidNode says for how long that may be";
            verdict(READY, false, "NodeNotReady", message.to_owned())
        }
        SlotPhase::Ready => verdict(READY, true, "NodeReady", "the node is ready".into()),
        SlotPhase::Registered => verdict(
            READY,
            false,
            "NodeNotReady",
            format!("the node is to be ready{}, or is given back", until()),
        ),
        SlotPhase::Pending | SlotPhase::Bidding | SlotPhase::Awarded | SlotPhase::Provisioning => verdict(
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
            verdict(READY, false, reason, "it is given up".into())
        }
    }
}

fn released(status: &BidSlotStatus, limits: &Limits) -> Verdict {
    let reason = status.reason.clone().unwrap_or_else(|| "GivenUp".into());
    match status.phase {
        SlotPhase::Released | SlotPhase::Failed => verdict(RELEASED, true, reason, "nothing is held".into()),
        SlotPhase::Releasing if status.missing_time.is_some() => {
            let until = until(status.missing_time.as_ref(), limits.vanished);
            verdict(RELEASED, false, "NodeVanished", format!("the unit is kept for its node{until}"))
        }
        SlotPhase::Releasing => {
            verdict(RELEASED, false, "Releasing", "the machine is ended and the unit given back".into())
        }
        SlotPhase::Draining => {
            let until = match &status.deadline {
                Some(Time(deadline)) => format!(" until {deadline}, when the node ends"),
                None => until(status.drain_time.as_ref(), limits.drain),
            };
            verdict(RELEASED, false, "Draining", format!("its pods have time to leave{until}"))
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
            verdict(RELEASED, false, "OthersFirst", message.to_owned())
        }
    }
}

fn hindered(obstacle: &Obstacle, limits: &Limits) -> (&'static str, String) {
    match obstacle {
        Obstacle::Refused(why) => {
            ("Refused", format!("the engine is asked again, less and less often: {why}"))
        }
        Obstacle::RegistrationRefused(why) => ("RegistrationRefused", why.clone()),
        Obstacle::NodeUnproven(node) => {
            let message = format!(
                "node {node} has neither the provider ID nor the taint value of its machine, and is not touched"
            );
            ("NodeUnproven", message)
        }
        Obstacle::EngineUnavailable(why) => {
            ("AuctionUnavailable", format!("waits for as long as it takes: {why}"))
        }
        Obstacle::ProvisionerUnavailable(why) => {
            ("ProvisionerUnavailable", format!("it is asked again and again: {why}"))
        }
        Obstacle::NodeHeld(since) => {
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

    /// Expects each condition as its type and reason, with "-" before a condition that is false.
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
        let held = Obstacle::NodeHeld(at(0));
        let releasing = slot(SlotPhase::Releasing, "Preempted");
        let said = check(&releasing, Some(&held), "Allocated:Allocated -Ready:Preempted -Released:NodeHeld");
        assert!(said[2].message.ends_with("until 1970-01-01T00:02:00Z"), "{}", said[2].message);
        let silent = Facts { node_ready: false, ..facts(1, None) };
        let said = conditions(&slot(SlotPhase::Ready, "NodeReady"), &silent);
        assert_eq!((said[1].status.as_str(), said[1].reason.as_str()), ("False", "NodeNotReady"));
        // A slot that is ready waits for nothing.
        let away = Obstacle::EngineUnavailable("no answer".into());
        check(&slot(SlotPhase::Ready, "NodeReady"), Some(&away), "Allocated:Allocated Ready:NodeReady");
        check(&slot(SlotPhase::Bidding, "BidWaits"), Some(&away), "-Allocated:AuctionUnavailable");
    }

    #[test]
    fn what_is_said_again_in_other_words_is_not_written_again() {
        let mut status = slot(SlotPhase::Bidding, "BidWaits");
        let first = Obstacle::EngineUnavailable("after 1 try".into());
        status.conditions = conditions(&status, &facts(1, Some(&first)));
        let second = Obstacle::EngineUnavailable("after 2 tries".into());
        assert_eq!(conditions(&status, &facts(9, Some(&second))), status.conditions);
        let back = conditions(&status, &facts(9, None));
        assert_eq!((back[0].reason.as_str(), back[0].last_transition_time.0), ("BidWaits", at(1)));
    }
}
