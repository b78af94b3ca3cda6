//! Disks behind HTTP servers.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use extant_testing::{HttpAnswer, HttpServer};

use super::bench::{Bench, DISK, Run, tool};

/// A server of the files of a directory, each answer of which takes a while.
fn serve(dir: &Path, delay: Duration) -> HttpServer {
    let dir = dir.to_owned();
    HttpServer::start(move |request| {
        std::thread::sleep(delay);
        match File::open(dir.join(request.target.trim_start_matches('/'))) {
            Ok(file) => HttpAnswer::of_file(&file, "one", request),
            Err(_) => HttpAnswer::status(404),
        }
    })
}

#[test]
fn every_reading_verb_reads_over_http_what_it_reads_of_the_file() {
    let Some(bench) = Bench::new() else { return };
    let server = serve(bench.dir(), Duration::ZERO);
    let url = server.url(&format!("/{DISK}"));
    for verb in [
        &["ls", "-lR", "IMAGE:/"][..],
        &["cat", "IMAGE:/etc/passwd"],
        &["stat", "IMAGE:/bin/tool"],
        &["find", "IMAGE:/", "-type", "f"],
        &["du", "IMAGE:/"],
        &["df", "--json", "IMAGE"],
        &["export", "IMAGE:/etc", "-o", "-"],
        &["frag", "IMAGE"],
        &["info", "IMAGE"],
        &["check", "IMAGE"],
    ] {
        let run = |image: &str| {
            let arguments: Vec<_> = verb.iter().map(|word| word.replace("IMAGE", image)).collect();
            bench.ok(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).out.replace(image, "IMAGE")
        };
        assert_eq!(run(&url), run(DISK), "{verb:?}");
    }
    bench.ok(&["diff", &url, DISK]);
    bench.ok(&["cp", &format!("{url}:/etc/hostname"), "hostname"]);
    assert_eq!(std::fs::read(bench.path("hostname")).expect("read"), b"guest\n");
}

