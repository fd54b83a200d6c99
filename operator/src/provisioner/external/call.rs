//! HTTP calls to the external provisioner: connection, token, deadline, retries.

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

/// The deadline of a call with all its tries.
const DEADLINE: Duration = Duration::from_secs(5);
/// The largest body of an answer. An answer is a state and a name.
const BODY_MAX_BYTES: usize = 64 * 1024;
/// The longest `Retry-After` that is respected.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// The address and the credentials of the provider's server.
#[derive(Clone, Debug)]
pub struct ExternalOptions {
    /// The base URL, as in `https://machines.example/kubebid`; `/v1/machines/{id}` is appended.
    pub url: String,
    /// The file with the bearer token. It is read for every call, so that it may change.
    pub token_file: Option<PathBuf>,
    /// A file with authorities to trust besides those of the system, as PEM.
    pub ca_file: Option<PathBuf>,
}

/// Options that no client can be created from.
#[derive(Debug, thiserror::Error)]
pub enum BadOptions {
    /// The URL is no URL of a server.
    #[error("the provisioner's URL {url:?} is none: {why}")]
    Url {
        /// The URL.
        url: String,
        /// The error message.
        why: String,
    },
    /// A file cannot be read.
    #[error("cannot read the provisioner's {what} {}: {why}", .path.display())]
    File {
        /// The purpose of the file.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The error message.
        why: String,
    },
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// A connection pool for one server.
#[derive(Debug)]
pub(super) struct Caller {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    token_file: Option<PathBuf>,
}

/// An answer that is not tried again.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    body: Bytes,
}

/// A call that failed.
#[derive(Debug)]
pub(super) struct CallError {
    /// The error message.
    pub(super) why: String,
    /// True if another try may succeed.
    is_transient: bool,
    /// The least time before the next call, from the header `Retry-After`.
    pub(super) retry_after: Option<Duration>,
}

impl Caller {
    /// Creates a pool.
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
        Ok(Caller { client, base, token_file: options.token_file })
    }

    /// Makes a call, with up to three tries. `Retry-After` is respected.
    pub(super) async fn call(&self, method: &Method, id: &str, body: &Bytes) -> Result<Answer, CallError> {
        let until = Instant::now() + DEADLINE;
        let tries = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_times(2)
            .with_jitter();
        let answer = (async || self.try_once(method, id, body).await).retry(tries);
        let in_time = |wait: Duration| Instant::now() + wait < until;
        let answer = answer
            .when(|error: &CallError| error.is_transient && error.retry_after.is_none_or(in_time))
            .adjust(|error, wait| wait.map(|wait| wait.max(error.retry_after.unwrap_or_default())));
        match tokio::time::timeout_at(until, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                let why = format!("{method} {}: no answer within {} s", self.url(id), DEADLINE.as_secs());
                Err(CallError { why, is_transient: true, retry_after: None })
            }
        }
    }

    /// Returns the URL of a machine. An id is a UID, which needs no escaping.
    fn url(&self, id: &str) -> String {
        format!("{}/v1/machines/{id}", self.base)
    }

    async fn try_once(&self, method: &Method, id: &str, body: &Bytes) -> Result<Answer, CallError> {
        let url = self.url(id);
        let permanent = |why: String| CallError { why, is_transient: false, retry_after: None };
        let transient = |why: String| CallError {
            why: format!("{method} {url}: {why}"),
            is_transient: true,
            retry_after: None,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(&url)
            .header(ACCEPT, "application/json, application/problem+json")
            .header(USER_AGENT, concat!("kubebid-operator/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &self.token_file {
            let bearer =
                bearer(path).map_err(|why| permanent(format!("the token file {}: {why}", path.display())))?;
            request = request.header(AUTHORIZATION, bearer);
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body.clone())).map_err(|error| permanent(error.to_string()))?;
        let response = self.client.request(request).await.map_err(|error| transient(message_of(&error)))?;
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(retry_after);
        let body = Limited::new(response.into_body(), BODY_MAX_BYTES).collect().await;
        let body = body.map_err(|error| transient(format!("its answer breaks off: {error}")))?.to_bytes();
        let answer = Answer { status, body };
        if answer.status == StatusCode::TOO_MANY_REQUESTS || answer.status.is_server_error() {
            return Err(CallError { retry_after, ..transient(answer.refusal()) });
        }
        Ok(answer)
    }
}

impl Answer {
    /// Parses the body.
    pub(super) fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_slice(&self.body)
            .map_err(|error| format!("its answer is not that of the contract: {error}"))
    }

    /// Returns the explanation for people.
    pub(super) fn detail(&self) -> Option<String> {
        self.json().ok().map(|problem: Problem| problem.detail)
    }

    /// Returns the status, with the explanation if there is one.
    pub(super) fn refusal(&self) -> String {
        match self.detail() {
            Some(detail) => format!("{}: {detail}", self.status),
            None => self.status.to_string(),
        }
    }
}

/// Parses `Retry-After`: seconds, or a date (RFC 9110).
fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
            Duration::try_from(date.duration_since(clock::now())).unwrap_or_default()
        }
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// Returns the message of an error with that of its root cause.
fn message_of(error: &hyper_util::client::legacy::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    if error.source().is_some() { format!("{error}: {last}") } else { error.to_string() }
}

/// Checks the base URL, and removes a slash at its end.
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

/// Reads the token file, and returns the header `Authorization`.
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
    // A system without authorities uses the file, or plain HTTP.
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
    fn retry_after_is_in_seconds_or_a_date() {
        let read = |text: &str| retry_after(&HeaderValue::from_str(text).unwrap());
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("86400"), Some(RETRY_AFTER_MAX));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(read("Wed, 01 Jan 2200 00:00:00 GMT"), Some(RETRY_AFTER_MAX));
        assert_eq!(read("soon"), None);
    }
}
