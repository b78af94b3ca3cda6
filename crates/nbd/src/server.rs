//! A server of one block device as an export.
//!
//! A connection has a thread, and more while requests come faster than one thread answers them, up to [`THREADS_MAX`]. Each has a
//! buffer of [`transmission::PIECE_BYTES`] at most, however large a request is, so that the memory of all connections is bounded.
//! All connections share the device: a flush of one covers the writes that any of them has answered.
//!
//! Leaves out: locks of the image, which its owner takes; accounts, which the protocol does not have but by certificates.
//!
//! Locks: `REQUESTS`, key 0 for the list of connections, held over no I/O; keys 1 and 2 in `transmission`.

mod negotiation;
mod transmission;

use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use extant_block::BlockDevice;
use extant_rt::{Arc, AtomicBool, Condvar, LockClass, Mutex, Ordering, spawn};

use crate::stream::{Socket, split};
use crate::tls::ServerTls;
use transmission::Transmission;

/// Most connections at a time. A further one is closed at once.
const CONNECTIONS_MAX: usize = 64;
/// Most threads of one connection.
const THREADS_MAX: usize = 4;
/// How long requests under way may take after [`Server::stop`] before their connections are cut.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);

/// How a device is exported.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// The export's name. Clients that ask for no name get it too.
    pub export: String,
    /// Whether clients may only read.
    pub read_only: bool,
    /// The certificate with which every connection must be encrypted.
    pub tls: Option<ServerTls>,
}

/// A server of a device.
pub struct Server {
    device: Arc<dyn BlockDevice>,
    options: ServerOptions,
    connections: Mutex<Connections>,
    /// A connection has ended.
    ended: Condvar,
    is_stopping: AtomicBool,
}

#[derive(Default)]
struct Connections {
    sockets: Vec<Option<Arc<Socket>>>,
    /// Where the listeners can be woken.
    listeners: Vec<Listening>,
}

enum Listening {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Listening {
    fn wake(self) {
        // A listener that is gone needs no waking.
        let _ = match self {
            Self::Tcp(address) => TcpStream::connect_timeout(&address, Duration::from_secs(1)).map(drop),
            Self::Unix(path) => UnixStream::connect(path).map(drop),
        };
    }
}

/// What a server listens on.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A socket of this host.
    Unix(UnixListener),
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Listener {
    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Socket::Unix(stream)),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
        }
    }

    fn address(&self) -> io::Result<Listening> {
        match self {
            Self::Tcp(listener) => {
                let mut address = listener.local_addr()?;
                if address.ip().is_unspecified() {
                    let loopback: [u8; 4] = [127, 0, 0, 1];
                    let is_v4 = address.is_ipv4();
                    address.set_ip(if is_v4 {
                        loopback.into()
                    } else {
                        std::net::Ipv6Addr::LOCALHOST.into()
                    });
                }
                Ok(Listening::Tcp(address))
            }
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                Ok(Listening::Unix(address.as_pathname().map(PathBuf::from).unwrap_or_default()))
            }
        }
    }
}

impl Server {
    /// A server of `device`.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>, mut options: ServerOptions) -> Self {
        options.read_only |= device.is_read_only();
        Self {
            device,
            options,
            connections: Mutex::new(LockClass::REQUESTS, Connections::default()),
            ended: Condvar::new(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Serves those who connect, until [`Server::stop`].
    ///
    /// # Errors
    /// The host's, if it takes no connections.
    pub fn serve(self: &Arc<Self>, listener: &Listener) -> io::Result<()> {
        let address = listener.address()?;
        self.connections.lock().listeners.push(address);
        loop {
            let accepted = listener.accept();
            // Pairs with the store in `stop`, which connects afterwards.
            if self.is_stopping.load(Ordering::Acquire) {
                return Ok(());
            }
            match accepted {
                Ok(socket) => self.serve_one(socket),
                // The one who connected is gone, or there are no descriptors for a moment.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) if !self.connections.lock().sockets.iter().all(Option::is_none) => {
                    extant_rt::sleep(Duration::from_millis(100));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Serves a connection in threads of its own.
    fn serve_one(self: &Arc<Self>, socket: Socket) {
        let (receiver, sender) = split(socket);
        let socket = receiver.socket().clone();
        let Some(index) = self.enter(socket.clone()) else {
            socket.shutdown(Shutdown::Both);
            return;
        };
        let registration = Registration { server: self.clone(), index };
        let run = move || {
            let server = registration.server.clone();
            if let Ok(Some(agreed)) = negotiation::run(receiver, sender, &server) {
                Transmission::run(agreed, registration);
            }
        };
        // Without a thread the connection is closed by the registration that goes with the closure.
        let _ = spawn("extant-nbd", run);
    }

    fn enter(&self, socket: Arc<Socket>) -> Option<usize> {
        let mut connections = self.connections.lock();
        let sockets = &mut connections.sockets;
        let free = sockets.iter().position(Option::is_none);
        let index = free.or((sockets.len() < CONNECTIONS_MAX).then_some(sockets.len()))?;
        if index == sockets.len() {
            sockets.push(None);
        }
        sockets[index] = Some(socket);
        Some(index)
    }

    /// Ends all connections after the requests that they have sent, and flushes the device. Later connections are closed at once.
    ///
    /// # Errors
    /// The device's.
    pub fn stop(&self) -> io::Result<()> {
        // Pairs with the load in `serve`.
        self.is_stopping.store(true, Ordering::Release);
        let mut connections = self.connections.lock();
        for listening in std::mem::take(&mut connections.listeners) {
            // A connection wakes the listener; one whose queue is full has been woken, and lets no one in.
            let _ = spawn("extant-nbd", move || listening.wake());
        }
        for how in [Shutdown::Read, Shutdown::Both] {
            connections.sockets.iter().flatten().for_each(|socket| socket.shutdown(how));
            let begun = extant_rt::Monotonic::now();
            while connections.sockets.iter().any(Option::is_some) && begun.elapsed() < STOP_TIME_MAX {
                connections = self.ended.wait_timeout(connections, STOP_TIME_MAX);
            }
        }
        drop(connections);
        if self.options.read_only { Ok(()) } else { self.device.flush() }
    }
}

/// The place of a connection in the list; removed when its last thread ends.
struct Registration {
    server: Arc<Server>,
    index: usize,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut connections = self.server.connections.lock();
        if let Some(socket) = connections.sockets.get_mut(self.index).and_then(Option::take) {
            socket.shutdown(Shutdown::Both);
        }
        self.server.ended.notify_all();
    }
}
