//! The objects that a server consists of: a Secret, a Service and a StatefulSet, all of its own name. Pure functions.

use crate::api::{DeletionPolicy, Mysql, NEW_PASSWORD};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use kube::api::PartialObjectMeta;
use kube_quantity::ParsedQuantity;
use kubebid_controller::ObjectName;
use kubebid_controller::composite::{Children, child_metadata};
use serde_json::{Value, json};

/// The image of the server, unless an option names another.
pub const IMAGE: &str = "mysql:8";
/// The key of the Secret, which is also the variable that the image reads.
pub const PASSWORD: &str = "MYSQL_ROOT_PASSWORD";
/// The fields of a StatefulSet that the API server does not let anybody change, and that follow the object.
pub const IMMUTABLE: &[&str] = &["/spec/volumeClaimTemplates"];

const PORT: u16 = 3306;

/// The command of all probes. It logs in, because a ping succeeds with a wrong password as well; and it is a shell's,
/// because Kubernetes does not expand variables of a Secret in the command of a probe. The address is the pod's, because
/// the server that prepares a new volume listens on no network, and is not ready.
const LOG_IN: &str =
    r#"MYSQL_PWD="$MYSQL_ROOT_PASSWORD" exec mysql --host="$POD_IP" --user=root --execute="SELECT 1""#;

/// Returns the Secret with the password. The object is created once, and its data is never written again. It has no owner
/// reference if it is to stay with the volume when the object is deleted.
pub fn secret(mysql: &Mysql, password: &str) -> Secret {
    let mut secret: Secret = child(mysql, json!({"stringData": {PASSWORD: password}}));
    if mysql.spec.deletion_policy == DeletionPolicy::Retain {
        secret.metadata.owner_references = None;
    }
    secret
}

/// Returns the Service that gives the pod a name: `NAME-0.NAME`.
pub fn service(mysql: &Mysql) -> Service {
    let spec = json!({
        "clusterIP": "None",
        "selector": labels(mysql),
        "ports": [{"name": "mysql", "port": PORT}],
    });
    child(mysql, json!({"spec": spec}))
}

/// Returns the StatefulSet of one pod with a volume of this size.
pub fn stateful_set(mysql: &Mysql, image: &str, storage: &Quantity) -> StatefulSet {
    let secret_key = json!({"name": mysql.name_any(), "key": PASSWORD});
    let container = json!({
        "name": "mysql",
        "image": image,
        "env": [
            {"name": PASSWORD, "valueFrom": {"secretKeyRef": secret_key}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "ports": [{"name": "mysql", "containerPort": PORT}],
        "resources": {"requests": {"cpu": mysql.spec.cpu, "memory": mysql.spec.memory}},
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/mysql"}],
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        // A new volume is prepared at the first start: ten minutes for that.
        "startupProbe": probe(2, 300),
        "readinessProbe": probe(5, 1),
        "livenessProbe": probe(10, 3),
    });
    // What a namespace with the Pod Security Standard `restricted` demands. 999 is the user of the images.
    let pod = json!({
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 999, "runAsGroup": 999, "fsGroup": 999,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    });
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}},
    });
    let spec = json!({
        "replicas": 1,
        "serviceName": mysql.name_any(),
        // A pod that never gets ready does not keep a change of its template from it.
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels(mysql)},
        "template": {"metadata": {"labels": labels(mysql)}, "spec": pod},
        "volumeClaimTemplates": [claim],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": mysql.spec.deletion_policy, "whenScaled": "Retain"},
    });
    child(mysql, json!({"spec": spec}))
}

fn probe(period_seconds: u32, failures: u32) -> Value {
    json!({
        "exec": {"command": ["sh", "-c", LOG_IN]},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    })
}

fn labels(mysql: &Mysql) -> Value {
    json!({"app.kubernetes.io/name": "mysql", "app.kubernetes.io/instance": mysql.name_any()})
}

/// Returns a child with these fields, the name of its object, and labels.
fn child<C: serde::de::DeserializeOwned>(mysql: &Mysql, fields: Value) -> C {
    let mut object = fields;
    object["metadata"] = json!(child_metadata(mysql, &mysql.name_any()));
    object["metadata"]["labels"] = labels(mysql);
    object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("mysql-operator");
    serde_json::from_value(object).expect("an object of this kind")
}

/// Returns the name of the claim that a StatefulSet makes of the template `data`.
pub fn claim_name(mysql: &Mysql) -> String {
    format!("data-{}-0", mysql.name_any())
}

/// Returns the claim of a server, if there is one.
pub fn claim_of<'a>(mysql: &Mysql, observed: &'a Children) -> Option<&'a PersistentVolumeClaim> {
    observed.related(&claim_name(mysql))
}

/// Returns the Mysql that a claim belongs to, if it belongs to one.
pub fn mysql_of(claim: &PersistentVolumeClaim) -> Option<ObjectName> {
    let name = claim.name_any();
    let name = name.strip_prefix("data-")?.strip_suffix("-0")?.to_owned();
    Some(ObjectName { namespace: claim.namespace().unwrap_or_default(), name })
}

/// Returns true if the Secret is gone while the volume lives. A new password would not be the server's, so only the
/// annotation [`NEW_PASSWORD`] makes one.
pub fn lacks_password(mysql: &Mysql, observed: &Children) -> bool {
    observed.get::<PartialObjectMeta<Secret>>(&mysql.name_any()).is_none()
        && claim_of(mysql, observed).is_some()
        && mysql.annotations().get(NEW_PASSWORD).is_none_or(|value| value != "true")
}

/// Returns the size that a claim asks for.
pub fn size_of(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")
}

/// Returns true if a quantity is more than another.
pub fn is_more(one: &Quantity, other: &Quantity) -> bool {
    let parse = |quantity: &Quantity| ParsedQuantity::try_from(quantity.0.as_str()).ok();
    parse(one).zip(parse(other)).is_some_and(|(one, other)| one > other)
}
