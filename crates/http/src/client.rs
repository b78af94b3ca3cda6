//! Requests for ranges of one file, made again after failures that may pass.
//!
//! A request is made again after 408, 429 and 5xx, after lost connections, timeouts and bodies that are cut off, at growing intervals, until
//! [`Options::retry`] is over. What a redirect led to is asked directly from then on, and the first URL again once it no longer works:
//! signed URLs expire.
//!
//! Locks: `DEVICE`, key 5, held over no I/O.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use extant_rt::{Arc, LockClass, Monotonic, Mutex, WallClock, before_wait, sleep};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::http::{Response, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, ResponseExt as _};

use crate::response::{Version, content_range, explanation, text, unsatisfied_length};
use crate::{Error, Object};

/// Where the authorities lie that a host trusts, by distribution.
const AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// The first wait before a request is made again. Each is twice as long as the one before.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// The longest one.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Connections that are kept for later requests.
const CONNECTIONS_MAX: usize = 32;
/// Most redirects that are followed for one request.
const REDIRECTS_MAX: u32 = 10;
/// How much longer than one silence a whole request may take, so that a server that trickles ends.
const TRICKLE_FACTOR: u32 = 4;

/// How a file is read.
#[derive(Clone, Debug)]
pub struct Options {
    /// A server that sends nothing for so long has failed.
    pub timeout: Duration,
    /// For how long a request that failed is made again.
    pub retry: Duration,
    /// The certificates of the authorities to trust, instead of the host's.
    pub authorities: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), retry: Duration::from_secs(30), authorities: None }
    }
}

/// Asks for ranges of one file.
#[derive(Debug)]
pub struct Client {
    object: Object,
    agent: Agent,
    retry: Duration,
    /// Where a redirect led.
    redirected: Mutex<Option<Arc<str>>>,
}

/// Why a request failed.
enum Failed {
    /// It may succeed later.
    Passing(String),
    /// What a redirect led to refuses: the first URL may lead elsewhere by now.
    Stale,
    For(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::For(error)
    }
}

