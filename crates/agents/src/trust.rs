//! Certificate authorities that servers of agents, tools and others may be certified by: the well-known ones that are built in, and
//! those that the operator adds, such as a company's own.
//!
//! They hold for the whole process: every client in it may meet a server of the same company.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::Connector;

static ADDED: RwLock<Vec<CertificateDer<'static>>> = RwLock::new(Vec::new());

/// Certificates of authorities, as a file holds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities(Vec<CertificateDer<'static>>);

/// Why a file holds none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthoritiesError {
    #[error("it has no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----")]
    None,
    #[error("it is not PEM: {0}")]
    Pem(String),
    #[error("its certificate number {number} cannot be read: {problem}")]
    Certificate { number: usize, problem: String },
}

impl Authorities {
    /// Reads one or more certificates in PEM. What else the file has is passed over.
    pub fn read(pem: &[u8]) -> Result<Self, AuthoritiesError> {
        let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let found = found.map_err(|error| AuthoritiesError::Pem(error.to_string()))?;
        if found.is_empty() {
            return Err(AuthoritiesError::None);
        }
        for (place, certificate) in found.iter().enumerate() {
            let added = RootCertStore::empty().add(certificate.clone());
            added.map_err(|error| AuthoritiesError::Certificate {
                number: place + 1,
                problem: error.to_string(),
            })?;
        }
        Ok(Self(found))
    }

    /// Connections that are set up from here on trust them, next to those that are built in and those that were added before.
    pub fn add(self) {
        let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
        for certificate in self.0 {
            if !added.contains(&certificate) {
                added.push(certificate);
            }
        }
    }
}

/// The certificates that were added, for clients that are made elsewhere.
pub fn added() -> Vec<CertificateDer<'static>> {
    // Poisoning is ignored: the list is only added to.
    ADDED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// What every client over HTTP begins with.
pub fn http_client() -> reqwest::ClientBuilder {
    let certificates = added().into_iter();
    // They were read before, so none of them is left out.
    let certificates = certificates.filter_map(|it| reqwest::Certificate::from_der(&it).ok());
    certificates.fold(
        reqwest::Client::builder(),
        reqwest::ClientBuilder::add_root_certificate,
    )
}

/// The TLS of a WebSocket. `None` if nothing was added, and it is the usual one.
pub(crate) fn connector() -> Option<Connector> {
    let added = added();
    if added.is_empty() {
        return None;
    }
    let mut roots: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    roots.add_parsable_certificates(added);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Some(Connector::Rustls(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_says_so() {
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for text in ["", "a certificate", key] {
            let read = Authorities::read(text.as_bytes());
            assert_eq!(read, Err(AuthoritiesError::None), "{text}");
        }
        let cut = "-----BEGIN CERTIFICATE-----\nAAAA\n";
        let read = Authorities::read(cut.as_bytes());
        assert!(matches!(read, Err(AuthoritiesError::Pem(_))), "{read:?}");
        let odd = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let read = Authorities::read(odd.as_bytes());
        let is_first = matches!(read, Err(AuthoritiesError::Certificate { number: 1, .. }));
        assert!(is_first, "{read:?}");
    }
}
