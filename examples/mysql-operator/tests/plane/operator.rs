//! Operator processes, and accounts for them.

use kubebid_testkit::{Account, Plane, Process};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// An operator process. It is killed when this is dropped.
pub(crate) struct Operator {
    pub(crate) process: Process,
}

impl Operator {
    /// Starts `mysql-operator run` in a namespace.
    pub(crate) fn start(namespace: &str, account: &Account, arguments: &[&str]) -> Operator {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mysql-operator"));
        command.args(["run", "--listen", "127.0.0.1:0", "--namespace", namespace]).args(arguments);
        command.env("SPACE", namespace).env("KUBECONFIG", account.kubeconfig());
        Operator { process: Process::start(&mut command) }
    }

    /// Returns how many passes it has made over objects.
    pub(crate) async fn passes(&self) -> u64 {
        let metrics = self.process.page("/metrics").await;
        let lines = metrics.lines().filter(|line| line.starts_with("mysql_operator_reconcile_total{"));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// Waits until it makes no more passes: none in twice the shortest time between two. Returns their number.
    pub(crate) async fn quiet(&self) -> u64 {
        let mut passes = self.passes().await;
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            match self.passes().await {
                same if same == passes => return passes,
                more => passes = more,
            }
        }
    }
}

/// The manifests with the rights.
pub(crate) const RIGHTS: &str = include_str!("../../manifests/rbac.yaml");

/// Makes a service account with the rights of the manifests in one namespace.
pub(crate) fn account(plane: &'static Plane, namespace: &str, name: &str, folder: &Path) -> Account {
    let rights = RIGHTS.replace("namespace: default", &format!("namespace: {namespace}"));
    let of_cluster = "kind: ClusterRoleBinding\nmetadata:\n  name: mysql-operator";
    let of_namespace =
        format!("kind: RoleBinding\nmetadata:\n  name: {name}-objects\n  namespace: {namespace}");
    assert!(rights.contains(of_cluster), "the rights are given in all namespaces");
    let mut rights = rights.replace(of_cluster, &of_namespace);
    // Each account has bindings of its own to the same roles.
    for before in [
        "kind: ServiceAccount\nmetadata:\n  name: ",
        "kind: ServiceAccount\n    name: ",
        "kind: RoleBinding\nmetadata:\n  name: ",
    ] {
        rights = rights.replace(&format!("{before}mysql-operator"), &format!("{before}{name}"));
    }
    plane.apply(&rights);
    Account::of(plane, namespace, name, folder)
}
