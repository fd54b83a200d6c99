//! The life of one container of a pod: start, probes, end, restart with backoff.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::pod::{Sandboxed, Wanted};
use super::probe::{self, Health, Target};
use super::sandbox::{self, Environment, Mount, Process, Program};
use super::{RETRY, Running, environment, volume};

/// A container restarts at once after its first end, then after one second, and twice as long each time up to this.
/// A kubelet waits from 10 s to 5 minutes.
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// A container that has run for so long restarts at once.
const BACKOFF_RESET: Duration = Duration::from_secs(60);

/// The state of a container, as it is reported.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) state: State,
    pub(super) last: Option<Ended>,
    pub(super) restarts: u32,
    pub(super) health: Health,
}

#[derive(Debug, Clone)]
pub(super) enum State {
    Waiting { reason: &'static str, message: String },
    Running { since: Timestamp },
    Terminated(Ended),
}

/// The end of a container's process.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
}

impl View {
    /// The view of a container that has not started.
    pub(super) fn new(container: &Container) -> Self {
        Self {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            state: State::Waiting { reason: "PodInitializing", message: String::new() },
            last: None,
            restarts: 0,
            health: NOT_STARTED,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state, State::Running { .. }) && self.health.ready
    }

    /// Returns true if the container has run.
    pub(super) fn has_run(&self) -> bool {
        !matches!(self.state, State::Waiting { .. }) || self.last.is_some()
    }
}

const NOT_STARTED: Health = Health { started: false, ready: false };

/// The exit codes after which a container runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    fn restarts(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// Runs one container and keeps its view.
pub(super) struct Runner<'a> {
    pub(super) pod: &'a Sandboxed,
    pub(super) container: &'a Container,
    pub(super) policy: RestartPolicy,
    /// The views of the pod's containers, this one's at `index`.
    pub(super) views: &'a watch::Sender<Vec<View>>,
    pub(super) index: usize,
    pub(super) wanted: watch::Receiver<Wanted>,
}

