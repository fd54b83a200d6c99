//! The kubelet runs pods as processes, as the stories of controllers rely on it.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use kubebid_testkit::{Component, Image, Kubelet, Plane, Signal};

/// The kubelet of the shared plane. It is never dropped, as its plane is not.
fn kubelet() -> &'static Kubelet {
    static KUBELET: OnceLock<Kubelet> = OnceLock::new();
    KUBELET.get_or_init(|| Kubelet::start(Plane::shared(), "real-0", images()))
}

fn images() -> Vec<Image> {
    vec![Image::new("shell"), Image::mysql("mysql:8")]
}

/// A namespace of the shared plane.
struct Place {
    kubelet: &'static Kubelet,
    name: &'static str,
}

impl Place {
    fn new(name: &'static str) -> Self {
        let place = Self { kubelet: kubelet(), name };
        Plane::shared().get(&["create", "namespace", name]);
        place.wait("serviceaccount/default", "create");
        place
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        Plane::shared().get(&[&["--namespace", self.name], arguments].concat())
    }

    fn wait(&self, object: &str, what: &str) {
        self.kubectl(&["wait", object, &format!("--for={what}"), "--timeout=60s"]);
    }

    /// Applies an object with this name and specification, both in YAML.
    fn apply(&self, kind: &str, name: &str, rest: &str) {
        let version = if kind == "StatefulSet" { "apps/v1" } else { "v1" };
        let namespace = self.name;
        Plane::shared().apply(&format!(
            "{{apiVersion: {version}, kind: {kind}, metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {name}}}}}, {rest}}}"
        ));
    }

    /// Makes a pod of one container `main` that runs a script; `rest` are further fields of the container.
    fn pod(&self, name: &str, script: &str, rest: &str) {
        let script = serde_json::Value::from(script);
        self.apply(
            "Pod",
            name,
            &format!(
                "spec: {{containers: [{{name: main, image: shell, command: [sh, -c, {script}], {rest}}}]}}"
            ),
        );
    }

