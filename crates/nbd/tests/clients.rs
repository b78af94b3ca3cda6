//! The server with clients of other projects, and with the client of this crate.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::{Raw, Served, exercise};
use extant_block::{BlockDevice, Fault, FaultDevice, MemoryDevice, Operation};
use extant_testing::Random;

const BYTES: u64 = 8 << 20;

/// Runs a program to its end; what it prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {out}{err}");
    out.into_owned()
}

fn random(seed: u64) -> Vec<u8> {
    let mut numbers = Random::new(seed);
    (0..BYTES / 8).flat_map(|_| numbers.next().to_le_bytes()).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn requests_of_threads_are_right_with_our_client() {
    let served = Served::start(MemoryDevice::new(BYTES), false);
    exercise(&served.open(), 4, 4, 300);
}

#[test]
fn nbdinfo_reads_name_size_and_flags() {
    let served = Served::start(MemoryDevice::new(BYTES), false);
    let told = run("nbdinfo", &["--json", &served.uri()]);
    for part in [
        "\"export-name\": \"disk\"",
        "\"export-size\": 8388608",
        "\"is_read_only\": false",
        "\"can_multi_conn\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"can_fua\": true",
        "\"block_size_maximum\": 33554432",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let list =
        run("nbdinfo", &["--list", "--json", &format!("nbd+unix:///?socket={}", text(&served.socket))]);
    assert!(list.contains("\"export-name\": \"disk\""), "{list}");
}

#[test]
fn nbdcopy_and_qemu_img_copy_in_and_out() {
    let served = Served::start(MemoryDevice::new(BYTES), false);
    let (from, to) = (served.path("from"), served.path("to"));
    for (seed, program) in [(5, "nbdcopy"), (6, "qemu-img")] {
        let content = random(seed);
        std::fs::write(&from, &content).expect("a file");
        match program {
            "nbdcopy" => {
                run(program, &["--flush", text(&from), &served.uri()]);
                run(program, &[&served.uri(), text(&to)]);
            }
            _ => {
                let copy = ["convert", "-n", "-f", "raw", "-O", "raw"];
                run(program, &[&copy[..], &[text(&from), &served.uri()]].concat());
                run(program, &[&copy[..1], &copy[2..], &[&served.uri(), text(&to)]].concat());
            }
        }
        assert!(std::fs::read(&to).expect("a copy") == content, "{program}");
        let mut read = vec![0; BYTES as usize];
        served.open().read_at(0, &mut read).expect("read");
        assert!(read == content, "{program}");
    }
}

#[test]
fn qemu_io_writes_zeroes_discards_and_checks_patterns() {
    let served = Served::start(MemoryDevice::new(BYTES), false);
    let commands = [
        "write -P 0x11 0 3M",
        "write -f -P 0x22 1M 4k",
        "write -z 2M 64k",
        "flush",
        "read -P 0x11 0 1M",
        "read -P 0x22 1M 4k",
        "read -P 0 2M 64k",
        "discard 4M 1M",
        "aio_write -P 0x33 5M 512k",
        "aio_write -P 0x44 6M 512k",
        "aio_flush",
        "read -P 0x33 5M 512k",
        "read -P 0x44 6M 512k",
    ];
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", *command]));
    let uri = served.uri();
    arguments.push(&uri);
    let told = run("qemu-io", &arguments);
    assert!(!told.contains("failed"), "{told}");
}

#[test]
fn errors_of_the_device_reach_the_client_and_the_connection_goes_on() {
    let device = FaultDevice::new(MemoryDevice::new(BYTES), |request| match request.operation {
        Operation::Read if request.offset == 4096 => Fault::Error(std::io::ErrorKind::Other),
        Operation::Write if request.offset == 4096 => Fault::Error(std::io::ErrorKind::StorageFull),
        _ => Fault::None,
    });
    let served = Served::start(device, false);
    let client = served.open();
    let told = client.read_at(4096, &mut [0; 512]).expect_err("it fails").to_string();
    assert!(told.contains("read of 512 bytes at 4096") && told.contains("Input/output error"), "{told}");
    let error = client.write_at(4096, &[0; 512]).expect_err("it fails");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    client.write_at(8192, &[3; 512]).expect("others go on");
}

#[test]
fn read_only_exports_refuse_writes_at_the_server() {
    let served = Served::start(MemoryDevice::new(BYTES), true);
    assert!(run("nbdinfo", &["--json", &served.uri()]).contains("\"is_read_only\": true"));
    let write = Raw::write(0, &[b'x'; 512]);
    let mut raw = Raw::connect(&served.socket);
    assert_eq!(raw.errno_of(&write), 1, "EPERM");
    assert_eq!(raw.errno_of(&write), 1, "the connection goes on");
}

#[test]
fn flush_of_one_connection_covers_writes_of_all() {
    let device = Arc::new(FaultDevice::new(MemoryDevice::new(BYTES), |_| Fault::None));
    let served = Served::start(device.clone(), false);
    let (one, other) = (served.open(), served.open());
    one.write_at(0, &[1; 512]).expect("written");
    other.flush().expect("flushed");
    assert_eq!(device.count(Operation::Flush), 1);
    let mut read = [0; 512];
    other.read_at(0, &mut read).expect("read");
    assert_eq!(read, [1; 512]);
}

#[test]
fn stopping_ends_requests_under_way_and_flushes() {
    let device = Arc::new(FaultDevice::new(MemoryDevice::new(BYTES), |_| Fault::None));
    let served = Served::start(device.clone(), false);
    let client = served.open();
    client.write_at(0, &[1; 512]).expect("written");
    served.server.stop().expect("stopped");
    assert_eq!(device.count(Operation::Flush), 1);
}