impl Runner<'_> {
    /// Runs the container until it has ended for good, by itself or as its pod is deleted. Returns its last exit code,
    /// if it has run.
    pub(super) async fn run(mut self) -> Option<i32> {
        let mut backoff = Duration::ZERO;
        let mut code = None;
        loop {
            let (began, started) = (Instant::now(), Timestamp::now());
            let mut wanted = self.wanted.clone();
            let launched = tokio::select! {
                launched = self.launch() => launched,
                _ = deadline(&mut wanted) => return code,
            };
            match launched {
                Ok((process, environment)) => {
                    self.show(|view| view.state = State::Running { since: started });
                    let ended = self.attend(process, &environment).await;
                    let ended = Ended { code: ended, started, finished: Timestamp::now() };
                    code = Some(ended.code);
                    self.show(|view| {
                        view.state = State::Terminated(ended);
                        view.health = NOT_STARTED;
                    });
                    if self.wanted.borrow().deadline.is_some() || !self.policy.restarts(code.unwrap_or(0)) {
                        return code;
                    }
                    if began.elapsed() > BACKOFF_RESET {
                        backoff = Duration::ZERO;
                    }
                    if !self.wait("CrashLoopBackOff", String::new(), backoff).await {
                        return code;
                    }
                    backoff = (backoff * 2).clamp(RETRY, BACKOFF_MAX);
                    self.show(|view| view.restarts += 1);
                }
                Err((reason, message)) => {
                    if !self.wait(reason, message, RETRY).await {
                        return code;
                    }
                }
            }
        }
    }

    /// Changes the view.
    fn show(&self, change: impl FnOnce(&mut View)) {
        self.views.send_modify(|views| {
            let view = &mut views[self.index];
            if let State::Terminated(ended) = &view.state {
                view.last = Some(ended.clone());
            }
            change(view);
        });
    }

    /// Waits for so long, and returns false if the pod is deleted meanwhile.
    async fn wait(&mut self, reason: &'static str, message: String, time: Duration) -> bool {
        if time.is_zero() {
            return true;
        }
        self.show(|view| view.state = State::Waiting { reason, message });
        tokio::select! {
            () = sleep(time) => true,
            _ = deadline(&mut self.wanted) => false,
        }
    }

    /// Starts the container's process. An error is the reason and message of the state Waiting.
    async fn launch(&self) -> Result<(Process, Environment), (&'static str, String)> {
        let (pod, container) = (self.pod, self.container);
        let image = container.image.as_deref().unwrap_or_default();
        let image = pod.context.images.iter().find(|it| it.name == image).ok_or_else(|| {
            (
                "ErrImagePull",
                format!("no program stands for the image {image}; add it to the kubelet's images"),
            )
        })?;
        let invalid = |message| ("CreateContainerConfigError", message);
        if let Some(message) = probe::unsupported(container) {
            return Err(invalid(message));
        }
        let ip = pod.ip.to_string();
        let mut environment = pod.environment();
        environment.insert("PATH".to_owned(), image.search_path());
        let environment = environment::resolve(&pod.context.client, &pod.pod, &ip, container, environment)
            .await
            .map_err(invalid)?;
        let expanded = |texts: &Option<Vec<String>>| {
            let texts = texts.iter().flatten();
            texts.map(|text| environment::expand(text, &environment)).collect::<Vec<_>>()
        };
        let argv = image.argv(&expanded(&container.command), &expanded(&container.args)).map_err(invalid)?;

        let own = |source: PathBuf, target: &str| Mount { source, target: target.into(), read_only: false };
        let mut mounts = volume::mounts(container, &pod.volumes).map_err(invalid)?;
        mounts.push(own(pod.hosts_file(), "/etc/hosts"));
        for folder in &image.folders {
            mounts.push(Mount { source: folder.clone(), target: folder.clone(), read_only: true });
        }
        // Each after the folder that it is in.
        mounts.sort_by(|a, b| a.target.cmp(&b.target));
        let program = Program {
            hostname: &pod.hostname,
            argv: &argv,
            environment: &environment,
            folder: container.working_dir.as_deref(),
            mounts: &mounts,
            root: &pod.folder.join(&container.name),
            log: &pod.context.log(&pod.name(container)),
        };
        let process = Process::start(&program).await.map_err(|message| ("RunContainerError", message))?;
        Ok((process, environment))
    }

    /// Attends to the process until it has ended; returns its exit code. Ends it if it is unhealthy or the pod is
    /// deleted.
    async fn attend(&mut self, mut process: Process, environment: &Environment) -> i32 {
        let (pod, container, pid) = (self.pod, self.container, process.pid());
        let name = pod.name(container);
        pod.context.running().insert(name.clone(), Running { pid, environment: environment.clone() });
        let target = Target { container, ip: pod.ip, pid, environment, started: Instant::now() };
        let (views, index) = (self.views, self.index);
        let probes = target.watch(|health| {
            views.send_if_modified(|views| std::mem::replace(&mut views[index].health, health) != health);
        });
        let ended = tokio::select! {
            code = process.wait() => Ok(code),
            unhealthy = probes => Err(Instant::now() + pod.grace(unhealthy.grace_seconds)),
            deadline = deadline(&mut self.wanted) => Err(deadline),
        };
        let code = match ended {
            Ok(code) => code,
            Err(deadline) => self.end(&mut process, deadline).await,
        };
        let mut running = pod.context.running();
        // A pod of the same name may already run, if this one was deleted without grace.
        if running.get(&name).is_some_and(|it| it.pid == pid) {
            running.remove(&name);
        }
        code
    }

    /// Sends SIGTERM, and SIGKILL at the deadline, which may come nearer.
    async fn end(&mut self, process: &mut Process, mut deadline: Instant) -> i32 {
        sandbox::signal(process.pid(), Signal::TERM);
        loop {
            let sooner = |wanted: &Wanted| wanted.deadline.is_some_and(|it| it < deadline);
            tokio::select! {
                code = process.wait() => return code,
                () = sleep_until(deadline) => break,
                wanted = self.wanted.wait_for(sooner) => match wanted {
                    Ok(wanted) => deadline = wanted.deadline.unwrap_or(deadline),
                    Err(_) => break,
                },
            }
        }
        sandbox::signal(process.pid(), Signal::KILL);
        process.wait().await
    }
}

/// Waits until the pod is to be deleted; returns when its processes have to be gone. At once if the kubelet ends.
pub(super) async fn deadline(wanted: &mut watch::Receiver<Wanted>) -> Instant {
    let deleted = wanted.wait_for(|wanted| wanted.deadline.is_some()).await;
    deleted.ok().and_then(|wanted| wanted.deadline).unwrap_or_else(Instant::now)
}

impl Sandboxed {
    /// Returns the pod's and the container's name, as the kubelet's users know them.
    pub(super) fn name(&self, container: &Container) -> super::Name {
        (self.pod.namespace().unwrap_or_default(), self.pod.name_any(), container.name.clone())
    }
}
