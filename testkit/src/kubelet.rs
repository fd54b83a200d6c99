//! A kubelet for one node of a plane, whose pods are processes of this machine: each container runs in a bubblewrap
//! sandbox that ends with the test process.
//!
//! As in a cluster: command, args, `$(NAME)`, env and envFrom; volumes of claims, Secrets, ConfigMaps, fields, service
//! account tokens, emptyDir and hostPath; init containers; startup, liveness and readiness probes by exec, TCP and
//! HTTP; restart policy and backoff; phase, conditions and container statuses; SIGTERM, grace, SIGKILL.
//!
//! Otherwise than in a cluster:
//! - All pods share the network of the machine, and each has an address of 127.77.0.0/16. A server must listen on its
//!   pod's address (`KUBEBID_POD_IP`, or `fieldRef` of `status.podIP`): 127.0.0.1 and 0.0.0.0 are those of all pods.
//! - A hosts file stands in for DNS. A service's name leads to its ready pods, also if it is not headless.
//! - A container sees the machine's programs in `/usr`. [`Image`] says what stands for its image.
//! - The volumes of Secrets and ConfigMaps are those of the pod's start. Resource limits, security contexts, readiness
//!   gates, lifecycle hooks, sidecar containers and gRPC probes have no effect or fail.
//! - `kubectl logs` and `exec` do not work; [`Kubelet::log`] and [`Kubelet::exec`] do.
#![allow(clippy::disallowed_methods, reason = "the kubelet is no controller: it writes as a kubelet does")]

mod claims;
mod container;
mod environment;
mod hosts;
mod image;
mod node;
mod pod;
mod probe;
mod sandbox;
mod volume;

pub use image::Image;
pub use rustix::process::Signal;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Output;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Config, ResourceExt as _};
use rustix::process::Pid;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::Plane;
use hosts::Hosts;
use pod::Wanted;
use sandbox::Environment;

/// The default storage class of a plane with a kubelet. Its volumes are folders that live as long as the plane.
pub const STORAGE_CLASS: &str = "standard";

/// The address of the node.
const NODE_IP: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The time until a request is repeated that the API server did not answer, or a missing Secret is looked for again.
const RETRY: Duration = Duration::from_secs(1);

/// Namespace, pod and container.
type Name = (String, String, String);

/// The kubelet of one node, in a thread of its own. Dropped, it kills the processes of all its pods.
#[derive(Debug)]
pub struct Kubelet {
    context: Arc<Context>,
    /// The thread ends when this is dropped.
    ends: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The things that all parts of a kubelet share.
struct Context {
    client: Client,
    node: String,
    /// Host and port of the API server.
    api: (String, String),
    folder: PathBuf,
    /// The folder of the plane's volumes.
    volumes: PathBuf,
    images: Vec<Image>,
    running: Mutex<BTreeMap<Name, Running>>,
    hosts: Mutex<Hosts>,
}

/// The process of a container.
#[derive(Debug, Clone)]
struct Running {
    pid: Pid,
    environment: Environment,
}

impl fmt::Debug for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Context").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Context {
    fn running(&self) -> MutexGuard<'_, BTreeMap<Name, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, (namespace, pod, container): &Name) -> PathBuf {
        self.folder.join("logs").join(format!("{namespace}_{pod}_{container}.log"))
    }
}

