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
use plan::{Ca, Content, Lifetimes, Step, plan};
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
const KEY: &str = "authority.json";
/// The name for the field manager of bundles, `kubebid-webhook-bundles`.
const WRITES: &str = "webhook-bundles";
/// The longest wait before something that failed is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(5);
/// The interval at which files are read again.
const REREAD: SignedDuration = SignedDuration::from_secs(10);

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

/// The part of the cluster that this replica has seen; None if it has not looked yet.
#[derive(Debug, Default)]
struct View {
    content: Option<Option<Content>>,
    bundles: Vec<Option<Option<Bundle>>>,
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
    view: watch::Sender<View>,
    leaf: ArcSwapOption<Leaf>,
    ready: watch::Sender<bool>,
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
    pub fn new(client: Client, options: AuthorityOptions, targets: Vec<Target>) -> Authority {
        Authority::from_source(client, Source::Secret(options), targets)
    }

    /// Returns an authority for certificates that somebody else makes and writes into the targets, such as cert-manager.
    /// The files, in PEM, are read again when they change.
    pub fn from_files(client: Client, certificate: PathBuf, key: PathBuf, targets: Vec<Target>) -> Authority {
        Authority::from_source(client, Source::Files { certificate, key }, targets)
    }

    fn from_source(client: Client, source: Source, targets: Vec<Target>) -> Authority {
        let view = View { content: None, bundles: targets.iter().map(|_| None).collect() };
        let shared = Shared {
            client,
            source,
            targets,
            view: watch::Sender::new(view),
            leaf: ArcSwapOption::empty(),
            ready: watch::Sender::new(false),
        };
        Authority { shared: Arc::new(shared) }
    }

    /// Returns true if clients trust this replica: its certificate verifies against every bundle in the cluster.
    pub fn is_ready(&self) -> bool {
        *self.shared.ready.borrow()
    }

