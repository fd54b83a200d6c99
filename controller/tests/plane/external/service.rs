//! An HTTP service of buckets and folders on loopback, with faults on demand and a log of all calls. A folder needs its bucket.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The answer comes after this time.
    Slow(Duration),
    /// The call has no effect and this answer.
    Status(u16),
    /// 429 with so many seconds to wait.
    TooMany(u32),
    /// The connection ends before the call has its effect.
    ResetBefore,
    /// The connection ends after the call had its effect.
    ResetAfter,
    /// An observation that is not true.
    Lie(&'static str),
}

/// One call, as the service saw it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) id: String,
    pub(crate) key: String,
    /// The status of the answer; 0 if the connection ended.
    pub(crate) status: u16,
    pub(crate) operation: Option<String>,
}

#[derive(Debug)]
struct Resource {
    spec: Value,
    state: &'static str,
    /// When the resource is done with what it is at work on, and what it is then; None for gone.
    work: Option<(Instant, Option<&'static str>)>,
    announcements: u32,
}

#[derive(Debug, Default)]
struct Inner {
    resources: BTreeMap<String, Resource>,
    /// The answers to calls that have changed something, by idempotency key.
    answers: BTreeMap<String, (StatusCode, Value)>,
    log: Vec<Call>,
    faults: BTreeMap<(&'static str, String), VecDeque<Fault>>,
    /// How long a call keeps the resource at work, and what it is then.
    works: BTreeMap<(&'static str, String), (Duration, &'static str)>,
    operations: u64,
}

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) url: String,
    inner: Arc<Mutex<Inner>>,
}

