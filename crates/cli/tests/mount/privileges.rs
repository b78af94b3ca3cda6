//! Requests that the kernel passes without checking the caller: `ioctl` and extended attributes, by several users, beside the
//! kernel's ext4.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use rustix::mount::{UnmountFlags, unmount};

use crate::common::{Disk, can_mount, is_root, path};
use crate::kernel::Kernel;

/// Toggles flags of the file that is standard input, by every number and for every bit, and prints the error and what changed.
const TOGGLE: &str = r#"
sub value { my ($number, $bytes) = @_; my $b = "\0" x $bytes; ioctl(STDIN, $number, $b) ? unpack('L', $b) : 0; }
for my $way ([0x80086601, 0x40086602, 8], [0x80086601, 0x40046602, 4], [0x801c581f, 0x401c5820, 28]) {
    my ($get, $set, $bytes) = @$way;
    for my $bit ($bytes == 28 ? (0x8, 0x10, 0x80) : (0x10, 0x20, 0x40)) {
        my $before = value($get, 28);
        my $b = pack('L', $before ^ $bit) . "\0" x ($bytes - 4);
        my $error = ioctl(STDIN, $set, $b) ? 0 : $! + 0;
        my $after = value($get, 28);
        printf "%x, bit %x: errno %d, changed %x\n", $set, $bit, $error, $before ^ $after;
        my $back = pack('L', $before) . "\0" x 24;
        ioctl(STDIN, $get == 0x80086601 ? 0x40086602 : $set, $back);
    }
}
for my $number (0x80086601, 0x80046601, 0x80087601, 0x81009431) {
    my $b = "\0" x 256;
    printf "%x: errno %d\n", $number, ioctl(STDIN, $number, $b) ? 0 : $! + 0;
}
"#;

/// Operations for administrators only: shut down, set the label, trim, become larger.
const ADMINISTER: &str = r#"
for my $number (0x8004587d, 0x41009432, 0xc0185879, 0x40086610) {
    my $b = pack('Q3', 0, ~0, 0) . "\0" x 232;
    printf "%x: errno %d\n", $number, ioctl(STDIN, $number, $b) ? 0 : $! + 0;
}
"#;

const OWNER: u32 = 1000;

/// The words of `setpriv` that make a caller.
const USERS: [(&str, &[&str]); 4] = [
    ("root", &[]),
    ("owner", &["--reuid=1000", "--regid=1000", "--clear-groups"]),
    ("other", &["--reuid=65534", "--regid=65534", "--clear-groups"]),
    (
        "root without capabilities",
        &[
            "--bounding-set=-sys_admin,-linux_immutable,-fowner",
            "--inh-caps=-sys_admin,-linux_immutable,-fowner",
        ],
    ),
];

/// Runs a program as a user, with a file as its standard input, which only those who may reach it can name.
fn run_as(user: &[&str], file: &Path, program: &[&str]) -> String {
    let mut command = Command::new("setpriv");
    command.args(user).args(program).env("PATH", path());
    command.stdin(Stdio::from(File::open(file).expect("open")));
    let output = command.output().expect("setpriv");
    let words = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    format!("{words}{}\n", output.status)
}

fn has_tools() -> bool {
    let tools: [&[&str]; 3] = [&["perl", "-v"], &["setpriv", "--version"], &["setfattr", "--version"]];
    let has = |words: &&[&str]| Command::new(words[0]).args(&words[1..]).output().is_ok();
    let has = can_mount() && is_root() && tools.iter().all(has);
    if !has {
        println!("skipped: needs root, perl, setpriv and setfattr");
    }
    has
}

/// A read-only bind mount; unmounted on drop.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn of(point: &Path) -> Self {
        let dir = point.with_file_name("read-only");
        fs::create_dir_all(&dir).expect("directory");
        let status = Command::new("mount").args(["-o", "bind,ro"]).args([point, &dir]).status();
        assert!(status.expect("mount").success());
        Self(dir)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Every user tries on two files, one of which is immutable and append-only, through the mount and a read-only bind mount of it.