    /// Runs a script in a pod's container `main` and returns what it writes.
    fn sh(&self, pod: &str, script: &str) -> String {
        let output = self.kubelet.exec(self.name, pod, "main", &["sh", "-c", script]).expect("it runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim_end().to_owned()
    }

    fn field(&self, object: &str, path: &str) -> String {
        self.kubectl(&["get", object, "-o", &format!("jsonpath={{{path}}}")])
    }
}

const FOREVER: &str = "exec sleep infinity";

#[test]
fn a_pod_is_ready_while_its_probe_succeeds() {
    let place = Place::new("exec-probe");
    let probe =
        "readinessProbe: {exec: {command: [test, -e, /tmp/ready]}, periodSeconds: 1, failureThreshold: 1}";
    place.pod("p", FOREVER, probe);
    place.wait("pod/p", "jsonpath={.status.phase}=Running");
    place.wait("pod/p", "condition=Ready=False");
    place.sh("p", "touch /tmp/ready");
    place.wait("pod/p", "condition=Ready");
    assert_eq!(place.field("pod/p", ".status.containerStatuses[0].ready"), "true");
    place.sh("p", "rm /tmp/ready");
    place.wait("pod/p", "condition=Ready=False");
    assert_eq!(place.field("pod/p", ".spec.nodeName"), "real-0");
}

#[test]
fn tcp_and_http_probes_ask_the_address_of_the_pod() {
    let place = Place::new("net-probes");
    place.pod("tcp", FOREVER, "readinessProbe: {tcpSocket: {port: 7001}, periodSeconds: 1}");
    let http = "ports: [{name: web, containerPort: 7002}],
        readinessProbe: {httpGet: {port: web, path: /health, httpHeaders: [{name: X-Asked-By, value: kubelet}]}, periodSeconds: 1}";
    place.pod("http", FOREVER, http);
    place.wait("pod/tcp", "jsonpath={.status.phase}=Running");
    place.wait("pod/http", "condition=Ready=False");
    // All share the machine's network, so the test can be the server.
    let listen = |pod: &str, port: u16| {
        let ip = place.field(pod, ".status.podIP");
        TcpListener::bind((ip, port)).expect("no other listens there")
    };
    let _tcp = listen("pod/tcp", 7001);
    place.wait("pod/tcp", "condition=Ready");

    let server = listen("pod/http", 7002);
    let answer = |code: &str| {
        let (mut probe, _) = server.accept().expect("the kubelet asks");
        let mut request = [0; 1024];
        let length = probe.read(&mut request).expect("it writes");
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        assert!(
            request.starts_with("GET /health HTTP/1.1\r\n") && request.contains("X-Asked-By: kubelet\r\n"),
            "{request}"
        );
        write!(probe, "HTTP/1.1 {code}\r\nContent-Length: 0\r\n\r\n").expect("it reads");
    };
    answer("500 Internal Server Error");
    answer("204 No Content");
    place.wait("pod/http", "condition=Ready");
}

#[test]
fn variables_come_from_values_secrets_config_maps_and_fields() {
    let place = Place::new("env");
    place.apply("Secret", "s", "stringData: {PASSWORD: geheim, other: o}");
    place.apply("ConfigMap", "c", "data: {COLOR: blue, SIZE: xl}");
    place.pod(
        "p",
        "echo \"$0 $GREETING\"; exec sleep infinity",
        "args: [\"$(COLOR)\"],
        envFrom: [{configMapRef: {name: c}}, {secretRef: {name: s}, prefix: S_}],
        env: [
            {name: FROM_SECRET, valueFrom: {secretKeyRef: {name: s, key: PASSWORD}}},
            {name: FROM_MAP, valueFrom: {configMapKeyRef: {name: c, key: SIZE}}},
            {name: ABSENT, valueFrom: {configMapKeyRef: {name: c, key: none, optional: true}}},
            {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}},
            {name: APP, valueFrom: {fieldRef: {fieldPath: 'metadata.labels[''app'']'}}},
            {name: GREETING, value: \"hello $(APP) $(NONE) $$(APP)\"}]",
    );
    place.wait("pod/p", "condition=Ready");
    let variables = place
        .sh("p", "echo $COLOR $SIZE $S_PASSWORD $FROM_SECRET $FROM_MAP ${ABSENT-absent} $APP $(hostname)");
    assert_eq!(variables, "blue xl geheim geheim xl absent p p");
    let ip = place.field("pod/p", ".status.podIP");
    assert_eq!(place.sh("p", "echo $IP $KUBEBID_POD_IP"), format!("{ip} {ip}"));
    assert_eq!(place.kubelet.log("env", "p", "main"), "blue hello p $(NONE) $(APP)\n");
}

#[test]
fn volumes_are_mounted() {
    let place = Place::new("volumes");
    place.apply("Secret", "s", "stringData: {a: one, b: two}");
    place.apply("ConfigMap", "c", "data: {settings: 'x=1'}");
    let script = serde_json::Value::from(FOREVER);
    let main = format!(
        "{{name: main, image: shell, command: [sh, -c, {script}], workingDir: /work, volumeMounts: [
            {{name: secret, mountPath: /secret}}, {{name: map, mountPath: /etc/app/settings, subPath: settings}},
            {{name: scratch, mountPath: /work}}, {{name: fields, mountPath: /fields, readOnly: true}}]}}"
    );
    let initial = "{name: first, image: shell, command: [sh, -c, 'echo first >/work/log'],
            volumeMounts: [{name: scratch, mountPath: /work}]},
        {name: second, image: shell, command: [sh, -c, 'echo second >>/work/log'],
            volumeMounts: [{name: scratch, mountPath: /work}]}";
    let volumes = "{name: secret, secret: {secretName: s, items: [{key: b, path: deep/b, mode: 256}]}},
        {name: map, configMap: {name: c}}, {name: scratch, emptyDir: {}},
        {name: fields, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}";
    place.apply(
        "Pod",
        "p",
        &format!("spec: {{initContainers: [{initial}], containers: [{main}], volumes: [{volumes}]}}"),
    );
    place.wait("pod/p", "condition=Ready");
    assert_eq!(place.sh("p", "cat /secret/deep/b /etc/app/settings; ls /secret"), "twox=1deep");
    assert_eq!(place.sh("p", "stat -c %a /secret/deep/b; pwd; cat /work/log"), "400\n/work\nfirst\nsecond");
    assert_eq!(place.sh("p", "cat /fields/name"), "p");
    assert!(place.sh("p", "echo >/fields/name").contains("Read-only"));
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    assert_eq!(
        place.sh("p", &format!("cat {account}/namespace; ls {account}")),
        "volumesca.crt\nnamespace\ntoken"
    );
}

