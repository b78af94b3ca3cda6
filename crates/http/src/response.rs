//! What a server's answer says about a range of a file, checked against what was asked.

use std::io::Read;

use ureq::Body;
use ureq::http::{HeaderMap, Response, header};

/// Most bytes that are read of a page of an error.
const PAGE_BYTES_MAX: u64 = 4096;
/// Most bytes of it that are shown.
const SHOWN_BYTES_MAX: usize = 300;

/// Which version of a file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its length.
    pub bytes: u64,
    /// Its entity tag, or when it was modified; a server may say neither.
    validator: Option<String>,
}

impl Version {
    /// How it differs from a later one.
    pub fn difference(&self, later: &Self) -> Option<String> {
        if self.bytes != later.bytes {
            return Some(format!("it had {} bytes and has {}", self.bytes, later.bytes));
        }
        let shown = |validator: &Option<String>| shown(validator.as_deref().unwrap_or("none"));
        (self.validator != later.validator)
            .then(|| format!("its ETag was {} and is {}", shown(&self.validator), shown(&later.validator)))
    }
}

/// The range that a partial answer (206) says that it has: its first and last byte, and the version of the file.
pub fn content_range(headers: &HeaderMap) -> Result<(u64, u64, Version), String> {
    let text = text(headers, header::CONTENT_RANGE).ok_or("206 without one Content-Range")?;
    let (first, last, bytes) = parse_range(text).ok_or_else(|| format!("Content-Range: {}", shown(text)))?;
    let tag = text_of_any(headers, [header::ETAG, header::LAST_MODIFIED]);
    Ok((first, last, Version { bytes, validator: tag.map(str::to_owned) }))
}

/// The length of a file of which an answer (416) has no such range.
pub fn unsatisfied_length(headers: &HeaderMap) -> Option<u64> {
    text(headers, header::CONTENT_RANGE)?.strip_prefix("bytes */")?.parse().ok()
}

fn parse_range(text: &str) -> Option<(u64, u64, u64)> {
    let (range, bytes) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, bytes): (u64, u64, u64) =
        (first.parse().ok()?, last.parse().ok()?, bytes.parse().ok()?);
    (first <= last && last < bytes && i64::try_from(bytes).is_ok()).then_some((first, last, bytes))
}

/// The only value of a header.
pub fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut all = headers.get_all(name).iter();
    let value = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(value)
}

fn text_of_any<const N: usize>(headers: &HeaderMap, names: [header::HeaderName; N]) -> Option<&str> {
    names.into_iter().find_map(|name| text(headers, name))
}

/// The status of an answer, and what a server of object storage says about it.
pub fn explanation(response: &mut Response<Body>) -> String {
    let status = response.status().to_string();
    let mut page = Vec::new();
    // What cannot be read is not shown.
    let _ = response.body_mut().as_reader().take(PAGE_BYTES_MAX).read_to_end(&mut page);
    let page = String::from_utf8_lossy(&page);
    let element = |name: &str| {
        let (_, rest) = page.split_once(&format!("<{name}>"))?;
        Some(shown(&plain(rest.split_once(&format!("</{name}>"))?.0)))
    };
    match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{status}: {code}: {message}"),
        (Some(code), None) => format!("{status}: {code}"),
        _ => status,
    }
}

/// Text of XML without its entities.
fn plain(text: &str) -> String {
    let entities = [
        ("&#34;", "\""),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&apos;", "'"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"),
    ];
    entities.into_iter().fold(text.to_owned(), |text, (entity, char)| text.replace(entity, char))
}

/// The beginning of what a server says.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_wrong_ones_refused() {
        assert_eq!(parse_range("bytes 0-9/10"), Some((0, 9, 10)));
        for text in [
            "bytes 0-10/10",
            "bytes 5-4/10",
            "bytes 0-9/*",
            "bytes */10",
            "bytes 0-9/9223372036854775808",
            "bytes 0-99999999999999999999/10",
            "items 0-9/10",
            "",
        ] {
            assert_eq!(parse_range(text), None, "{text}");
        }
    }

    #[test]
    fn versions_differ_by_length_and_tag() {
        let version = |bytes, tag: Option<&str>| Version { bytes, validator: tag.map(str::to_owned) };
        assert_eq!(version(1, Some("a")).difference(&version(1, Some("a"))), None);
        assert_eq!(version(1, None).difference(&version(1, None)), None);
        for later in [version(2, Some("a")), version(1, Some("b")), version(1, None)] {
            assert!(version(1, Some("a")).difference(&later).is_some(), "{later:?}");
        }
    }
}