impl Service {
    pub(crate) async fn start() -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let service = Service { url, inner: Arc::default() };
        let router = Router::new().route("/{*id}", any(answer)).with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        service
    }

    /// Has the next calls of a name to a resource go wrong, one after the other.
    pub(crate) fn faults(&self, call: &'static str, id: &str, faults: impl IntoIterator<Item = Fault>) {
        self.inner().faults.entry((call, id.to_owned())).or_default().extend(faults);
    }

    /// Ends the faults of a call.
    pub(crate) fn heal(&self, call: &'static str, id: &str) {
        self.inner().faults.remove(&(call, id.to_owned()));
    }

    /// Has calls of a name keep a resource at work for this time. Then it is ready, or gone.
    pub(crate) fn works(&self, call: &'static str, id: &str, time: Duration) {
        self.works_to(call, id, time, "ready");
    }

    /// The same, with another end.
    pub(crate) fn works_to(&self, call: &'static str, id: &str, time: Duration, end: &'static str) {
        self.inner().works.insert((call, id.to_owned()), (time, end));
    }

    /// Makes or changes a resource by hand.
    pub(crate) fn put(&self, id: &str, spec: Value) {
        let resource = Resource { spec, state: "ready", work: None, announcements: 0 };
        self.inner().resources.insert(id.to_owned(), resource);
    }

    /// Puts a resource into a state by hand, for this time. Then it is gone, or in another state.
    pub(crate) fn busy(&self, id: &str, state: &'static str, time: Duration, end: Option<&'static str>) {
        let mut inner = self.inner();
        let resource = inner.resources.get_mut(id).unwrap();
        (resource.state, resource.work) = (state, Some((Instant::now() + time, end)));
    }

    /// Removes a resource by hand.
    pub(crate) fn remove(&self, id: &str) {
        self.inner().resources.remove(id);
    }

    /// Returns the spec of a resource, if it exists.
    pub(crate) fn spec(&self, id: &str) -> Option<Value> {
        let mut inner = self.inner();
        inner.pass();
        inner.resources.get(id).map(|resource| resource.spec.clone())
    }

    pub(crate) fn announcements(&self, id: &str) -> u32 {
        self.inner().resources.get(id).map_or(0, |resource| resource.announcements)
    }

    /// Returns all calls to a resource.
    pub(crate) fn log(&self, id: &str) -> Vec<Call> {
        self.inner().log.iter().filter(|call| call.id == id).cloned().collect()
    }

    /// Returns the calls to a resource that change it, as in `create 201`.
    pub(crate) fn changes(&self, id: &str) -> Vec<String> {
        let changes = self.log(id).into_iter().filter(|call| call.name != "observe");
        changes.map(|call| format!("{} {}", call.name, call.status)).collect()
    }

    /// Returns how many resources there are whose names begin with this.
    pub(crate) fn count(&self, prefix: &str) -> usize {
        self.inner().resources.keys().filter(|id| id.starts_with(prefix)).count()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

impl Inner {
    /// Ends the work whose time has come.
    fn pass(&mut self) {
        let now = Instant::now();
        self.resources.retain(|_, resource| match resource.work {
            Some((until, end)) if until <= now => {
                resource.work = None;
                resource.state = end.unwrap_or_default();
                end.is_some()
            }
            _ => true,
        });
    }

    fn call(&mut self, name: &'static str, id: &str, key: &str, spec: Value) -> (StatusCode, Value) {
        self.pass();
        if name == "observe" {
            return match self.resources.get(id) {
                Some(it) => {
                    (StatusCode::OK, json!({"state": it.state, "spec": it.spec, "error": "it went wrong"}))
                }
                None => (StatusCode::NOT_FOUND, json!({"error": "there is none"})),
            };
        }
        if let Some(answer) = self.answers.get(key) {
            return answer.clone();
        }
        let (status, mut body) = self.change(name, id, spec);
        if status.is_success() {
            self.operations += 1;
            body["operation"] = json!(self.operations);
            self.answers.insert(key.to_owned(), (status, body.clone()));
        }
        (status, body)
    }

    fn change(&mut self, name: &'static str, id: &str, spec: Value) -> (StatusCode, Value) {
        let refuse = |status, error: &str| (status, json!({"error": error}));
        let work = self.works.get(&(name, id.to_owned())).copied();
        let until = work.map(|(time, end)| (Instant::now() + time, end));
        let accepted = if work.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
        let bucket = spec["bucket"].as_str().map(|name| format!("buckets/{name}"));
        if name == "create" && bucket.is_some_and(|bucket| !self.resources.contains_key(&bucket)) {
            return refuse(StatusCode::UNPROCESSABLE_ENTITY, "the bucket does not exist");
        }
        let Some(resource) = self.resources.get_mut(id) else {
            if name != "create" {
                return refuse(StatusCode::NOT_FOUND, "there is none");
            }
            let work = until.map(|(until, end)| (until, Some(end)));
            let state = if work.is_some() { "busy" } else { "ready" };
            self.resources.insert(id.to_owned(), Resource { spec, state, work, announcements: 0 });
            return (accepted, json!({}));
        };
        match name {
            "create" => refuse(StatusCode::CONFLICT, "it exists"),
            "update" => {
                resource.spec = spec;
                if let Some((until, end)) = until {
                    (resource.state, resource.work) = ("busy", Some((until, Some(end))));
                }
                (accepted, json!({}))
            }
            "complete" => {
                resource.announcements += 1;
                (StatusCode::OK, json!({}))
            }
            _ => {
                // `ready` is a deletion that cannot be seen before it is done.
                match until {
                    // It is being deleted already.
                    Some(_) if matches!(resource.work, Some((_, None))) => {}
                    Some((until, end)) => {
                        let state = if end == "ready" { "deleting" } else { "ready" };
                        (resource.state, resource.work) = (state, Some((until, None)));
                    }
                    None => {
                        self.resources.remove(id);
                    }
                }
                (accepted, json!({}))
            }
        }
    }
}

/// Answers a call. The call has its effect also when its client has gone.
async fn answer(
    State(service): State<Service>,
    Path(path): Path<String>,
    method: Method,
    headers: HeaderMap,
    request: Request,
) -> Response {
    tokio::spawn(respond(service, path, method, headers, request)).await.unwrap()
}

async fn respond(
    service: Service,
    path: String,
    method: Method,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let (id, name) = match (path.strip_suffix("/announcement"), method.as_str()) {
        (Some(id), _) => (id.to_owned(), "complete"),
        (None, "PUT") => (path, "create"),
        (None, "PATCH") => (path, "update"),
        (None, "DELETE") => (path, "delete"),
        (None, _) => (path, "observe"),
    };
    let key = headers.get("idempotency-key").map(|key| key.to_str().unwrap().to_owned()).unwrap_or_default();
    let operation =
        request.uri().query().and_then(|query| query.strip_prefix("operation=")).map(str::to_owned);
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let spec = serde_json::from_slice(&body).unwrap_or_default();
    let fault = service.inner().faults.get_mut(&(name, id.clone())).and_then(VecDeque::pop_front);
    if let Some(Fault::Slow(time)) = fault {
        sleep(time).await;
    }
    let refuse = |status: u16| (StatusCode::from_u16(status).unwrap(), json!({"error": "a fault on demand"}));
    let (status, answer) = match fault {
        Some(Fault::Status(status)) => refuse(status),
        Some(Fault::TooMany(_)) => refuse(429),
        Some(Fault::Lie(state)) => {
            let spec = service.spec(&id).unwrap_or_default();
            (StatusCode::OK, json!({"state": state, "spec": spec}))
        }
        Some(Fault::ResetBefore) => refuse(500),
        Some(Fault::Slow(_) | Fault::ResetAfter) | None => service.inner().call(name, &id, &key, spec),
    };
    let is_reset = matches!(fault, Some(Fault::ResetBefore | Fault::ResetAfter));
    let seen = if is_reset { 0 } else { status.as_u16() };
    service.inner().log.push(Call { name, id, key, status: seen, operation });
    if is_reset {
        let broken = futures_util::stream::once(async { Err::<String, _>(std::io::Error::other("reset")) });
        return Response::new(Body::from_stream(broken));
    }
    let retry_after = match fault {
        Some(Fault::TooMany(seconds)) => vec![("retry-after", seconds.to_string())],
        _ => vec![],
    };
    let headers = axum::response::AppendHeaders(retry_after);
    (status, headers, answer.to_string()).into_response()
}