#[test]
fn a_container_waits_for_what_it_lacks() {
    let place = Place::new("lacking");
    place.pod("p", FOREVER, "env: [{name: A, valueFrom: {secretKeyRef: {name: later, key: a}}}]");
    let reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    place.wait("pod/p", &format!("{reason}=CreateContainerConfigError"));
    place.apply("Secret", "later", "stringData: {a: b}");
    place.wait("pod/p", "condition=Ready");
    assert_eq!(place.sh("p", "echo $A"), "b");

    place.apply("Pod", "unknown", "spec: {containers: [{name: main, image: unknown}]}");
    place.wait("pod/unknown", &format!("{reason}=ErrImagePull"));
}

#[test]
fn a_process_that_is_killed_runs_again() {
    let place = Place::new("killed");
    place.pod("p", FOREVER, "");
    place.wait("pod/p", "condition=Ready");
    let before = place.kubelet.pid("killed", "p", "main");
    place.sh("p", "touch /tmp/written");
    place.kubelet.signal("killed", "p", "main", Signal::KILL);
    place.wait("pod/p", "jsonpath={.status.containerStatuses[0].restartCount}=1");
    place.wait("pod/p", "condition=Ready");
    assert_ne!(place.kubelet.pid("killed", "p", "main"), before);
    let last = ".status.containerStatuses[0].lastState.terminated";
    assert_eq!(place.field("pod/p", &format!("{last}.exitCode")), "137");
    // Each start has a root folder of its own.
    assert_eq!(place.sh("p", "ls /tmp"), "");
    // A second end so soon is waited for.
    place.kubelet.signal("killed", "p", "main", Signal::KILL);
    place.wait("pod/p", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CrashLoopBackOff");
    place.wait("pod/p", "jsonpath={.status.containerStatuses[0].restartCount}=2");
}

#[test]
fn a_process_that_is_stopped_is_restarted_by_its_liveness_probe() {
    let place = Place::new("stopped");
    let beat = "while :; do cut -d. -f1 /proc/uptime >/tmp/beat; sleep 0.1; done";
    let beats = "test $(($(cut -d. -f1 /proc/uptime) - $(cat /tmp/beat))) -lt 3";
    let probe = |name: &str, rest: &str| {
        format!("{name}: {{exec: {{command: [sh, -c, '{beats}']}}, periodSeconds: 1, {rest}}}")
    };
    let (startup, liveness) = (
        probe("startupProbe", ""),
        probe("livenessProbe", "failureThreshold: 2, terminationGracePeriodSeconds: 1"),
    );
    place.pod("p", beat, &format!("{startup}, {liveness}"));
    place.wait("pod/p", "condition=Ready");
    place.kubelet.signal("stopped", "p", "main", Signal::STOP);
    place.wait("pod/p", "jsonpath={.status.containerStatuses[0].restartCount}=1");
    place.wait("pod/p", "condition=Ready");
}

#[test]
fn a_startup_probe_that_keeps_failing_restarts_the_container() {
    let place = Place::new("startup");
    let probe = "{exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 2, terminationGracePeriodSeconds: 1}";
    place.pod("p", FOREVER, &format!("startupProbe: {probe}"));
    place.wait("pod/p", "jsonpath={.status.containerStatuses[0].restartCount}=1");
    assert_eq!(place.field("pod/p", ".status.containerStatuses[0].started"), "false");
}

#[test]
fn a_deleted_pod_may_end_within_its_grace() {
    let place = Place::new("polite");
    let folder = Plane::shared().kubeconfig().with_file_name("polite");
    let script = serde_json::Value::from(
        "trap 'echo ended >/out/ended; exit 0' TERM; touch /out/runs; while :; do sleep 0.1; done",
    );
    place.apply(
        "Pod",
        "p",
        &format!(
            "spec: {{terminationGracePeriodSeconds: 50, volumes: [{{name: out, hostPath: {{path: {}}}}}],
                containers: [{{name: main, image: shell, command: [sh, -c, {script}], volumeMounts: [{{name: out, mountPath: /out}}],
                    readinessProbe: {{exec: {{command: [test, -e, /out/runs]}}, periodSeconds: 1}}}}]}}",
            folder.display()
        ),
    );
    place.wait("pod/p", "condition=Ready");
    let began = Instant::now();
    place.kubectl(&["delete", "pod", "p"]);
    assert!(began.elapsed() < Duration::from_secs(25));
    assert_eq!(std::fs::read_to_string(folder.join("ended")).unwrap(), "ended\n");
}

