//! Empties the servers of a cache: a command of one line over TCP, encrypted if the cache is.

use crate::api::Engine;
use crate::api::v1beta1::Cache;
use crate::children::{SERVER, child_name, host, port, selector, tls_secret};
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The time that a server has for its answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most bytes of a line of an answer.
const LINE_BYTES_MAX: u64 = 1 << 10;

/// Empties all servers of a cache.
///
/// # Errors
/// A sentence that names the servers which may still have entries.
pub async fn flush(client: &Client, cache: &Cache) -> Result<(), String> {
    let namespace = cache.namespace().unwrap_or_default();
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    let pods = pods.list(&ListParams::default().labels(&selector(cache))).await;
    let pods = pods.map_err(|error| format!("the pods could not be listed: {error}"))?;
    let running: Vec<_> = pods.items.iter().filter(|pod| is_of(pod, cache) && is_running(pod)).collect();
    if running.is_empty() {
        return Ok(());
    }
    let tls = encryption(client, cache).await?;
    let flushed = running.into_iter().map(async |pod| {
        let flushed = timeout(PATIENCE, flush_pod(pod, cache.spec.engine, tls.as_ref())).await;
        let error = flushed.unwrap_or_else(|_| Err(io::Error::other("no answer"))).err()?;
        Some(format!("{}: {error}", pod.name_any()))
    });
    let left: Vec<_> = join_all(flushed).await.into_iter().flatten().collect();
    if left.is_empty() {
        Ok(())
    } else {
        Err(format!("servers that may still have entries: {}", left.join("; ")))
    }
}

/// Returns true if a pod is one of the cache: others may have the same labels.
fn is_of(pod: &Pod, cache: &Cache) -> bool {
    let name = child_name(cache);
    pod.owner_references().iter().any(|owner| {
        owner.kind == "StatefulSet" && owner.api_version.starts_with("apps/") && owner.name == name
    })
}

/// Returns true if the server of a pod runs: one that does not has no entries.
fn is_running(pod: &Pod) -> bool {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let mut servers = containers.into_iter().flatten().filter(|it| it.name == SERVER);
    servers.any(|it| it.state.as_ref().is_some_and(|state| state.running.is_some()))
}

/// The means to encrypt a connection.
struct Encryption {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// Returns the means to encrypt connections, from the Secret of the cache, if it has one.
async fn encryption(client: &Client, cache: &Cache) -> Result<Option<Encryption>, String> {
    let Some(name) = tls_secret(cache) else { return Ok(None) };
    let secrets = Api::<Secret>::namespaced(client.clone(), &cache.namespace().unwrap_or_default());
    let explain = |error: &dyn std::fmt::Display| format!("the Secret {name}: {error}");
    let secret = secrets.get(name).await.map_err(|error| explain(&error))?;
    let pem = secret.data.unwrap_or_default().remove("ca.crt").ok_or_else(|| explain(&"no ca.crt"))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem.0) {
        let certificate = certificate.map_err(|error| explain(&error))?;
        roots.add(certificate).map_err(|error| explain(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| explain(&error))?.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(host(cache)).map_err(|error| explain(&error))?;
    Ok(Some(Encryption { connector: TlsConnector::from(Arc::new(config)), name }))
}

async fn flush_pod(pod: &Pod, engine: Engine, tls: Option<&Encryption>) -> io::Result<()> {
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).unwrap_or_default();
    let ip: IpAddr = ip.parse().map_err(|_| io::Error::other("the pod has no address"))?;
    let server = TcpStream::connect((ip, port(engine))).await?;
    match tls {
        None => flush_server(server, engine).await,
        Some(tls) => flush_server(tls.connector.connect(tls.name.clone(), server).await?, engine).await,
    }
}

/// Empties a server, or waits for the one that it follows to empty it.
async fn flush_server(server: impl AsyncRead + AsyncWrite + Unpin, engine: Engine) -> io::Result<()> {
    let mut server = BufReader::new(server);
    let (command, done) = match engine {
        Engine::Memcached => ("flush_all", "OK"),
        Engine::Redis | Engine::Valkey => ("FLUSHALL", "+OK"),
    };
    let answer = ask(&mut server, command).await?;
    if answer == done {
        return Ok(());
    }
    if !answer.starts_with("-READONLY") {
        return Err(io::Error::other(answer));
    }
    match ask(&mut server, "DBSIZE").await?.strip_prefix(':') {
        Some("0") => Ok(()),
        Some(entries) => Err(io::Error::other(format!("{entries} entries, which its leader has to delete"))),
        None => Err(io::Error::other("no number of entries")),
    }
}

/// Sends a command, and returns the line of the answer.
async fn ask(
    server: &mut BufReader<impl AsyncRead + AsyncWrite + Unpin>,
    command: &str,
) -> io::Result<String> {
    server.write_all(format!("{command}\r\n").as_bytes()).await?;
    server.flush().await?;
    let mut line = String::new();
    if (&mut *server).take(LINE_BYTES_MAX).read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    /// Flushes a server that answers so to each command. Returns its commands.
    async fn with_answers(engine: Engine, answers: &str) -> (io::Result<()>, String) {
        let (client, mut server) = duplex(1 << 10);
        server.write_all(answers.as_bytes()).await.unwrap();
        let done = flush_server(client, engine).await;
        let mut commands = String::new();
        server.read_to_string(&mut commands).await.unwrap();
        (done, commands)
    }

    #[tokio::test]
    async fn a_server_is_empty_when_it_says_so() {
        let (done, commands) = with_answers(Engine::Memcached, "OK\r\n").await;
        assert_eq!((done.is_ok(), &commands[..]), (true, "flush_all\r\n"));
        let (done, commands) = with_answers(Engine::Redis, "+OK\r\n").await;
        assert_eq!((done.is_ok(), &commands[..]), (true, "FLUSHALL\r\n"));
        let (done, _) = with_answers(Engine::Valkey, "-LOADING data\r\n").await;
        assert!(done.unwrap_err().to_string().contains("LOADING"));
    }

    #[tokio::test]
    async fn a_follower_is_empty_when_its_leader_has_emptied_it() {
        let (done, commands) = with_answers(Engine::Redis, "-READONLY no\r\n:0\r\n").await;
        assert_eq!((done.is_ok(), &commands[..]), (true, "FLUSHALL\r\nDBSIZE\r\n"));
        let (done, _) = with_answers(Engine::Redis, "-READONLY no\r\n:7\r\n").await;
        assert!(done.unwrap_err().to_string().contains("7 entries"));
    }
}
