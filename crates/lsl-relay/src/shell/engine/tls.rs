//! TLS to engines, with the roots of the system or those of a file. Spec: relay §12.1.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::config::EngineConfig;
use crate::engine::{EngineError, ErrorKind, Result};

/// How servers are checked.
pub(super) struct Tls(TlsConnector);

/// A byte stream, encrypted or not.
pub(super) type AnyStream = Pin<Box<dyn ByteStream>>;

/// What is read and written.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> ByteStream for T {}

impl Tls {
    /// Reads the roots; `None` if TLS is not asked for.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if there are none.
    pub(super) fn of(config: &EngineConfig) -> Result<Option<Self>> {
        if !config.address.is_secure {
            return Ok(None);
        }
        let mut roots = RootCertStore::empty();
        let denied = |text: String| EngineError::new(ErrorKind::Denied, text);
        let found = match &config.ca_file {
            Some(file) => {
                let failed = |error| denied(format!("ca_file {}: {error}", file.display()));
                let read = CertificateDer::pem_file_iter(file).map_err(failed)?;
                read.collect::<Result<_, _>>().map_err(failed)?
            }
            None => of_system(),
        };
        let (added, _) = roots.add_parsable_certificates(found);
        if added == 0 {
            return Err(denied(
                "there are no certificates to check the engine with; name them by ca_file"
                    .to_owned(),
            ));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| denied(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Some(Self(TlsConnector::from(Arc::new(client)))))
    }

    /// Returns the settings, for who encrypts by itself.
    #[cfg(feature = "nats")]
    pub(super) fn client(&self) -> ClientConfig {
        ClientConfig::clone(self.0.config())
    }
}

/// Encrypts a connection to a host, if that is asked for.
///
/// # Errors
/// [`ErrorKind::Denied`] for a server that is not who it should be, [`ErrorKind::Retry`] for others.
pub(super) async fn open(tls: Option<&Tls>, host: &str, stream: TcpStream) -> Result<AnyStream> {
    let Some(Tls(tls)) = tls else {
        return Ok(Box::pin(stream));
    };
    let denied = |text: String| EngineError::new(ErrorKind::Denied, text);
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|error| denied(format!("{host}: {error}")))?;
    let opened = tls.connect(name, stream).await.map_err(|error| {
        let is_refused = error.kind() == std::io::ErrorKind::InvalidData;
        let kind = if is_refused {
            ErrorKind::Denied
        } else {
            ErrorKind::Retry
        };
        EngineError::new(kind, format!("TLS with {host}: {error}"))
    });
    Ok(Box::pin(opened?))
}

#[cfg(not(target_vendor = "apple"))]
fn of_system() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}

#[cfg(target_vendor = "apple")]
fn of_system() -> Vec<CertificateDer<'static>> {
    let read = CertificateDer::pem_file_iter("/etc/ssl/cert.pem");
    read.map(|read| read.flatten().collect())
        .unwrap_or_default()
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}
