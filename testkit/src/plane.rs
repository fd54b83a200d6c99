//! A Kubernetes control plane for the tests of one process: kube-apiserver, etcd, controller manager, scheduler, and
//! KWOK in the place of kubelets. Gone when the process is.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Port;
use crate::guardian::Guardian;

/// A running control plane. It listens on one loopback port, and whoever has its token is `system:masters`.
///
/// Every Node made in it becomes Ready and keeps its lease, if it has a label as every real Node has, and no kubelet of its
/// own; with the annotation `testplane.kubebid.io/not-ready` it becomes NotReady. Every Pod bound to one runs, a Job's
/// completes at once, and a deleted one takes all of its grace.
#[derive(Debug)]
pub struct Plane {
    guardian: Mutex<Guardian>,
    folder: PathBuf,
    programs: PathBuf,
    url: String,
    ca_pem: String,
    token: String,
    /// Held so that it is still free when the API server is restarted.
    _port: Port,
}

/// A program of the plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    /// Without it no node keeps its lease: all become Unknown after the grace, 30 s.
    Kwok,
}

impl Component {
    fn program(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
        }
    }
}

impl Plane {
    /// The plane that all tests of this process share, a namespace each.
    ///
    /// # Panics
    /// When its programs are not built or do not start.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Plane> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// A plane of its own, for a test that stops parts of it. Ready when pods can be made in namespace `default`.
    ///
    /// # Panics
    /// When its programs are not built or do not start.
    pub fn start() -> Self {
        Self::start_with_grace(30)
    }

    /// One whose nodes become Unknown when they have not renewed their lease for so many seconds. They do so three
    /// times in it, which for a thousand nodes and 30 s takes more than half a core: thousands need more.
    ///
    /// # Panics
    /// When its programs are not built or do not start.
    pub fn start_with_grace(seconds: u32) -> Self {
        let programs = programs();
        let port = Port::hold();
        let mut command = Command::new("sh");
        command.args(["-c", include_str!("plane/plane.sh"), "kubebid-testkit"]).arg(&programs).args([
            &port.address().port().to_string(),
            include_str!("plane/kwok.yaml"),
            &seconds.to_string(),
        ]);
        let guardian = Guardian::start(command, "the control plane");
        let folder = guardian.folder().to_owned();
        let read =
            |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        Self {
            guardian: Mutex::new(guardian),
            url: format!("https://{}", port.address()),
            ca_pem: read("apiserver.crt"),
            token: read("token").trim_end().to_owned(),
            folder,
            programs,
            _port: port,
        }
    }

    /// Returns the plane as a story holds the shared one, and the value whose drop ends its programs.
    pub fn leak(self) -> (&'static Self, PlaneEnd) {
        let plane: &'static Self = Box::leak(Box::new(self));
        (plane, PlaneEnd(plane))
    }

    /// Where the API server listens, also after it was restarted.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What signed the API server's certificate.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The administrator's bearer token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// The folder of kubectl and the other programs.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Runs kubectl as the administrator.
    ///
    /// # Panics
    /// When kubectl cannot be run; what it says is in the output.
    pub fn kubectl(&self, arguments: &[&str]) -> Output {
        self.kubectl_reading(arguments, "")
    }

