//! Installs the Helm chart in a real control plane: `deploy/helm/kubebid`, with helm of `scripts/helm`.

use kubebid_testkit::Plane;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The server that makes the machines of the operator.
const MACHINES: &str = "operator.env.KUBEBID_PROVISIONER_URL=https://machines.example";
/// All that the chart has, on PostgreSQL.
const EVERYTHING: [&str; 12] = [
    "store.secretName=store",
    "engine.replicas=2",
    "engine.tlsSecretName=tls",
    "engine.caSecretName=tls",
    "engine.env.KUBEBID_KEEP_EVENTS=90",
    "operator.enabled=true",
    MACHINES,
    "operator.webhook.enabled=true",
    "markets.enabled=true",
    "offers.enabled=true",
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

/// Objects by kind and name.
type Objects = BTreeMap<(String, String), Value>;

/// Reads manifests.
fn objects(manifests: &str) -> Objects {
    let documents = manifests.split("\n---\n").map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    let named = documents.filter(|object| object["kind"].is_string()).map(|object| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        ((text(&object["kind"]), text(&object["metadata"]["name"])), object)
    });
    named.collect()
}

/// Returns what kustomize makes of bases and components of `deploy/kubernetes`.
fn kustomized(plane: &Plane, bases: &[&str], components: &[&str]) -> Objects {
    let folder = tempfile::tempdir().unwrap();
    for base in bases.iter().chain(components) {
        symlink(root().join("deploy/kubernetes").join(base), folder.path().join(base)).unwrap();
    }
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": bases, "components": components,
    });
    fs::write(folder.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
    objects(&plane.get(&["kustomize", folder.path().to_str().unwrap()]))
}

/// Removes what the chart may set in other ways than the bases: labels, image, settings.
fn comparable(mut objects: Objects) -> Objects {
    objects.retain(|(kind, name), _| {
        !matches!(&kind[..], "ConfigMap" | "Namespace") && !name.ends_with("-metrics")
    });
    for object in objects.values_mut() {
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("labels");
        metadata.remove("annotations");
        if object["kind"] == "Deployment" {
            object["spec"]["template"]["metadata"].as_object_mut().unwrap().remove("annotations");
            let container = object["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap();
            container.remove("image");
            container.remove("imagePullPolicy");
            container["envFrom"] = Value::Null;
        }
    }
    objects
}

/// Asserts that the chart renders these objects and no others.
fn assert_same(chart: &Objects, bases: &Objects) {
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(chart), names(bases));
    for (name, object) in bases {
        let (ours, theirs) = (&chart[name], object);
        assert!(ours == theirs, "{name:?} of the chart is\n{ours:#}\nand of the base\n{theirs:#}");
    }
}

