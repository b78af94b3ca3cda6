//! The client with servers of other projects.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{exercise, open, uri};
use extant_block::BlockDevice;
use extant_nbd::{NbdDevice, Options, Uri};
use extant_testing::{Random, SocketServer};

#[test]
fn requests_of_threads_are_right_with_nbdkit() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = SocketServer::start(dir.path(), &["nbdkit", "-f", "-U", "SOCKET", "memory", "8M"]);
    exercise(&open(&server, ""), 1, 4, 300);
}

#[test]
fn requests_of_threads_are_right_with_qemu_nbd() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(8 << 20)).expect("an image");
    let image = image.to_str().expect("UTF-8");
    let server = SocketServer::start(
        dir.path(),
        &["qemu-nbd", "-t", "-e", "4", "-x", "disk", "-f", "raw", "-k", "SOCKET", image],
    );
    exercise(&open(&server, "disk"), 2, 4, 300);
}

/// A server of 8 MiB in memory behind a filter of nbdkit.
fn filtered(dir: &Path, filter: &str, arguments: &[&str]) -> SocketServer {
    let filter = format!("--filter={filter}");
    let command = ["nbdkit", "-f", "-U", "SOCKET", &filter, "memory", "8M"];
    SocketServer::start(dir, &[&command[..], arguments].concat())
}

#[test]
fn requests_of_threads_are_right_with_replies_that_overtake_each_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let delays = ["delay-read=3ms", "delay-write=1ms", "delay-zero=2ms"];
    let server = filtered(dir.path(), "delay", &delays);
    exercise(&open(&server, ""), 5, 4, 150);
}

#[test]
fn what_is_written_to_a_copy_on_write_is_read_there_and_nowhere_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    std::fs::write(&image, vec![0x5a; 8 << 20]).expect("an image");
    let command = ["nbdkit", "-f", "-U", "SOCKET", "--filter=cow", "file", image.to_str().expect("UTF-8")];
    let server = SocketServer::start(dir.path(), &command);
    exercise(&open(&server, ""), 6, 4, 300);
    assert!(std::fs::read(&image).expect("an image").iter().all(|byte| *byte == 0x5a));
}

#[test]
fn of_a_server_that_fails_each_fifth_request_the_others_are_right() {
    let dir = tempfile::tempdir().expect("a directory");
    let errors = ["error=EIO", "error-pread-rate=20%", "error-pwrite-rate=20%", "error-zero-rate=20%"];
    let server = filtered(dir.path(), "error", &errors);
    let device = open(&server, "");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let device = &device;
            scope.spawn(move || {
                let (mut numbers, mut failed) = (Random::new(thread), 0);
                let mut again = |request: &dyn Fn() -> std::io::Result<()>| {
                    while let Err(error) = request() {
                        assert!(error.to_string().contains("Input/output error"), "{error}");
                        failed += 1;
                    }
                };
                for _ in 0..100 {
                    let at = thread * (2 << 20) + numbers.below(400) * 4096;
                    let byte = numbers.next() as u8;
                    let zeroes = byte.is_multiple_of(4);
                    match zeroes {
                        true => again(&|| device.write_zeroes(at, 8192)),
                        false => again(&|| device.write_at(at, &[byte; 8192])),
                    }
                    let expected = if zeroes { 0 } else { byte };
                    again(&|| {
                        let mut read = [!expected; 8192];
                        device.read_at(at, &mut read)?;
                        assert_eq!(read, [expected; 8192], "thread {thread} at {at}");
                        Ok(())
                    });
                }
                assert!(failed > 0, "thread {thread}: nothing failed");
            });
        }
    });
    device.flush().expect("what failed was no flush");
}

#[test]
fn server_that_lets_no_one_in_any_more_is_used_on_and_another_one_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let closed = dir.path().join("closed");
    let when = format!("exit-when-file-created={}", closed.display());
    let mut server = filtered(dir.path(), "exitwhen", &[&when, "exit-when-poll=1"]);
    let options = Options { connections: 4, requests_per_connection: 1, ..Options::default() };
    let device = NbdDevice::open(&uri(&server, ""), options).expect("an export");
    device.write_at(0, &[9; 4096]).expect("written");
    std::fs::write(&closed, "").expect("a file");
    std::thread::sleep(Duration::from_millis(1500));
    NbdDevice::open(&uri(&server, ""), options).expect_err("no one is let in");
    // With requests of four threads it would make further connections.
    exercise(&device, 7, 4, 100);
    device.write_at(0, &[9; 4096]).expect("written");
    std::fs::remove_file(&closed).expect("removed");
    server.kill();
    server.start_again();
    let mut read = [0; 4096];
    device.read_at(0, &mut read).expect("read");
    assert_eq!(read, [9; 4096], "it was not flushed, and written again");
}

