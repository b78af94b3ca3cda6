//! Encrypted connections, with certificates of openssl.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use extant_block::BlockDevice;
use extant_http::{Error, HttpDevice, Object, Options};
use extant_testing::{HttpAnswer, HttpRequest, HttpServer, HttpStream};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Makes an authority's certificate and one of it for `localhost`.
fn make_certificates(dir: &Path) {
    let commands = [
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem",
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
        "x509 -req -days 2 -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out server.pem",
    ];
    std::fs::write(dir.join("names"), "subjectAltName=DNS:localhost\n").expect("a file");
    for command in commands {
        let run =
            Command::new("openssl").args(command.split(' ')).current_dir(dir).output().expect("openssl");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
}

/// A server with the certificate in `dir`.
fn server(dir: &Path, answer: impl Fn(&HttpRequest) -> HttpAnswer + Send + Sync + 'static) -> HttpServer {
    let certificate = CertificateDer::from_pem_file(dir.join("server.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(dir.join("server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_no_client_auth().with_single_cert(vec![certificate], key);
    let config = Arc::new(config.expect("a configuration"));
    let encrypted = move |stream: TcpStream| {
        let connection = ServerConnection::new(config.clone()).expect("a connection");
        Some(Box::new(StreamOwned::new(connection, stream)) as Box<dyn HttpStream>)
    };
    HttpServer::start_over(encrypted, answer)
}

fn open(url: &str, authorities: &Path) -> Result<HttpDevice, Error> {
    let options = Options { authorities: Some(authorities.to_owned()), ..Options::default() };
    HttpDevice::open(Object::http(url).expect("URL"), &options)
}

#[test]
fn an_encrypted_disk_is_read_from_a_server_that_is_trusted() {
    let (dir, other) = (tempfile::tempdir().expect("directory"), tempfile::tempdir().expect("directory"));
    make_certificates(dir.path());
    make_certificates(other.path());
    let plain = HttpServer::start(|_| HttpAnswer::status(500));
    let file = tempfile::tempfile().expect("file");
    file.set_len(1 << 20).expect("length");
    let elsewhere = plain.url("/disk.img");
    let server = server(dir.path(), move |request| match request.target.as_str() {
        "/away" => HttpAnswer::status(302).with("location", &elsewhere),
        _ => HttpAnswer::of_file(&file, "one", request),
    });
    let url = |host: &str, path: &str| format!("https://{host}:{}{path}", server.port());
    let authority = dir.path().join("ca.pem");
    let device = open(&url("localhost", "/disk.img"), &authority).expect("open");
    let mut buf = [1; 4096];
    device.read_at(500_000, &mut buf).expect("read");
    assert_eq!(buf, [0; 4096]);
    let failed = |url: &str, authorities: &Path| open(url, authorities).map(|_| ()).expect_err(url);
    let untrusted = failed(&url("localhost", "/disk.img"), &other.path().join("ca.pem"));
    assert!(matches!(untrusted, Error::Tls { .. }), "{untrusted}");
    let other_name = failed(&url("127.0.0.1", "/disk.img"), &authority);
    assert!(matches!(other_name, Error::Tls { .. }), "{other_name}");
    let away = failed(&url("localhost", "/away"), &authority).to_string();
    assert!(away.contains("redirected from https:// to http://"), "{away}");
    assert_eq!(plain.requests(), 0);
    let missing = failed(&url("localhost", "/disk.img"), &dir.path().join("none.pem")).to_string();
    assert!(missing.contains("none.pem"), "{missing}");
}
