//! `extant serve`.

use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use clap::Args;
use extant_block::DeviceAccess;
use extant_nbd::{Listener, PORT, Server, ServerOptions, ServerTls};
use extant_rt::{Arc, LockClass, Mutex};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Outcome;
use crate::devices::OpenImage;
use crate::failure::Failure;
use crate::location::ImageLocation;
use crate::output::Output;

/// Serve an image over the network, as a network block device (NBD). Prints the URI once clients can connect, and ends after
/// SIGTERM or SIGINT, when everything is written.
#[derive(Args)]
#[command(
    after_help = "Clients are `extant` itself, nbd-client, qemu, libnbd and others. Without --listen or --socket, only this \
    host can connect, to port 10809.\n\n\
    DIR has server-cert.pem and server-key.pem, and ca-cert.pem for --tls-verify-peer.\n\n\
    Examples:\n  extant serve --socket /run/disk.sock disk.qcow2\n  \
    extant serve --read-only --export rootfs --listen 192.0.2.7:10809 --tls-certificates /etc/pki/nbd disk.img\n  \
    extant ls nbd://127.0.0.1:10809/rootfs:/etc"
)]
pub struct Serve {
    /// Listen on this address; every address only if it says so
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "socket")]
    listen: Option<String>,
    /// Listen on a socket of this host, which is made
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The name of the export
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    export: String,
    /// Let clients read only
    #[arg(long)]
    read_only: bool,
    /// Serve encrypted connections only, with the certificate in a directory
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// Serve clients with a certificate of the authority only
    #[arg(long, requires = "tls_certificates")]
    tls_verify_peer: bool,
    #[command(flatten)]
    location: ImageLocation,
    /// The image
    image: PathBuf,
}

/// The socket of a server, removed at the end.
struct OwnSocket(Option<PathBuf>);

impl Drop for OwnSocket {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Serve {
    /// Serves until a signal ends it.
    pub fn run(self) -> Outcome {
        let tls = match &self.tls_certificates {
            Some(dir) => {
                let read = ServerTls::read(dir, self.tls_verify_peer);
                Some(read.map_err(|error| Failure::new("invalid_argument", "", error.to_string()))?)
            }
            None => None,
        };
        let access = if self.read_only { DeviceAccess::read_only() } else { DeviceAccess::read_write() };
        // All of a disk with partitions, unless one is named.
        let device = OpenImage::open(&self.image, access, self.location.wait())?.into_device(&self.image);
        let device = self.location.locate(&self.image, device)?;
        let (listener, uri, _socket) = self.listener()?;
        let options = ServerOptions { export: self.export.clone(), read_only: self.read_only, tls };
        let server = Arc::new(Server::new(device, options));
        let no_signals = |error: io::Error| Failure::new("failed", "", format!("no signals: {error}"));
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(no_signals)?;
        let failed = Arc::new(Mutex::new(LockClass::PIPE, None));
        let (serving, failure, waiting) = (server.clone(), failed.clone(), signals.handle());
        let serve = move || {
            *failure.lock() = serving.serve(&listener).err();
            waiting.close();
        };
        // It ends with the process: nothing wakes a listener whose socket's file is gone.
        extant_rt::spawn("extant-listen", serve).map_err(no_signals)?;
        let mut output = Output::new();
        output.line(&uri)?;
        output.finish()?;
        signals.forever().next();
        let stopped = server.stop();
        if let Some(error) = failed.lock().take() {
            return Err(Failure::new("io", uri, error.to_string()));
        }
        stopped.map(|()| 0).map_err(|error| Failure::host(&self.image, &error))
    }

    /// What to listen on, and the URI of the export there.
    fn listener(&self) -> Result<(Listener, String, OwnSocket), Failure> {
        let scheme = if self.tls_certificates.is_some() { "nbds" } else { "nbd" };
        let export = escape(&self.export);
        if let Some(path) = &self.socket {
            let listener = bind(path).map_err(|error| Failure::host(path, &error))?;
            let path = path.canonicalize().map_err(|error| Failure::host(path, &error))?;
            let uri = format!("{scheme}+unix:///{export}?socket={}", escape(&path.to_string_lossy()));
            return Ok((Listener::Unix(listener), uri, OwnSocket(Some(path))));
        }
        let address = self.listen.clone().unwrap_or_else(|| format!("127.0.0.1:{PORT}"));
        let failed = |error: io::Error| Failure::new("invalid_argument", &address, error.to_string());
        let addresses: Vec<_> = address.to_socket_addrs().map_err(failed)?.collect();
        let listener = TcpListener::bind(&addresses[..]).map_err(failed)?;
        let own = listener.local_addr().map_err(failed)?;
        Ok((Listener::Tcp(listener), format!("{scheme}://{own}/{export}"), OwnSocket(None)))
    }
}

/// Makes a socket; in place of one whose server is gone.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            match UnixStream::connect(path).err().map(|error| error.kind()) {
                Some(io::ErrorKind::ConnectionRefused) => {
                    std::fs::remove_file(path)?;
                    UnixListener::bind(path)
                }
                _ => Err(error),
            }
        }
        bound => bound,
    }
}

/// What has a meaning in a URI becomes `%XX`.
fn escape(text: &str) -> String {
    let keeps = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(byte);
    text.bytes()
        .map(|byte| if keeps(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
