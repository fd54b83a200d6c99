//! A provider's machinery, as small as it can be: it keeps the contract of `operator/openapi/provisioner.json`, and its
//! machines are Node objects that register as a kubelet would.

use super::contract;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::put;
use axum::{Json, Router, middleware};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, PostParams};
use kubebid_operator::provisioner::external::{MachineAccess, MachineOrder, MachineState, Problem};
use kubebid_testkit::Port;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) struct Provider {
    floor: Arc<Floor>,
    port: Port,
    folder: TempDir,
    serving: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// Where the machines stand.
struct Floor {
    /// The cluster that they join; without one they only say that they did.
    cluster: Option<Client>,
    books: Mutex<Books>,
}

#[derive(Default)]
pub(crate) struct Books {
    pub(crate) machines: BTreeMap<String, MachineState>,
    /// Every machine that was ever made, once for each time.
    pub(crate) made: Vec<String>,
    pub(crate) ended: BTreeSet<String>,
    /// How many of the next machines do not boot.
    pub(crate) duds: usize,
    /// What the next calls are answered with, whatever they want, and when they may come again.
    pub(crate) moods: VecDeque<(StatusCode, Option<&'static str>)>,
    /// Nobody is told how far a machine is, but by another order of it.
    pub(crate) silent: bool,
    /// Machines stay on their way.
    pub(crate) slow: bool,
    /// A node that is none of the provider's, and that it says its machines are.
    pub(crate) foreign: Option<String>,
    /// The resources of the next machines that differ from what was ordered.
    pub(crate) given: BTreeMap<&'static str, &'static str>,
    /// The node configs that came with orders.
    pub(crate) configs: BTreeSet<Vec<u8>>,
    pub(crate) token: String,
    pub(crate) calls: usize,
}

impl Provider {
    pub(crate) async fn start(cluster: Option<Client>) -> Provider {
        let books = Books { token: "sesame".to_owned(), ..Books::default() };
        let mut provider = Provider {
            floor: Arc::new(Floor { cluster, books: Mutex::new(books) }),
            port: Port::hold(),
            folder: tempfile::tempdir().unwrap(),
            serving: None,
        };
        provider.change_token("sesame");
        provider.resume().await;
        provider
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    /// What the operator is told of it.
    pub(crate) fn arguments(&self) -> [String; 6] {
        let token_file = self.token_file().to_str().unwrap().to_owned();
        let (url, [kind, at, token]) =
            (self.url(), ["--provisioner", "--provisioner-url", "--provisioner-token-file"]);
        [kind.into(), "external".into(), at.into(), url, token.into(), token_file]
    }

    /// From here on only this token is let in, and it is in the file.
    pub(crate) fn change_token(&self, token: &str) {
        std::fs::write(self.token_file(), format!("{token}\n")).unwrap();
        self.books().token = token.to_owned();
    }

    pub(crate) fn router(&self) -> Router {
        let machine = put(order).get(look).delete(end);
        let kept = middleware::from_fn(contract::keep);
        Router::new().route("/v1/machines/{id}", machine).layer(kept).with_state(Arc::clone(&self.floor))
    }

    /// Answers, again after a stop.
    pub(crate) async fn resume(&mut self) {
        let listener = TcpListener::bind(self.port.address()).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let router = self.router();
        let serving = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            axum::serve(listener, router).with_graceful_shutdown(stopped).await.unwrap();
        });
        self.serving = Some((stop, serving));
    }

    /// Its port answers nothing.
    pub(crate) async fn stop(&mut self) {
        let (stop, serving) = self.serving.take().unwrap();
        let _ = stop.send(());
        serving.await.unwrap();
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.floor.books.lock().unwrap()
    }
}

/// No, and when to ask again.
struct Refused {
    status: StatusCode,
    detail: &'static str,
    again: Option<&'static str>,
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let problem = Problem { detail: self.detail.to_owned() };
        let body = serde_json::to_string(&problem).unwrap();
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        match self.again {
            Some(again) => (self.status, kind, [(header::RETRY_AFTER, again)], body).into_response(),
            None => (self.status, kind, body).into_response(),
        }
    }
}

