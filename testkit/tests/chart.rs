//! Installs the Helm chart in a real control plane: `deploy/helm/kubebid`, with helm of `scripts/helm`.

use kubebid_testkit::Plane;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// All that the chart has, on PostgreSQL.
const EVERYTHING: [&str; 6] = [
    "store.secretName=store",
    "engine.replicas=2",
    "engine.env.KUBEBID_KEEP_EVENTS=90",
    "operator.enabled=true",
    "monitoring.enabled=true",
    "monitoring.dashboards.enabled=true",
];
/// The two kinds of the Prometheus operator, with any content.
const MONITORING: [(&str, &str); 2] =
    [("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn chart() -> String {
    root().join("deploy/helm/kubebid").to_str().unwrap().to_owned()
}

/// The program helm, and a folder for what it keeps.
struct Helm {
    program: String,
    home: tempfile::TempDir,
}

static HELM: LazyLock<Helm> = LazyLock::new(|| {
    let found = Command::new(root().join("scripts/helm")).arg("--where").output().unwrap();
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    let program = String::from_utf8(found.stdout).unwrap().trim().to_owned();
    Helm { program, home: tempfile::tempdir().unwrap() }
});

/// Runs helm; returns whether it worked and what it printed.
fn try_helm(arguments: &[&str], settings: &[&str]) -> (bool, String) {
    let mut command = Command::new(&HELM.program);
    for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(folder, HELM.home.path());
    }
    command.args(arguments);
    for setting in settings {
        command.args(["--set", setting]);
    }
    let done = command.output().unwrap();
    let said = if done.status.success() { done.stdout } else { done.stderr };
    (done.status.success(), String::from_utf8(said).unwrap())
}

fn helm(arguments: &[&str], settings: &[&str]) -> String {
    let (worked, said) = try_helm(arguments, settings);
    assert!(worked, "helm {arguments:?} {settings:?}: {said}");
    said
}

/// Makes the namespace, in which only pods with few rights are admitted.
fn namespace(plane: &Plane, name: &str) {
    plane.apply(&format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{pod-security.kubernetes.io/enforce: restricted}}}}}}"
    ));
}

fn object(plane: &Plane, namespace: &str, name: &str) -> Value {
    serde_json::from_str(&plane.get(&["get", "-n", namespace, name, "-o", "json"])).unwrap()
}

fn has_pods(plane: &Plane, namespace: &str, deployment: &str, count: u32) {
    let replicas = format!("jsonpath={{.status.replicas}}={count}");
    plane.get(&["wait", "-n", namespace, deployment, "--for", &replicas, "--timeout=120s"]);
}

#[test]
fn the_chart_is_sound_and_refuses_two_engines_on_an_embedded_store() {
    helm(&["lint", "--strict", &chart()], &[]);
    helm(&["lint", "--strict", &chart()], &EVERYTHING);
    let (worked, said) = try_helm(&["template", "market", &chart()], &["engine.replicas=2"]);
    assert!(!worked && said.contains("an embedded store has one engine"), "{said}");
}

#[test]
fn the_chart_installs_upgrades_and_leaves_the_store_and_the_token() {
    let plane = Plane::shared();
    namespace(plane, "embedded");
    let kubeconfig = plane.kubeconfig();
    let at = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--namespace", "embedded"];
    let release = |verb: &str| helm(&[&[verb, "market", &chart()][..], &at].concat(), &[]);
    let token =
        || object(plane, "embedded", "secret/market-admin")["data"]["token"].as_str().unwrap().to_owned();

    release("install");
    has_pods(plane, "embedded", "deployment/market-engine", 1);
    let first = token();
    release("upgrade");
    assert_eq!(token(), first, "the token of the administrator stays");
    helm(&[&["uninstall", "market"][..], &at].concat(), &[]);
    assert_eq!(token(), first);
    object(plane, "embedded", "persistentvolumeclaim/market-store");
}

#[test]
fn the_chart_has_the_operator_the_alerts_and_the_dashboards_of_the_repository() {
    let plane = Plane::shared();
    for (kind, plural) in MONITORING {
        plane.apply(&format!(
            "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: {plural}.monitoring.coreos.com}}, \
             spec: {{group: monitoring.coreos.com, scope: Namespaced, names: {{kind: {kind}, plural: {plural}, singular: {}}}, \
             versions: [{{name: v1, served: true, storage: true, \
             schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}]}}}}",
            kind.to_lowercase()
        ));
        plane.get(&[
            "wait",
            "--for=condition=Established",
            &format!("crd/{plural}.monitoring.coreos.com"),
            "--timeout=60s",
        ]);
    }
    namespace(plane, "whole");
    let kubeconfig = plane.kubeconfig();
    let at = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--namespace", "whole"];
    helm(&[&["install", "market", &chart()][..], &at].concat(), &EVERYTHING);
    has_pods(plane, "whole", "deployment/market-engine", 2);
    has_pods(plane, "whole", "deployment/kubebid-operator", 2);

    let engine = object(plane, "whole", "deployment/market-engine");
    let container = &engine["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"], serde_json::json!(["serve", "--standby"]));
    let settings = object(plane, "whole", "configmap/market-operator-settings");
    assert_eq!(settings["data"]["KUBEBID_ENDPOINTS"], "http://market-engine.whole.svc:7440");
    let binding = object(plane, "whole", "clusterrolebinding/kubebid-operator");
    assert_eq!(binding["subjects"][0]["namespace"], "whole");
    plane.get(&["get", "crd", "bidnodes.kubebid.io"]);

    let rules = object(plane, "whole", "prometheusrule/market");
    let groups = rules["spec"]["groups"].as_array().unwrap();
    let alerts: usize = groups.iter().map(|group| group["rules"].as_array().unwrap().len()).sum();
    let file = fs::read_to_string(root().join("deploy/prometheus/rules/kubebid.yml")).unwrap();
    assert_eq!(alerts, file.matches("- alert:").count());
    // The alerts ask for jobs by these names.
    for (service, job) in [("market-engine-metrics", "engine"), ("market-operator-metrics", "operator")] {
        let service = object(plane, "whole", &format!("service/{service}"));
        assert_eq!(service["metadata"]["labels"]["kubebid.io/job"], job);
        assert!(file.contains(&format!("job=\"{job}\"")), "{job}");
    }
    for entry in fs::read_dir(root().join("deploy/grafana/dashboards")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let map = object(plane, "whole", &format!("configmap/market-dashboard-{name}"));
        let kept = map["data"][format!("kubebid-{name}.json")].as_str().unwrap();
        assert!(kept == fs::read_to_string(&path).unwrap(), "{name}");
    }
}
