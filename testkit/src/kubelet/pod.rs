//! One pod: its preparation, its containers, its status, its end.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::container::{Ended, RestartPolicy, Runner, State, View, deadline};
use super::hosts::Address;
use super::sandbox::Environment;
use super::volume::{self, Volumes};
use super::{Context, NODE_IP, RETRY, repeat};

/// A pod as the API server has it.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) pod: Arc<Pod>,
    /// The time at which the processes of a deleted pod have to be gone.
    pub(super) deadline: Option<Instant>,
    /// False when the API server does not have the pod.
    pub(super) exists: bool,
}

/// A pod with all that its containers share.
#[derive(Debug)]
pub(super) struct Sandboxed {
    pub(super) context: Arc<Context>,
    pub(super) pod: Arc<Pod>,
    pub(super) ip: Ipv4Addr,
    pub(super) hostname: String,
    pub(super) folder: PathBuf,
    pub(super) volumes: Volumes,
}

impl Sandboxed {
    pub(super) fn hosts_file(&self) -> PathBuf {
        hosts_file(&self.folder)
    }

    /// Returns the variables that each container has before its own.
    pub(super) fn environment(&self) -> Environment {
        let (host, port) = &self.context.api;
        let variables = [
            ("HOME", "/root"),
            ("HOSTNAME", &self.hostname),
            ("KUBEBID_POD_IP", &self.ip.to_string()),
            ("KUBERNETES_SERVICE_HOST", host),
            ("KUBERNETES_SERVICE_PORT", port),
        ];
        variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Returns the grace after a failed probe: the probe's own or the pod's.
    pub(super) fn grace(&self, own_seconds: Option<i64>) -> Duration {
        let seconds = own_seconds.or(spec(&self.pod).termination_grace_period_seconds).unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }
}

/// Runs a pod until the API server does not have it, or the kubelet ends.
pub(super) async fn run(context: Arc<Context>, mut wanted: watch::Receiver<Wanted>) {
    let pod = wanted.borrow().pod.clone();
    let folder = context.folder.join("pods").join(pod.uid().unwrap_or_default());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let mut reporter = Reporter::new(&context, &pod, wanted.clone());
    let address = Address::hold();
    if !matches!(phase, Some("Succeeded" | "Failed")) {
        let spec = spec(&pod);
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let (views, mut seen) = watch::channel(containers.map(View::new).collect::<Vec<_>>());
        let (finish, mut finished) = watch::channel(false);
        let lives = async {
            live(&context, &pod, &folder, address.ip, &views, &wanted).await;
            finish.send_replace(true);
        };
        let reports = async {
            loop {
                let (last, views) = (*finished.borrow_and_update(), seen.borrow_and_update().clone());
                reporter.report(&views, address.ip, last).await;
                if last {
                    break;
                }
                tokio::select! {
                    _ = seen.changed() => {}
                    _ = finished.changed() => {}
                }
            }
        };
        tokio::join!(lives, reports);
    }
    deadline(&mut wanted).await;
    reporter.delete().await;
    let _ = wanted.wait_for(|wanted| !wanted.exists).await;
    context.hosts().remove(&hosts_file(&folder));
    if let Err(e) = fs::remove_dir_all(&folder).or_else(|e| if folder.exists() { Err(e) } else { Ok(()) }) {
        eprintln!("{}: {e}", folder.display());
    }
}

/// Prepares a pod and runs its containers until all have ended for good.
async fn live(
    context: &Arc<Context>,
    pod: &Arc<Pod>,
    folder: &Path,
    ip: Ipv4Addr,
    views: &watch::Sender<Vec<View>>,
    wanted: &watch::Receiver<Wanted>,
) {
    let mut until_deleted = wanted.clone();
    let pod = loop {
        let message = match prepare(context.clone(), pod.clone(), folder, ip).await {
            Ok(pod) => break pod,
            Err(message) => message,
        };
        views.send_modify(|views| {
            for view in views {
                view.state = State::Waiting { reason: "ContainerCreating", message: message.clone() };
            }
        });
        tokio::select! {
            () = sleep(RETRY) => {}
            _ = deadline(&mut until_deleted) => return,
        }
    };
    let spec = spec(&pod.pod);
    let policy = match spec.restart_policy.as_deref() {
        Some("Never") => RestartPolicy::Never,
        Some("OnFailure") => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    };
    let initial = spec.init_containers.as_deref().unwrap_or_default();
    let run = |container, policy, index| {
        Runner { pod: &pod, container, policy, views, index, wanted: wanted.clone() }.run()
    };
    for (index, container) in initial.iter().enumerate() {
        let policy = if policy == RestartPolicy::Always { RestartPolicy::OnFailure } else { policy };
        if run(container, policy, index).await != Some(0) {
            return;
        }
    }
    let containers = spec.containers.iter().enumerate();
    join_all(containers.map(|(index, container)| run(container, policy, initial.len() + index))).await;
}

/// Makes the folder, the volumes and the hosts file of a pod. An error says what it waits for.
async fn prepare(
    context: Arc<Context>,
    pod: Arc<Pod>,
    folder: &Path,
    ip: Ipv4Addr,
) -> Result<Sandboxed, String> {
    let volumes = volume::prepare(&context.client, &pod, &ip.to_string(), &folder.join("volumes")).await?;
    let hostname = spec(&pod).hostname.clone().unwrap_or_else(|| pod.name_any());
    let subdomain = spec(&pod).subdomain.as_deref();
    let namespace = pod.namespace().unwrap_or_default();
    let file = hosts_file(folder);
    fs::create_dir_all(folder)
        .and_then(|()| context.hosts().add(file.clone(), &namespace, ip, &hostname, subdomain))
        .map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(Sandboxed { context, pod, ip, hostname, folder: folder.to_owned(), volumes })
}

fn hosts_file(folder: &Path) -> PathBuf {
    folder.join("hosts")
}

fn spec(pod: &Pod) -> &PodSpec {
    pod.spec.as_ref().expect("the API server requires it")
}

/// Writes what becomes of a pod to the API server.
struct Reporter {
    pods: Api<Pod>,
    pod: Arc<Pod>,
    wanted: watch::Receiver<Wanted>,
    started: Timestamp,
    /// The conditions, and when each became what it is.
    conditions: BTreeMap<&'static str, (bool, Timestamp)>,
}

impl Reporter {
    fn new(context: &Context, pod: &Arc<Pod>, wanted: watch::Receiver<Wanted>) -> Self {
        let pods = Api::namespaced(context.client.clone(), &pod.namespace().unwrap_or_default());
        Self { pods, pod: pod.clone(), wanted, started: Timestamp::now(), conditions: BTreeMap::new() }
    }

