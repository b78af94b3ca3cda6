//! Encrypted connections, with servers and clients of other projects.
#![cfg(feature = "tls")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{Served, exercise, uri};
use extant_block::{BlockDevice, MemoryDevice};
use extant_nbd::{NbdDevice, Options, ServerTls, Uri};
use extant_testing::SocketServer;

/// Runs a program to its end.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().expect("the program");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Makes an authority, and certificates of a server called localhost and of a client.
fn make_certificates(dir: &Path) {
    let path = |name: &str| dir.join(name).to_str().expect("UTF-8").to_owned();
    let ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
    let authority = [
        "req",
        "-x509",
        "-subj",
        "/CN=authority",
        "-keyout",
        &path("ca-key.pem"),
        "-out",
        &path("ca-cert.pem"),
    ];
    run("openssl", &[&authority[..], &ec].concat()).expect("an authority");
    for (name, subject, usage) in
        [("server", "/CN=localhost", "serverAuth"), ("client", "/CN=client", "clientAuth")]
    {
        let (key, request) = (path(&format!("{name}-key.pem")), path(&format!("{name}.csr")));
        let ask = ["req", "-subj", subject, "-keyout", &key, "-out", &request];
        run("openssl", &[&ask[..], &ec].concat()).expect("a request");
        let extensions = format!("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage={usage}\n");
        std::fs::write(dir.join("extensions"), extensions).expect("a file");
        let sign = [
            "x509",
            "-req",
            "-days",
            "2",
            "-in",
            &request,
            "-CA",
            &path("ca-cert.pem"),
            "-CAkey",
            &path("ca-key.pem"),
            "-CAcreateserial",
            "-extfile",
            &path("extensions"),
            "-out",
            &path(&format!("{name}-cert.pem")),
        ];
        run("openssl", &sign).expect("a certificate");
    }
}

fn encrypted(uri: &str, certificates: &Path) -> Uri {
    let uri = uri.replacen("nbd", "nbds", 1);
    Uri::parse(&format!("{uri}&tls-certificates={}", certificates.display())).expect("a URI")
}

#[test]
fn client_and_nbdkit_check_each_others_certificates() {
    let dir = tempfile::tempdir().expect("a directory");
    make_certificates(dir.path());
    let certificates = format!("--tls-certificates={}", dir.path().display());
    let command =
        ["nbdkit", "-f", "-U", "SOCKET", "--tls=require", "--tls-verify-peer", &certificates, "memory", "8M"];
    let server = SocketServer::start(dir.path(), &command);
    let plain = uri(&server, "").to_string();
    let uri = encrypted(&plain, dir.path());
    exercise(&NbdDevice::open(&uri, Options::default()).expect("an export"), 7, 3, 150);

    let told = NbdDevice::open(&Uri::parse(&plain).expect("a URI"), Options::default()).expect_err("refused");
    assert!(told.to_string().contains("use nbds://"), "{told}");
    let other = format!("{uri}&tls-hostname=elsewhere");
    let told = NbdDevice::open(&Uri::parse(&other).expect("a URI"), Options::default()).expect_err("refused");
    assert!(told.to_string().contains("TLS: ") && told.to_string().contains("elsewhere"), "{told}");
    // Another authority is not trusted, and no certificate of the client is not accepted.
    let stranger = tempfile::tempdir().expect("a directory");
    make_certificates(stranger.path());
    let told = NbdDevice::open(&encrypted(&plain, stranger.path()), Options::default()).expect_err("refused");
    assert!(told.to_string().contains("TLS: "), "{told}");
    std::fs::copy(dir.path().join("ca-cert.pem"), stranger.path().join("ca-cert.pem")).expect("copied");
    std::fs::remove_file(stranger.path().join("client-cert.pem")).expect("removed");
    NbdDevice::open(&encrypted(&plain, stranger.path()), Options::default()).expect_err("refused");
}

#[test]
fn server_without_encryption_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    make_certificates(dir.path());
    let server = SocketServer::start(dir.path(), &["nbdkit", "-f", "-U", "SOCKET", "memory", "1M"]);
    let uri = encrypted(&uri(&server, "").to_string(), dir.path());
    let told = NbdDevice::open(&uri, Options::default()).expect_err("refused").to_string();
    assert!(told.contains("the server has none"), "{told}");
}

#[test]
fn server_encrypts_for_libnbd_and_demands_certificates() {
    let dir = tempfile::tempdir().expect("a directory");
    make_certificates(dir.path());
    let tls = ServerTls::read(dir.path(), true).expect("certificates");
    let served = Served::start_with(MemoryDevice::new(8 << 20), false, Some(tls));
    let uri = encrypted(&served.uri(), dir.path());
    exercise(&NbdDevice::open(&uri, Options::default()).expect("an export"), 8, 3, 150);

    let told = run("nbdinfo", &["--json", &uri.to_string()]).expect("libnbd connects");
    assert!(told.contains("\"TLS\": true") && told.contains("\"export-size\": 8388608"), "{told}");
    let copy = served.path("copy");
    run("nbdcopy", &[&uri.to_string(), copy.to_str().expect("UTF-8")]).expect("copied");
    let mut read = vec![0; 8 << 20];
    let device = NbdDevice::open(&uri, Options::default()).expect("an export");
    device.read_at(0, &mut read).expect("read");
    assert!(std::fs::read(copy).expect("the copy") == read);
    run("nbdinfo", &["--json", &served.uri()]).expect_err("not encrypted");
}
