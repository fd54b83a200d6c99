//! A replica of a program with webhooks, in a runtime of its own, so that it can be killed.

use crate::kind;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use kubebid_controller::Writer;
use kubebid_controller::leader_election::Leadership;
use kubebid_testkit::Plane;
use kubebid_webhook::admission::Validate;
use kubebid_webhook::authority::{Authority, AuthorityOptions, Target};
use kubebid_webhook::server::{ServerOptions, Webhooks, serve};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The source of a replica's certificate.
#[derive(Clone, Debug)]
pub(crate) enum Certificates {
    Secret(AuthorityOptions),
    Files(PathBuf, PathBuf),
}

/// A running replica.
#[derive(Debug)]
pub(crate) struct Replica {
    /// Some until it is dropped: a task must not wait for the end of a runtime.
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

struct Warning;

impl Validate for Warning {
    async fn warnings(&self, object: Value) -> Vec<String> {
        let is_large = object["spec"]["gigabytes"].as_u64().is_some_and(|size| size > 1_000);
        is_large.then(|| "a disk of this size takes long to make".to_owned()).into_iter().collect()
    }
}

fn fast_by_default(disk: &mut Value) {
    if disk["spec"]["fast"].is_null() {
        disk["spec"]["fast"] = json!(true);
    }
}

/// Returns a client of the administrator, for the runtime of the caller.
pub(crate) async fn client(plane: &Plane) -> Client {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

impl Replica {
    /// Starts a replica. Each one believes that it leads: the versions of what they write keep them apart.
    pub(crate) fn start(
        plane: &'static Plane,
        address: SocketAddr,
        certificates: Certificates,
        targets: Vec<Target>,
    ) -> Replica {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = runtime.spawn(async move {
            let client = client(plane).await;
            let authority = match certificates {
                Certificates::Secret(options) => Authority::new(client.clone(), options, targets).unwrap(),
                Certificates::Files(certificate, key) => {
                    Authority::from_files(client.clone(), certificate, key, targets)
                }
            };
            let webhooks = Webhooks::new().conversions(kind::conversions());
            let webhooks = webhooks.mutate("/mutate", fast_by_default).validate("/validate", Warning);
            let writer = Writer::new(client, "disks", "disks", Leadership::alone(), false);
            let listener = TcpListener::bind(address).unwrap();
            let shutdown_delay = Duration::from_secs(2);
            let options = ServerOptions { shutdown_delay, ..ServerOptions::default() };
            let stopped = async {
                let _ = stopped.await;
            };
            tokio::select! {
                served = serve(listener, &authority, webhooks, options, stopped) => served.unwrap(),
                () = authority.lead(&writer) => {}
            }
        });
        Replica { runtime: Some(runtime), stop: Some(stop), serving: Some(serving) }
    }

    /// Ends it without warning: its connections are closed.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) async fn stop(mut self) {
        let (stop, serving) = (self.stop.take().unwrap(), self.serving.take().unwrap());
        stop.send(()).unwrap();
        serving.await.unwrap();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