#[test]
fn a_deleted_pod_is_killed_after_its_grace() {
    let place = Place::new("stubborn");
    place.pod(
        "p",
        "trap '' TERM; touch /tmp/deaf; while :; do sleep 0.1; done",
        "readinessProbe: {exec: {command: [test, -e, /tmp/deaf]}, periodSeconds: 1}",
    );
    place.wait("pod/p", "condition=Ready");
    let process = place.kubelet.pid("stubborn", "p", "main").expect("it runs");
    let began = Instant::now();
    place.kubectl(&["delete", "pod", "p", "--grace-period=3"]);
    assert!(began.elapsed() > Duration::from_secs(2));
    assert!(!Path::new("/proc").join(process.to_string()).exists());
}

#[test]
fn a_pod_that_ran_to_its_end_has_succeeded_or_failed() {
    let place = Place::new("ends");
    for (name, code, phase) in [("good", 0, "Succeeded"), ("bad", 3, "Failed")] {
        place.apply(
            "Pod",
            name,
            &format!("spec: {{restartPolicy: Never, containers: [{{name: main, image: shell, command: [sh, -c, exit {code}]}}]}}"),
        );
        place.wait(&format!("pod/{name}"), &format!("jsonpath={{.status.phase}}={phase}"));
        let ended =
            place.field(&format!("pod/{name}"), ".status.containerStatuses[0].state.terminated.exitCode");
        assert_eq!(ended, code.to_string());
        place.kubectl(&["delete", "pod", name]);
    }
}

#[test]
fn a_stateful_set_keeps_its_data_and_its_name() {
    let place = Place::new("stateful");
    place.apply("Service", "web", "spec: {clusterIP: None, selector: {app: web}}");
    place.apply(
        "StatefulSet",
        "web",
        "spec: {
            replicas: 2, serviceName: web, podManagementPolicy: Parallel, selector: {matchLabels: {app: web}},
            template: {metadata: {labels: {app: web}}, spec: {terminationGracePeriodSeconds: 1, containers: [
                {name: main, image: shell, command: [sleep, infinity], volumeMounts: [{name: data, mountPath: /data}]}]}},
            volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}",
    );
    place.wait("statefulset/web", "jsonpath={.status.readyReplicas}=2");
    let address = place.field("pod/web-1", ".status.podIP");
    let asked =
        "timeout 60 sh -c 'until getent hosts web-1.web.stateful.svc.cluster.local; do sleep 0.1; done'";
    assert!(place.sh("web-0", asked).starts_with(&format!("{address} ")));
    place.sh("web-0", "hostname >/data/name");
    let uid = place.field("pod/web-0", ".metadata.uid");
    place.kubectl(&["delete", "pod", "web-0"]);
    place.wait("pod/web-0", "create");
    place.wait("pod/web-0", "condition=Ready");
    assert_ne!(place.field("pod/web-0", ".metadata.uid"), uid);
    assert_eq!(place.sh("web-0", "cat /data/name"), "web-0");

    place.kubectl(&[
        "patch",
        "pvc",
        "data-web-0",
        "-p",
        "{\"spec\": {\"resources\": {\"requests\": {\"storage\": \"3Gi\"}}}}",
    ]);
    place.wait("pvc/data-web-0", "jsonpath={.status.capacity.storage}=3Gi");
    let volume = place.field("pvc/data-web-0", ".spec.volumeName");
    assert_eq!(place.field(&format!("pv/{volume}"), ".spec.capacity.storage"), "3Gi");
    let folder = place.field(&format!("pv/{volume}"), ".spec.hostPath.path");

    place.kubectl(&["delete", "statefulset", "web"]);
    place.kubectl(&["delete", "pvc", "--all"]);
    place.wait(&format!("pv/{volume}"), "delete");
    assert!(!Path::new(&folder).exists());
}

