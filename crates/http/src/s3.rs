//! Requests to object storage: accounts and signatures.
//!
//! Source: <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html> (Signature Version 4); the test has its first
//! example.

use std::fmt;
use std::fmt::Write as _;

use extant_ondisk::Timestamp;
use ring::{digest, hmac};

/// The region of requests where none is named.
pub const DEFAULT_REGION: &str = "us-east-1";

/// An account of object storage, and its server.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// The region of the bucket; `us-east-1` if none is named.
    pub region: Option<String>,
    /// The URL of a server of its own, whose buckets are directories of it; without one, the servers of AWS.
    pub endpoint: Option<String>,
    /// The keys; without them, requests are not signed, as public buckets allow.
    pub credentials: Option<Credentials>,
}

/// The keys of an account.
#[derive(Clone)]
pub struct Credentials {
    /// The key's name.
    pub access_key_id: String,
    /// The key.
    pub secret_access_key: String,
    /// The token of keys that expire.
    pub session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// Signs the requests for one object.
#[derive(Debug)]
pub struct Signer {
    /// The host as the header names it.
    host: String,
    path: String,
    region: String,
    credentials: Option<Credentials>,
}

impl Signer {
    /// Of an object at `url`.
    pub fn new(url: &str, region: String, credentials: Option<Credentials>) -> Self {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        Self { host: host.to_owned(), path: format!("/{path}"), region, credentials }
    }

    /// Whether requests are signed.
    pub fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    /// The region that requests are signed for.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The further headers of a request for `range`, made so many seconds after 1970.
    pub fn headers(&self, range: &str, seconds: i64) -> Vec<(&'static str, String)> {
        let Some(credentials) = &self.credentials else { return Vec::new() };
        let (date, time) = utc(seconds);
        let content = hex(digest::digest(&digest::SHA256, b"").as_ref());
        let mut headers = vec![
            ("host", self.host.clone()),
            ("range", range.to_owned()),
            ("x-amz-content-sha256", content.clone()),
            ("x-amz-date", format!("{date}T{time}Z")),
        ];
        if let Some(token) = &credentials.session_token {
            headers.push(("x-amz-security-token", token.clone()));
        }
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines: String =
            headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let request = format!("GET\n{}\n\n{lines}\n{names}\n{content}", self.path);
        let scope = format!("{date}/{}/s3/aws4_request", self.region);
        let request = hex(digest::digest(&digest::SHA256, request.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{date}T{time}Z\n{scope}\n{request}");
        let secret = format!("AWS4{}", credentials.secret_access_key);
        let key = [date.as_str(), &self.region, "s3", "aws4_request"]
            .iter()
            .fold(secret.into_bytes(), |key, part| mac(&key, part.as_bytes()));
        let signature = hex(&mac(&key, text.as_bytes()));
        headers.push((
            "authorization",
            format!(
                "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}",
                credentials.access_key_id
            ),
        ));
        // The request has it already.
        headers.retain(|(name, _)| *name != "range");
        headers
    }
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A key as part of a URL: all but unreserved characters and `/` as `%XX`.
pub fn encoded(key: &str) -> String {
    key.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

/// The date and the time of day in UTC, so many seconds after 1970, without separators.
fn utc(seconds: i64) -> (String, String) {
    let text = Timestamp { seconds, nanoseconds: 0 }.date_time().replace(['-', ':'], "");
    text.split_once(' ').map(|(date, time)| (date.to_owned(), time.to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_that_of_the_documentation() {
        let credentials = Credentials {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let url = "https://examplebucket.s3.amazonaws.com/test.txt";
        let signer = Signer::new(url, "us-east-1".into(), Some(credentials));
        let headers = signer.headers("bytes=0-9", 1_369_353_600);
        let value = |name| headers.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str());
        assert_eq!(value("x-amz-date"), Some("20130524T000000Z"));
        assert_eq!(
            value("authorization"),
            Some(
                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
                 SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
                 Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
            )
        );
    }

    #[test]
    fn without_keys_nothing_is_signed() {
        assert!(Signer::new("https://h/k", "r".into(), None).headers("bytes=0-9", 0).is_empty());
    }
}
