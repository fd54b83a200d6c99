//! Making, reading and verifying certificates.

use super::plan::{Ca, Lifetimes, two_thirds};
use super::target::Bundle;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use time::OffsetDateTime;

/// Why a certificate cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// It cannot be made.
    #[error("a certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    /// It is not valid PEM.
    #[error("a certificate or key cannot be read: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// The key does not fit the certificate, or is of an unknown kind.
    #[error("a key cannot be used: {0}")]
    Key(#[from] rustls::Error),
}

/// The certificate of a replica, with its key.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) key: Arc<CertifiedKey>,
    /// The certificate of the CA that signed it, in PEM; empty if it was read from a file.
    pub(super) issuer: String,
    /// The time from which another one should be in use.
    pub(super) renew: Timestamp,
    /// The end of its validity, as far as it is known.
    pub(super) not_after: Timestamp,
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn seconds(time: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn subject(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn ca_params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Ca {
    /// Makes a CA. Its name is its own, for clients look for the signer of a certificate by name.
    ///
    /// # Errors
    /// [`CertificateError::Make`].
    pub fn make(now: Timestamp, lifetimes: &Lifetimes) -> Result<Ca, CertificateError> {
        let common_name = format!("webhook-ca-{:016x}", fastrand::u64(..));
        let key = KeyPair::generate()?;
        let not_after = now + lifetimes.authority;
        let mut params = ca_params(&common_name);
        (params.not_before, params.not_after) = (seconds(now - lifetimes.skew), seconds(not_after));
        Ok(Ca {
            certificate: params.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
            common_name,
            made: now,
            not_after,
            leaf_seconds: lifetimes.leaf.as_secs(),
        })
    }

    /// Signs a certificate for these names, with a new key. `begun` is the time before this CA was read.
    pub(super) fn sign(
        &self,
        names: &[String],
        begun: Timestamp,
        skew: SignedDuration,
    ) -> Result<Leaf, CertificateError> {
        let issuer = Issuer::new(ca_params(&self.common_name), KeyPair::from_pem(&self.key)?);
        let key = KeyPair::generate()?;
        let until = self.leaf_until(begun);
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = subject(names.first().map_or("webhook", |name| name));
        (params.not_before, params.not_after) = (seconds(begun - skew), seconds(until));
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &issuer)?;
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|text| rustls::Error::General(text.to_owned()))?;
        let key = CertifiedKey::from_der(vec![certificate.der().clone()], key, &provider())?;
        let renew = two_thirds(begun, until);
        Ok(Leaf { key: Arc::new(key), issuer: self.certificate.clone(), renew, not_after: until })
    }
}

/// Returns a certificate chain and its key, from two texts in PEM.
pub(super) fn parse(chain: &[u8], key: &[u8]) -> Result<Leaf, CertificateError> {
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>()?;
    let key = CertifiedKey::from_der(chain, PrivateKeyDer::from_pem_slice(key)?, &provider())?;
    Ok(Leaf { key: Arc::new(key), issuer: String::new(), renew: Timestamp::MAX, not_after: Timestamp::MAX })
}

/// Returns true if a text holds certificates and nothing that cannot be read.
pub(super) fn is_bundle(text: &str) -> bool {
    anchors(text).is_some_and(|anchors| !anchors.is_empty())
}

fn anchors(bundle: &str) -> Option<RootCertStore> {
    let mut anchors = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        anchors.add(certificate.ok()?).ok()?;
    }
    Some(anchors)
}

impl Leaf {
    /// Verifies the certificate as a client with this bundle does at a time.
    ///
    /// # Errors
    /// The reason why the client would not go on.
    pub(super) fn verify(&self, bundle: &Bundle, now: Timestamp) -> Result<(), String> {
        if bundle.text.is_empty() {
            return Err("there is no caBundle yet".to_owned());
        }
        let anchors = anchors(&bundle.text).ok_or("the caBundle cannot be read")?;
        let (certificate, others) = self.key.cert.split_first().ok_or("there is no certificate")?;
        let certificate = ParsedCertificate::try_from(certificate).map_err(|error| error.to_string())?;
        let now = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
        let algorithms = provider().signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &anchors, others, now, algorithms)
            .map_err(|error| format!("the caBundle does not trust the certificate: {error}"))?;
        for name in &bundle.server_names {
            let server_name = ServerName::try_from(&name[..]).map_err(|error| format!("{name}: {error}"))?;
            verify_server_name(&certificate, &server_name).map_err(|_| {
                format!("the API server asks for {name}, which the certificate does not name")
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetimes() -> Lifetimes {
        Lifetimes::default()
    }

    #[test]
    fn a_certificate_is_trusted_by_bundles_with_its_signer_while_it_is_valid() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (signer, other) = (Ca::make(now, &lifetimes()).unwrap(), Ca::make(now, &lifetimes()).unwrap());
        let names = ["a.b.svc".to_owned(), "127.0.0.1".to_owned()];
        let leaf = signer.sign(&names, now, lifetimes().skew).unwrap();
        let asks = |text: &str, name: &str| Bundle {
            text: text.to_owned(),
            server_names: vec![name.to_owned()],
            ..Bundle::default()
        };
        let is_trusted = |text: &str, now| leaf.verify(&asks(text, "a.b.svc"), now).is_ok();
        let both = other.certificate.clone() + &signer.certificate;
        assert!(is_trusted(&signer.certificate, now) && is_trusted(&both, now));
        assert!(is_trusted(&both, now - SignedDuration::from_mins(4)), "a clock that is late");
        assert!(!is_trusted(&other.certificate, now));
        assert!(!is_trusted(&both, now + SignedDuration::from_hours(25)));
        assert!(!is_trusted("", now) && !is_trusted("nonsense", now));
        assert!(leaf.verify(&asks(&both, "127.0.0.1"), now).is_ok());
        let refused = leaf.verify(&asks(&both, "other.b.svc"), now).unwrap_err();
        assert!(refused.contains("the API server asks for other.b.svc"), "{refused}");
        assert_eq!(leaf.renew, now + SignedDuration::from_hours(16));
        assert!(is_bundle(&both) && !is_bundle("") && !is_bundle("nonsense"));
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let [one, other] = [(); 2].map(|()| Ca::make(now, &lifetimes()).unwrap());
        assert!(parse(one.certificate.as_bytes(), one.key.as_bytes()).is_ok());
        assert!(parse(one.certificate.as_bytes(), other.key.as_bytes()).is_err());
    }
}
