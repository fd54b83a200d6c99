//! External resources: a `Bucket` and a `Folder` in it are things of an HTTP service, each with an object that stands for it.
//! The service is the one of `controller/tests/plane/external/service.rs`.
#![allow(missing_debug_implementations)]

use clap::Parser;
use http::{Method, Request as HttpRequest, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, CustomResource, ResourceExt};
use kubebid_controller::external::{
    Answer, CallError, DeleteAnswer, Dependency, DependencyKinds, External, ExternalStatus, Machine, Managed,
    Observed, Request, Timing,
};
use kubebid_controller::process::{self, ProcessArgs, Program};
use kubebid_controller::{ControllerOptions, ObjectName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "storage.example.com", version = "v1", kind = "Bucket", namespaced, status = "ExternalStatus")]
pub struct BucketSpec {
    /// Its name at the service [default: NAMESPACE.NAME].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The size can be changed.
    pub size: u32,
    /// The region cannot: another region is another bucket.
    pub region: String,
}

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "storage.example.com", version = "v1", kind = "Folder", namespaced, status = "ExternalStatus")]
pub struct FolderSpec {
    /// The Bucket that it is in.
    pub bucket: String,
    /// The bucket has no object in the cluster.
    #[serde(default)]
    pub unmanaged: bool,
    /// Folders that must be there first.
    #[serde(default)]
    pub after: Vec<String>,
    /// A Secret that must be there first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub quota: u32,
}

impl Managed for Bucket {
    fn external(&self) -> Option<&ExternalStatus> {
        self.status.as_ref()
    }

    fn external_mut(&mut self) -> &mut ExternalStatus {
        self.status.get_or_insert_default()
    }
}

impl Managed for Folder {
    fn external(&self) -> Option<&ExternalStatus> {
        self.status.as_ref()
    }

    fn external_mut(&mut self) -> &mut ExternalStatus {
        self.status.get_or_insert_default()
    }
}

/// The number of an operation that the service is at work on.
type Operation = u64;

/// The service.
#[derive(Clone)]
pub struct Service {
    pub url: String,
    pub timing: Timing,
    http: HttpClient<HttpConnector, Full<bytes::Bytes>>,
}

/// An answer of the service that is no refusal.
struct Reply {
    status: StatusCode,
    body: Value,
}

impl Service {
    pub fn new(url: &str, timing: Timing) -> Service {
        let http = HttpClient::builder(TokioExecutor::new()).build_http();
        Service { url: url.to_owned(), timing, http }
    }

    /// Sends a request. 404 is a reply, other refusals are errors.
    async fn send(&self, method: Method, path: &str, key: &str, body: Value) -> Result<Reply, CallError> {
        let lost = |error: &dyn std::fmt::Display| {
            CallError::transient("ServiceUnreachable", format!("no answer: {error}"))
        };
        let request = HttpRequest::builder()
            .method(method)
            .uri(format!("{}/{path}", self.url))
            .header("idempotency-key", key)
            .header("content-type", "application/json")
            .body(Full::from(body.to_string()))
            .map_err(|error| lost(&error))?;
        let response = self.http.request(request).await.map_err(|error| lost(&error))?;
        let status = response.status();
        let retry_after =
            response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let body = response.into_body().collect().await.map_err(|error| lost(&error))?.to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let message = body["error"].as_str().unwrap_or("no reason given").to_owned();
        match status {
            StatusCode::CONFLICT => Err(CallError::already_exists(message)),
            StatusCode::TOO_MANY_REQUESTS => Err(CallError {
                retry_after: retry_after.map(Duration::from_secs),
                ..CallError::transient("TooManyRequests", message)
            }),
            _ if status.is_server_error() => Err(CallError::transient("ServerError", message)),
            _ if status.is_success() || status == StatusCode::NOT_FOUND => Ok(Reply { status, body }),
            _ => Err(CallError::terminal("Refused", message)),
        }
    }

