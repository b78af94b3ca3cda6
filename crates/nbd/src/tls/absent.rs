//! What takes the place of TLS in a build without the feature `tls`: there is none.

use std::io::{self, Read, Write};
use std::path::Path;

use crate::{Error, Uri};

const ABSENT: &str = "this build has none";

/// The encryption of a connection.
#[derive(Debug)]
pub enum Tls {}

/// The certificate of a server.
#[derive(Clone, Debug)]
pub enum ServerTls {}

impl Tls {
    /// None.
    pub fn client(_uri: &Uri) -> Result<Self, String> {
        Err(ABSENT.to_owned())
    }

    /// As with TLS.
    pub fn handshake(&self, _socket: &mut (impl Read + Write)) -> io::Result<()> {
        match *self {}
    }

    /// As with TLS.
    pub fn take(&self, _buf: &mut [u8]) -> io::Result<Option<usize>> {
        match *self {}
    }

    /// As with TLS.
    pub fn decrypt(&self, _received: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    /// As with TLS.
    pub fn encrypt(&self, _bytes: &[u8], _encrypted: &mut Vec<u8>) -> io::Result<()> {
        match *self {}
    }
}

impl ServerTls {
    /// None.
    ///
    /// # Errors
    /// [`Error::Tls`].
    pub fn read(dir: &Path, _verify_peer: bool) -> Result<Self, Error> {
        Err(Error::Tls { export: dir.display().to_string(), reason: ABSENT.to_owned() })
    }

    /// As with TLS.
    pub fn connection(&self) -> io::Result<Tls> {
        match *self {}
    }
}
