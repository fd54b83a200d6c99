//! The probes of a container, as a kubelet runs them.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::future::pending;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustix::process::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::sandbox::{self, Environment};

/// A container that runs, as its probes need to know it.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) container: &'a Container,
    pub(super) ip: Ipv4Addr,
    pub(super) pid: Pid,
    pub(super) environment: &'a Environment,
    pub(super) started: Instant,
}

/// A container that has to be killed, as its startup or liveness probe failed too often.
#[derive(Debug)]
pub(super) struct Unhealthy {
    /// The grace that the probe sets; else it is the pod's.
    pub(super) grace_seconds: Option<i64>,
}

/// The result of the probes so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) started: bool,
    pub(super) ready: bool,
}

/// Returns why a container's probes cannot be run, if so.
pub(super) fn unsupported(container: &Container) -> Option<String> {
    let probes = [&container.startup_probe, &container.liveness_probe, &container.readiness_probe];
    let unknown = |probe: &&Probe| {
        let https = probe.http_get.as_ref().is_some_and(|http| http.scheme.as_deref() == Some("HTTPS"));
        https || (probe.exec.is_none() && probe.tcp_socket.is_none() && probe.http_get.is_none())
    };
    let found = probes.into_iter().flatten().any(|probe| unknown(&probe));
    found.then(|| "this kubelet knows exec, tcpSocket and httpGet (HTTP) probes".to_owned())
}

impl Target<'_> {
    /// Runs the probes and reports what changes, until the container is unhealthy.
    pub(super) async fn watch(&self, mut report: impl FnMut(Health)) -> Unhealthy {
        if let Some(probe) = &self.container.startup_probe {
            report(Health { started: false, ready: false });
            if let Err(unhealthy) = self.until_started(probe).await {
                return unhealthy;
            }
        }
        report(Health { started: true, ready: self.container.readiness_probe.is_none() });
        tokio::select! {
            unhealthy = self.until_unhealthy() => unhealthy,
            never = self.watch_readiness(|ready| report(Health { started: true, ready })) => match never {},
        }
    }

    async fn until_started(&self, probe: &Probe) -> Result<(), Unhealthy> {
        let mut failures = 0;
        self.begin(probe).await;
        while !self.succeeds(probe).await {
            failures += 1;
            if failures >= failure_threshold(probe) {
                return Err(Unhealthy { grace_seconds: probe.termination_grace_period_seconds });
            }
            sleep(period(probe)).await;
        }
        Ok(())
    }

    async fn until_unhealthy(&self) -> Unhealthy {
        let Some(probe) = &self.container.liveness_probe else { return pending().await };
        let mut failures = 0;
        self.begin(probe).await;
        loop {
            failures = if self.succeeds(probe).await { 0 } else { failures + 1 };
            if failures >= failure_threshold(probe) {
                return Unhealthy { grace_seconds: probe.termination_grace_period_seconds };
            }
            sleep(period(probe)).await;
        }
    }

    async fn watch_readiness(&self, mut report: impl FnMut(bool)) -> Infallible {
        let Some(probe) = &self.container.readiness_probe else { return pending().await };
        // How often in a row the last result came.
        let (mut last, mut times) = (false, 0);
        self.begin(probe).await;
        loop {
            let result = self.succeeds(probe).await;
            times = if result == last { times + 1 } else { 1 };
            last = result;
            let threshold =
                if result { probe.success_threshold.unwrap_or(1) } else { failure_threshold(probe) };
            if times >= threshold {
                report(result);
            }
            sleep(period(probe)).await;
        }
    }

    async fn begin(&self, probe: &Probe) {
        sleep_until(self.started + seconds(probe.initial_delay_seconds.unwrap_or(0))).await;
    }

    /// Runs a probe once.
    async fn succeeds(&self, probe: &Probe) -> bool {
        let limit = seconds(probe.timeout_seconds.unwrap_or(1));
        if let Some(exec) = &probe.exec {
            let argv = exec.command.as_deref().unwrap_or_default();
            return sandbox::exec_within(limit, self.pid, self.environment, argv).await == Some(0);
        }
        let ip = self.ip.to_string();
        let answered = timeout(limit, async {
            if let Some(tcp) = &probe.tcp_socket {
                let host = tcp.host.as_deref().unwrap_or(&ip);
                TcpStream::connect((host, self.port(&tcp.port)?)).await.ok().map(|_| true)
            } else {
                let http = probe.http_get.as_ref()?;
                let host = http.host.as_deref().unwrap_or(&ip);
                get(host, self.port(&http.port)?, http).await
            }
        });
        answered.await.ok().flatten() == Some(true)
    }

    /// Returns a port by number or name.
    fn port(&self, port: &IntOrString) -> Option<u16> {
        let number = match port {
            IntOrString::Int(number) => *number,
            IntOrString::String(name) => {
                let mut ports = self.container.ports.iter().flatten();
                ports.find(|port| port.name.as_ref() == Some(name))?.container_port
            }
        };
        u16::try_from(number).ok()
    }
}

/// Returns true if the answer's code is 200 to 399.
async fn get(host: &str, port: u16, http: &HTTPGetAction) -> Option<bool> {
    let mut server = TcpStream::connect((host, port)).await.ok()?;
    let path = http.path.as_deref().unwrap_or("/");
    let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\nUser-Agent: kube-probe\r\n");
    let headers = || http.http_headers.iter().flatten();
    if !headers().any(|header| header.name.eq_ignore_ascii_case("host")) {
        request += &format!("Host: {host}:{port}\r\n");
    }
    for header in headers() {
        request += &format!("{}: {}\r\n", header.name, header.value);
    }
    server.write_all((request + "\r\n").as_bytes()).await.ok()?;
    let mut status = String::new();
    BufReader::new(server).read_line(&mut status).await.ok()?;
    let code: u16 = status.split(' ').nth(1)?.parse().ok()?;
    Some((200..400).contains(&code))
}

fn period(probe: &Probe) -> Duration {
    seconds(probe.period_seconds.unwrap_or(10))
}

fn failure_threshold(probe: &Probe) -> i32 {
    probe.failure_threshold.unwrap_or(3)
}

fn seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
