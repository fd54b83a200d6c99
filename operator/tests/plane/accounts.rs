//! Service accounts for operators: what each has asked of the API server is in its audit log.

use crate::story::Story;
use kubebid_testkit::Plane;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A kubeconfig for a service account.
pub(crate) fn kubeconfig(plane: &Plane, namespace: &str, account: &str, folder: &Path) -> PathBuf {
    let token = plane.get(&["create", "token", account, "-n", namespace]);
    let authority = folder.join("authority.pem");
    std::fs::write(&authority, plane.ca_pem()).unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": plane.url(), "certificate-authority": authority}}],
        "users": [{"name": "u", "user": {"token": token.trim()}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    let file = folder.join(format!("{account}.kubeconfig"));
    std::fs::write(&file, config.to_string()).unwrap();
    file
}

/// Makes a service account in the namespace of a story that may do anything.
pub(crate) fn make(story: &Story, account: &str, folder: &Path) -> PathBuf {
    let (plane, namespace) = (story.plane, story.namespace.as_str());
    plane.get(&["create", "serviceaccount", account, "-n", namespace]);
    let (binding, whom) = (format!("{namespace}-{account}"), format!("{namespace}:{account}"));
    let role = ["create", "clusterrolebinding", &binding, "--clusterrole", "cluster-admin"];
    plane.get(&[&role[..], &["--serviceaccount", &whom]].concat());
    kubeconfig(plane, namespace, account, folder)
}

/// What a service account has asked and was not refused, in the order of the answers: events of `audit.k8s.io/v1`.
pub(crate) fn asked(plane: &Plane, namespace: &str, account: &str) -> Vec<Value> {
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let log = plane.audit_log();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|it| it["user"]["username"] == user && it["responseStatus"]["code"] != 403).collect()
}

/// When each write was received by the API server, but for those of leases and of what people are told.
pub(crate) fn writes(asked: &[Value]) -> Vec<&str> {
    let is_write = |it: &&Value| {
        let verb = it["verb"].as_str().unwrap();
        let resource = it["objectRef"]["resource"].as_str().unwrap_or_default();
        !matches!(verb, "get" | "list" | "watch") && !matches!(resource, "leases" | "events")
    };
    asked.iter().filter(is_write).map(|it| it["requestReceivedTimestamp"].as_str().unwrap()).collect()
}