    /// Waits until this replica is ready.
    pub async fn ready(&self) {
        let _ = self.shared.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Returns the TLS configuration of a server, which always shows the newest certificate.
    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(certificate::provider());
        let builder = builder.with_safe_default_protocol_versions().expect("ring has them");
        let resolver = Arc::new(Newest(Arc::clone(&self.shared)));
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        // The API server speaks HTTP/1.1 with webhooks.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// Keeps the certificate of this replica valid. Every replica runs this, as long as it serves; it does not end.
    pub async fn run(&self) {
        let mut events = self.events();
        loop {
            let until = self.look().await;
            tokio::select! {
                Some(event) = events.next() => self.see(event),
                () = sleep(time_until(until)) => {}
            }
        }
    }

    /// Rotates the CA and writes the bundles. The replica that leads runs this beside [`Authority::run`], until it leads
    /// no more; it does not end by itself.
    pub async fn lead(&self, writer: &Writer) {
        let Source::Secret(options) = &self.shared.source else { return std::future::pending().await };
        let writer = writer.for_controller(WRITES);
        let mut view = self.shared.view.subscribe();
        loop {
            view.borrow_and_update();
            let until = match self.step(options, &writer).await {
                Ok(until) => until,
                Err(AuthorityError::Write(WriteError::Conflict)) => in_a_while(options),
                Err(error) => {
                    warn!(%error, "the authority of the webhooks: to be tried again");
                    in_a_while(options)
                }
            };
            tokio::select! {
                _ = view.changed() => {}
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

    fn see(&self, event: Event) {
        self.shared.view.send_modify(|view| match event {
            Event::Secret(secret) => match content_of(secret.as_deref()) {
                Ok(content) => view.content = Some(content),
                Err(error) => warn!(%error, "the Secret of the webhooks"),
            },
            Event::Bundle(place, bundle) => view.bundles[place] = Some(bundle),
        });
    }

    /// Renews the certificate if that is due, and finds out if this replica is ready. Returns the time of the next look.
    async fn look(&self) -> Timestamp {
        let retry = match &self.shared.source {
            Source::Secret(options) => {
                let due = self.is_due();
                match if due { self.renew(options).await } else { Ok(()) } {
                    Ok(()) => Timestamp::MAX,
                    Err(error) => {
                        warn!(%error, "the certificate of this replica: to be tried again");
                        in_a_while(options)
                    }
                }
            }
            Source::Files { certificate, key } => {
                if let Err(error) = self.reread(certificate, key).await {
                    warn!(%error, "the certificate of this replica: to be tried again");
                }
                clock::now() + REREAD
            }
        };
        let now = clock::now();
        let leaf = self.shared.leaf.load();
        let is_ready = leaf.as_ref().is_some_and(|leaf| {
            let view = self.shared.view.borrow();
            view.bundles.iter().all(|bundle| match bundle {
                None => false,
                Some(None) => true,
                Some(Some(bundle)) => leaf.is_trusted(&bundle.text, now),
            })
        });
        if self.shared.ready.send_replace(is_ready) != is_ready {
            info!(is_ready, "clients trust the certificate of this replica, or do not");
        }
        let renew = leaf.as_ref().map_or(Timestamp::MAX, |leaf| leaf.renew);
        // A renewal that has failed, or has no CA, is due still.
        if renew <= now { retry.min(now + RETRY) } else { renew.min(retry) }
    }

    /// Returns true if the certificate has to be renewed, and there is a CA for it.
    fn is_due(&self) -> bool {
        let view = self.shared.view.borrow();
        let Some(Some(content)) = &view.content else { return false };
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
            self.shared.leaf.store(Some(Arc::new(leaf)));
        }
        Ok(())
    }

    async fn reread(&self, certificate: &PathBuf, key: &PathBuf) -> Result<(), AuthorityError> {
        let read = async |path: &PathBuf| {
            tokio::fs::read(path).await.map_err(|error| AuthorityError::File(path.clone(), error))
        };
        let leaf = certificate::parse(&read(certificate).await?, &read(key).await?)?;
        let before = self.shared.leaf.load();
        if before.as_ref().is_none_or(|before| before.key.cert != leaf.key.cert) {
            info!("the certificate in the file is in use");
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
        let content = match (step, content) {
            (Step::Wait(until), _) => return Ok(until),
            (Step::Create, _) | (_, None) => Content::first(Ca::make(now, &options.lifetimes)?),
            (Step::Announce, Some(content)) => content.announce(Ca::make(now, &options.lifetimes)?),
            (Step::Seen, Some(content)) => content.seen(now),
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
                return Ok(in_a_while(options));
            }
        };
        write_secret(writer, options, secret, &content).await?;
        Ok(in_a_while(options))
    }
}

async fn write_secret(
    writer: &Writer,
    options: &AuthorityOptions,
    secret: Option<Secret>,
    content: &Content,
) -> Result<(), AuthorityError> {
    let data = BTreeMap::from([(KEY.to_owned(), ByteString(serde_json::to_vec(content)?))]);
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
    let data = secret.and_then(|secret| secret.data.as_ref()?.get(KEY));
    data.map(|data| serde_json::from_slice(&data.0)).transpose()
}

/// Returns the time to try again.
fn in_a_while(options: &AuthorityOptions) -> Timestamp {
    let wait = RETRY.min(options.lifetimes.leaf / 20);
    clock::now()
        + wait / 2
        + SignedDuration::from_millis(fastrand::i64(0..=i64::try_from(wait.as_millis()).unwrap_or(1_000) / 2))
}

fn time_until(time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(clock::now())).unwrap_or_default()
}

/// Shows a client the newest certificate.
struct Newest(Arc<Shared>);

impl std::fmt::Debug for Newest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Newest")
    }
}

impl ResolvesServerCert for Newest {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.leaf.load().as_ref().map(|leaf| Arc::clone(&leaf.key))
    }
}