#[test]
fn partitions_and_images_of_other_formats_are_read_over_http() {
    let Some(bench) = Bench::new() else { return };
    let server = serve(bench.dir(), Duration::ZERO);
    bench.ok(&["mkfs", "-q", "--gpt", "-d", "tree", "whole.img", "24M"]);
    bench.ok(&["mkfs", "-q", "--format", "qcow2", "-d", "tree", "disk.qcow2", "24M"]);
    bench.program("gzip", &["-k", DISK]);
    for image in ["whole.img", "disk.qcow2", "disk.img.gz"] {
        let shown = bench.run(&["cat", &format!("{}:/etc/hostname", server.url(&format!("/{image}")))]);
        assert_eq!((shown.status, shown.out.as_str()), (0, "guest\n"), "{image}: {}", shown.err);
    }
    // What an image refers to is a file of no host.
    if tool("qemu-img").is_some() {
        bench.program("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "raw", "-b", DISK, "over.qcow2"]);
        let said = bench.fails(1, &["ls", &server.url("/over.qcow2")]);
        assert!(said.contains(DISK), "{said}");
    }
}

#[test]
fn writing_over_http_is_refused_before_anything_is_done() {
    let Some(bench) = Bench::new() else { return };
    let server = serve(bench.dir(), Duration::ZERO);
    let url = server.url(&format!("/{DISK}"));
    let place = format!("{url}:/etc/hostname");
    bench.program("tar", &["-cf", "tree.tar", "tree"]);
    for verb in [
        &["rm", &place][..],
        &["cp", "tree/etc/group", &place],
        &["import", &url, "tree.tar"],
        &["mkfs", "-q", "-F", &url, "8M"],
        &["tune", "-L", "x", &url],
        &["resize", &url, "32M"],
        &["mount", "-f", &url, "tree"],
        &["serve", &url],
    ] {
        let before = server.requests();
        let said = bench.fails(1, verb);
        assert!(said.contains("can only be read (mount: -o ro)"), "{verb:?}: {said}");
        // These look for the size and the place of what is there first.
        let looks = ["mkfs", "resize"].contains(&verb[0]);
        assert!(looks || server.requests() == before, "{verb:?}: a request");
    }
}

#[test]
fn what_a_server_refuses_is_told_by_name() {
    let Some(bench) = Bench::new() else { return };
    let server = serve(bench.dir(), Duration::ZERO);
    let missing = server.url("/no.img");
    let said = bench.fails(1, &["ls", &missing]);
    assert!(said.contains(&missing) && said.contains("no such file: 404 Not Found"), "{said}");
    let whole = HttpServer::start(|_| HttpAnswer { body: vec![0; 99], ..HttpAnswer::status(200) });
    let said = bench.fails(1, &["ls", &whole.url("/disk.img")]);
    assert!(said.contains("does not serve ranges of bytes") && said.contains("download the file"), "{said}");
    let said = bench.fails(2, &["ls", "s3://bucket"]);
    assert!(said.contains("write s3://BUCKET/KEY"), "{said}");
    let mut half = bench.extant();
    half.args(["ls", "s3://bucket/key"]).env("AWS_ACCESS_KEY_ID", "me").env_remove("AWS_SECRET_ACCESS_KEY");
    let half = Run::from(half.output().expect("extant"));
    assert!(half.status == 2 && half.err.contains("belong together"), "{}", half.err);
}

#[test]
fn a_disk_of_an_account_is_asked_for_with_a_signature() {
    let Some(bench) = Bench::new() else { return };
    let disk = bench.path(DISK);
    let signed = Arc::new(AtomicU64::new(0));
    let seen = signed.clone();
    let server = HttpServer::start(move |request| {
        let is_signed = request.header("authorization").is_some_and(|value| {
            let signer = value.strip_prefix("AWS4-HMAC-SHA256 Credential=me/");
            signer.is_some_and(|rest| rest.contains("/eu-north-1/s3/aws4_request,SignedHeaders=host;range;"))
        });
        match is_signed && request.target == "/bucket/a%20disk.img" {
            true => {
                seen.fetch_add(1, Ordering::Relaxed);
                HttpAnswer::of_file(&File::open(&disk).expect("disk"), "one", request)
            }
            false => HttpAnswer::status(403).with("x-amz-bucket-region", "eu-north-1"),
        }
    });
    let ls = |variables: &[(&str, &str)]| {
        let mut command = bench.extant();
        for name in ["AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"] {
            command.env_remove(name);
        }
        command.args(["ls", "s3://bucket/a disk.img:/etc"]).env("AWS_ENDPOINT_URL", server.url(""));
        Run::from(command.envs(variables.iter().copied()).output().expect("extant"))
    };
    let keys = [("AWS_ACCESS_KEY_ID", "me"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    let run = ls(&[&keys[..], &[("AWS_REGION", "eu-north-1")]].concat());
    assert!(run.status == 0 && run.out.contains("passwd"), "{}", run.err);
    assert!(signed.load(Ordering::Relaxed) > 0);
    let elsewhere = ls(&keys).err;
    assert!(elsewhere.contains("the bucket is in the region eu-north-1: set AWS_REGION"), "{elsewhere}");
    let anonymous = ls(&[("AWS_REGION", "eu-north-1")]).err;
    assert!(
        anonymous.contains("403 Forbidden") && anonymous.contains("set AWS_ACCESS_KEY_ID"),
        "{anonymous}"
    );
}

#[test]
fn stats_tell_the_requests_of_each_image() {
    let Some(bench) = Bench::new() else { return };
    let quiet = bench.ok(&["cat", &format!("{DISK}:/etc/hostname")]);
    assert_eq!(quiet.err, "");
    let told = bench.run(&["cat", "--stats", &format!("{DISK}:/etc/hostname")]);
    assert_eq!(told.out, "guest\n");
    assert!(told.err.contains("disk.img: read ") && told.err.contains("the command took "), "{}", told.err);
    assert!(!told.err.contains("write"), "{}", told.err);
    let told = bench.run(&["stat", "--stats", "--json", &format!("{DISK}:/etc/hostname")]);
    let stats: serde_json::Value = serde_json::from_str(&told.err).expect("one document");
    let read = &stats["stats"]["devices"][0]["read"];
    let (requests, bytes) = (read["count"].as_u64().expect("count"), read["bytes"].as_u64().expect("bytes"));
    assert!(requests > 0 && bytes >= 4096 && bytes <= requests << 20, "{stats}");
    assert_eq!(stats["stats"]["devices"][0]["write"]["count"], 0);
    bench.program("cp", &[DISK, "copy.img"]);
    let told = bench.run(&["cp", "--stats", "tree/etc/group", "copy.img:/new"]);
    assert!(told.err.contains("; write ") && told.err.contains("; flush "), "{}", told.err);
    let told = bench.fails(2, &["mount", "--stats", DISK, "tree"]);
    assert!(told.contains("--stats needs --foreground"), "{told}");
}

/// A sparse disk of 50 GiB with 10,000 files, a file of 4 MiB and a directory of files, behind a server 50 ms away. What a verb needs is each
/// block of metadata that it uses, once, and the bytes of the content that it reads.
#[test]
fn of_a_large_disk_far_away_little_more_is_read_than_is_needed() {
    const DIRECTORIES: u64 = 100;
    const FILES: u64 = 100;
    const BLOCK: u64 = 4096;
    /// The superblock, and the descriptors of 400 groups.
    const DISK_BYTES: u64 = BLOCK + 400 * 64;
    /// The content of the directory that is exported.
    const CONTENT: u64 = 100 * 40_000;
    let Some(bench) = Bench::new() else { return };
    let tree = bench.path("many");
    for directory in 0..DIRECTORIES {
        let dir = tree.join(format!("directory {directory}"));
        std::fs::create_dir_all(&dir).expect("directory");
        (0..FILES).for_each(|file| std::fs::write(dir.join(format!("{file}")), [1; 100]).expect("file"));
    }
    std::fs::create_dir(tree.join("content")).expect("directory");
    (0..100).for_each(|file| {
        std::fs::write(tree.join(format!("content/{file}")), vec![2; 40_000]).expect("file")
    });
    std::fs::write(tree.join("large"), vec![3; 4 << 20]).expect("file");
    bench.ok(&["mkfs", "-q", "-d", "many", "large.img", "50G"]);
    let server = serve(bench.dir(), Duration::from_millis(50));
    let url = server.url("/large.img");
    // Of a directory, the block of its inode and its own.
    let names = (DIRECTORIES + 2) * 2 * BLOCK;
    // Of a file in a directory of the root, the blocks of three inodes, of which two may be one, of two directories, and its own.
    let small = DISK_BYTES + (2 + 2 + 1) * BLOCK;
    for (verb, needed, seconds_max) in [
        (vec!["ls".to_owned(), "-R".into(), url.clone()], DISK_BYTES + names, 3.0),
        (vec!["cat".into(), format!("{url}:/directory 50/50")], small, 2.0),
        (vec!["cat".into(), format!("{url}:/large")], DISK_BYTES + 3 * BLOCK + (4 << 20), 3.0),
        (
            vec!["export".into(), format!("{url}:/content"), "-o".into(), "out.tar".into()],
            DISK_BYTES + (2 + 3 + 100 / 16) * BLOCK + CONTENT,
            3.0,
        ),
        (
            vec!["cp".into(), "-r".into(), format!("{url}:/content"), "out".into()],
            DISK_BYTES + (2 + 3 + 100 / 16) * BLOCK + CONTENT,
            3.0,
        ),
        (vec!["check".into(), url.clone()], u64::MAX, 10.0),
    ] {
        let (bytes, requests, begun) = (server.bytes(), server.requests(), Instant::now());
        bench.ok(&verb.iter().map(String::as_str).collect::<Vec<_>>());
        let (bytes, requests) = (server.bytes() - bytes, server.requests() - requests);
        let seconds = begun.elapsed().as_secs_f64();
        println!("{}: {requests} requests, {bytes} bytes, {needed} needed, {seconds:.2} s", verb[0]);
        assert!(bytes / 2 <= needed, "{verb:?}: {bytes} bytes, {needed} needed");
        assert!(seconds < seconds_max, "{verb:?}: {seconds} s");
        assert!(verb[0] != "ls" || requests <= 220, "{verb:?}: {requests} requests");
    }
}