impl Kubelet {
    /// Starts the kubelet of a node and waits until its Node is written. The images are those that its containers may
    /// name.
    ///
    /// # Panics
    /// If bubblewrap is missing, or the plane refuses.
    pub fn start(plane: &Plane, node: &str, images: Vec<Image>) -> Self {
        let bwrap = std::process::Command::new("/usr/bin/bwrap").arg("--version").output();
        assert!(bwrap.is_ok(), "the kubelet needs bubblewrap: run scripts/setup");
        let (started, is_started) = mpsc::channel();
        let (ends, ended) = oneshot::channel();
        let (url, kubeconfig, node) = (plane.url().to_owned(), plane.kubeconfig(), node.to_owned());
        // Sandboxes die with the thread that starts them, so all are started by this one.
        let thread = std::thread::Builder::new().name("kubelet".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime starts").block_on(async {
                let (host, port) = url.trim_start_matches("https://").split_once(':').expect("host and port");
                let folder = kubeconfig.with_file_name(format!("kubelet-{node}"));
                fs::create_dir_all(folder.join("logs")).expect("the folder of the plane is there");
                let read = Kubeconfig::read_from(&kubeconfig).expect("the plane has a kubeconfig");
                let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
                let context = Arc::new(Context {
                    client: Client::try_from(config.expect("it is valid")).expect("it is valid"),
                    node,
                    api: (host.to_owned(), port.to_owned()),
                    folder,
                    volumes: kubeconfig.with_file_name("volumes"),
                    images,
                    running: Mutex::default(),
                    hosts: Mutex::default(),
                });
                claims::make_class(&context.client).await.expect("the plane takes a storage class");
                node::register(&context).await.expect("the plane takes a node");
                started.send(context.clone()).expect("the test waits");
                run(context, ended).await;
            });
        });
        let thread = Some(thread.expect("a thread starts"));
        let context = is_started.recv().expect("the kubelet starts");
        Self { context, ends: Some(ends), thread }
    }

    /// Returns the process id of a container's first process on this machine, while it runs.
    pub fn pid(&self, namespace: &str, pod: &str, container: &str) -> Option<u32> {
        let running = self.running(namespace, pod, container)?;
        running.pid.as_raw_nonzero().get().try_into().ok()
    }

    /// Sends a signal to a container's first process. Of the signals that it does not handle, only SIGKILL and SIGSTOP
    /// have an effect, as it is process 1.
    ///
    /// # Panics
    /// If the container does not run.
    pub fn signal(&self, namespace: &str, pod: &str, container: &str, signal: Signal) {
        let running = self.running(namespace, pod, container);
        let running = running.unwrap_or_else(|| panic!("{namespace}/{pod}: {container} does not run"));
        sandbox::signal(running.pid, signal);
    }

    /// Runs a program in a container, with the container's variables, and waits for its end. Returns None if the container
    /// does not run at present; what the program says is in the output.
    ///
    /// # Panics
    /// If `nsenter` is missing.
    pub fn exec(&self, namespace: &str, pod: &str, container: &str, argv: &[&str]) -> Option<Output> {
        let running = self.running(namespace, pod, container)?;
        let argv: Vec<_> = argv.iter().map(|argument| (*argument).to_owned()).collect();
        Some(sandbox::exec(running.pid, &running.environment, &argv).output().expect("nsenter is there"))
    }

    /// Returns what a container has written to its outputs, over all its starts; what pods of the same name wrote before
    /// is included.
    pub fn log(&self, namespace: &str, pod: &str, container: &str) -> String {
        let name = (namespace.to_owned(), pod.to_owned(), container.to_owned());
        let log = fs::read(self.context.log(&name)).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn running(&self, namespace: &str, pod: &str, container: &str) -> Option<Running> {
        let name = (namespace.to_owned(), pod.to_owned(), container.to_owned());
        self.context.running().get(&name).cloned()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.ends = None;
        // It has said why it panicked.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Repeats a request until the API server answers it, while it is wanted.
async fn repeat<F>(request: impl Fn() -> F, wanted: impl Fn() -> bool)
where
    F: Future<Output = kube::Result<()>>,
{
    while wanted() {
        match request().await {
            Ok(()) => return,
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                // The object is gone, or another has its name; or, of a new one, it is there.
                if !matches!(status.code, 404 | 409) {
                    eprintln!("kubelet: {status}");
                }
                return;
            }
            Err(_) => sleep(RETRY).await,
        }
    }
}

/// Runs the kubelet until its end is wanted.
async fn run(context: Arc<Context>, ended: oneshot::Receiver<()>) {
    let mut pods = Pods {
        context: context.clone(),
        wanted: BTreeMap::new(),
        listed: BTreeSet::new(),
        tasks: JoinSet::new(),
    };
    tokio::select! {
        _ = ended => {}
        () = pods.follow() => {}
        () = node::keep_lease(&context) => {}
        () = follow_services(&context) => {}
        () = claims::provision(context.client.clone(), context.volumes.clone()) => {}
    }
    // Each pod kills its processes as its sender is dropped. An API server that does not answer may keep it from ending,
    // but what it left running ends with this thread.
    pods.wanted.clear();
    let _ = timeout(Duration::from_secs(5), async { while pods.tasks.join_next().await.is_some() {} }).await;
}

/// The pods of the node, a task each.
struct Pods {
    context: Arc<Context>,
    wanted: BTreeMap<String, watch::Sender<Wanted>>,
    /// The pods that a list has had so far.
    listed: BTreeSet<String>,
    tasks: JoinSet<()>,
}

impl Pods {
    async fn follow(&mut self) {
        let own = watcher::Config::default().fields(&format!("spec.nodeName={}", self.context.node));
        let pods = watcher(Api::<Pod>::all(self.context.client.clone()), own);
        let mut pods = std::pin::pin!(pods.default_backoff());
        while let Some(event) = pods.next().await {
            match event {
                Ok(watcher::Event::Apply(pod)) => self.update(pod),
                Ok(watcher::Event::Delete(pod)) => self.gone(&pod.uid().unwrap_or_default()),
                Ok(watcher::Event::Init) => self.listed.clear(),
                Ok(watcher::Event::InitApply(pod)) => {
                    self.listed.insert(pod.uid().unwrap_or_default());
                    self.update(pod);
                }
                Ok(watcher::Event::InitDone) => {
                    let gone: Vec<_> =
                        self.wanted.keys().filter(|uid| !self.listed.contains(*uid)).cloned().collect();
                    for uid in gone {
                        self.gone(&uid);
                    }
                }
                // The watch is begun again after a backoff.
                Err(_) => {}
            }
        }
    }

    fn update(&mut self, pod: Pod) {
        let uid = pod.uid().unwrap_or_default();
        let grace = pod.metadata.deletion_timestamp.is_some().then(|| {
            let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
            Instant::now() + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
        });
        let pod = Arc::new(pod);
        self.context.hosts().pod(&uid, Some(pod.clone()));
        if let Some(wanted) = self.wanted.get(&uid) {
            wanted.send_modify(|wanted| {
                wanted.pod = pod;
                // Later changes of the pod leave the deadline, or bring it nearer.
                wanted.deadline = wanted.deadline.into_iter().chain(grace).min();
            });
        } else {
            let (wanted, changes) = watch::channel(Wanted { pod, deadline: grace, exists: true });
            self.wanted.insert(uid, wanted);
            self.tasks.spawn(pod::run(self.context.clone(), changes));
        }
    }

    fn gone(&mut self, uid: &str) {
        self.context.hosts().pod(uid, None);
        if let Some(wanted) = self.wanted.remove(uid) {
            wanted.send_modify(|wanted| {
                wanted.deadline = Some(Instant::now());
                wanted.exists = false;
            });
        }
    }
}

/// Keeps the hosts files in step with the services.
async fn follow_services(context: &Context) {
    let services = watcher(Api::<Service>::all(context.client.clone()), watcher::Config::default());
    let mut services = std::pin::pin!(services.default_backoff());
    while let Some(event) = services.next().await {
        let mut hosts = context.hosts();
        match event {
            Ok(watcher::Event::Apply(it) | watcher::Event::InitApply(it)) => {
                hosts.service(it.namespace().unwrap_or_default(), it.name_any(), Some(it));
            }
            Ok(watcher::Event::Delete(it)) => {
                hosts.service(it.namespace().unwrap_or_default(), it.name_any(), None);
            }
            Ok(watcher::Event::Init) => hosts.clear_services(),
            Ok(watcher::Event::InitDone) | Err(_) => {}
        }
    }
}