/// Writes the objects of `deploy/kubernetes/market` as values of the chart.
fn market_as_values(folder: &Path) -> String {
    let mut all = Vec::new();
    for file in ["instance-types", "markets", "accounts", "offers"] {
        let text = fs::read_to_string(root().join(format!("deploy/kubernetes/market/{file}.yaml"))).unwrap();
        all.extend(objects(&text).into_values().filter(|object| object["kind"] != "Namespace"));
    }
    let file = folder.join("market.yaml");
    fs::write(&file, json!({ "objects": all }).to_string()).unwrap();
    file.to_str().unwrap().to_owned()
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
fn the_chart_is_sound_and_refuses_values_that_do_not_go_together() {
    helm(&["lint", "--strict", &chart()], &[]);
    helm(&["lint", "--strict", &chart()], &EVERYTHING);
    let (worked, said) = try_helm(&["template", "market", &chart()], &["engine.replicas=2"]);
    assert!(!worked && said.contains("an embedded store has one engine"), "{said}");
    let (worked, said) = try_helm(&["template", "market", &chart()], &["operator.enabled=true"]);
    assert!(!worked && said.contains("set operator.env.KUBEBID_PROVISIONER_URL"), "{said}");
    let (worked, said) = try_helm(&["template", "market", &chart()], &["operator.webhook.enabled=true"]);
    assert!(!worked && said.contains("operator.webhook.enabled needs operator.enabled"), "{said}");
}

#[test]
fn the_programs_are_those_of_the_kustomize_bases() {
    let plane = Plane::shared();
    let template = ["template", "market", &chart(), "--namespace", "kubebid-system"];
    let programs = ["kubebid-operator", "kubebid-markets", "kubebid-offers"];
    let rendered = |settings: &[&str]| {
        let mut objects = objects(&helm(&template, settings));
        objects.retain(|_, object| {
            let name = &object["metadata"]["labels"]["app.kubernetes.io/name"];
            programs.iter().any(|program| name == program)
        });
        comparable(objects)
    };
    for (settings, bases, components) in [
        (&["operator.enabled=true", MACHINES][..], &["operator"][..], &[][..]),
        (&["operator.enabled=true", MACHINES, "operator.webhook.enabled=true"], &["operator"], &["versions"]),
        (&["operator.enabled=true", "operator.env.KUBEBID_PROVISIONER=kwok"], &["operator-with-kwok"], &[]),
        (&["markets.enabled=true", "markets.secretName=kubebid-markets"], &["markets"], &[]),
        (&["offers.enabled=true"], &["offers"], &[]),
    ] {
        assert_same(&rendered(settings), &comparable(kustomized(plane, bases, components)));
    }
}

#[test]
fn the_objects_of_the_market_are_rendered_as_they_are() {
    let plane = Plane::shared();
    let folder = tempfile::tempdir().unwrap();
    let values = market_as_values(folder.path());
    let mut rendered = objects(&helm(&["template", "market", &chart(), "--values", &values], &[]));
    rendered.retain(|_, object| object["apiVersion"] == "market.kubebid.io/v1alpha1");
    assert_same(&comparable(rendered), &comparable(kustomized(plane, &["market"], &[])));
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
    // The offers of deploy/kubernetes/market are in it.
    namespace(plane, "gpu-cloud");
    let kubeconfig = plane.kubeconfig();
    let folder = tempfile::tempdir().unwrap();
    let objects = market_as_values(folder.path());
    let at = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--namespace", "whole", "--values", &objects];
    helm(&[&["install", "market", &chart()][..], &at].concat(), &EVERYTHING);
    has_pods(plane, "whole", "deployment/market-engine", 2);
    has_pods(plane, "whole", "deployment/kubebid-operator", 2);
    has_pods(plane, "whole", "deployment/kubebid-markets", 1);
    has_pods(plane, "whole", "deployment/kubebid-offers", 1);
    assert_eq!(object(plane, "gpu-cloud", "offer/h100-8x-eu-west")["spec"]["capacity"], 4);
    object(plane, "whole", "account/research");

    let engine = object(plane, "whole", "deployment/market-engine");
    let container = &engine["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"], serde_json::json!(["serve", "--standby"]));
    let settings = object(plane, "whole", "configmap/market-operator-settings");
    assert_eq!(settings["data"]["KUBEBID_ENDPOINTS"], "https://market-engine.whole.svc:7440");
    assert_eq!(settings["data"]["KUBEBID_CA_FILE"], "/run/secrets/kubebid/ca.crt");
    let binding = object(plane, "whole", "clusterrolebinding/kubebid-operator");
    assert_eq!(binding["subjects"][0]["namespace"], "whole");
    let served = |plane: &Plane| {
        let definition = object(plane, "whole", "crd/bidnodes.kubebid.io");
        let versions = definition["spec"]["versions"].as_array().unwrap().iter();
        let served = versions.filter(|version| version["served"] == true).count();
        let service = &definition["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["namespace"];
        (served, service.clone())
    };
    assert_eq!(served(plane), (2, json!("whole")));

    let rules = object(plane, "whole", "prometheusrule/market");
    let groups = rules["spec"]["groups"].as_array().unwrap();
    let alerts: usize = groups.iter().map(|group| group["rules"].as_array().unwrap().len()).sum();
    let file = fs::read_to_string(root().join("deploy/prometheus/rules/kubebid.yml")).unwrap();
    assert_eq!(alerts, file.matches("- alert:").count());
    // The alerts ask for jobs by these names.
    assert!(file.contains(r#"up{job="engine"}"#) && file.contains(r#"up{job=~"operator|markets|offers"}"#));
    for job in ["engine", "operator", "markets", "offers"] {
        let service = object(plane, "whole", &format!("service/market-{job}-metrics"));
        assert_eq!(service["metadata"]["labels"]["kubebid.io/job"], job);
    }
    for entry in fs::read_dir(root().join("deploy/grafana/dashboards")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let map = object(plane, "whole", &format!("configmap/market-dashboard-{name}"));
        let kept = map["data"][format!("kubebid-{name}.json")].as_str().unwrap();
        assert!(kept == fs::read_to_string(&path).unwrap(), "{name}");
    }

    // Without the webhook, v2beta1 is not served. The definitions, and what is traded, outlive the release.
    let without = [&EVERYTHING[..], &["operator.webhook.enabled=false"]].concat();
    helm(&[&["upgrade", "market", &chart()][..], &at].concat(), &without);
    assert_eq!(served(plane), (1, Value::Null));
    helm(&["uninstall", "market", "--kubeconfig", at[1], "--namespace", "whole"], &[]);
    served(plane);
    object(plane, "whole", "account/research");
}

/// Returns the rows of the table of values: each leaf of values.yaml with its default, and the comment above it.
fn rows(values: &Value, schema: &Value, comments: &BTreeMap<String, String>, path: &str) -> String {
    let mut table = String::new();
    for (key, value) in values.as_object().unwrap() {
        let path = format!("{path}{key}");
        let described = &schema["properties"][key];
        if described["properties"].is_object() {
            table += &rows(value, described, comments, &format!("{path}."));
            continue;
        }
        let comment =
            comments.get(&path).unwrap_or_else(|| panic!("values.yaml does not say what {path} is"));
        table += &format!("| `{path}` | `{value}` | {comment} |\n");
    }
    table
}

/// Returns the comment above each key of values.yaml, by its path.
fn comments(values: &str) -> BTreeMap<String, String> {
    let (mut found, mut comment, mut path) = (BTreeMap::new(), String::new(), Vec::<&str>::new());
    for line in values.lines() {
        let text = line.trim_start();
        let depth = (line.len() - text.len()) / 2;
        if let Some(said) = text.strip_prefix("# ") {
            comment += if comment.is_empty() { "" } else { " " };
            comment += said;
        } else if let Some((key, _)) = text.split_once(':') {
            path.truncate(depth);
            path.push(key);
            if !comment.is_empty() {
                found.insert(path.join("."), std::mem::take(&mut comment));
            }
        } else {
            comment.clear();
        }
    }
    found
}

#[test]
fn the_page_of_the_chart_has_all_values() {
    let read = |name: &str| fs::read_to_string(Path::new(&chart()).join(name)).unwrap();
    let (values, schema) = (read("values.yaml"), read("values.schema.json"));
    let parsed: Value = serde_saphyr::from_str(&values).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let table = format!(
        "| value | default | meaning |\n|---|---|---|\n{}",
        rows(&parsed, &schema, &comments(&values), "")
    );
    let page = Path::new(&chart()).join("README.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- values -->\n").expect("a place for the table");
    let (_, after) = rest.split_once("<!-- /values -->").expect("its end");
    let wanted = format!("{before}<!-- values -->\n{table}<!-- /values -->{after}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&page, wanted).unwrap();
    } else {
        assert!(text == wanted, "run again with UPDATE_EXPECT=1; the table is\n{table}");
    }
}