    /// Writes the status; `last` says that no container runs again. Repeats it until it is written, the pod is gone, or
    /// the kubelet ends.
    async fn report(&mut self, views: &[View], ip: Ipv4Addr, last: bool) {
        let status = self.status(views, ip, last);
        let patch = Patch::Strategic(json!({"metadata": {"uid": self.pod.uid()}, "status": status}));
        let name = self.pod.name_any();
        let write =
            || async { self.pods.patch_status(&name, &PatchParams::default(), &patch).await.map(drop) };
        repeat(write, || self.is_wanted()).await;
    }

    /// Deletes the pod for good.
    async fn delete(&self) {
        let uid = Preconditions { uid: self.pod.uid(), resource_version: None };
        let at_once = DeleteParams::default().grace_period(0).preconditions(uid);
        let delete = || async { self.pods.delete(&self.pod.name_any(), &at_once).await.map(drop) };
        repeat(delete, || self.is_wanted()).await;
    }

    fn is_wanted(&self) -> bool {
        let kubelet_runs = self.wanted.has_changed().is_ok();
        kubelet_runs && self.wanted.borrow().exists
    }

    fn status(&mut self, views: &[View], ip: Ipv4Addr, last: bool) -> Value {
        let (initial, containers) = views.split_at(spec(&self.pod).init_containers.iter().flatten().count());
        let ended = |view: &View, wanted: bool| match &view.state {
            State::Terminated(ended) => (ended.code == 0) == wanted,
            State::Waiting { .. } | State::Running { .. } => false,
        };
        let initialized = initial.iter().all(|view| ended(view, true));
        let phase = if last && containers.iter().all(|view| ended(view, true)) {
            "Succeeded"
        } else if last {
            "Failed"
        } else if initialized && containers.iter().all(View::has_run) {
            "Running"
        } else {
            "Pending"
        };
        let unready: Vec<&str> =
            containers.iter().filter(|view| !view.is_ready()).map(|view| &view.name[..]).collect();
        let ready = initialized && unready.is_empty();
        let message = format!("containers with unready status: {unready:?}");
        let conditions = [
            self.condition("Initialized", initialized, "ContainersNotInitialized", ""),
            self.condition("ContainersReady", ready, "ContainersNotReady", &message),
            self.condition("Ready", ready, "ContainersNotReady", &message),
        ];
        let statuses = |views: &[View]| views.iter().map(container_status).collect::<Vec<_>>();
        json!({
            "phase": phase, "conditions": conditions, "startTime": self.started,
            "hostIP": NODE_IP, "podIP": ip, "podIPs": [{"ip": ip}],
            "initContainerStatuses": statuses(initial), "containerStatuses": statuses(containers),
        })
    }

    fn condition(&mut self, name: &'static str, holds: bool, reason: &str, message: &str) -> Value {
        let known = self.conditions.entry(name).or_insert((holds, self.started));
        if known.0 != holds {
            *known = (holds, Timestamp::now());
        }
        let (reason, message) =
            if holds { (Value::Null, Value::Null) } else { (json!(reason), json!(message)) };
        let status = if holds { "True" } else { "False" };
        json!({"type": name, "status": status, "lastTransitionTime": known.1, "reason": reason, "message": message})
    }
}

fn container_status(view: &View) -> Value {
    let state = match &view.state {
        State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
        State::Running { since } => json!({"running": {"startedAt": since}}),
        State::Terminated(ended) => terminated(ended),
    };
    json!({
        "name": view.name, "image": view.image, "imageID": "", "state": state,
        "lastState": view.last.as_ref().map_or(json!({}), terminated), "restartCount": view.restarts,
        "started": view.health.started, "ready": view.is_ready(),
    })
}

fn terminated(ended: &Ended) -> Value {
    let reason = if ended.code == 0 { "Completed" } else { "Error" };
    json!({"terminated": {
        "exitCode": ended.code, "reason": reason, "startedAt": ended.started, "finishedAt": ended.finished,
    }})
}
