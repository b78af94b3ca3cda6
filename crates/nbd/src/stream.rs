//! The two directions of a connection: bytes that are received, through a buffer, and messages that are sent whole.
//!
//! One thread uses each direction at a time; both may be used at once.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use extant_rt::{Arc, Monotonic};

use crate::Transport;
use crate::tls::Tls;

/// Bytes received at once. A payload beyond what the buffer has goes straight to its place.
const RECEIVE_BYTES: usize = 64 << 10;
/// Bytes encrypted before they are sent.
const ENCRYPT_BYTES: usize = 64 << 10;

/// A connected socket.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects to a server.
    ///
    /// # Errors
    /// The host's, of the last address tried.
    pub fn connect(transport: &Transport, timeout: Duration) -> io::Result<Self> {
        let (host, port) = match transport {
            Transport::Unix(path) => return Ok(Self::Unix(UnixStream::connect(path)?)),
            Transport::Tcp { host, port } => (host.as_str(), *port),
        };
        let mut error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Self::Tcp(stream));
                }
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }

    /// How long a send or a receive may wait.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
        }
    }

    /// Ends a direction or both: threads that wait in them go on.
    pub fn shutdown(&self, how: Shutdown) {
        // A socket that the other side has closed is at its end.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        };
    }

    /// Receives some bytes: none at the end.
    pub fn receive(&self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let received = match self {
                Self::Tcp(stream) => (&*stream).read(buf),
                Self::Unix(stream) => (&*stream).read(buf),
            };
            match received {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => return received.map_err(timed_out),
            }
        }
    }

    /// Sends all of the buffers.
    pub fn send(&self, mut bufs: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut bufs, 0);
        while !bufs.is_empty() {
            let sent = match self {
                Self::Tcp(stream) => (&*stream).write_vectored(bufs),
                Self::Unix(stream) => (&*stream).write_vectored(bufs),
            };
            match sent {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut bufs, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(timed_out(error)),
            }
        }
        Ok(())
    }
}

/// A timeout in words: the host calls it a resource that is unavailable for the moment.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        _ => error,
    }
}

/// Receives from a connection.
#[derive(Debug)]
pub struct Receiver {
    socket: Arc<Socket>,
    buffer: Box<[u8]>,
    /// What of the buffer was received and not yet taken.
    from: usize,
    to: usize,
    /// When everything must have been received.
    deadline: Option<(Monotonic, Duration)>,
    encrypted: Option<Encrypted>,
}

/// What was received of an encrypted connection and is not yet decrypted.
#[derive(Debug)]
struct Encrypted {
    tls: Arc<Tls>,
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
}

/// Sends to a connection.
#[derive(Debug)]
pub struct Sender {
    socket: Arc<Socket>,
    tls: Option<Arc<Tls>>,
}

/// Both directions of a connected socket.
pub fn split(socket: Socket) -> (Receiver, Sender) {
    let socket = Arc::new(socket);
    let buffer = vec![0; RECEIVE_BYTES].into();
    let receiver =
        Receiver { socket: socket.clone(), buffer, from: 0, to: 0, deadline: None, encrypted: None };
    (receiver, Sender { socket, tls: None })
}

impl Receiver {
    /// The socket.
    pub fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// What is received from now on must come within `time`, however it trickles in; or as long as it takes.
    pub fn set_deadline(&mut self, time: Option<Duration>) {
        self.deadline = time.map(|time| (Monotonic::now(), time));
    }

    /// Whether at least so many bytes are in the buffer.
    pub fn has(&self, bytes: usize) -> bool {
        self.to - self.from >= bytes
    }

    /// Fills `buf`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the other side has ended the connection; else the host's.
    pub fn receive(&mut self, mut buf: &mut [u8]) -> io::Result<()> {
        loop {
            let count = buf.len().min(self.to - self.from);
            let (now, later) = buf.split_at_mut(count);
            now.copy_from_slice(&self.buffer[self.from..self.from + count]);
            self.from += count;
            buf = later;
            if buf.is_empty() {
                return Ok(());
            }
            // The buffer is empty.
            if buf.len() >= self.buffer.len() {
                let count = self.receive_some(buf)?;
                buf = &mut buf[count..];
            } else {
                self.fill()?;
            }
        }
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.receive(&mut bytes)?;
        Ok(bytes)
    }

