//! The device over servers that behave, and over others.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use extant_block::BlockDevice;
use extant_http::{Error, HttpDevice, Object, Options};
use extant_testing::{HttpAnswer, HttpRequest, HttpServer};

/// Bytes of the file.
const BYTES: usize = 3 << 20;

/// A file without a name.
fn file() -> (File, Vec<u8>) {
    let content: Vec<u8> = (0..BYTES).map(|at| (at / 7 + at / 4096) as u8).collect();
    let mut file = tempfile::tempfile().expect("file");
    file.write_all(&content).expect("written");
    (file, content)
}

/// A server of the file, whose answers `change` may change.
fn server(
    change: impl Fn(&HttpRequest, HttpAnswer) -> HttpAnswer + Send + Sync + 'static,
) -> (HttpServer, Vec<u8>) {
    let (file, content) = file();
    let answer = move |request: &HttpRequest| change(request, HttpAnswer::of_file(&file, "one", request));
    (HttpServer::start(answer), content)
}

fn options() -> Options {
    Options { timeout: Duration::from_millis(500), retry: Duration::from_secs(1), ..Options::default() }
}

fn open(server: &HttpServer) -> Result<HttpDevice, Error> {
    HttpDevice::open(Object::http(&server.url("/disk.img")).expect("URL"), &options())
}

fn read(device: &HttpDevice, offset: usize, bytes: usize) -> io::Result<Vec<u8>> {
    let mut buf = vec![0; bytes];
    device.read_at(offset as u64, &mut buf).map(|()| buf)
}

#[test]
fn ranges_are_read_and_no_byte_more() {
    let (server, content) = server(|_, answer| answer);
    let device = open(&server).expect("open");
    assert_eq!(device.size(), BYTES as u64);
    let opened = server.bytes();
    assert!(opened <= 64 << 10, "{opened} bytes to open it");
    let mut asked = 0;
    for (offset, bytes) in [(0, 4096), (opened as usize, 1), (BYTES - 1, 1), (100_000, 70_000), (0, BYTES)] {
        assert_eq!(read(&device, offset, bytes).expect("read"), content[offset..offset + bytes]);
        asked += if offset + bytes <= opened as usize { 0 } else { bytes as u64 };
        assert_eq!(server.bytes(), opened + asked, "{bytes} at {offset}");
    }
    assert_eq!(server.requests(), 1 + 3 + 3, "long reads have a request for each MiB");
    let past = read(&device, BYTES - 1, 2).expect_err("past the end");
    assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(read(&device, BYTES, 0).expect("nothing"), []);
}

#[test]
fn nothing_is_written() {
    let (server, _) = server(|_, answer| answer);
    let device = open(&server).expect("open");
    let requests = server.requests();
    assert!(device.is_read_only());
    for refused in [device.write_at(0, &[1]), device.discard(0, 1), device.write_zeroes(0, 1)] {
        assert_eq!(refused.expect_err("refused").kind(), io::ErrorKind::PermissionDenied);
    }
    assert_eq!(server.requests(), requests);
}

#[test]
fn an_empty_file_is_an_empty_device() {
    let file = tempfile::tempfile().expect("file");
    let server = HttpServer::start(move |request| HttpAnswer::of_file(&file, "one", request));
    let device = open(&server).expect("open");
    assert_eq!(device.size(), 0);
    assert!(read(&device, 0, 1).is_err());
}

#[test]
fn what_refuses_is_an_error_with_its_reason() {
    let no_such_key = "<Error><Code>NoSuchKey</Code><Message>No such key</Message></Error>";
    for (answer, expected) in [
        (HttpAnswer { body: vec![1; 9], ..HttpAnswer::status(200) }, "does not serve ranges of bytes"),
        (HttpAnswer { body: no_such_key.into(), ..HttpAnswer::status(404) }, "NoSuchKey: No such key"),
        (HttpAnswer::status(403), "refuses: 403 Forbidden"),
        (HttpAnswer::status(401), "refuses: 401 Unauthorized"),
        (HttpAnswer::status(503), "503 Service Unavailable; gave up after"),
        (HttpAnswer::status(416), "refuses: 416"),
        (HttpAnswer::status(204), "refuses: 204"),
        (HttpAnswer::status(206), "206 without one Content-Range"),
        (HttpAnswer::status(206).with("content-range", "bytes 0-9/*"), "Content-Range: bytes 0-9/*"),
        (HttpAnswer::status(206).with("content-range", "bytes 5-9/10"), "bytes 5 to 9 in place of"),
        (HttpAnswer::status(302).with("location", "/disk.img"), "redirect"),
    ] {
        let server = HttpServer::start(move |_| answer.clone());
        let error = open(&server).map(|_| ()).expect_err(expected).to_string();
        assert!(error.starts_with(&server.url("/disk.img")) && error.contains(expected), "{error}");
    }
}