    async fn observe<E>(
        &self,
        kind: &str,
        id: &str,
        request: &Request<'_, E>,
    ) -> Result<(Observed, Value), CallError>
    where
        E: External<Payload = Operation>,
    {
        let operation = request.payload.map(|number| format!("?operation={number}")).unwrap_or_default();
        let path = format!("{kind}/{id}{operation}");
        let reply = self.send(Method::GET, &path, &request.idempotency_key, Value::Null).await?;
        let observed = match reply.body["state"].as_str() {
            _ if reply.status == StatusCode::NOT_FOUND => Observed::Missing,
            Some("ready") => Observed::Ready,
            Some("busy") => Observed::InProgress,
            Some("deleting") => Observed::Deleting,
            _ => {
                let message = reply.body["error"].as_str().unwrap_or("the service does not say why");
                return Err(CallError::terminal("CreationFailed", message));
            }
        };
        Ok((observed, reply.body["spec"].clone()))
    }

    /// Creates (PUT) or updates (PATCH) a resource.
    async fn write(
        &self,
        method: Method,
        path: &str,
        key: &str,
        spec: Value,
    ) -> Result<Answer<Operation>, CallError> {
        let reply = self.send(method, path, key, spec).await?;
        match reply.status {
            StatusCode::NOT_FOUND => Err(CallError::terminal("NotFound", reply.body["error"].to_string())),
            StatusCode::ACCEPTED => Ok(Answer::in_progress(reply.body["operation"].as_u64())),
            _ => Ok(Answer::done()),
        }
    }

    async fn remove(&self, path: &str, key: &str) -> Result<DeleteAnswer, CallError> {
        let reply = self.send(Method::DELETE, path, key, Value::Null).await?;
        Ok(if reply.status == StatusCode::ACCEPTED { DeleteAnswer::Accepted } else { DeleteAnswer::Gone })
    }
}

/// Buckets. Their service says how they are, so the spec is compared with that.
pub struct Buckets(pub Service);

impl Buckets {
    fn spec(bucket: &Bucket) -> Value {
        json!({"size": bucket.spec.size, "region": bucket.spec.region})
    }
}

// ANCHOR: buckets
impl External for Buckets {
    type Object = Bucket;
    type Payload = Operation;
    type Details = ();

    const NAME: &'static str = "buckets";

    fn identity(&self, bucket: &Bucket) -> String {
        let default = || format!("{}.{}", bucket.namespace().unwrap_or_default(), bucket.name_any());
        bucket.spec.name.clone().unwrap_or_else(default)
    }

    async fn observe(&self, request: &Request<'_, Self>) -> Result<(Observed, ()), CallError> {
        let (observed, spec) = self.0.observe("buckets", &self.identity(request.object), request).await?;
        let wanted = Buckets::spec(request.object);
        let observed = if observed != Observed::Ready {
            observed
        } else if spec["region"] != wanted["region"] {
            Observed::RecreateRequired
        } else if spec != wanted {
            Observed::UpdateRequired
        } else {
            Observed::Ready
        };
        Ok((observed, ()))
    }

    async fn create(&self, request: &Request<'_, Self>) -> Result<Answer<Operation>, CallError> {
        let path = format!("buckets/{}", self.identity(request.object));
        self.0.write(Method::PUT, &path, &request.idempotency_key, Buckets::spec(request.object)).await
    }

    async fn update(&self, request: &Request<'_, Self>) -> Result<Answer<Operation>, CallError> {
        let path = format!("buckets/{}", self.identity(request.object));
        self.0.write(Method::PATCH, &path, &request.idempotency_key, Buckets::spec(request.object)).await
    }

    async fn delete(&self, request: &Request<'_, Self>) -> Result<DeleteAnswer, CallError> {
        self.0.remove(&format!("buckets/{}", self.identity(request.object)), &request.idempotency_key).await
    }

    fn timing(&self) -> Timing {
        self.0.timing
    }
}
// ANCHOR_END: buckets

/// Folders. Their service does not say how they are, so the spec is compared with the one that was last applied. After
/// each write they are announced: that is their completion hook.
pub struct Folders {
    pub service: Service,
    pub client: kube::Client,
}

impl Folders {
    fn needs(folder: &Folder) -> Vec<Dependency> {
        let namespace = folder.namespace().unwrap_or_default();
        let name = |name: &str| ObjectName { namespace: namespace.clone(), name: name.to_owned() };
        let bucket = (!folder.spec.unmanaged).then(|| Dependency::owner::<Bucket>(name(&folder.spec.bucket)));
        let folders = folder.spec.after.iter().map(|other| Dependency::on::<Folder>(name(other)));
        let key = folder.spec.key.iter().map(|key| Dependency::on::<Secret>(name(key)));
        bucket.into_iter().chain(folders).chain(key).collect()
    }

