//! Where a file lies: the URL that is asked for it, and how a request is signed.

use std::fmt;

use crate::s3::{Account, Signer, encoded};
use crate::{Error, s3};

/// Most bytes of a URL.
const URL_BYTES_MAX: usize = 8 << 10;

/// A file of a server.
#[derive(Debug)]
pub struct Object {
    /// What the user calls it.
    name: String,
    /// What the server is asked for.
    url: String,
    signer: Option<Signer>,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Object {
    /// Of a URL, `http://HOST/PATH` or `https://HOST/PATH`.
    ///
    /// # Errors
    /// [`Error::Url`].
    pub fn http(url: &str) -> Result<Self, Error> {
        check_url(url).map_err(|reason| Error::Url { text: url.to_owned(), reason })?;
        Ok(Self { name: url.to_owned(), url: url.to_owned(), signer: None })
    }

    /// Of a key in a bucket, `s3://BUCKET/KEY`, as `account` may read it.
    ///
    /// # Errors
    /// [`Error::Url`] for a missing bucket or key, and for an endpoint that is no URL.
    pub fn s3(uri: &str, account: Account) -> Result<Self, Error> {
        let failed = |reason: String| Error::Url { text: uri.to_owned(), reason };
        let place = uri.strip_prefix("s3://").and_then(|place| place.split_once('/'));
        let (bucket, key) = place
            .filter(|(bucket, key)| !bucket.is_empty() && !key.is_empty())
            .ok_or_else(|| failed("write s3://BUCKET/KEY".into()))?;
        if !bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
            return Err(failed(format!("'{bucket}' is no name of a bucket")));
        }
        let region = account.region.unwrap_or_else(|| s3::DEFAULT_REGION.to_owned());
        if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(failed(format!("'{region}' is no name of a region")));
        }
        let key = encoded(key);
        let url = match &account.endpoint {
            Some(endpoint) => format!("{}/{bucket}/{key}", endpoint.trim_end_matches('/')),
            // A certificate of the whole domain has no names with further dots.
            None if bucket.contains('.') => format!("https://s3.{region}.amazonaws.com/{bucket}/{key}"),
            None => format!("https://{bucket}.s3.{region}.amazonaws.com/{key}"),
        };
        check_url(&url).map_err(|reason| failed(format!("{url}: {reason}")))?;
        let signer = Signer::new(&url, region, account.credentials);
        Ok(Self { name: uri.to_owned(), url, signer: Some(signer) })
    }

    /// What the server is asked for.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// How requests are signed; none where they are not of S3.
    pub(crate) fn signer(&self) -> Option<&Signer> {
        self.signer.as_ref()
    }
}

/// Refuses what is no URL of a file.
fn check_url(url: &str) -> Result<(), String> {
    if url.len() > URL_BYTES_MAX {
        return Err(format!("a URL has {URL_BYTES_MAX} bytes at most"));
    }
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let rest = rest.ok_or("neither http:// nor https://")?;
    if rest.is_empty() || rest.starts_with(['/', '?', ':']) {
        return Err("the host is missing".into());
    }
    if url.contains('#') {
        return Err("a fragment (#) names no file; write %23".into());
    }
    url.parse::<ureq::http::Uri>()
        .map(|_| ())
        .map_err(|error| format!("{error}; other characters are written as %XX"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(endpoint: Option<&str>) -> Account {
        Account { region: Some("eu-west-1".into()), endpoint: endpoint.map(Into::into), credentials: None }
    }

    #[test]
    fn keys_of_buckets_have_the_urls_of_their_servers() {
        let url = |uri: &str, endpoint| Object::s3(uri, account(endpoint)).expect(uri).url;
        assert_eq!(url("s3://b/a/d.img", None), "https://b.s3.eu-west-1.amazonaws.com/a/d.img");
        assert_eq!(url("s3://b.c/d.img", None), "https://s3.eu-west-1.amazonaws.com/b.c/d.img");
        assert_eq!(url("s3://b/d e+ü?#.img", Some("http://h:1/")), "http://h:1/b/d%20e%2B%C3%BC%3F%23.img");
    }

    #[test]
    fn what_is_wrong_is_refused_by_name() {
        for (text, reason) in [
            ("ftp://host/x", "neither"),
            ("http:///x", "host is missing"),
            ("https://", "host is missing"),
            ("http://host/a b", "%XX"),
            ("http://host/a#b", "%23"),
        ] {
            let error = Object::http(text).expect_err(text).to_string();
            assert!(error.starts_with(text) && error.contains(reason), "{error}");
        }
        for (text, endpoint, reason) in [
            ("s3://bucket", None, "BUCKET/KEY"),
            ("s3://bucket/", None, "BUCKET/KEY"),
            ("s3:///key", None, "BUCKET/KEY"),
            ("s3://b@d/key", None, "name of a bucket"),
            ("s3://b/key", Some("localhost:9000"), "neither http:// nor https://"),
        ] {
            let error = Object::s3(text, account(endpoint)).expect_err(text).to_string();
            assert!(error.starts_with(text) && error.contains(reason), "{error}");
        }
    }
}