#[test]
fn a_file_that_changes_meanwhile_is_an_error() {
    for (name, value) in
        [("etag", Some("\"two\"")), ("etag", None), ("content-range", Some("bytes 100000-100009/99999999"))]
    {
        let has_changed = Arc::new(AtomicBool::new(false));
        let changes = has_changed.clone();
        let (server, content) = server(move |_, answer| match changes.load(Ordering::Relaxed) {
            true => answer.replace(name, value),
            false => answer,
        });
        let device = open(&server).expect("open");
        assert_eq!(read(&device, 100_000, 10).expect("read"), content[100_000..100_010]);
        has_changed.store(true, Ordering::Relaxed);
        let error = read(&device, 100_000, 10).expect_err("changed").to_string();
        assert!(error.contains("the file changed while it was read"), "{error}");
    }
    let (file, _) = file();
    let (shrinks, served) = (file.try_clone().expect("file"), file);
    let server = HttpServer::start(move |request| HttpAnswer::of_file(&served, "one", request));
    let device = open(&server).expect("open");
    shrinks.set_len(50_000).expect("shorter");
    let error = read(&device, 100_000, 10).expect_err("shorter").to_string();
    assert!(error.contains(&format!("it had {BYTES} bytes and has 50000")), "{error}");
}

#[test]
fn failures_that_pass_are_tried_again() {
    let failing: [fn(HttpAnswer) -> HttpAnswer; 5] = [
        |_| HttpAnswer::status(500),
        |_| HttpAnswer::status(429),
        |answer| HttpAnswer { cut_off: Some(0), ..answer },
        |answer| HttpAnswer { cut_off: Some(answer.body.len() - 1), ..answer },
        |answer| {
            std::thread::sleep(Duration::from_millis(700));
            answer
        },
    ];
    for (index, fail) in failing.into_iter().enumerate() {
        let (server, content) = server(move |request, answer| match request.number % 2 {
            0 => fail(answer),
            _ => answer,
        });
        let device = open(&server).unwrap_or_else(|error| panic!("failure {index}: {error}"));
        assert_eq!(read(&device, 100_000, 10).expect("read"), content[100_000..100_010], "failure {index}");
        assert_eq!(server.requests(), 4, "failure {index}");
    }
}

#[test]
fn failures_that_do_not_pass_end() {
    let begun = Instant::now();
    let (server, _) = server(|request, answer| match request.number {
        0 => answer,
        _ => HttpAnswer { cut_off: Some(5), ..answer },
    });
    let device = open(&server).expect("open");
    let error = read(&device, 100_000, 10).expect_err("cut off").to_string();
    assert!(error.contains("the answer was cut off") && error.contains("gave up after"), "{error}");
    assert!((2..10).contains(&server.requests()), "{} requests", server.requests());
    assert!(begun.elapsed() < Duration::from_secs(30));
    drop(server);
    assert!(read(&device, 100_000, 10).is_err(), "no server is left");
    for (url, expected) in [("http://127.0.0.1:1/x", "refused"), ("http://no-such-host.invalid/x", "lookup")]
    {
        let unreachable = open_url(url).expect_err("no server").to_string();
        assert!(unreachable.contains(expected) && !unreachable.contains("gave up"), "{unreachable}");
    }
}

fn open_url(url: &str) -> Result<(), Error> {
    HttpDevice::open(Object::http(url).expect("URL"), &options()).map(|_| ())
}

#[test]
fn bodies_that_are_not_the_range_are_refused() {
    for (change, expected) in [
        (
            (|answer| HttpAnswer { body: [&answer.body[..], b"x"].concat(), ..answer })
                as fn(HttpAnswer) -> HttpAnswer,
            "Content-Length",
        ),
        (
            |answer| answer.replace("content-range", Some("bytes 100001-100010/3145728")),
            "bytes 100001 to 100010",
        ),
        (
            |answer| {
                let body = b"b\r\n01234567890\r\n0\r\n\r\n".to_vec();
                HttpAnswer { body, ..answer }.with("transfer-encoding", "chunked")
            },
            "more bytes than were asked for",
        ),
    ] {
        let (server, _) = server(move |request, answer| match request.number {
            0 => answer,
            _ => change(answer),
        });
        let device = open(&server).expect("open");
        let error = read(&device, 100_000, 10).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn redirects_are_followed_once_and_again_when_they_expire() {
    let expired = Arc::new(AtomicBool::new(false));
    let expires = expired.clone();
    let (server, content) = server(move |request, answer| match request.target.as_str() {
        "/disk.img" => HttpAnswer::status(302)
            .with("location", if expires.load(Ordering::Relaxed) { "/new" } else { "/old" }),
        "/old" if expires.load(Ordering::Relaxed) => HttpAnswer::status(403),
        _ => answer,
    });
    let device = open(&server).expect("open");
    for (requests, is_expired) in [(3, false), (4, false), (7, true), (8, true)] {
        expired.store(is_expired, Ordering::Relaxed);
        assert_eq!(read(&device, 100_000, 10).expect("read"), content[100_000..100_010]);
        assert_eq!(server.requests(), requests);
    }
}

#[test]
fn a_user_and_password_of_the_url_are_sent() {
    let (server, _) = server(|request, answer| match request.header("authorization") {
        // "me:secret"
        Some("Basic bWU6c2VjcmV0") => answer,
        _ => HttpAnswer::status(401),
    });
    let url = server.url("/disk.img").replace("http://", "http://me:secret@");
    open_url(&url).expect("open");
    assert!(open(&server).is_err());
}
