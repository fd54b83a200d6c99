//! Operator processes, and their service accounts.

use kubebid_testkit::{Account, Plane, Process};
use std::path::Path;
use std::process::Command;

/// Starts `cache-operator run` in a namespace.
pub(crate) fn start(namespace: &str, account: &Account, arguments: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cache-operator"));
    command.args([
        "run",
        "--listen",
        "127.0.0.1:0",
        "--namespace",
        namespace,
        "--lease-namespace",
        namespace,
    ]);
    Process::start(command.args(arguments).env("KUBECONFIG", account.kubeconfig()))
}

/// Makes a service account with the rights of the manifests.
pub(crate) fn account(plane: &'static Plane, namespace: &str, folder: &Path) -> Account {
    let rights = include_str!("../../manifests/rbac.yaml");
    let (of_cluster, own) = ("kind: ClusterRoleBinding\nmetadata:\n  name: cache-operator", namespace);
    let rights = rights.replace("namespace: cache-system", &format!("namespace: {namespace}"));
    assert!(rights.contains(of_cluster), "each account has a binding of its own");
    plane.apply(&rights.replace(of_cluster, &format!("{of_cluster}-{own}")));
    let account = format!("--serviceaccount={namespace}:cache-operator");
    let of_tls = ["rolebinding", "cache-operator-tls", "--clusterrole=cache-operator-tls", &account];
    plane.get(&[&["create", "-n", namespace][..], &of_tls].concat());
    Account::of(plane, namespace, "cache-operator", folder)
}
