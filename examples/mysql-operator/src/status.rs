//! The status of a server, from its children as they are. Pure functions.

use crate::api::{Mysql, MysqlStatus, NEW_PASSWORD};
use crate::children::{claim_name, claim_of, is_more, lacks_password, size_of};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::PartialObjectMeta;
use kubebid_controller::Object;
use kubebid_controller::composite::{Children, owner_annotation};
use kubebid_controller::conditions::{self, NewCondition};

/// The child is not there yet.
pub const MISSING: &str = "Missing";
/// The server starts.
pub const CREATING: &str = "Creating";
/// All is as it should be.
pub const AVAILABLE: &str = "Available";
/// A foreign object has the name of the child, and is not touched.
pub const CONFLICT: &str = "Conflict";
/// The child is not as it should be, and a person has to look.
pub const DEGRADED: &str = "Degraded";

/// A reason and the sentence that explains it.
type Finding = (&'static str, String);

/// Returns the status of a server. Conditions of other types are kept.
pub fn status(mysql: &Mysql, observed: &Children, now: Timestamp) -> MysqlStatus {
    let findings = [
        ("Secret", secret(mysql, observed)),
        ("Service", service(mysql, observed)),
        ("StatefulSet", stateful_set(mysql, observed)),
    ];
    let of_all =
        findings.iter().map(|(_, finding)| finding).find(|(reason, _)| *reason != AVAILABLE).cloned();
    let of_all = of_all.unwrap_or_else(|| (AVAILABLE, "the server answers".to_owned()));
    let ready = of_all.0 == AVAILABLE;
    let mut conditions = mysql.status.clone().unwrap_or_default().conditions;
    for (type_, (reason, message)) in findings.into_iter().chain([("Ready", of_all)]) {
        let condition = NewCondition::new(type_, reason == AVAILABLE, reason, message);
        conditions::set(&mut conditions, condition, mysql.metadata.generation, now);
    }
    MysqlStatus { ready, conditions }
}

fn secret(mysql: &Mysql, observed: &Children) -> Finding {
    if let Some(obstacle) = obstacle::<Secret>(mysql, observed) {
        return obstacle;
    }
    if observed.get::<PartialObjectMeta<Secret>>(&mysql.name_any()).is_some() {
        return (AVAILABLE, "the Secret has the password".to_owned());
    }
    if lacks_password(mysql, observed) {
        let claim = claim_name(mysql);
        return (
            DEGRADED,
            format!(
                "the Secret is gone, and the volume of {claim} still has its password: restore the Secret, or set the \
                 annotation {NEW_PASSWORD} to true for a new password, which the server does not know yet"
            ),
        );
    }
    (MISSING, "there is no Secret".to_owned())
}

fn service(mysql: &Mysql, observed: &Children) -> Finding {
    if let Some(obstacle) = obstacle::<Service>(mysql, observed) {
        return obstacle;
    }
    match observed.get::<Service>(&mysql.name_any()) {
        Some(_) => (AVAILABLE, "the Service gives the server its name".to_owned()),
        None => (MISSING, "there is no Service".to_owned()),
    }
}

fn stateful_set(mysql: &Mysql, observed: &Children) -> Finding {
    if let Some(obstacle) = obstacle::<StatefulSet>(mysql, observed) {
        return obstacle;
    }
    if let Some(finding) = storage(mysql, observed) {
        return finding;
    }
    let Some(set) = observed.get::<StatefulSet>(&mysql.name_any()) else {
        return (MISSING, "there is no StatefulSet".to_owned());
    };
    if set.metadata.deletion_timestamp.is_some() {
        return (MISSING, "the StatefulSet is being deleted, and is created again after that".to_owned());
    }
    match progress(set) {
        Progress::Ready => (AVAILABLE, "the server is ready".to_owned()),
        Progress::Unready if has_been_available(mysql) => (DEGRADED, "the server is not ready".to_owned()),
        Progress::Unready | Progress::Changing => (CREATING, "the server starts".to_owned()),
    }
}

/// Returns what keeps a child from being as it should be: a foreign object of its name, or the API server's refusal.
fn obstacle<C: Object>(mysql: &Mysql, observed: &Children) -> Option<Finding> {
    let (name, kind) = (mysql.name_any(), C::kind(&()));
    if observed.is_foreign::<C>(&name) {
        let annotation = owner_annotation::<Mysql>();
        let uid = mysql.uid().unwrap_or_default();
        let message = format!(
            "another {kind} has the name {name}: delete it, or give it to this Mysql by the annotation {annotation}={name}/{uid}"
        );
        return Some((CONFLICT, message));
    }
    observed.refusal::<C>(&name).map(|refusal| (DEGRADED, refusal.to_owned()))
}

/// Returns what keeps the volume from having the wanted size.
fn storage(mysql: &Mysql, observed: &Children) -> Option<Finding> {
    let name = claim_name(mysql);
    if let Some(refusal) = observed.refusal::<PersistentVolumeClaim>(&name) {
        return Some((DEGRADED, refusal.to_owned()));
    }
    let (size, wanted) = (claim_of(mysql, observed).and_then(size_of)?, &mysql.spec.storage);
    let message = format!("the volume of {name} has {}, and cannot shrink to {}", size.0, wanted.0);
    is_more(size, wanted).then_some((DEGRADED, message))
}

/// The progress of the pod of a StatefulSet.
enum Progress {
    /// The pod is as the template says, and not ready.
    Unready,
    /// The pod is made anew after a change of the template.
    Changing,
    /// The pod is as the template says, and ready.
    Ready,
}

fn progress(set: &StatefulSet) -> Progress {
    let Some(status) = &set.status else { return Progress::Changing };
    let is_observed = status.observed_generation == set.metadata.generation;
    if !is_observed || status.current_revision != status.update_revision {
        return Progress::Changing;
    }
    if status.ready_replicas == Some(1) { Progress::Ready } else { Progress::Unready }
}

/// Returns true if the server was ready since it was created or changed.
fn has_been_available(mysql: &Mysql) -> bool {
    let conditions = mysql.status.iter().flat_map(|status| &status.conditions);
    let is_after_creating = |it: &&Condition| [AVAILABLE, DEGRADED].contains(&it.reason.as_str());
    conditions.filter(|it| it.type_ == "StatefulSet").any(|it| is_after_creating(&it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::{IMAGE, service as service_of, stateful_set as stateful_set_of};
    use kube::core::metadata::PartialObjectMetaExt as _;
    use serde_json::{Value, json};

    fn mysql(status: Value) -> Mysql {
        let mysql = json!({
            "apiVersion": "fnjoin.com/v1", "kind": "Mysql",
            "metadata": {"name": "shop", "namespace": "n", "uid": "u", "generation": 1},
            "spec": {"storage": "2Gi"}, "status": status,
        });
        serde_json::from_value(mysql).unwrap()
    }

    /// Returns a StatefulSet whose status has these revisions and so many ready pods.
    fn set(current: &str, update: &str, ready: u32) -> StatefulSet {
        let mysql = mysql(Value::Null);
        let mut set = json!(stateful_set_of(&mysql, IMAGE, &mysql.spec.storage));
        set["metadata"]["generation"] = json!(3);
        set["status"] = json!({
            "replicas": 1, "observedGeneration": 3, "currentRevision": current, "updateRevision": update, "readyReplicas": ready,
        });
        serde_json::from_value(set).unwrap()
    }

    fn claim(size: &str) -> PersistentVolumeClaim {
        let spec = json!({"resources": {"requests": {"storage": size}}});
        serde_json::from_value(json!({"metadata": {"name": "data-shop-0", "namespace": "n"}, "spec": spec}))
            .unwrap()
    }

    fn with_secret(observed: Children) -> Children {
        let metadata = json!({"name": "shop", "namespace": "n"});
        let metadata: kube::api::ObjectMeta = serde_json::from_value(metadata).unwrap();
        observed.with::<PartialObjectMeta<Secret>>(metadata.into_response_partial())
    }

    fn complete(set: StatefulSet) -> Children {
        with_secret(Children::default())
            .with(service_of(&mysql(Value::Null)))
            .with(set)
            .with_related(claim("2Gi"))
    }

    /// Returns the reasons of the conditions, in order.
    fn reasons(mysql: &Mysql, observed: &Children) -> Vec<String> {
        let status = status(mysql, observed, Timestamp::UNIX_EPOCH);
        assert_eq!(status.ready, status.conditions.iter().all(|it| it.status == "True"));
        status.conditions.into_iter().map(|it| it.reason).collect()
    }

    #[test]
    fn a_server_is_ready_if_all_children_are_available() {
        let mysql = mysql(Value::Null);
        assert_eq!(reasons(&mysql, &Children::default()), [MISSING; 4]);
        assert_eq!(reasons(&mysql, &complete(set("1", "1", 1))), [AVAILABLE; 4]);
        let starts = [AVAILABLE, AVAILABLE, CREATING, CREATING];
        assert_eq!(reasons(&mysql, &complete(set("1", "1", 0))), starts);
        assert_eq!(reasons(&mysql, &complete(set("1", "2", 1))), starts, "the old pod is still there");
        let mut changed = set("1", "1", 1);
        changed.metadata.generation = Some(4);
        assert_eq!(reasons(&mysql, &complete(changed)), starts, "a change is not seen yet");
        let mut deleted = set("1", "1", 1);
        deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-23T00:00:00Z")).unwrap();
        assert_eq!(reasons(&mysql, &complete(deleted)), [AVAILABLE, AVAILABLE, MISSING, MISSING]);
    }

    #[test]
    fn a_server_that_was_ready_and_is_not_is_degraded_unless_it_is_changed() {
        let mut mysql = mysql(Value::Null);
        mysql.status = Some(status(&mysql, &complete(set("1", "1", 1)), Timestamp::UNIX_EPOCH));
        assert_eq!(reasons(&mysql, &complete(set("1", "1", 0))), [AVAILABLE, AVAILABLE, DEGRADED, DEGRADED]);
        assert_eq!(reasons(&mysql, &complete(set("1", "2", 0))), [AVAILABLE, AVAILABLE, CREATING, CREATING]);
    }

    #[test]
    fn a_lost_password_and_a_volume_that_is_too_large_are_degraded() {
        let mut mysql = mysql(Value::Null);
        let lost = Children::default().with_related(claim("2Gi"));
        assert_eq!(reasons(&mysql, &lost)[0], DEGRADED);
        mysql.annotations_mut().insert(NEW_PASSWORD.to_owned(), "true".to_owned());
        assert_eq!(reasons(&mysql, &lost)[0], MISSING);
        let larger = complete(set("1", "1", 1)).with_related(claim("3Gi"));
        assert_eq!(reasons(&mysql, &larger), [AVAILABLE, AVAILABLE, DEGRADED, DEGRADED]);
        let same = complete(set("1", "1", 1)).with_related(claim("2048Mi"));
        assert_eq!(reasons(&mysql, &same), [AVAILABLE; 4]);
    }

    #[test]
    fn conditions_of_others_are_kept() {
        let theirs = json!({
            "type": "Theirs", "status": "True", "reason": "Any", "message": "", "lastTransitionTime": "2026-11-23T00:00:00Z",
        });
        let mysql = mysql(json!({"ready": false, "conditions": [theirs]}));
        let status = status(&mysql, &Children::default(), Timestamp::UNIX_EPOCH);
        assert_eq!((status.conditions.len(), status.conditions[0].type_.as_str()), (5, "Theirs"));
    }
}
