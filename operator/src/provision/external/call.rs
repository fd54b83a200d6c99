//! One HTTP call to the external provisioner: connection, token, deadline, retries.

use super::contract::Problem;
use crate::clock;
use backon::{ExponentialBuilder, Retryable as _};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::jiff::fmt::rfc2822;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// For a call with all its tries: whoever waits for it could see to other nodes.
const DEADLINE: Duration = Duration::from_secs(5);
/// An answer is a state and a name; more than this is none.
const MOST_BYTES: usize = 64 * 1024;
/// Whoever wants to be left alone for longer is asked all the same.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Where the provider's machinery is, and what lets us in.
#[derive(Clone, Debug)]
pub struct ExternalOptions {
    /// As in `https://machines.example/kubebid`; `/v1/machines/{id}` comes behind it.
    pub url: String,
    /// A file with a bearer token; read for every call, so that it may change.
    pub token_file: Option<PathBuf>,
    /// Authorities to trust besides those of the system, as PEM.
    pub ca_file: Option<PathBuf>,
}

/// Why there is no provisioner of these options.
#[derive(Debug, thiserror::Error)]
pub enum BadOptions {
    #[error("the provisioner's URL {url:?} is none: {why}")]
    Url { url: String, why: String },
    #[error("cannot read the provisioner's {what} {}: {why}", .path.display())]
    File { what: &'static str, path: PathBuf, why: String },
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

#[derive(Debug)]
pub(super) struct Line {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    token_file: Option<PathBuf>,
}

/// An answer that need not be asked for again.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    body: Bytes,
}

/// No answer.
#[derive(Debug)]
pub(super) struct Silence {
    pub(super) why: String,
    /// It may be better in a moment.
    passes: bool,
    /// The time at which it wants to be asked again, from its answer.
    pub(super) retry_after: Option<Duration>,
}

impl Line {
    pub(super) fn new(options: ExternalOptions) -> Result<Self, BadOptions> {
        let base = base(&options.url)?;
        if let Some(path) = &options.token_file {
            bearer(path).map_err(|why| BadOptions::File { what: "token file", path: path.clone(), why })?;
        }
        let tls = tls(options.ca_file.as_deref())?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Line { client, base, token_file: options.token_file })
    }

    /// Asks until there is an answer that is no passing trouble, thrice at most, and not before it wants to be.
    pub(super) async fn call(&self, method: &Method, id: &str, body: &Bytes) -> Result<Answer, Silence> {
        let until = Instant::now() + DEADLINE;
        let tries = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_times(2)
            .with_jitter();
        let answer = (async || self.try_once(method, id, body).await).retry(tries);
        let in_time = |wait: Duration| Instant::now() + wait < until;
        let answer = answer
            .when(|silence: &Silence| silence.passes && silence.retry_after.is_none_or(in_time))
            .adjust(|silence, wait| wait.map(|wait| wait.max(silence.retry_after.unwrap_or_default())));
        match tokio::time::timeout_at(until, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                let why = format!("{method} {}: no answer within {} s", self.url(id), DEADLINE.as_secs());
                Err(Silence { why, passes: true, retry_after: None })
            }
        }
    }

    /// An id is a UID: nothing of it needs escaping.
    fn url(&self, id: &str) -> String {
        format!("{}/v1/machines/{id}", self.base)
    }

    async fn try_once(&self, method: &Method, id: &str, body: &Bytes) -> Result<Answer, Silence> {
        let url = self.url(id);
        let lasting = |why: String| Silence { why, passes: false, retry_after: None };
        let passing =
            |why: String| Silence { why: format!("{method} {url}: {why}"), passes: true, retry_after: None };
        let mut request = Request::builder()
            .method(method)
            .uri(&url)
            .header(ACCEPT, "application/json, application/problem+json")
            .header(USER_AGENT, concat!("kubebid-operator/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &self.token_file {
            let bearer =
                bearer(path).map_err(|why| lasting(format!("the token file {}: {why}", path.display())))?;
            request = request.header(AUTHORIZATION, bearer);
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body.clone())).map_err(|error| lasting(error.to_string()))?;
        let response = self.client.request(request).await.map_err(|error| passing(because(&error)))?;
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(retry_after);
        let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
        let body = body.map_err(|error| passing(format!("its answer breaks off: {error}")))?.to_bytes();
        let answer = Answer { status, body };
        if answer.status == StatusCode::TOO_MANY_REQUESTS || answer.status.is_server_error() {
            return Err(Silence { retry_after, ..passing(answer.refusal()) });
        }
        Ok(answer)
    }
}

impl Answer {
    pub(super) fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_slice(&self.body)
            .map_err(|error| format!("its answer is not that of the contract: {error}"))
    }

    /// Returns what is said for people.
    pub(super) fn detail(&self) -> Option<String> {
        self.json().ok().map(|problem: Problem| problem.detail)
    }

    pub(super) fn refusal(&self) -> String {
        match self.detail() {
            Some(detail) => format!("{}: {detail}", self.status),
            None => self.status.to_string(),
        }
    }
}

/// Seconds, or a date (RFC 9110).
fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
            Duration::try_from(date.duration_since(clock::now())).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_WAIT))
}

/// The first cause says what happened; those above it only where.
fn because(error: &hyper_util::client::legacy::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    if error.source().is_some() { format!("{error}: {last}") } else { error.to_string() }
}

/// The URL, without a slash at its end.
fn base(url: &str) -> Result<String, BadOptions> {
    let bad = |why: &str| BadOptions::Url { url: url.to_owned(), why: why.to_owned() };
    let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(_) | None => return Err(bad("it is neither http nor https")),
    }
    if uri.query().is_some() {
        return Err(bad("it has a query"));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

fn bearer(path: &Path) -> Result<HeaderValue, String> {
    let secret = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let secret = secret.trim();
    if secret.is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut bearer = HeaderValue::try_from(format!("Bearer {secret}"))
        .map_err(|_| "it has characters that no token has".to_owned())?;
    bearer.set_sensitive(true);
    Ok(bearer)
}

fn tls(ca_file: Option<&Path>) -> Result<ClientConfig, BadOptions> {
    let mut roots = RootCertStore::empty();
    // A system without any is one where the file, or plain HTTP, is all that is meant.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        let bad = |why: String| BadOptions::File { what: "certificate file", path: path.to_owned(), why };
        let before = roots.len();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))? {
            let certificate = certificate.map_err(|error| bad(error.to_string()))?;
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        }
        if roots.len() == before {
            return Err(bad("it has no certificate in PEM".to_owned()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_to_ask_again_is_told_in_seconds_or_as_a_date() {
        let read = |text: &str| retry_after(&HeaderValue::from_str(text).unwrap());
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("86400"), Some(LONGEST_WAIT));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(read("Wed, 01 Jan 2200 00:00:00 GMT"), Some(LONGEST_WAIT));
        assert_eq!(read("soon"), None);
    }
}
