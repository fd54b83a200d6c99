//! The authority whose CA signs the certificates of all replicas, and its bundle in the cluster.
//!
//! One Secret holds the authority. Each replica has a key and a certificate of its own, in memory. The replica that leads
//! rotates the CA by [`plan()`] and writes the bundle into the targets. A replica is ready if a client with the bundle in the
//! cluster trusts its certificate.

mod certificate;
pub mod plan;
mod target;

pub use certificate::CertificateError;
pub use target::Target;

use crate::metrics;
use arc_swap::ArcSwapOption;
use certificate::Leaf;
use futures_util::stream::{BoxStream, select_all};
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Client, ResourceExt as _};
use kubebid_controller::clock;
use kubebid_controller::writer::{WriteError, Writer};
use plan::{Ca, Content, Lifetimes, LifetimesError, Step, plan};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use target::Bundle;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

/// The key of the Secret that holds the authority.
const SECRET_KEY: &str = "authority.json";
/// The controller that bundles are applied for: their field manager is `kubebid-webhook-bundles`.
const CONTROLLER: &str = "webhook-bundles";
/// The longest wait before something that failed is tried again.
const RETRY_MAX: SignedDuration = SignedDuration::from_secs(5);
/// The interval at which files are read again.
const RELOAD_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// The settings of an authority that signs by itself.
#[derive(Clone, Debug)]
pub struct AuthorityOptions {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub secret: String,
    /// The names and addresses by which clients reach the webhooks, as in `my-service.my-namespace.svc`.
    pub names: Vec<String>,
    /// Lifetimes of CAs and certificates.
    pub lifetimes: Lifetimes,
}

/// A source of certificates.
#[derive(Debug)]
enum Source {
    Secret(AuthorityOptions),
    Files { certificate: PathBuf, key: PathBuf },
}

/// The part of the cluster that this replica has seen. None stands for what it has not read yet.
#[derive(Debug, Default)]
struct Observed {
    content: Option<Option<Content>>,
    bundles: Vec<Option<Option<Bundle>>>,
}

/// The trust of clients in the certificate of this replica.
///
/// A client trusts it if it verifies against the bundle by which the client comes, and has the name that the client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// All clients trust it.
    Ready,
    /// Some do not, for this reason.
    NotReady(String),
}

/// The certificate of this replica, and what it knows about the authority. Cheap to clone.
#[derive(Clone)]
pub struct Authority {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    source: Source,
    targets: Vec<Target>,
    observed: watch::Sender<Observed>,
    leaf: ArcSwapOption<Leaf>,
    readiness: watch::Sender<Readiness>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("source", &self.shared.source).finish_non_exhaustive()
    }
}