#[test]
fn least_blocks_and_largest_requests_are_honoured() {
    let dir = tempfile::tempdir().expect("a directory");
    let policy = ["blocksize-minimum=4096", "blocksize-preferred=4096", "blocksize-maximum=65536"];
    let mut command = vec![
        "nbdkit",
        "-f",
        "-U",
        "SOCKET",
        "--filter=blocksize-policy",
        "memory",
        "8193K",
        "blocksize-error-policy=error",
    ];
    command.extend(policy);
    let server = SocketServer::start(dir.path(), &command);
    let device = open(&server, "");
    assert_eq!(device.size(), 8 << 20, "the end that no request reaches is left out");
    exercise(&device, 3, 4, 200);
}

#[test]
fn failed_requests_name_export_and_range_and_others_go_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let failing = dir.path().join("fail");
    let failing = format!("error-pread-file={}", failing.display());
    let command = [
        "nbdkit",
        "-f",
        "-U",
        "SOCKET",
        "--filter=error",
        "memory",
        "1M",
        "error-pread=EIO",
        "error-pread-rate=1",
        &failing,
    ];
    let server = SocketServer::start(dir.path(), &command);
    let device = open(&server, "");
    device.write_at(4096, &[7; 512]).expect("write");
    std::fs::write(dir.path().join("fail"), "").expect("a file");
    let error = device.read_at(4096, &mut [0; 512]).expect_err("it fails").to_string();
    assert!(error.contains("socket=") && error.contains("read of 512 bytes at 4096"), "{error}");
    std::fs::remove_file(dir.path().join("fail")).expect("removed");
    let mut read = [0; 512];
    device.read_at(4096, &mut read).expect("read");
    assert_eq!(read, [7; 512]);
}

#[test]
fn read_only_exports_take_no_writes() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = SocketServer::start(dir.path(), &["nbdkit", "-f", "-r", "-U", "SOCKET", "memory", "1M"]);
    let device = open(&server, "");
    assert!(device.is_read_only());
    assert_eq!(device.write_at(0, &[0]).expect_err("refused").kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn export_that_is_not_there_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(1 << 20)).expect("an image");
    let image = image.to_str().expect("UTF-8");
    let server =
        SocketServer::start(dir.path(), &["qemu-nbd", "-t", "-x", "a", "-f", "raw", "-k", "SOCKET", image]);
    let error =
        NbdDevice::open(&uri(&server, "b"), Options::default()).expect_err("no such export").to_string();
    assert!(error.contains("///b?") && error.contains("no such export"), "{error}");
}

/// `nbd-server`, which goes into the background and writes its process id into a file; ended on drop.
struct NbdServer(PathBuf);

impl Drop for NbdServer {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(&self.0) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}

#[test]
fn requests_of_threads_are_right_with_nbd_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let [image, socket, config, pid] = ["image", "socket", "config", "pid"].map(|name| dir.path().join(name));
    std::fs::File::create(&image).and_then(|file| file.set_len(8 << 20)).expect("an image");
    let text = format!(
        "[generic]\nunixsock = {}\nallowlist = true\n[disk]\nexportname = {}\nflush = true\nfua = true\ntrim = true\n",
        socket.display(),
        image.display()
    );
    std::fs::write(&config, text).expect("a file");
    let server = NbdServer(pid);
    let mut command = Command::new("nbd-server");
    let status = command.arg("-C").arg(&config).arg("-p").arg(&server.0).stderr(Stdio::null()).status();
    assert!(status.expect("nbd-server").success());
    let uri = Uri::parse(&format!("nbd+unix:///disk?socket={}", socket.display())).expect("a URI");
    let begun = Instant::now();
    let device = loop {
        match NbdDevice::open(&uri, Options::default()) {
            Ok(device) => break device,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(5), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    exercise(&device, 9, 4, 300);
}