    fn path(folder: &Folder) -> String {
        format!("folders/{}", Folders::id(folder))
    }

    fn id(folder: &Folder) -> String {
        format!("{}.{}", folder.namespace().unwrap_or_default(), folder.name_any())
    }

    fn spec(folder: &Folder) -> Value {
        let namespace = folder.namespace().unwrap_or_default();
        json!({"bucket": format!("{namespace}.{}", folder.spec.bucket), "quota": folder.spec.quota})
    }
}

impl External for Folders {
    type Object = Folder;
    type Payload = Operation;
    type Details = ();

    const NAME: &'static str = "folders";
    const READS_BACK: bool = false;
    const COMPLETES: bool = true;

    fn identity(&self, folder: &Folder) -> String {
        Folders::id(folder)
    }

    fn dependencies(&self, folder: &Folder) -> Vec<Dependency> {
        Folders::needs(folder)
    }

    fn kinds(&self, kinds: &mut DependencyKinds<'_, '_, Folder>) {
        kinds.add::<Bucket>(Api::all(self.client.clone()), |_| Vec::new());
        kinds.add::<Folder>(Api::all(self.client.clone()), Folders::needs);
        kinds.add_dependents::<Folder>(Api::all(self.client.clone()), Folders::needs);
        kinds.add_present::<Secret>(Api::all(self.client.clone()));
    }

    async fn observe(&self, request: &Request<'_, Self>) -> Result<(Observed, ()), CallError> {
        let (observed, _) = self.service.observe("folders", &self.identity(request.object), request).await?;
        Ok((observed, ()))
    }

    async fn create(&self, request: &Request<'_, Self>) -> Result<Answer<Operation>, CallError> {
        let (path, spec) = (Folders::path(request.object), Folders::spec(request.object));
        self.service.write(Method::PUT, &path, &request.idempotency_key, spec).await
    }

    async fn update(&self, request: &Request<'_, Self>) -> Result<Answer<Operation>, CallError> {
        let (path, spec) = (Folders::path(request.object), Folders::spec(request.object));
        self.service.write(Method::PATCH, &path, &request.idempotency_key, spec).await
    }

    async fn delete(&self, request: &Request<'_, Self>) -> Result<DeleteAnswer, CallError> {
        self.service.remove(&Folders::path(request.object), &request.idempotency_key).await
    }

    async fn complete(&self, request: &Request<'_, Self>) -> Result<(), CallError> {
        let path = format!("{}/announcement", Folders::path(request.object));
        self.service.send(Method::POST, &path, &request.idempotency_key, Value::Null).await.map(|_| ())
    }

    fn timing(&self) -> Timing {
        self.service.timing
    }
}

#[derive(Parser)]
#[command(version, about = "Buckets and folders of a storage service as Kubernetes objects")]
struct Args {
    /// The address of the service
    #[arg(long, value_name = "URL")]
    service: String,
    /// The time between two looks at a resource that is at work
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = process::time)]
    poll: Duration,
    /// The time after a create in which a resource may not be seen yet
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = process::time)]
    creation_grace: Duration,
    /// The namespace of the objects [default: all]
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    process: ProcessArgs,
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let args = Args::parse();
    let timing = Timing { poll: args.poll, creation_grace: args.creation_grace, ..Timing::default() };
    let service = Service::new(&args.service, timing);
    process::run(Program::new("storage-operator", "storage")?, &args.process, async |manager| {
        let client = manager.client().clone();
        let folders = Folders { service: service.clone(), client: client.clone() };
        let options = ControllerOptions::default();
        let (buckets, of_folders) = match &args.namespace {
            Some(namespace) => {
                (Api::namespaced(client.clone(), namespace), Api::namespaced(client, namespace))
            }
            None => (Api::all(client.clone()), Api::all(client)),
        };
        manager.add(Machine::new(Buckets(service.clone()), "example"), buckets, options);
        manager.add(Machine::new(folders, "example"), of_folders, options);
        Ok(())
    })
    .await
}
