//! Builds a client. The only place that reads the environment.

use crate::call::OnRetry;
use crate::credential::Credential;
use crate::endpoints::Endpoints;
use crate::error::unreadable;
use crate::{Client, Error, Options};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

/// The endpoint of an engine with the default configuration.
pub const DEFAULT_ENDPOINT: &str = "http://127.0.0.1:7440";

/// The configuration of a client.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    endpoints: Vec<String>,
    channels: Vec<Channel>,
    token: Option<Secret>,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    options: Options,
    on_retry: OnRetry,
}

/// A secret, which debug output leaves out.
#[derive(Clone)]
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl Builder {
    /// Reads the environment. What it leaves open can still be set.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(variable)
    }

    fn from_variables(variable: impl Fn(&str) -> Result<Option<String>, Error>) -> Result<Self, Error> {
        let mut builder = Builder::default();
        if let Some(list) = variable("KUBEBID_ENDPOINTS")? {
            builder = builder.endpoints(list.split(','));
        }
        builder.token = variable("KUBEBID_TOKEN")?.map(Secret);
        if builder.token.is_none() {
            builder.token_file = variable("KUBEBID_TOKEN_FILE")?.map(PathBuf::from);
        }
        builder.ca_file = variable("KUBEBID_CA_FILE")?.map(PathBuf::from);
        Ok(builder)
    }

    /// Sets the engines of one exchange, as in `http://127.0.0.1:7440` or `https://market.example`; without a scheme
    /// it is `http`. The first is tried first, another when it is away, and what works is kept.
    pub fn endpoints<S: Into<String>>(mut self, endpoints: impl IntoIterator<Item = S>) -> Self {
        let trimmed = endpoints.into_iter().map(|endpoint| endpoint.into().trim().to_owned());
        self.endpoints = trimmed.filter(|endpoint| !endpoint.is_empty()).collect();
        self
    }

    /// Sets connections made by the caller, in place of endpoints: to an engine in the same process, or over a socket
    /// of another kind.
    pub fn channels(mut self, channels: impl IntoIterator<Item = Channel>) -> Self {
        self.channels = channels.into_iter().collect();
        self
    }

    /// Sets the secret to send with every call.
    pub fn token(mut self, secret: impl Into<String>) -> Self {
        self.token = Some(Secret(secret.into()));
        self.token_file = None;
        self
    }

    /// Sets a file that contains the secret. It is read again when it changes, and when the engine does not know the
    /// token.
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token_file = Some(path.into());
        self.token = None;
        self
    }

    /// Sets a PEM file of authorities to trust for `https` besides those of the system.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Sets how calls are made.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Sets a function that is asked before each further try, with the error that would end the call and the time
    /// that is left, which is None for a watch: it tries without end. If the function returns false, the call ends
    /// with that error.
    pub fn on_retry(
        mut self,
        decide: impl Fn(&Error, Option<Duration>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.on_retry = OnRetry::new(decide);
        self
    }

    /// Makes the client. It connects with its first call. Inside a tokio runtime only.
    pub fn build(self) -> Result<Client, Error> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::Config("a client is made inside a tokio runtime".into()));
        }
        let credential = match (&self.token, &self.token_file) {
            (Some(Secret(secret)), _) => Credential::fixed(secret)?,
            (None, Some(path)) => Credential::file(path)?,
            (None, None) => Credential::None,
        };
        let endpoints = match self.channels.is_empty() {
            true => self.connections()?,
            false => {
                self.channels.into_iter().map(|channel| ("a channel of the caller".into(), channel)).collect()
            }
        };
        let options = self.options;
        Ok(Client {
            endpoints: Arc::new(Endpoints::new(endpoints)),
            credential: Arc::new(credential),
            options,
            on_retry: self.on_retry,
        })
    }

    fn connections(&self) -> Result<Vec<(String, Channel)>, Error> {
        let trusted = match &self.ca_file {
            Some(path) => {
                let pem = fs::read(path).map_err(|error| unreadable("certificate file", path, &error))?;
                Some(Certificate::from_pem(pem))
            }
            None => None,
        };
        if self.endpoints.is_empty() {
            return Ok(vec![(DEFAULT_ENDPOINT.into(), connection(DEFAULT_ENDPOINT, trusted.as_ref())?)]);
        }
        let named = self.endpoints.iter().map(|name| Ok((name.clone(), connection(name, trusted.as_ref())?)));
        named.collect()
    }
}

fn connection(name: &str, trusted: Option<&Certificate>) -> Result<Channel, Error> {
    let bad = |why: &dyn std::fmt::Display| Error::Config(format!("the endpoint `{name}` is none: {why}"));
    let url = if name.contains("://") { name.to_owned() } else { format!("http://{name}") };
    let endpoint = Endpoint::from_shared(url).map_err(|error| bad(&error))?;
    let uri = endpoint.uri();
    let Some((authority, host)) = uri.authority().zip(uri.host()) else {
        return Err(bad(&"it names no host"));
    };
    if uri.port().is_none() && !authority.as_str().ends_with(host) {
        return Err(bad(&"its port is no number"));
    }
    let secure = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        Some(_) | None => return Err(bad(&"it is neither http nor https")),
    };
    let mut endpoint = endpoint
        .user_agent(concat!("kubebid-client/", env!("CARGO_PKG_VERSION")))
        .map_err(|error| bad(&error))?
        .connect_timeout(Duration::from_secs(5))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(15))
        .keep_alive_timeout(Duration::from_secs(10));
    if secure {
        let tls = ClientTlsConfig::new().with_native_roots();
        let tls = trusted.cloned().into_iter().fold(tls, ClientTlsConfig::ca_certificate);
        endpoint = endpoint.tls_config(tls).map_err(|error| bad(&error))?;
    }
    Ok(endpoint.connect_lazy())
}

#[expect(clippy::disallowed_methods, reason = "this is the config.rs of the client")]
/// Returns the value of a variable, or None if it is empty.
fn variable(name: &str) -> Result<Option<String>, Error> {
    match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(Error::Config(format!("{name} is not UTF-8"))),
    }
}

#[cfg(test)]
mod tests {
    use super::Builder;
    use crate::Error;

    fn with(variables: &[(&str, &str)]) -> Builder {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            Ok::<_, Error>(found.map(|(_, value)| (*value).to_owned()))
        };
        Builder::from_variables(lookup).unwrap()
    }

    #[tokio::test]
    async fn the_environment_names_endpoints_and_token() {
        let endpoints = with(&[("KUBEBID_ENDPOINTS", "http://one:7440, two:7440,")]).endpoints;
        assert_eq!(endpoints, ["http://one:7440", "two:7440"]);

        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "sesame").unwrap();
        let path = file.path().to_str().unwrap();
        assert!(with(&[("KUBEBID_TOKEN_FILE", path)]).build().is_ok());
        assert!(with(&[("KUBEBID_TOKEN_FILE", "/nonexistent")]).build().is_err());
        let both = with(&[("KUBEBID_TOKEN", "sesame"), ("KUBEBID_TOKEN_FILE", "/nonexistent")]);
        assert!(both.build().is_ok(), "the token itself comes first");
        assert!(with(&[("KUBEBID_CA_FILE", "/nonexistent")]).build().is_err());
    }

    #[test]
    fn without_a_runtime_there_is_no_client() {
        assert!(matches!(Builder::default().build(), Err(Error::Config(_))));
    }
}
