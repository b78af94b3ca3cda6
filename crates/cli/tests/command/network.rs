//! `serve`, and disks over the network.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::bench::{Bench, DISK};

/// `extant serve` of the bench's disk.
struct Serving {
    server: Child,
    uri: String,
}

impl Serving {
    fn start(bench: &Bench, arguments: &[&str]) -> Self {
        let mut command = bench.extant();
        command.arg("serve").args(arguments).arg(DISK).stdout(Stdio::piped());
        let mut server = command.spawn().expect("extant");
        let mut uri = String::new();
        let output = server.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut uri).expect("a line");
        Self { server, uri: uri.trim_end().to_owned() }
    }

    /// Ends it by SIGTERM.
    fn finish(mut self) {
        let pid = self.server.id().to_string();
        assert!(Command::new("kill").arg(pid).status().expect("kill").success());
        assert!(self.server.wait().expect("its end").success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn verbs_read_and_write_what_another_process_serves() {
    let Some(bench) = Bench::new() else { return };
    for listening in [&["--socket", "disk.sock", "--export", "root fs"][..], &["--listen", "127.0.0.1:0"]] {
        let serving = Serving::start(&bench, listening);
        let uri = &serving.uri;
        assert!(bench.ok(&["ls", &format!("{uri}:/etc")]).out.contains("passwd"), "{uri}");
        bench.ok(&["cp", "tree/bin/tool", &format!("{uri}:/etc/new")]);
        assert_eq!(bench.ok(&["cat", &format!("{uri}:/etc/new")]).out, "#!/bin/sh\necho tool\n");
        bench.ok(&["check", uri]);
        bench.ok(&["export", uri, "-o", "out.tar"]);
        bench.ok(&["import", uri, "out.tar"]);
        assert!(bench.ok(&["info", uri]).out.contains("16 MiB"));
        bench.ok(&["rm", &format!("{uri}:/etc/new")]);
        let told = bench.fails(1, &["ls", DISK, "--wait", "0"]);
        assert!(told.contains("in use by extant"), "{told}");
        serving.finish();
        assert!(!bench.path("disk.sock").exists());
        bench.assert_clean(DISK);
    }
}

#[test]
fn what_cannot_be_opened_is_refused_by_name() {
    let Some(bench) = Bench::new() else { return };
    let serving = Serving::start(&bench, &["--socket", "disk.sock", "--export", "a", "--read-only"]);
    let other = serving.uri.replace("///a?", "///b?");
    let told = bench.fails(1, &["ls", &other]);
    assert!(told.contains(&other) && told.contains("no such export"), "{told}");
    let told = bench.fails(1, &["rm", &format!("{}:/etc/passwd", serving.uri)]);
    assert!(told.contains("read-only at the server"), "{told}");
    assert!(bench.ok(&["ls", &serving.uri]).out.contains("etc"));
    serving.finish();
    let told = bench.fails(1, &["ls", "nbd+unix:///x?socket=disk.sock"]);
    assert!(told.contains("No such file"), "{told}");
    let told = bench.fails(2, &["ls", "nbd+unix:///x"]);
    assert!(told.contains("?socket=PATH"), "{told}");
    let told = bench.fails(1, &["ls", "rbd://pool/image"]);
    assert!(told.contains("scheme rbd://"), "{told}");
}

#[test]
fn socket_of_a_server_that_was_killed_is_replaced_and_that_of_another_is_not() {
    let Some(bench) = Bench::new() else { return };
    let serving = Serving::start(&bench, &["--socket", "disk.sock", "--read-only"]);
    let told = bench.fails(1, &["serve", "--socket", "disk.sock", "--read-only", DISK]);
    assert!(told.contains("in use"), "{told}");
    drop(serving);
    assert!(bench.path("disk.sock").exists());
    let serving = Serving::start(&bench, &["--socket", "disk.sock", "--read-only"]);
    std::fs::remove_file(bench.path("disk.sock")).expect("removed");
    serving.finish();
    Serving::start(&bench, &["--socket", "disk.sock"]).finish();
}

#[test]
fn file_system_is_made_and_resized_on_an_export() {
    let Some(bench) = Bench::new() else { return };
    let serving = Serving::start(&bench, &["--socket", "disk.sock"]);
    let uri = &serving.uri;
    let told = bench.fails(1, &["mkfs", "-q", uri]);
    assert!(told.contains("contains an ext4 file system"), "{told}");
    bench.ok(&["mkfs", "-q", "-F", "-d", "tree", uri]);
    bench.ok(&["resize", uri, "12M"]);
    assert!(bench.ok(&["ls", &format!("{uri}:/etc")]).out.contains("hostname"));
    serving.finish();
    bench.assert_clean(DISK);
}
