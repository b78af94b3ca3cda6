//! The URIs of exports, as <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md> has them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::Error;

/// The port of NBD.
pub const PORT: u16 = 10809;
/// Most bytes of an export's name.
const NAME_BYTES_MAX: usize = crate::wire::STRING_BYTES_MAX;
/// How a URI may begin, whether TLS is wanted, and whether the socket is one of the host.
const SCHEMES: [(&str, bool, bool); 4] = [
    ("nbd://", false, false),
    ("nbds://", true, false),
    ("nbd+unix://", false, true),
    ("nbds+unix://", true, true),
];

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By TCP.
    Tcp {
        /// Its name or address; an IPv6 address without brackets.
        host: String,
        /// Its port.
        port: u16,
    },
    /// By a socket of this host.
    Unix(PathBuf),
}

/// The URI of an export: `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`, or with `nbds` for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Uri {
    text: String,
    /// How the server is reached.
    pub transport: Transport,
    /// The export's name; the server's default export has none.
    pub export: String,
    /// Whether the connection must be encrypted.
    pub tls: bool,
    /// The directory of certificates: `?tls-certificates=DIR`.
    pub certificates: Option<PathBuf>,
    /// The name that the server's certificate must have: `?tls-hostname=NAME`.
    pub tls_hostname: Option<String>,
    /// How long to try for a new connection after one was lost: `?reconnect=SECONDS`.
    pub reconnect: Option<Duration>,
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Uri {
    /// Reads a URI.
    ///
    /// # Errors
    /// [`Error::Uri`] for another scheme, a missing host or socket, and what is not known.
    pub fn parse(text: &str) -> Result<Self, Error> {
        read(text).map_err(|reason| Error::Uri { text: text.to_owned(), reason })
    }
}

fn read(text: &str) -> Result<Uri, String> {
    let found = SCHEMES.iter().find(|(scheme, ..)| text.starts_with(scheme));
    let (scheme, tls, is_unix) = *found.ok_or("not the URI of a network block device")?;
    let rest = &text[scheme.len()..];
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, name) = place.split_once('/').unwrap_or((place, ""));
    let mut uri = Uri {
        text: text.to_owned(),
        transport: Transport::Unix(PathBuf::new()),
        export: decode(name)?,
        tls,
        certificates: None,
        tls_hostname: None,
        reconnect: None,
    };
    if uri.export.len() > NAME_BYTES_MAX {
        return Err(format!("an export's name has {NAME_BYTES_MAX} bytes at most"));
    }
    let mut socket = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(value)?;
        match key {
            "socket" => socket = Some(value),
            "tls-certificates" => uri.certificates = Some(value.into()),
            "tls-hostname" => uri.tls_hostname = Some(value),
            "reconnect" => {
                let seconds =
                    value.parse().map_err(|_| format!("reconnect={value} is not a number of seconds"))?;
                uri.reconnect = Some(Duration::from_secs(seconds));
            }
            "tls-psk-file" | "tls-username" => {
                return Err(format!(
                    "{key}: keys that are shared beforehand are not served; use certificates"
                ));
            }
            _ => return Err(format!("unknown parameter '{key}'")),
        }
    }
    uri.transport = match (is_unix, socket) {
        (true, Some(path)) if !path.is_empty() && authority.is_empty() => Transport::Unix(path.into()),
        (true, _) if !authority.is_empty() => {
            return Err("a socket of this host has no host: write nbd+unix:///EXPORT?socket=PATH".into());
        }
        (true, _) => return Err("?socket=PATH is missing".into()),
        (false, Some(_)) => return Err("a path of a socket belongs to nbd+unix:///".into()),
        (false, None) => host_and_port(authority)?,
    };
    Ok(uri)
}

fn host_and_port(authority: &str) -> Result<Transport, String> {
    if authority.contains('@') {
        return Err("a user has no meaning here".into());
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("']' is missing")?;
            (host, after.strip_prefix(':').or(after.is_empty().then_some("")))
        }
        None => {
            let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
            (host, Some(port))
        }
    };
    let port = match port.ok_or("a port begins with ':'")? {
        "" => PORT,
        text => text.parse().map_err(|_| format!("'{text}' is not a port"))?,
    };
    if host.is_empty() {
        return Err("the host is missing".into());
    }
    Ok(Transport::Tcp { host: decode(host)?, port })
}

/// Replaces `%XX`.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("two digits must follow '%'")?);
        rest = &after[2..];
    }
    if bytes.contains(&0) {
        return Err("a zero byte".into());
    }
    String::from_utf8(bytes).map_err(|_| "not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Transport {
        Transport::Tcp { host: host.into(), port }
    }

    #[test]
    fn host_port_and_export_are_read() {
        let parse = |text: &str| Uri::parse(text).expect(text);
        let uri = parse("nbd://host/x");
        assert_eq!((uri.transport, uri.export.as_str(), uri.tls), (tcp("host", 10809), "x", false));
        assert_eq!(parse("nbd://host").export, "");
        assert_eq!(parse("nbds://host:1/a/b%20c").export, "a/b c");
        assert!(parse("nbds://host").tls);
        assert_eq!(parse("nbd://[::1]:99/").transport, tcp("::1", 99));
        assert_eq!(parse("nbd://[::1]/").transport, tcp("::1", 10809));
        let uri = parse("nbd+unix:///disk?socket=/run/a%3Fb.sock&reconnect=5");
        assert_eq!((uri.transport, uri.export.as_str()), (Transport::Unix("/run/a?b.sock".into()), "disk"));
        assert_eq!(uri.reconnect, Some(Duration::from_secs(5)));
        let uri = parse("nbds://h/?tls-certificates=/etc/pki&tls-hostname=other");
        assert_eq!((uri.certificates, uri.tls_hostname), (Some("/etc/pki".into()), Some("other".into())));
    }

    #[test]
    fn what_is_wrong_is_refused_by_name() {
        for (text, reason) in [
            ("http://host/x", "not the URI"),
            ("nbd:///x", "host is missing"),
            ("nbd+unix:///x", "?socket=PATH"),
            ("nbd+unix://host/x?socket=/a", "has no host"),
            ("nbd://host/x?socket=/a", "nbd+unix"),
            ("nbd://host:http/x", "'http' is not a port"),
            ("nbd://host/x?flags=1", "unknown parameter 'flags'"),
            ("nbds://host/x?tls-psk-file=keys", "use certificates"),
            ("nbd://host/%4", "two digits"),
            ("nbd://host/%ff", "UTF-8"),
            ("nbd://host/%00", "zero byte"),
            ("nbd://me@host/", "user"),
            ("nbd://[::1/", "']'"),
        ] {
            let error = Uri::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(text) && error.contains(reason), "{error}");
        }
    }
}