impl Client {
    /// For requests for `object`.
    ///
    /// # Errors
    /// [`Error::Tls`] if the certificates of authorities cannot be read.
    pub fn new(object: Object, options: &Options) -> Result<Self, Error> {
        let is_https = object.url().starts_with("https:");
        let builder = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(is_https)
            .user_agent(concat!("extant/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            // A redirect of object storage leads to another region, for which requests are signed otherwise.
            .max_redirects(if object.signer().is_some() { 0 } else { REDIRECTS_MAX })
            .max_redirects_will_error(object.signer().is_none())
            .max_idle_connections(CONNECTIONS_MAX)
            .max_idle_connections_per_host(CONNECTIONS_MAX)
            .timeout_connect(Some(options.timeout))
            .timeout_recv_response(Some(options.timeout))
            .timeout_global(Some(options.timeout * TRICKLE_FACTOR));
        let config = match is_https {
            true => {
                let authorities = authorities(options.authorities.as_deref());
                let authorities =
                    authorities.map_err(|reason| Error::Tls { url: object.to_string(), reason })?;
                let tls = TlsConfig::builder()
                    .root_certs(RootCerts::new_with_certs(&authorities))
                    .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
                builder.tls_config(tls.build())
            }
            false => builder,
        };
        let redirected = Mutex::with_key(LockClass::DEVICE, 5, None);
        Ok(Self { object, agent: config.build().new_agent(), retry: options.retry, redirected })
    }

    /// The file.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The version of the file and its first bytes, `bytes` at most; no bytes of an empty file.
    ///
    /// # Errors
    /// All but [`Error::Url`] and [`Error::Changed`].
    pub fn head(&self, bytes: usize) -> Result<(Option<Version>, Vec<u8>), Error> {
        self.request((0, bytes as u64), true, |response| {
            if response.status() == StatusCode::RANGE_NOT_SATISFIABLE
                && unsatisfied_length(response.headers()) == Some(0)
            {
                return Ok((None, Vec::new()));
            }
            let (first, last, version) = self.partial(response)?;
            if first != 0 || last != version.bytes.min(bytes as u64) - 1 {
                return Err(self
                    .breach(format!("bytes {first} to {last} in place of the first {bytes}"))
                    .into());
            }
            let mut head = vec![0; last as usize + 1];
            self.receive(response, &mut head)?;
            Ok((Some(version), head))
        })
    }

    /// Fills `buf`, which is not empty, with the bytes from `offset` of a version of the file that has them.
    ///
    /// # Errors
    /// All but [`Error::Url`].
    pub fn read(&self, version: &Version, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let bytes = buf.len() as u64;
        self.request((offset, bytes), false, |response| {
            let (first, last, found) = match self.partial(response) {
                Err(Failed::For(_)) if response.status() == StatusCode::RANGE_NOT_SATISFIABLE => {
                    let what = match unsatisfied_length(response.headers()) {
                        Some(bytes) => format!("it had {} bytes and has {bytes}", version.bytes),
                        None => "it is shorter".to_owned(),
                    };
                    return Err(self.changed(what).into());
                }
                found => found?,
            };
            if let Some(what) = version.difference(&found) {
                return Err(self.changed(what).into());
            }
            if (first, last) != (offset, offset + bytes - 1) {
                return Err(self
                    .breach(format!("bytes {first} to {last} in place of {bytes} at {offset}"))
                    .into());
            }
            self.receive(response, buf)
        })
    }

    /// Makes a request for a range, an offset and a length, until `accept` has an answer or a failure for good.
    fn request<T>(
        &self,
        (offset, bytes): (u64, u64),
        is_first: bool,
        mut accept: impl FnMut(&mut Response<Body>) -> Result<T, Failed>,
    ) -> Result<T, Error> {
        let range = format!("bytes={offset}-{}", offset + bytes - 1);
        let start = Monotonic::now();
        let mut wait = BACKOFF_FIRST;
        let mut is_direct = true;
        loop {
            before_wait();
            let answer =
                self.send(&range, is_first, is_direct).and_then(|mut response| accept(&mut response));
            let reason = match answer {
                Ok(done) => return Ok(done),
                Err(Failed::For(error)) => return Err(error),
                Err(Failed::Stale) => {
                    *self.redirected.lock() = None;
                    is_direct = false;
                    continue;
                }
                Err(Failed::Passing(reason)) => reason,
            };
            if start.elapsed() + wait > self.retry {
                let seconds = start.elapsed().as_secs();
                let reason = format!("{reason}; gave up after {seconds} s");
                return Err(Error::Unreachable { url: self.object.to_string(), reason });
            }
            sleep(wait);
            wait = (wait * 2).min(BACKOFF_MAX);
        }
    }

    /// Makes a request once; where redirects led, if it is direct.
    fn send(&self, range: &str, is_first: bool, is_direct: bool) -> Result<Response<Body>, Failed> {
        let redirected = self.redirected.lock().clone().filter(|_| is_direct);
        let url = redirected.as_deref().unwrap_or(self.object.url());
        let mut request = self.agent.get(url).header("range", range);
        if let Some(signer) = self.object.signer() {
            for (name, value) in signer.headers(range, WallClock::System.now().0) {
                request = request.header(name, value);
            }
        }
        let response = request.call().map_err(|error| self.transport_failure(error, is_first))?;
        if redirected.is_some() && response.status().is_client_error() {
            return Err(Failed::Stale);
        }
        if redirected.is_none() && response.status() == StatusCode::PARTIAL_CONTENT {
            let last = response.get_uri().to_string();
            if self.object.signer().is_none() && last != self.object.url() {
                *self.redirected.lock() = Some(last.into());
            }
        }
        Ok(response)
    }

    /// Why no answer came.
    fn transport_failure(&self, error: ureq::Error, is_first: bool) -> Failed {
        let url = self.object.to_string();
        let unreachable =
            |reason: String| Failed::For(Error::Unreachable { url: self.object.to_string(), reason });
        match error {
            ureq::Error::Io(error) => match error.kind() {
                io::ErrorKind::InvalidData => Error::Tls { url, reason: error.to_string() }.into(),
                io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof
                | io::ErrorKind::TimedOut => Failed::Passing(error.to_string()),
                // A server that was there comes back; one that never was does not.
                _ if is_first => unreachable(error.to_string()),
                _ => Failed::Passing(error.to_string()),
            },
            error @ (ureq::Error::Timeout(_) | ureq::Error::ConnectionFailed) => {
                Failed::Passing(error.to_string())
            }
            error @ ureq::Error::HostNotFound => match is_first {
                true => unreachable(error.to_string()),
                false => Failed::Passing(error.to_string()),
            },
            error @ (ureq::Error::Rustls(_) | ureq::Error::Tls(_)) => {
                Error::Tls { url, reason: error.to_string() }.into()
            }
            ureq::Error::RequireHttpsOnly(to) => {
                let answer = format!("redirected from https:// to {to}, which is not encrypted");
                Error::Refused { url, answer }.into()
            }
            error => Error::Protocol { url, reason: error.to_string() }.into(),
        }
    }

    /// What a partial answer has, or why it is none.
    fn partial(&self, response: &mut Response<Body>) -> Result<(u64, u64, Version), Failed> {
        let url = self.object.to_string();
        let status = response.status();
        match status.as_u16() {
            206 => Ok(content_range(response.headers()).map_err(|reason| self.breach(reason))?),
            200 => Err(Error::NoRanges { url }.into()),
            408 | 429 | 500.. => Err(Failed::Passing(explanation(response))),
            404 | 410 => Err(Error::NotFound { url, answer: explanation(response) }.into()),
            _ => Err(Error::Refused { url, answer: self.refusal(response) }.into()),
        }
    }

    /// Why a server refuses, and what can be done.
    fn refusal(&self, response: &mut Response<Body>) -> String {
        let answer = explanation(response);
        let Some(signer) = self.object.signer() else { return answer };
        let region = response.headers().get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
        match region {
            Some(region) if region != signer.region() => {
                let region: String = region.chars().take(40).collect();
                format!("{answer}; the bucket is in the region {region}: set AWS_REGION")
            }
            _ if !signer.has_credentials() => {
                format!(
                    "{answer}; it was asked without keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                )
            }
            _ => answer,
        }
    }

    /// Fills `buf` with the body, which has as many bytes.
    fn receive(&self, response: &mut Response<Body>, buf: &mut [u8]) -> Result<(), Failed> {
        let stated = text(response.headers(), ureq::http::header::CONTENT_LENGTH).map(str::parse::<u64>);
        if stated.is_some_and(|stated| stated != Ok(buf.len() as u64)) {
            return Err(self.breach("Content-Length is not that of the range".into()).into());
        }
        let cut_off = |error: io::Error| Failed::Passing(format!("the answer was cut off: {error}"));
        let mut body = response.body_mut().as_reader();
        body.read_exact(buf).map_err(cut_off)?;
        // At its end the connection is kept for the next request.
        match body.read(&mut [0]).map_err(cut_off)? {
            0 => Ok(()),
            _ => Err(self.breach("more bytes than were asked for".into()).into()),
        }
    }

    fn breach(&self, reason: String) -> Error {
        Error::Protocol { url: self.object.to_string(), reason }
    }

    fn changed(&self, what: String) -> Error {
        Error::Changed { url: self.object.to_string(), what }
    }
}

/// The certificates of the authorities in a file, or of those that the host trusts.
fn authorities(file: Option<&Path>) -> Result<Vec<Certificate<'static>>, String> {
    let known = || AUTHORITIES.iter().map(Path::new).find(|path| path.exists());
    let file = file
        .or_else(known)
        .ok_or("this host has no certificates of authorities (package ca-certificates)")?;
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| format!("{}: {error}", file.display()))?;
    if read.is_empty() {
        return Err(format!("{}: no certificate of an authority", file.display()));
    }
    Ok(read.iter().map(|der| Certificate::from_der(der).to_owned()).collect())
}
