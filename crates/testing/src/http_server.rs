//! A server of HTTP for tests, whose answers the test makes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A request.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// How many were made before, on all connections.
    pub number: u64,
    /// Its path and query.
    pub target: String,
    /// Its headers, with names in lower case.
    pub headers: Vec<(String, String)>,
}

impl HttpRequest {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The first and the last byte of the range that is asked for.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body, whose length is a header as well unless there is one.
    pub body: Vec<u8>,
    /// The connection ends after so many bytes of the body.
    pub cut_off: Option<usize>,
}

impl HttpAnswer {
    /// Of a status, without a body.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), cut_off: None }
    }

    /// With a further header.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    /// With another value of a header, or without it.
    #[must_use]
    pub fn replace(mut self, name: &str, value: Option<&str>) -> Self {
        self.headers.retain(|(own, _)| own != name);
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The range of `file` that is asked for, or all of it, as the version `tag`.
    ///
    /// # Panics
    /// If the file cannot be read.
    #[must_use]
    pub fn of_file(file: &File, tag: &str, request: &HttpRequest) -> Self {
        let bytes = file.metadata().expect("metadata").len();
        let range = request.range().map(|(first, last)| (first, last.min(bytes.saturating_sub(1))));
        let (status, first, len) = match range {
            Some((first, _)) if first >= bytes => {
                return Self::status(416).with("content-range", format!("bytes */{bytes}"));
            }
            Some((first, last)) => (206, first, last - first + 1),
            None => (200, 0, bytes),
        };
        let mut body = vec![0; len as usize];
        file.read_exact_at(&mut body, first).expect("read");
        let mut answer = Self::status(status).with("etag", format!("\"{tag}\""));
        if status == 206 {
            answer = answer.with("content-range", format!("bytes {first}-{}/{bytes}", first + len - 1));
        }
        Self { body, ..answer }
    }
}

/// A connection, encrypted or not.
pub trait HttpStream: Read + Write + Send {}

impl<S: Read + Write + Send> HttpStream for S {}

/// A server; ended when dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    bytes: AtomicU64,
    ends: AtomicBool,
}

impl HttpServer {
    /// Starts a server.
    ///
    /// # Panics
    /// If the host gives no port.
    pub fn start(answer: impl Fn(&HttpRequest) -> HttpAnswer + Send + Sync + 'static) -> Self {
        Self::start_over(|stream| Some(Box::new(stream)), answer)
    }

    /// Starts a server that talks over what `over` makes of connections.
    ///
    /// # Panics
    /// If the host gives no port.
    pub fn start_over(
        over: impl Fn(TcpStream) -> Option<Box<dyn HttpStream>> + Send + Sync + 'static,
        answer: impl Fn(&HttpRequest) -> HttpAnswer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let counts = Arc::new(Counts::default());
        let (own, over, answer) = (counts.clone(), Arc::new(over), Arc::new(answer));
        let accept = move || {
            for stream in listener.incoming() {
                if own.ends.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (counts, over, answer) = (own.clone(), over.clone(), answer.clone());
                // It ends with the connection.
                std::thread::spawn(move || {
                    let _ = stream.set_nodelay(true);
                    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
                    over(stream).map(|stream| converse(stream, &counts, &*answer))
                });
            }
        };
        Self { address, counts, thread: Some(std::thread::spawn(accept)) }
    }

    /// The URL of `target` over HTTP.
    #[must_use]
    pub fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.address)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Bytes of bodies so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.counts.ends.store(true, Ordering::Relaxed);
        // It waits for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers the requests of a connection until it ends.
fn converse(
    stream: Box<dyn HttpStream>,
    counts: &Counts,
    answer: &dyn Fn(&HttpRequest) -> HttpAnswer,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let number = counts.requests.fetch_add(1, Ordering::Relaxed);
        let answer = answer(&HttpRequest { number, target, headers });
        let mut head = format!("HTTP/1.1 {} Answer\r\n", answer.status);
        for (name, value) in &answer.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let says_length = |name: &str| ["content-length", "transfer-encoding"].contains(&name);
        if !answer.headers.iter().any(|(name, _)| says_length(name)) {
            head += &format!("content-length: {}\r\n", answer.body.len());
        }
        let end = answer.cut_off.unwrap_or(answer.body.len());
        let mut bytes = format!("{head}\r\n").into_bytes();
        bytes.extend_from_slice(&answer.body[..end]);
        counts.bytes.fetch_add(end as u64, Ordering::Relaxed);
        stream.get_mut().write_all(&bytes)?;
        stream.get_mut().flush()?;
        if answer.cut_off.is_some() {
            return Ok(());
        }
    }
}