/// Why a step of the authority failed. It is tried again.
#[derive(Debug, thiserror::Error)]
enum AuthorityError {
    #[error("the cluster: {0}")]
    Cluster(#[from] kube::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("the Secret is not as this library writes it: {0}")]
    Content(#[from] serde_json::Error),
    #[error("the bundle of the Secret cannot be read; it is written nowhere")]
    Bundle,
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
}

enum Event {
    Secret(Option<Box<Secret>>),
    Bundle(usize, Option<Bundle>),
}

impl Authority {
    /// Returns an authority that signs by itself, with a CA in a Secret that all replicas share.
    ///
    /// # Errors
    /// Lifetimes by which a certificate would expire before its successor is trusted.
    pub fn new(
        client: Client,
        options: AuthorityOptions,
        targets: Vec<Target>,
    ) -> Result<Authority, LifetimesError> {
        options.lifetimes.check()?;
        Ok(Authority::from_source(client, Source::Secret(options), targets))
    }

    /// Returns an authority for certificates that somebody else makes and writes into the targets, such as cert-manager.
    /// The files, in PEM, are read again when they change.
    pub fn from_files(client: Client, certificate: PathBuf, key: PathBuf, targets: Vec<Target>) -> Authority {
        Authority::from_source(client, Source::Files { certificate, key }, targets)
    }

    fn from_source(client: Client, source: Source, targets: Vec<Target>) -> Authority {
        let observed = Observed { content: None, bundles: targets.iter().map(|_| None).collect() };
        let shared = Shared {
            client,
            source,
            targets,
            observed: watch::Sender::new(observed),
            leaf: ArcSwapOption::empty(),
            readiness: watch::Sender::new(Readiness::NotReady(
                "this replica has no certificate yet".to_owned(),
            )),
        };
        Authority { shared: Arc::new(shared) }
    }

    /// Returns the readiness of this replica.
    pub fn readiness(&self) -> Readiness {
        self.shared.readiness.borrow().clone()
    }

    /// Waits until this replica has a certificate.
    pub(crate) async fn certified(&self) {
        let mut readiness = self.shared.readiness.subscribe();
        // The sender lives as long as the authority.
        let _ = readiness.wait_for(|_| self.shared.leaf.load().is_some()).await;
    }

    /// Returns the TLS configuration of a server, which always shows the newest certificate.
    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(certificate::provider());
        let builder = builder.with_safe_default_protocol_versions().expect("ring has them");
        let resolver = Arc::new(CertificateResolver(Arc::clone(&self.shared)));
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        // The API server speaks HTTP/1.1 with webhooks.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// Keeps the certificate of this replica valid. Every replica runs this, as long as it serves; it does not end.
    pub async fn run(&self) {
        let mut events = self.events();
        loop {
            let until = self.refresh().await;
            tokio::select! {
                Some(event) = events.next() => self.observe(event),
                () = sleep(time_until(until)) => {}
            }
        }
    }

    /// Rotates the CA and writes the bundles. The replica that leads runs this beside [`Authority::run`], until it leads
    /// no more; it does not end by itself.
    pub async fn lead(&self, writer: &Writer) {
        let Source::Secret(options) = &self.shared.source else { return std::future::pending().await };
        let writer = writer.for_controller(CONTROLLER);
        let mut observed = self.shared.observed.subscribe();
        loop {
            observed.borrow_and_update();
            let until = match self.step(options, &writer).await {
                Ok(until) => until,
                Err(AuthorityError::Write(WriteError::Conflict)) => retry_at(options),
                Err(error) => {
                    warn!(%error, "the authority of the webhooks: to be tried again");
                    retry_at(options)
                }
            };
            tokio::select! {
                _ = observed.changed() => {}
                () = sleep(time_until(until)) => {}
            }
        }
    }

    /// Follows the Secret and the targets.
    fn events(&self) -> BoxStream<'static, Event> {
        let client = &self.shared.client;
        let mut streams: Vec<BoxStream<'static, Result<Event, watcher::Error>>> = Vec::new();
        if let Source::Secret(options) = &self.shared.source {
            let secrets = secrets(client, options);
            let secret = watch_object(secrets, &options.secret).default_backoff();
            streams.push(secret.map_ok(|secret| Event::Secret(secret.map(Box::new))).boxed());
        }
        for (place, target) in self.shared.targets.iter().enumerate() {
            streams.push(target.follow(client).map_ok(move |bundle| Event::Bundle(place, bundle)).boxed());
        }
        let events = select_all(streams).filter_map(async |event| match event {
            Ok(event) => Some(event),
            Err(error) => {
                warn!(%error, "a watch of the webhooks: to be tried again");
                None
            }
        });
        // Without anything to watch there is nothing to be seen, ever.
        events.chain(futures_util::stream::pending()).boxed()
    }

    fn observe(&self, event: Event) {
        self.shared.observed.send_modify(|observed| match event {
            Event::Secret(secret) => match content_of(secret.as_deref()) {
                Ok(content) => {
                    if let Some(content) = &content {
                        metrics::ca_expires(content.current.not_after);
                    }
                    observed.content = Some(content);
                }
                Err(error) => warn!(%error, "the Secret of the webhooks"),
            },
            Event::Bundle(place, bundle) => observed.bundles[place] = Some(bundle),
        });
    }

    /// Renews the certificate if that is due, and finds out if this replica is ready. Returns the time of the next refresh.
    async fn refresh(&self) -> Timestamp {
        let retry = match &self.shared.source {
            Source::Secret(options) => {
                let due = self.is_due();
                match if due { self.renew(options).await } else { Ok(()) } {
                    Ok(()) => Timestamp::MAX,
                    Err(error) => {
                        warn!(%error, "the certificate of this replica: to be tried again");
                        retry_at(options)
                    }
                }
            }
            Source::Files { certificate, key } => {
                if let Err(error) = self.reload(certificate, key).await {
                    warn!(%error, "the certificate of this replica: to be tried again");
                }
                clock::now() + RELOAD_INTERVAL
            }
        };
        let now = clock::now();
        let leaf = self.shared.leaf.load();
        let readiness = self.readiness_of(leaf.as_deref(), now);
        metrics::ready(readiness == Readiness::Ready);
        if self.shared.readiness.send_replace(readiness.clone()) != readiness {
            match readiness {
                Readiness::Ready => info!("clients trust the certificate of this replica"),
                Readiness::NotReady(reason) => warn!(reason, "this replica is not ready"),
            }
        }
        let renew = leaf.as_ref().map_or(Timestamp::MAX, |leaf| leaf.renew);
        // A renewal that has failed, or has no CA, is due still.
        if renew <= now { retry.min(now + RETRY_MAX) } else { renew.min(retry) }
    }

    fn readiness_of(&self, leaf: Option<&Leaf>, now: Timestamp) -> Readiness {
        let Some(leaf) = leaf else {
            return Readiness::NotReady("this replica has no certificate yet".to_owned());
        };
        let observed = self.shared.observed.borrow();
        for (target, bundle) in self.shared.targets.iter().zip(&observed.bundles) {
            match bundle {
                None => return Readiness::NotReady(format!("{target} has not been read yet")),
                Some(None) => {}
                Some(Some(bundle)) => {
                    if let Err(reason) = leaf.verify(bundle, now) {
                        return Readiness::NotReady(format!("{target}: {reason}"));
                    }
                }
            }
        }
        Readiness::Ready
    }

    /// Returns true if the certificate has to be renewed, and there is a CA for it.
    fn is_due(&self) -> bool {
        let observed = self.shared.observed.borrow();
        let Some(Some(content)) = &observed.content else { return false };
        self.shared.leaf.load().as_ref().is_none_or(|leaf| {
            leaf.renew <= clock::now() || !content.bundle().contains(leaf.issuer.trim_end())
        })
    }

    async fn renew(&self, options: &AuthorityOptions) -> Result<(), AuthorityError> {
        // A CA that is replaced after this time is trusted for as long as a certificate lasts from this time on.
        let begun = clock::now();
        let secret = secrets(&self.shared.client, options).get_opt(&options.secret).await?;
        if let Some(content) = content_of(secret.as_ref())? {
            let leaf = content.current.sign(&options.names, begun, options.lifetimes.skew)?;
            info!(authority = content.current.common_name, renew = %leaf.renew, "this replica has a new certificate");
            metrics::certificate_renewed(Some(leaf.not_after));
            self.shared.leaf.store(Some(Arc::new(leaf)));
        }
        Ok(())
    }

    async fn reload(&self, certificate: &PathBuf, key: &PathBuf) -> Result<(), AuthorityError> {
        let read = async |path: &PathBuf| {
            tokio::fs::read(path).await.map_err(|error| AuthorityError::File(path.clone(), error))
        };
        let leaf = certificate::parse(&read(certificate).await?, &read(key).await?)?;
        let before = self.shared.leaf.load();
        if before.as_ref().is_none_or(|before| before.key.cert != leaf.key.cert) {
            info!("the certificate in the file is in use");
            metrics::certificate_renewed(None);
            self.shared.leaf.store(Some(Arc::new(leaf)));
        }
        Ok(())
    }

    /// Makes one step of the plan. Returns the time of the next one, if nothing changes before.
    async fn step(&self, options: &AuthorityOptions, writer: &Writer) -> Result<Timestamp, AuthorityError> {
        let client = &self.shared.client;
        // Before the Secret: a bundle that is newer than the Secret which is read next has another version by then.
        let mut targets = Vec::new();
        for target in &self.shared.targets {
            if let Some(bundle) = target.read(client).await? {
                targets.push((target, bundle));
            }
        }
        let secret = secrets(client, options).get_opt(&options.secret).await?;
        let content = content_of(secret.as_ref())?;
        let bundles: Vec<String> = targets.iter().map(|(_, bundle)| bundle.text.clone()).collect();
        let now = clock::now();
        let step = plan(content.as_ref(), &bundles, now, &options.lifetimes);
        if let Step::Wait(until) = step {
            return Ok(until);
        }
        info!(?step, "the authority of the webhooks");
        let is_rotation = step == Step::Use;
        let content = match (step, content) {
            (Step::Wait(until), _) => return Ok(until),
            (Step::Create, _) | (_, None) => Content::first(Ca::make(now, &options.lifetimes)?),
            (Step::Announce, Some(content)) => content.announce(Ca::make(now, &options.lifetimes)?),
            (Step::Seen, Some(content)) => content.seen(now),
            (Step::Unseen, Some(content)) => content.seen(None),
            (Step::Use, Some(content)) => content.use_next(now, &options.lifetimes),
            (Step::Retire, Some(content)) => content.retire(now),
            (Step::WriteBundles(places), Some(content)) => {
                let text = content.bundle();
                if !certificate::is_bundle(&text) {
                    return Err(AuthorityError::Bundle);
                }
                let mut failed = Ok(());
                for place in places {
                    let (target, bundle) = &targets[place];
                    // A target that cannot be written holds up no other.
                    failed = failed.and(target.write(writer, bundle, &text).await);
                }
                failed?;
                return Ok(retry_at(options));
            }
        };
        write_secret(writer, options, secret, &content).await?;
        if is_rotation {
            metrics::ca_rotated();
        }
        Ok(retry_at(options))
    }
}

async fn write_secret(
    writer: &Writer,
    options: &AuthorityOptions,
    secret: Option<Secret>,
    content: &Content,
) -> Result<(), AuthorityError> {
    let data = BTreeMap::from([(SECRET_KEY.to_owned(), ByteString(serde_json::to_vec(content)?))]);
    if let Some(secret) = secret {
        let patch = json!({"metadata": {"resourceVersion": secret.resource_version()}, "data": data});
        writer.patch(&secret, patch).await?;
    } else {
        let metadata = ObjectMeta {
            name: Some(options.secret.clone()),
            namespace: Some(options.namespace.clone()),
            ..ObjectMeta::default()
        };
        writer.create(&Secret { metadata, data: Some(data), ..Secret::default() }).await?;
    }
    Ok(())
}

fn secrets(client: &Client, options: &AuthorityOptions) -> Api<Secret> {
    Api::namespaced(client.clone(), &options.namespace)
}

/// Returns the content of a Secret; None if it has none yet.
fn content_of(secret: Option<&Secret>) -> Result<Option<Content>, serde_json::Error> {
    let data = secret.and_then(|secret| secret.data.as_ref()?.get(SECRET_KEY));
    data.map(|data| serde_json::from_slice(&data.0)).transpose()
}

/// Returns the time to try again.
fn retry_at(options: &AuthorityOptions) -> Timestamp {
    let wait = RETRY_MAX.min(options.lifetimes.leaf / 20);
    clock::now()
        + wait / 2
        + SignedDuration::from_millis(fastrand::i64(0..=i64::try_from(wait.as_millis()).unwrap_or(1_000) / 2))
}

fn time_until(time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(clock::now())).unwrap_or_default()
}

/// Shows a client the newest certificate.
struct CertificateResolver(Arc<Shared>);

impl std::fmt::Debug for CertificateResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CertificateResolver")
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.leaf.load().as_ref().map(|leaf| Arc::clone(&leaf.key))
    }
}