#[test]
fn mariadb_answers_to_its_password_and_keeps_its_data() {
    let place = Place::new("mariadb");
    place.apply("Secret", "root", "stringData: {MYSQL_ROOT_PASSWORD: \"it's a \\\\ secret\"}");
    place.apply(
        "PersistentVolumeClaim",
        "data",
        "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}",
    );
    let login = "MYSQL_PWD=$MYSQL_ROOT_PASSWORD exec mysql -h 127.0.0.1 -u root -e \"SELECT 1\"";
    let probe = |rest: &str| format!("{{exec: {{command: [sh, -c, '{login}']}}, periodSeconds: 1, {rest}}}");
    let probes = format!(
        "startupProbe: {}, readinessProbe: {}, livenessProbe: {}",
        probe("failureThreshold: 60"),
        probe("failureThreshold: 1"),
        probe("failureThreshold: 3, terminationGracePeriodSeconds: 1")
    );
    place.apply(
        "Pod",
        "db",
        &format!(
            "spec: {{volumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}], containers: [
                {{name: main, image: 'mysql:8', envFrom: [{{secretRef: {{name: root}}}}], {probes},
                    volumeMounts: [{{name: data, mountPath: /var/lib/mysql}}]}}]}}"
        ),
    );
    place.wait("pod/db", "condition=Ready");
    let sql = |options: &str, statement: &str| {
        place.sh("db", &format!("MYSQL_PWD=$MYSQL_ROOT_PASSWORD mysql -N -u root {options} -e '{statement}'"))
    };
    sql(
        "",
        "CREATE DATABASE shop; CREATE TABLE shop.carts (id INT PRIMARY KEY); INSERT INTO shop.carts VALUES (7)",
    );
    assert!(place.sh("db", "mysql -u root -pwrong -e 'SELECT 1'").contains("Access denied"));
    assert!(place.sh("db", "mysql -u root -h 127.0.0.1 -e 'SELECT 1'").contains("Access denied"));
    assert_eq!(place.sh("db", "mysqladmin -u root -pwrong ping"), "mysqld is alive");
    assert_eq!(place.sh("db", "cat /proc/1/comm"), "mariadbd");

    place.kubelet.signal("mariadb", "db", "main", Signal::KILL);
    place.wait("pod/db", "jsonpath={.status.containerStatuses[0].restartCount}=1");
    place.wait("pod/db", "condition=Ready");
    assert_eq!(sql("-h 127.0.0.1", "SELECT id FROM shop.carts"), "7");

    place.kubelet.signal("mariadb", "db", "main", Signal::STOP);
    place.wait("pod/db", "condition=Ready=False");
    place.wait("pod/db", "jsonpath={.status.containerStatuses[0].restartCount}=2");
    place.wait("pod/db", "condition=Ready");
    assert_eq!(sql("", "SELECT id FROM shop.carts"), "7");
}

