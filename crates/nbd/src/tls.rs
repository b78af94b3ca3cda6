//! TLS of a connection: certificates in a directory, as libnbd, QEMU and nbdkit name them, and the encryption of both directions.
//!
//! Leaves out: keys that are shared beforehand (PSK), which rustls does not have.
//!
//! Locks: `DEVICE`, key 4, over encryption and decryption; over no I/O but the handshake's, which no other thread sees.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use extant_rt::{Arc, LockClass, Mutex};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};

use crate::{Error, Transport, Uri};

/// The authorities that a host trusts, where a URI names no certificates.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The encryption of a connection.
#[derive(Debug)]
pub struct Tls(Mutex<Connection>);

/// The certificate of a server, and whether it wants one of its clients.
#[derive(Clone)]
pub struct ServerTls(Arc<ServerConfig>);

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

/// What a broken connection and a wrong certificate have in common.
fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The authorities in a file.
fn authorities(file: &Path) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(file)?);
    if added == 0 {
        return Err(format!("{}: no certificate of an authority", file.display()));
    }
    Ok(Arc::new(roots))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    read.map_err(|error| format!("{}: {error}", file.display()))
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| format!("{}: {error}", file.display()))
}

impl Tls {
    /// Of a client, before the handshake.
    pub fn client(uri: &Uri) -> Result<Self, String> {
        let dir = uri.certificates.as_deref();
        let roots =
            authorities(&dir.map_or_else(|| PathBuf::from(AUTHORITIES), |dir| dir.join("ca-cert.pem")))?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let own = dir.map(|dir| (dir.join("client-cert.pem"), dir.join("client-key.pem")));
        let config = match own.filter(|(certificate, _)| certificate.exists()) {
            Some((own, own_key)) => config
                .with_client_auth_cert(certificates(&own)?, key(&own_key)?)
                .map_err(|error| format!("{}: {error}", own.display()))?,
            None => config.with_no_client_auth(),
        };
        let host = match (&uri.tls_hostname, &uri.transport) {
            (Some(name), _) => name.clone(),
            (None, Transport::Tcp { host, .. }) => host.clone(),
            (None, Transport::Unix(_)) => "localhost".into(),
        };
        let name = ServerName::try_from(host.clone()).map_err(|error| format!("{host}: {error}"))?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
        Ok(Self::new(connection.into()))
    }

    fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(None);
        Self(Mutex::with_key(LockClass::DEVICE, 4, connection))
    }

    /// Agrees on keys with the other side.
    ///
    /// # Errors
    /// The socket's; `InvalidData` for a certificate that is not trusted.
    pub fn handshake(&self, socket: &mut (impl Read + Write)) -> io::Result<()> {
        let mut connection = self.0.lock();
        while connection.is_handshaking() || connection.wants_write() {
            connection.complete_io(socket)?;
        }
        Ok(())
    }

    /// Takes bytes that were decrypted; none if more must be received before.
    pub fn take(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        match self.0.lock().reader().read(buf) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Decrypts some of what was received: how much.
    pub fn decrypt(&self, mut received: &[u8]) -> io::Result<usize> {
        let mut connection = self.0.lock();
        let count = connection.read_tls(&mut received)?;
        connection.process_new_packets().map_err(invalid)?;
        Ok(count)
    }

    /// Appends `bytes`, encrypted, to `encrypted`.
    pub fn encrypt(&self, bytes: &[u8], encrypted: &mut Vec<u8>) -> io::Result<()> {
        let mut connection = self.0.lock();
        connection.writer().write_all(bytes)?;
        while connection.wants_write() {
            connection.write_tls(encrypted)?;
        }
        Ok(())
    }
}

impl ServerTls {
    /// Reads `server-cert.pem` and `server-key.pem` in `dir`; for `verify_peer` also `ca-cert.pem`, of which a client must have a
    /// certificate.
    ///
    /// # Errors
    /// [`Error::Tls`] with the file that cannot be used.
    pub fn read(dir: &Path, verify_peer: bool) -> Result<Self, Error> {
        let failed = |reason| Error::Tls { export: dir.display().to_string(), reason };
        let unusable = |error: rustls::Error| failed(error.to_string());
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let config = if verify_peer {
            let roots = authorities(&dir.join("ca-cert.pem")).map_err(failed)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
            config.with_client_cert_verifier(verifier.map_err(|error| failed(error.to_string()))?)
        } else {
            config.with_no_client_auth()
        };
        let own = certificates(&dir.join("server-cert.pem")).map_err(failed)?;
        let key = key(&dir.join("server-key.pem")).map_err(failed)?;
        Ok(Self(Arc::new(config.with_single_cert(own, key).map_err(unusable)?)))
    }

    /// Of a connection, before the handshake.
    pub fn connection(&self) -> io::Result<Tls> {
        Ok(Tls::new(ServerConnection::new(self.0.clone()).map_err(invalid)?.into()))
    }
}