fn refused(status: StatusCode, detail: &'static str) -> Refused {
    Refused { status, detail, again: None }
}

impl Floor {
    /// The books, for whoever is let in.
    fn enter(&self, headers: &HeaderMap) -> Result<MutexGuard<'_, Books>, Refused> {
        let mut books = self.books.lock().unwrap();
        books.calls += 1;
        if headers.get(header::AUTHORIZATION).is_none_or(|it| *it != format!("Bearer {}", books.token)) {
            return Err(refused(StatusCode::UNAUTHORIZED, "no such token"));
        }
        match books.moods.pop_front() {
            Some((status, again)) => Err(Refused { status, detail: "in no mood", again }),
            None => Ok(books),
        }
    }
}

/// A machine comes with the first call, and has booted at the second.
async fn order(
    State(floor): State<Arc<Floor>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(order): Json<MachineOrder>,
) -> Result<Response, Refused> {
    let known = {
        let mut books = floor.enter(&headers)?;
        books.configs.extend(order.node_config.iter().map(|config| config.0.clone()));
        if books.ended.contains(&id) {
            return Err(refused(StatusCode::GONE, "it was ended"));
        }
        let known = books.machines.get(&id).cloned();
        if known.is_none() {
            books.made.push(id.clone());
            let dud = books.duds > 0;
            books.duds = books.duds.saturating_sub(1);
            let reason = "the host did not boot".to_owned();
            let state = if dud { MachineState::Failed { reason } } else { MachineState::Coming };
            books.machines.insert(id.clone(), state.clone());
            return Ok((StatusCode::CREATED, Json(state)).into_response());
        }
        known.unwrap()
    };
    if known != MachineState::Coming || floor.books.lock().unwrap().slow {
        return Ok(Json(known).into_response());
    }
    let foreign = floor.books.lock().unwrap().foreign.clone();
    let node = foreign.clone().unwrap_or_else(|| format!("rack-{}", &id[..8]));
    if let Some(cluster) = floor.cluster.as_ref().filter(|_| foreign.is_none()) {
        let given = floor.books.lock().unwrap().given.clone();
        register(cluster, &node, &order, given).await;
    }
    let access = MachineAccess {
        addresses: vec![format!("{node}.example")],
        ports: [("ssh".to_owned(), 22)].into(),
        user: "ubuntu".to_owned(),
        ..MachineAccess::default()
    };
    let state = MachineState::Running { node, access: Some(access) };
    floor.books.lock().unwrap().machines.insert(id, state.clone());
    Ok(Json(state).into_response())
}

async fn look(
    State(floor): State<Arc<Floor>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<MachineState>, Refused> {
    let books = floor.enter(&headers)?;
    if books.silent {
        return Err(refused(StatusCode::SERVICE_UNAVAILABLE, "silent"));
    }
    books.machines.get(&id).cloned().map(Json).ok_or_else(|| refused(StatusCode::NOT_FOUND, "there is none"))
}

async fn end(
    State(floor): State<Arc<Floor>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Refused> {
    let mut books = floor.enter(&headers)?;
    books.machines.remove(&id);
    books.ended.insert(id);
    Ok(StatusCode::NO_CONTENT)
}

/// What a kubelet does with `--register-with-taints=kubebid.io/unregistered=:NoExecute`.
async fn register(
    cluster: &Client,
    name: &str,
    order: &MachineOrder,
    given: BTreeMap<&'static str, &'static str>,
) {
    let mut labels = order.labels.clone();
    for (key, value) in [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("node.kubernetes.io/instance-type", &order.instance_type),
        ("topology.kubernetes.io/region", &order.region),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    let mut allocatable = order.allocatable.clone();
    allocatable.insert("pods".to_owned(), "110".to_owned());
    allocatable.extend(given.into_iter().map(|(name, amount)| (name.to_owned(), amount.to_owned())));
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "providerID": format!("acme://{}", order.unit),
            "taints": [{"key": "kubebid.io/unregistered", "effect": "NoExecute"}],
        },
        "status": {"capacity": allocatable, "allocatable": allocatable},
    });
    let nodes: Api<Node> = Api::all(cluster.clone());
    match nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        made => drop(made.unwrap()),
    }
}