    /// The next `count` bytes, a number that the caller has bounded.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn vec(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.receive(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = self.receive_some(&mut buffer);
        self.buffer = buffer;
        (self.from, self.to) = (0, received?);
        Ok(())
    }

    /// Has both directions encrypted from now on, after the handshake.
    ///
    /// # Errors
    /// `InvalidData` if something was received before that no one asked for, and for a certificate that is not trusted; else the
    /// host's.
    pub fn start_tls(&mut self, sender: &mut Sender, tls: Tls) -> io::Result<()> {
        if self.has(1) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "bytes before the encryption"));
        }
        tls.handshake(&mut Handshake(self))?;
        let tls = Arc::new(tls);
        sender.tls = Some(tls.clone());
        let buffer = vec![0; RECEIVE_BYTES].into();
        self.encrypted = Some(Encrypted { tls, buffer, from: 0, to: 0 });
        Ok(())
    }

    fn receive_some(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(mut encrypted) = self.encrypted.take() else { return self.receive_plain(buf) };
        let received = loop {
            match encrypted.tls.take(buf) {
                Ok(Some(0)) => break Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(Some(count)) => break Ok(count),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            if encrypted.from == encrypted.to {
                match self.receive_plain(&mut encrypted.buffer) {
                    Ok(count) => (encrypted.from, encrypted.to) = (0, count),
                    Err(error) => break Err(error),
                }
            }
            match encrypted.tls.decrypt(&encrypted.buffer[encrypted.from..encrypted.to]) {
                Ok(count) => encrypted.from += count,
                Err(error) => break Err(error),
            }
        };
        self.encrypted = Some(encrypted);
        received
    }

    /// Receives from the socket itself.
    fn receive_plain(&self, buf: &mut [u8]) -> io::Result<usize> {
        if self.deadline.is_some_and(|(begun, time)| begun.elapsed() > time) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no whole answer in time"));
        }
        match self.socket.receive(buf)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the other side ended the connection")),
            count => Ok(count),
        }
    }
}

impl Sender {
    /// Ends the connection in both directions.
    pub fn end(&self) {
        self.socket.shutdown(Shutdown::Both);
    }

    /// Sends all of the buffers, one after the other.
    ///
    /// # Errors
    /// The host's. Part of them may have been sent.
    pub fn send(&mut self, bufs: &mut [IoSlice<'_>]) -> io::Result<()> {
        let Some(tls) = &self.tls else { return self.socket.send(bufs) };
        let mut encrypted = Vec::new();
        for piece in bufs.iter().flat_map(|buf| buf.chunks(ENCRYPT_BYTES)) {
            tls.encrypt(piece, &mut encrypted)?;
            if encrypted.len() >= ENCRYPT_BYTES {
                self.socket.send(&mut [IoSlice::new(&encrypted)])?;
                encrypted.clear();
            }
        }
        self.socket.send(&mut [IoSlice::new(&encrypted)])
    }
}

/// The socket of a connection while keys are agreed on, within the deadline.
struct Handshake<'r>(&'r Receiver);

impl Read for Handshake<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.receive_plain(buf)
    }
}

impl Write for Handshake<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.socket.send(&mut [IoSlice::new(buf)])?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_pieces_is_received_whole() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let (mut receiver, _sender) = split(Socket::Unix(ours));
        let sent: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        let copy = sent.clone();
        let thread = std::thread::spawn(move || {
            for piece in copy.chunks(7777) {
                theirs.write_all(piece).expect("sent");
            }
        });
        let mut received = receiver.vec(10).expect("small");
        received.extend(receiver.vec(200_000).expect("larger than the buffer"));
        received.extend(receiver.vec(99_990).expect("the rest"));
        assert!(received == sent);
        thread.join().expect("no panic");
        assert_eq!(receiver.array::<1>().expect_err("the end").kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn deadline_ends_a_trickle() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let (mut receiver, _sender) = split(Socket::Unix(ours));
        let thread = std::thread::spawn(move || {
            while theirs.write_all(&[0]).is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        receiver.set_deadline(Some(Duration::from_millis(50)));
        assert_eq!(receiver.vec(10_000).expect_err("too slow").kind(), io::ErrorKind::TimedOut);
        drop((receiver, _sender));
        thread.join().expect("no panic");
    }
}