#[test]
fn a_node_keeps_its_lease() {
    kubelet();
    let plane = Plane::shared();
    let mut watch = Command::new(plane.programs().join("kubectl"))
        .arg("--kubeconfig")
        .arg(plane.kubeconfig())
        .args(["--namespace", "kube-node-lease", "get", "lease", "real-0", "--watch", "-o"])
        .arg("jsonpath={.spec.renewTime}{'\\n'}")
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl is there");
    let renewals = BufReader::new(watch.stdout.take().expect("it is piped")).lines();
    let renewals: BTreeSet<String> = renewals.take(3).map(|line| line.expect("it is text")).collect();
    watch.kill().expect("it runs");
    watch.wait().expect("it ends");
    assert_eq!(renewals.len(), 3, "{renewals:?}");
}

#[test]
fn pods_run_on_while_the_api_server_is_away() {
    let plane = Plane::start();
    let kubelet = Kubelet::start(&plane, "real-0", images());
    sleeper(&plane, &kubelet);
    plane.stop(Component::ApiServer);
    let log = kubelet.log("default", "p", "main");
    kubelet.signal("default", "p", "main", Signal::KILL);
    let again = "until [ $(grep -c runs $0) = 2 ]; do sleep 0.1; done";
    let file = plane.kubeconfig().with_file_name("kubelet-real-0/logs/default_p_main.log");
    let ended = Command::new("timeout").args(["60", "sh", "-c", again]).arg(file).status();
    assert!(ended.expect("sh runs").success(), "{log}");
    plane.restart(Component::ApiServer);
    plane.get(&[
        "wait",
        "pod/p",
        "--for=jsonpath={.status.containerStatuses[0].restartCount}=1",
        "--timeout=60s",
    ]);
    plane.get(&["wait", "pod/p", "--for=condition=Ready", "--timeout=60s"]);
}

/// Not a test: what the next one kills.
#[test]
#[ignore = "it waits to be killed"]
fn a_kubelet_waits_to_be_killed() {
    let plane = Plane::start();
    let kubelet = Kubelet::start(&plane, "real-0", images());
    println!("process {} {}", sleeper(&plane, &kubelet), plane.kubeconfig().display());
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_kubelet_leaves_no_process_however_it_ends() {
    let plane = Plane::start();
    let kubelet = Kubelet::start(&plane, "real-0", images());
    let process = sleeper(&plane, &kubelet);
    drop(kubelet);
    assert!(!Path::new("/proc").join(&process).exists());

    let mut tests = Command::new(std::env::current_exe().expect("it is there"))
        .args(["--ignored", "--exact", "--nocapture", "a_kubelet_waits_to_be_killed"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let output = BufReader::new(tests.stdout.take().expect("it is piped"));
    let mut lines = output.lines().map_while(Result::ok);
    let line = lines.find_map(|line| Some(line.split_once("process ")?.1.to_owned())).expect("it starts");
    let (process, kubeconfig) = line.split_once(' ').expect("two words");
    assert!(Path::new("/proc").join(process).exists());
    tests.kill().expect("it runs");
    tests.wait().expect("it ends");
    let gone = "while [ -e /proc/$0 ] || [ -e ${1%/*} ]; do sleep 0.1; done";
    let ended = Command::new("timeout").args(["20", "sh", "-c", gone, process, kubeconfig]).status();
    assert!(ended.expect("sh runs").success(), "{line} is still there");
}

/// Runs a pod whose program starts another; returns the other's process id on the machine.
fn sleeper(plane: &Plane, kubelet: &Kubelet) -> String {
    plane.get(&["wait", "serviceaccount/default", "--for=create", "--timeout=60s"]);
    plane.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [
            {name: main, image: shell, command: [sh, -c, 'sleep infinity & echo runs; touch /tmp/runs; wait'],
                readinessProbe: {exec: {command: [test, -e, /tmp/runs]}, periodSeconds: 1}}]}}",
    );
    plane.get(&["wait", "pod/p", "--for=condition=Ready", "--timeout=60s"]);
    let first = kubelet.pid("default", "p", "main").expect("it runs");
    let children = format!("/proc/{first}/task/{first}/children");
    std::fs::read_to_string(children).expect("it runs").trim().to_owned()
}
