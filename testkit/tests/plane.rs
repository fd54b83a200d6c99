//! The control plane does what the operator's tests rely on.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kubebid_testkit::{Component, Plane};

/// A namespace with a node of its own, and pods that go nowhere else.
struct Place {
    plane: &'static Plane,
    name: &'static str,
}

impl Place {
    fn new(name: &'static str) -> Self {
        let plane = Plane::shared();
        plane.get(&["create", "namespace", name]);
        plane.apply(&format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{place: {name}}}}}}}"
        ));
        Self { plane, name }
    }

    fn pod(&self, pod: &str) {
        let name = self.name;
        self.plane.apply(&format!(
            "
            apiVersion: v1
            kind: Pod
            metadata: {{name: {pod}, namespace: {name}, labels: {{app: {pod}}}}}
            spec:
              nodeSelector: {{place: {name}}}
              terminationGracePeriodSeconds: 1
              containers: [{{name: main, image: none}}]
            "
        ));
        self.kubectl(&[
            "wait",
            "--for=jsonpath={.status.phase}=Running",
            "--timeout=20s",
            &format!("pod/{pod}"),
        ]);
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        self.plane.get(&[&["--namespace", self.name], arguments].concat())
    }

    fn wait_for_node(&self, what: &str) {
        self.kubectl(&["wait", &format!("--for={what}"), "--timeout=20s", &format!("node/{}", self.name)]);
    }

    /// Evicts a pod by the Eviction API; returns what the API server answers.
    fn evict(&self, pod: &str) -> Output {
        let name = self.name;
        let eviction = format!(
            r#"{{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {{"name": "{pod}", "namespace": "{name}"}}}}"#
        );
        let path = format!("/api/v1/namespaces/{name}/pods/{pod}/eviction");
        self.plane.kubectl_reading(&["create", "--raw", &path, "-f", "-"], &eviction)
    }
}

#[test]
fn a_bare_node_becomes_ready_and_runs_pods() {
    let place = Place::new("bare");
    place.wait_for_node("condition=Ready");
    place.pod("p");
    assert_eq!(
        place.kubectl(&["get", "pod", "p", "-o", "jsonpath={.spec.nodeName} {.status.phase}"]),
        "bare Running"
    );
}

#[test]
fn a_disruption_budget_blocks_an_eviction() {
    let place = Place::new("budget");
    place.pod("kept");
    place.pod("free");
    place.kubectl(&["create", "poddisruptionbudget", "kept", "--selector=app=kept", "--min-available=1"]);
    place.kubectl(&["wait", "--for=jsonpath={.status.expectedPods}=1", "--timeout=20s", "pdb/kept"]);
    let blocked = place.evict("kept");
    assert!(!blocked.status.success());
    let why = String::from_utf8_lossy(&blocked.stderr).into_owned();
    assert!(why.contains("TooManyRequests") && why.contains("disruption budget"), "{why}");
    assert!(place.evict("free").status.success());
    place.kubectl(&["wait", "--for=delete", "--timeout=20s", "pod/free"]);
    assert_eq!(place.kubectl(&["get", "pods", "-o", "name"]), "pod/kept\n");
}

#[test]
fn a_no_execute_taint_deletes_the_pods_that_do_not_tolerate_it() {
    let place = Place::new("tainted");
    place.pod("p");
    place.kubectl(&["taint", "node", "tainted", "gone=soon:NoExecute"]);
    place.kubectl(&["wait", "--for=delete", "--timeout=20s", "pod/p"]);
}

#[test]
fn a_node_is_ready_or_not_as_the_test_says() {
    let place = Place::new("sick");
    place.wait_for_node("condition=Ready");
    place.kubectl(&["annotate", "node", "sick", "testplane.kubebid.io/not-ready=true"]);
    place.wait_for_node("condition=Ready=False");
    place.kubectl(&["annotate", "node", "sick", "testplane.kubebid.io/not-ready-"]);
    place.wait_for_node("condition=Ready");
}

