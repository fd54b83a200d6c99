//! Service accounts of a plane: what each has asked of the API server is in its audit log.

use crate::Plane;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A service account of a plane.
#[derive(Clone, Debug)]
pub struct Account {
    plane: &'static Plane,
    user: String,
    kubeconfig: PathBuf,
}

impl Account {
    /// Returns the account of this name, which is there. Its kubeconfig is written to a folder.
    ///
    /// # Panics
    /// If there is no such account, or the folder cannot be written.
    pub fn of(plane: &'static Plane, namespace: &str, name: &str, folder: &Path) -> Account {
        let token = plane.get(&["create", "token", name, "-n", namespace]);
        let authority = folder.join("authority.pem");
        std::fs::write(&authority, plane.ca_pem()).expect("the folder can be written");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": plane.url(), "certificate-authority": authority}}],
            "users": [{"name": "u", "user": {"token": token.trim()}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        let kubeconfig = folder.join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, config.to_string()).expect("the folder can be written");
        Account { plane, user: format!("system:serviceaccount:{namespace}:{name}"), kubeconfig }
    }

    /// Makes an account that may do anything.
    ///
    /// # Panics
    /// If there is one of this name in the namespace, or the folder cannot be written.
    pub fn administrator(plane: &'static Plane, namespace: &str, name: &str, folder: &Path) -> Account {
        plane.get(&["create", "serviceaccount", name, "-n", namespace]);
        let (binding, account) =
            (format!("{namespace}-{name}"), format!("--serviceaccount={namespace}:{name}"));
        plane.get(&["create", "clusterrolebinding", &binding, "--clusterrole=cluster-admin", &account]);
        Account::of(plane, namespace, name, folder)
    }

    /// Returns its kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns its requests that were not forbidden, in the order of the answers: events of `audit.k8s.io/v1`.
    ///
    /// # Panics
    /// If the plane has gone.
    pub fn requests(&self) -> Vec<Value> {
        let log = self.plane.audit_log();
        let events = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
        let is_answered = |event: &Value| event["responseStatus"]["code"] != 403;
        events.filter(|event| event["user"]["username"] == *self.user && is_answered(event)).collect()
    }

    /// Returns the times at which the API server received its writes, but for those of Leases and events.
    ///
    /// # Panics
    /// If the plane has gone.
    pub fn writes(&self) -> Vec<String> {
        let requests = self.requests();
        let is_write = |event: &&Value| {
            let resource = text(&event["objectRef"], "resource");
            !["get", "list", "watch"].contains(&text(event, "verb"))
                && !["leases", "events"].contains(&resource)
        };
        requests
            .iter()
            .filter(is_write)
            .map(|event| text(event, "requestReceivedTimestamp").to_owned())
            .collect()
    }

    /// Returns every right that it has used, as in `patch apps/statefulsets/status`.
    ///
    /// # Panics
    /// If the plane has gone.
    pub fn used_rights(&self) -> BTreeSet<String> {
        let requests = self.requests();
        let of_objects = requests.iter().filter(|event| event["objectRef"]["resource"].is_string());
        let right_of = |event: &Value| {
            let object = &event["objectRef"];
            let resource = [text(object, "resource"), text(object, "subresource")].join("/");
            right(text(event, "verb"), text(object, "apiGroup"), resource.trim_end_matches('/'))
        };
        of_objects.map(right_of).collect()
    }
}

impl Plane {
    /// Returns every right that a Role or ClusterRole grants, in the form of [`Account::used_rights`]. The arguments of
    /// kubectl name it, as in `["role", "a", "-n", "b"]`.
    ///
    /// # Panics
    /// If there is none.
    pub fn granted_rights(&self, role: &[&str]) -> BTreeSet<String> {
        let role = self.get(&[&["get", "-o", "json"], role].concat());
        let role: Value = serde_json::from_str(&role).expect("kubectl prints JSON");
        let mut granted = BTreeSet::new();
        for rule in role["rules"].as_array().into_iter().flatten() {
            let all = |key: &str| rule[key].as_array().into_iter().flatten().filter_map(Value::as_str);
            for (group, resource) in
                all("apiGroups").flat_map(|group| all("resources").map(move |it| (group, it)))
            {
                granted.extend(all("verbs").map(|verb| right(verb, group, resource)));
            }
        }
        granted
    }
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

fn right(verb: &str, group: &str, resource: &str) -> String {
    format!("{verb} {group}/{resource}")
}