fn try_flags(point: &Path) -> Vec<String> {
    let bound = ReadOnly::of(point);
    let mut tried = Vec::new();
    for (name, fixed) in [("free", IFlags::empty()), ("fixed", IFlags::IMMUTABLE | IFlags::APPEND)] {
        let file = File::create_new(point.join(name)).expect("create");
        file.set_permissions(fs::Permissions::from_mode(0o644)).expect("mode");
        chown(point.join(name), Some(OWNER), Some(OWNER)).expect("owner");
        let plain = ioctl_getflags(&file).expect("flags");
        for (user, words) in USERS {
            for (way, place) in [("mount", point), ("read-only bind mount", &*bound.0)] {
                ioctl_setflags(&file, plain | fixed).expect("flags");
                let said = run_as(words, &place.join(name), &["perl", "-e", TOGGLE]);
                tried.push(format!("{user}, {name} file, {way}:\n{said}"));
                let now = ioctl_getflags(&file).expect("flags");
                tried.push(format!("left: {:?}", now ^ plain));
            }
        }
        ioctl_setflags(&file, plain).expect("flags");
        for (user, words) in &USERS[1..] {
            let said = run_as(words, &point.join(name), &["perl", "-e", ADMINISTER]);
            tried.push(format!("{user}, administration:\n{said}"));
        }
    }
    tried
}

/// Every user tries to set, read and remove attributes of each name space.
fn try_attributes(point: &Path) -> Vec<String> {
    let path = point.join("attributes");
    let file = File::create_new(&path).expect("create");
    file.set_permissions(fs::Permissions::from_mode(0o644)).expect("mode");
    chown(&path, Some(OWNER), Some(OWNER)).expect("owner");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "trusted.kept", b"x", flags).expect("a trusted attribute");
    let mut tried = Vec::new();
    for (user, words) in USERS {
        let names = [
            "user.name",
            "trusted.name",
            "trusted.kept",
            "security.name",
            "system.name",
            "system.data",
            "system.richacl",
            "system.posix_acl_access",
            "another.name",
        ];
        for name in names {
            let set = ["setfattr", "-n", name, "-v", "0x02000000", "/dev/stdin"];
            let get = ["getfattr", "-n", name, "/dev/stdin"];
            let list = ["getfattr", "-m", "-", "/dev/stdin"];
            let remove = ["setfattr", "-x", name, "/dev/stdin"];
            for words_of_tool in [&set[..], &get, &list, &remove] {
                let said = run_as(words, &path, words_of_tool);
                tried.push(format!("{user}, {words_of_tool:?}: {said}"));
            }
        }
    }
    tried
}

fn assert_as_kernel(tries: fn(&Path) -> Vec<String>) -> Vec<String> {
    let ours = Disk::new("64M");
    ours.mount("rw");
    let tried = tries(&ours.point);
    ours.finish();
    let theirs = Disk::new("64M");
    if let Some(mounted) = Kernel::mount(&theirs.image, &theirs.point, "rw") {
        for (tried, kernels) in tried.iter().zip(tries(&theirs.point)) {
            assert_eq!(*tried, kernels, "left: ours, right: the kernel's ext4");
        }
        drop(mounted);
    }
    tried
}

#[test]
fn flags_are_set_by_whom_linux_lets_set_them() {
    if !has_tools() {
        return;
    }
    let tried = assert_as_kernel(try_flags);
    // Whatever the kernel's ext4 did: no other user changed anything, and the permitted user did.
    for tried in tried.iter().filter(|tried| tried.starts_with("other") || tried.contains("bind mount")) {
        assert!(!tried.contains("errno 0, changed"), "{tried}");
    }
    assert!(tried[0].contains("40086602, bit 10: errno 0, changed 10"), "{}", tried[0]);
}

#[test]
fn attributes_of_each_name_space_are_for_whom_linux_has_them() {
    if has_tools() {
        assert_as_kernel(try_attributes);
    }
}