#[test]
fn roles_hold() {
    let place = Place::new("roles");
    place.kubectl(&["create", "serviceaccount", "reader"]);
    place.kubectl(&["create", "role", "reader", "--verb=get,list", "--resource=pods"]);
    place.kubectl(&["create", "rolebinding", "reader", "--role=reader", "--serviceaccount=roles:reader"]);
    let token = place.kubectl(&["create", "token", "reader"]);
    place.kubectl(&["--token", &token, "get", "pods"]);
    let refused = place.plane.kubectl(&["--token", &token, "get", "nodes"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("\"system:serviceaccount:roles:reader\" cannot list resource \"nodes\""), "{why}");
}

#[test]
fn the_api_server_comes_back_with_all_that_it_had() {
    let plane = Plane::start();
    plane.get(&["create", "configmap", "kept", "--from-literal=a=1"]);
    let version = || {
        plane.get(&["get", "configmap", "kept", "-o", "jsonpath={.metadata.uid} {.metadata.resourceVersion}"])
    };
    let before = version();
    plane.stop(Component::ApiServer);
    assert!(!plane.kubectl(&["get", "configmap", "kept"]).status.success());
    plane.restart(Component::ApiServer);
    assert_eq!(version(), before);
}

#[test]
fn a_watch_from_before_a_compaction_is_told_to_start_anew() {
    let plane = Plane::start();
    let version =
        plane.get(&["create", "configmap", "earlier", "-o", "jsonpath={.metadata.resourceVersion}"]);
    plane.get(&["create", "configmap", "later"]);
    plane.compact();
    plane.restart(Component::ApiServer);
    let watch =
        format!("/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=10&resourceVersion={version}");
    let told = plane.kubectl(&["get", "--raw", &watch]);
    let told = String::from_utf8_lossy(&[told.stdout, told.stderr].concat()).into_owned();
    assert!(told.contains("410"), "{told}");
}

#[test]
fn a_dropped_plane_is_gone() {
    let plane = Plane::start();
    let trace = Trace::of(&plane);
    drop(plane);
    trace.is_gone();
}

/// Not a test: what the next one kills.
#[test]
#[ignore = "it waits to be killed"]
fn a_plane_waits_to_be_killed() {
    let plane = Plane::start();
    println!("kubeconfig {}", plane.kubeconfig().display());
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_plane_whose_tests_were_killed_is_gone() {
    let mut tests = Command::new(std::env::current_exe().expect("it is there"))
        .args(["--ignored", "--exact", "--nocapture", "a_plane_waits_to_be_killed"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let output = BufReader::new(tests.stdout.take().expect("it is piped"));
    let kubeconfig = output
        .lines()
        .map_while(Result::ok)
        .find_map(|line| Some(PathBuf::from(line.split_once("kubeconfig ")?.1)))
        .expect("the plane starts");
    let trace = Trace::of_folder(kubeconfig.parent().expect("a folder"));
    tests.kill().expect("it runs");
    tests.wait().expect("it ends");
    trace.is_gone();
}

/// What a plane would leave behind.
struct Trace {
    folder: PathBuf,
    /// Of all its programs, and of the guardian that ends them.
    processes: Vec<String>,
}

impl Trace {
    fn of(plane: &Plane) -> Self {
        Self::of_folder(plane.kubeconfig().parent().expect("a folder"))
    }

    fn of_folder(folder: &Path) -> Self {
        let mut processes = Vec::new();
        for file in std::fs::read_dir(folder).expect("the plane's folder") {
            let file = file.expect("a file").path();
            if file.extension().is_some_and(|extension| extension == "pid") {
                processes.push(std::fs::read_to_string(file).expect("a process").trim().to_owned());
            }
        }
        assert_eq!(processes.len(), 5);
        processes.push(parent(&processes[0]));
        assert!(processes.iter().all(|process| runs(process)), "{processes:?}");
        Self { folder: folder.to_owned(), processes }
    }

    /// Waits for it.
    fn is_gone(&self) {
        for process in &self.processes {
            let ended =
                Command::new("timeout").args(["20", "tail", "-f", "/dev/null", "--pid", process]).status();
            assert!(ended.expect("tail runs").success(), "{process} still runs");
        }
        assert!(!self.folder.exists());
    }
}

fn runs(process: &str) -> bool {
    Path::new("/proc").join(process).exists()
}

fn parent(process: &str) -> String {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process).join("stat")).expect("it runs");
    // PID (NAME) STATE PARENT ...
    let (_, after_name) = stat.rsplit_once(") ").expect("a name");
    after_name.split(' ').nth(1).expect("a parent").to_owned()
}
