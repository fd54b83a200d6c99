//! The control plane does what the operator's tests rely on.

use std::process::Output;
use std::time::{Duration, Instant};

use kubebid_testkit::{Component, Plane};

/// A namespace with a node of its own, and pods that go nowhere else.
struct Place<'a> {
    plane: &'a Plane,
    name: &'a str,
}

impl Place<'static> {
    fn new(name: &'static str) -> Self {
        Self::on(Plane::shared(), name)
    }
}

impl<'a> Place<'a> {
    fn on(plane: &'a Plane, name: &'a str) -> Self {
        plane.get(&["create", "namespace", name]);
        plane.apply(&format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{place: {name}}}}}}}"
        ));
        let place = Self { plane, name };
        place.wait("serviceaccount/default", "create");
        place
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
        self.wait(&format!("pod/{pod}"), "jsonpath={.status.phase}=Running");
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        self.plane.get(&[&["--namespace", self.name], arguments].concat())
    }

    fn wait(&self, object: &str, what: &str) {
        self.kubectl(&["wait", object, &format!("--for={what}"), "--timeout=20s"]);
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
    place.wait("node/bare", "condition=Ready");
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
    place.wait("pdb/kept", "jsonpath={.status.expectedPods}=1");
    let blocked = place.evict("kept");
    assert!(!blocked.status.success());
    let why = String::from_utf8_lossy(&blocked.stderr).into_owned();
    assert!(why.contains("TooManyRequests") && why.contains("disruption budget"), "{why}");
    assert!(place.evict("free").status.success());
    place.wait("pod/free", "delete");
    assert_eq!(place.kubectl(&["get", "pods", "-o", "name"]), "pod/kept\n");
}

#[test]
fn a_no_execute_taint_deletes_the_pods_that_do_not_tolerate_it() {
    let place = Place::new("tainted");
    place.pod("p");
    place.kubectl(&["taint", "node", "tainted", "gone=soon:NoExecute"]);
    place.wait("pod/p", "delete");
}

#[test]
fn a_node_is_ready_or_not_as_the_test_says() {
    let place = Place::new("sick");
    place.wait("node/sick", "condition=Ready");
    place.kubectl(&["annotate", "node", "sick", "testplane.kubebid.io/not-ready=true"]);
    place.wait("node/sick", "condition=Ready=False");
    place.wait(
        "node/sick",
        "jsonpath={.spec.taints[?(@.effect=='NoExecute')].key}=node.kubernetes.io/not-ready",
    );
    place.kubectl(&["annotate", "node", "sick", "testplane.kubebid.io/not-ready-"]);
    place.wait("node/sick", "condition=Ready");
}

#[test]
fn a_deleted_pod_takes_all_of_its_grace() {
    let place = Place::new("grace");
    place.pod("p");
    let began = Instant::now();
    place.kubectl(&["delete", "pod", "p", "--grace-period=3"]);
    // The end of the grace is written in whole seconds.
    assert!(began.elapsed() > Duration::from_secs(2));
}

#[test]
fn a_job_is_done_at_once() {
    let place = Place::new("job");
    place.plane.apply(
        "
        apiVersion: batch/v1
        kind: Job
        metadata: {name: j, namespace: job}
        spec:
          template:
            spec: {nodeSelector: {place: job}, restartPolicy: Never, containers: [{name: main, image: none}]}
        ",
    );
    place.wait("job/j", "condition=Complete");
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
    // And the others come back to it.
    Place::on(&plane, "after").pod("p");
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
