//! A client that asks one server for `/readyz`, with or without looking at its certificate.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Longer than an answer takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Trusts everybody, as a kubelet that probes.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn builder() -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap()
}

/// Returns a client that trusts everybody.
pub fn trusting() -> Arc<ClientConfig> {
    let builder = builder();
    let verifier = Trusting(Arc::clone(builder.crypto_provider()));
    Arc::new(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// Returns a client that trusts the CAs of a bundle.
///
/// # Panics
/// If it is no bundle.
pub fn with_bundle(bundle: &[u8]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        roots.add(certificate.unwrap()).unwrap();
    }
    Arc::new(builder().with_root_certificates(roots).with_no_client_auth())
}

/// An answer to a probe.
#[derive(Debug)]
pub struct Probed {
    /// True if the server says that it is ready.
    pub is_ready: bool,
    /// The certificate that it has shown.
    pub certificate: Vec<u8>,
}

/// Asks a server on a new connection if it is ready.
///
/// # Errors
/// A server that does not answer, or that the client does not trust.
pub async fn probe(address: SocketAddr, config: Arc<ClientConfig>) -> Result<Probed, String> {
    let probed = async {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::from(address.ip());
        let mut stream = TlsConnector::from(config).connect(name, stream).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
        let mut answer = Vec::new();
        // A server may close without a word once it has answered.
        let read = stream.read_to_end(&mut answer).await;
        if answer.is_empty() {
            read?;
        }
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let certificate = certificates.first().map(|certificate| certificate.to_vec()).unwrap_or_default();
        Ok(Probed { is_ready: answer.starts_with(b"HTTP/1.1 200 "), certificate })
    };
    match timeout(PATIENCE, probed).await {
        Ok(probed) => probed.map_err(|error: std::io::Error| error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}