    /// Runs kubectl as the administrator, with this text for its `-f -`.
    ///
    /// # Panics
    /// When kubectl cannot be run; what it says is in the output.
    pub fn kubectl_reading(&self, arguments: &[&str], input: &str) -> Output {
        let mut kubectl = Command::new(self.programs.join("kubectl"))
            .env("HOME", &self.folder)
            .env("KUBECONFIG", self.kubeconfig())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl is there");
        let mut stdin = kubectl.stdin.take().expect("it is piped");
        // Beside it, as kubectl may answer before it has read all. One that needs no input does not wait for it.
        std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input.as_bytes()));
            kubectl.wait_with_output().expect("kubectl writes to its pipes")
        })
    }

    /// What kubectl writes to standard output.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn get(&self, arguments: &[&str]) -> String {
        expect_success(arguments, &self.kubectl(arguments))
    }

    /// Applies objects in YAML.
    ///
    /// # Panics
    /// When the API server refuses.
    pub fn apply(&self, objects: &str) {
        let arguments = ["apply", "-f", "-"];
        expect_success(&arguments, &self.kubectl_reading(&arguments, objects));
    }

    /// Kills a component, without warning.
    ///
    /// # Panics
    /// When the plane has gone.
    pub fn stop(&self, component: Component) {
        self.order("stop", component);
    }

    /// Starts a component that was stopped, or kills it and starts it once more. Waits until the API server answers.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&self, component: Component) {
        self.order("restart", component);
    }

    fn order(&self, order: &str, component: Component) {
        let mut guardian = self.guardian.lock().unwrap_or_else(PoisonError::into_inner);
        guardian.order(&format!("{order} {}", component.program()));
    }

    /// Forgets all versions of objects but the last. Watches that resume from an earlier one get 410 Gone from etcd;
    /// the API server's own memory reaches further back until it is restarted.
    ///
    /// # Panics
    /// When etcd refuses.
    pub fn compact(&self) {
        // Any key will do: each answer tells the revision of all.
        let answer = self.etcd("range", r#"{"key": "AA=="}"#);
        let (_, from_revision) = answer.split_once(r#""revision":""#).unwrap_or_else(|| panic!("{answer}"));
        let (revision, _) = from_revision.split_once('"').unwrap_or_else(|| panic!("{answer}"));
        self.etcd("compaction", &format!(r#"{{"revision": "{revision}", "physical": true}}"#));
    }

    /// One call of etcd's key-value service, in JSON.
    fn etcd(&self, call: &str, body: &str) -> String {
        let mut etcd = UnixStream::connect(self.folder.join("etcd.sock")).expect("etcd listens");
        let length = body.len();
        let head = format!("POST /v3/kv/{call} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {length}\r\n\r\n");
        etcd.write_all((head + body).as_bytes()).expect("etcd reads");
        let mut answer = String::new();
        etcd.read_to_string(&mut answer).expect("etcd answers");
        assert!(answer.starts_with("HTTP/1.0 200 "), "{call} {body}: {answer}");
        answer
    }

    /// The requests of service accounts that were answered, but for those of Kubernetes itself: JSON objects of
    /// `audit.k8s.io/v1`, one a line.
    ///
    /// # Panics
    /// When the plane has gone.
    pub fn audit_log(&self) -> String {
        let mut log = std::fs::read_to_string(self.folder.join("audit.log")).expect("the API server logs");
        // It may be writing one.
        log.truncate(log.rfind('\n').map_or(0, |end| end + 1));
        log
    }

    /// What a component has logged.
    ///
    /// # Panics
    /// When the plane has gone.
    pub fn log(&self, component: Component) -> String {
        let file = self.folder.join(format!("{}.log", component.program()));
        let log = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        String::from_utf8_lossy(&log).into_owned()
    }
}

/// Ends the programs of a leaked plane when it is dropped.
#[derive(Debug)]
pub struct PlaneEnd(&'static Plane);

impl Drop for PlaneEnd {
    fn drop(&mut self) {
        self.0.guardian.lock().unwrap_or_else(PoisonError::into_inner).end();
    }
}

fn expect_success(arguments: &[&str], output: &Output) -> String {
    assert!(
        output.status.success(),
        "kubectl {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The folder with `kube-apiserver` and the others, which `testplane/build` knows.
fn programs() -> PathBuf {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testplane/build");
    let asked =
        Command::new(&build).arg("--where").output().unwrap_or_else(|e| panic!("{}: {e}", build.display()));
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    String::from_utf8_lossy(&asked.stdout).trim_end().into()
}
