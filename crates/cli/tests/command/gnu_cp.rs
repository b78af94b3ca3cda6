//! `cp` beside GNU cp: kinds of sources, kinds of what is there, options. Both are run on the same trees, and what they leave
//! is compared: kinds, modes, owners, links, contents, whether times are new; and whether they failed. What differs is named
//! in a table, with the reason, and has to differ.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use extant::{FileType, Filesystem, Mount};

use super::bench::{Bench, DISK, is_root, tool};

const SOURCES: [&str; 12] = [
    "regular",
    "empty",
    "sparse",
    "symlink",
    "dangling",
    "directory",
    "fifo",
    "device",
    "pair",
    "/dev/null",
    "/dev/stdin",
    "-",
];
const TARGETS: [&str; 11] = [
    "absent",
    "regular",
    "newer",
    "symlink",
    "dangling",
    "directory",
    "directory-link",
    "fifo",
    "device",
    "linked",
    "read-only",
];
/// All kinds of sources are copied by the first; by the others only those that they concern.
const OPTIONS: [&str; 12] = [
    "",
    "-r",
    "-a",
    "-p",
    "-n",
    "-u",
    "-v",
    "-f",
    "--remove-destination",
    "-T",
    "-r -T",
    "-a --remove-destination",
];
const CONCERNED: [&str; 5] = ["regular", "symlink", "directory", "pair", "fifo"];
const OLD: i64 = 1_000_000_000;
const NEW: i64 = 1_500_000_000;

/// One copy of the table.
#[derive(Clone, Copy)]
struct Case {
    source: &'static str,
    target: &'static str,
    options: &'static str,
}

impl Case {
    fn name(self) -> String {
        format!("{}{}{}", self.source, self.target, self.options).replace(['/', ' '], "_")
    }

    fn has(self, option: &str) -> bool {
        self.options.split(' ').any(|word| word == option)
    }

    fn is_recursive(self) -> bool {
        self.has("-r") || self.has("-a")
    }

    /// The arguments of a copy of sources in `from` to `to`.
    fn arguments(self, from: &str, to: &str, is_gnu: bool) -> Vec<String> {
        let sources = match self.source {
            "pair" => vec![format!("{from}src"), format!("{from}src2")],
            "-" if is_gnu => vec!["/dev/stdin".to_owned()],
            "-" | "/dev/null" | "/dev/stdin" => vec![self.source.to_owned()],
            _ => vec![format!("{from}src")],
        };
        let options = self.options.split(' ').filter(|word| !word.is_empty()).map(str::to_owned);
        options.chain(sources).chain([format!("{to}dst")]).collect()
    }
}

/// The cases that can be made here; `on_disk` without those whose source no disk has.
fn cases(on_disk: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for options in OPTIONS {
        for source in SOURCES {
            let is_stream = source == "-" || source.starts_with("/dev/");
            let is_concerned = matches!(options, "" | "-r" | "-a") || CONCERNED.contains(&source);
            // With -r, /dev/stdin is a link into /proc.
            let is_odd = source != "/dev/null" && is_stream && !options.is_empty() || on_disk && is_stream;
            let needs_root = source == "device";
            for target in TARGETS {
                if is_concerned && !is_odd && (is_root() || !needs_root && target != "device") {
                    cases.push(Case { source, target, options });
                }
            }
        }
    }
    cases
}

fn put(path: &Path, content: &[u8], mode: u32, owner: u32, seconds: i64) {
    fs::write(path, content).expect("file");
    finish(path, mode, owner, seconds);
}

fn finish(path: &Path, mode: u32, owner: u32, seconds: i64) {
    if is_root() {
        chown(path, Some(owner), Some(owner + 1)).expect("owner");
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    let time = UNIX_EPOCH + std::time::Duration::from_secs(seconds as u64);
    File::open(path).and_then(|file| file.set_modified(time)).expect("time");
}

fn node(path: &Path, kind: &[&str]) {
    let status = Command::new("mknod").arg(path).args(kind).status().expect("mknod");
    assert!(status.success());
}

fn make_source(dir: &Path, kind: &str) {
    let src = dir.join("src");
    match kind {
        "regular" => put(&src, b"new content\n", 0o751, 40, NEW),
        "empty" => put(&src, b"", 0o640, 40, NEW),
        "sparse" => {
            put(&src, b"", 0o600, 40, NEW);
            let file = OpenOptions::new().write(true).open(&src).expect("file");
            std::os::unix::fs::FileExt::write_all_at(&file, b"end", 300_000).expect("write");
            finish(&src, 0o600, 40, NEW);
        }
        "symlink" => {
            put(&dir.join("srcfile"), b"behind the link\n", 0o640, 40, NEW);
            symlink("srcfile", src).expect("link");
        }
        "dangling" => symlink("srcnothing", src).expect("link"),
        "directory" => {
            fs::create_dir_all(src.join("sub")).expect("directory");
            put(&src.join("sub/file"), b"deep\n", 0o640, 40, NEW);
            put(&src.join("keep"), b"also\n", 0o604, 40, NEW);
            symlink("keep", src.join("link")).expect("link");
            fs::hard_link(src.join("keep"), src.join("hard")).expect("link");
            finish(&src.join("sub"), 0o711, 40, NEW);
            finish(&src, 0o750, 40, NEW);
        }
        "fifo" => {
            node(&src, &["p"]);
            fs::set_permissions(src, fs::Permissions::from_mode(0o640)).expect("mode");
        }
        "device" => node(&src, &["c", "1", "3"]),
        "pair" => {
            put(&src, b"two names\n", 0o640, 40, NEW);
            fs::hard_link(&src, dir.join("src2")).expect("link");
        }
        _ => {}
    }
}

fn make_target(dir: &Path, kind: &str) {
    let dst = dir.join("dst");
    let old = |name: &str| put(&dir.join(name), b"the old content\n", 0o604, 7, OLD);
    match kind {
        "regular" => old("dst"),
        "newer" => put(&dst, b"the newer content\n", 0o604, 7, NEW + 1000),
        "symlink" => {
            old("target");
            symlink("target", dst).expect("link");
        }
        "dangling" => symlink("nothing", dst).expect("link"),
        "directory" | "directory-link" => {
            let real = dir.join(if kind == "directory" { "dst" } else { "real" });
            fs::create_dir(&real).expect("directory");
            put(&real.join("src"), b"the old content\n", 0o604, 7, OLD);
            put(&real.join("keep"), b"kept\n", 0o600, 7, OLD);
            finish(&real, 0o755, 7, OLD);
            if kind == "directory-link" {
                symlink("real", dst).expect("link");
            }
        }
        "fifo" => node(&dst, &["p"]),
        "device" => node(&dst, &["c", "1", "3"]),
        "linked" => {
            old("dst");
            fs::hard_link(dst, dir.join("other")).expect("link");
        }
        "read-only" => put(&dst, b"the old content\n", 0o444, 7, OLD),
        _ => {}
    }
}

/// The state of a path, as a line.
type State = BTreeMap<String, String>;

fn line(
    kind: &str,
    mode: u32,
    owner: (u32, u32),
    links: u64,
    seconds: i64,
    since: i64,
    content: String,
) -> String {
    let links = if kind == "directory" { 0 } else { links };
    // Where only this user may be the owner, it is as good as root, whose files are made on a disk.
    let owner = if is_root() { format!("{}:{}", owner.0, owner.1) } else { String::new() };
    let time = if seconds >= since { "now".to_owned() } else { seconds.to_string() };
    let mode = if kind == "symlink" { 0 } else { mode & 0o7777 };
    format!("{kind} {mode:o} {owner} links {links} {time} {content}")
}

fn kind_of(found: &Metadata) -> &'static str {
    let kind = found.file_type();
    match () {
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_char_device() => "device",
        () => "file",
    }
}

/// The state of a directory of the host after copies, without the sources.
fn state(dir: &Path, below: &str, since: i64, into: &mut State) {
    for entry in fs::read_dir(dir.join(below)).expect("directory").map(|entry| entry.expect("entry")) {
        let name = entry.file_name().into_string().expect("name");
        if below.is_empty() && name.starts_with("src") {
            continue;
        }
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        let found = fs::symlink_metadata(entry.path()).expect("metadata");
        let kind = kind_of(&found);
        let content = match kind {
            "file" => content(&fs::read(entry.path()).expect("content")),
            "symlink" => fs::read_link(entry.path()).expect("link").display().to_string(),
            _ => String::new(),
        };
        let owner = (found.uid(), found.gid());
        into.insert(
            path.clone(),
            line(kind, found.mode(), owner, found.nlink(), found.mtime(), since, content),
        );
        if kind == "directory" {
            state(dir, &path, since, into);
        }
    }
}

/// The same of a directory on a disk.
fn disk_state(fs: &Filesystem, dir: &str, below: &str, since: i64, into: &mut State) {
    for entry in fs.dir(format!("/{dir}/{below}")).and_then(|dir| dir.entries()).expect("directory") {
        let name = String::from_utf8(entry.name).expect("name");
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        let place = format!("/{dir}/{path}");
        let found = fs.symlink_metadata(&place).expect("metadata");
        let (kind, content) = match found.file_type {
            FileType::Directory => ("directory", String::new()),
            FileType::Symlink => {
                ("symlink", String::from_utf8(fs.read_link(&place).expect("link")).expect("link"))
            }
            FileType::Fifo => ("fifo", String::new()),
            FileType::CharDevice => ("device", String::new()),
            _ => ("file", content(&fs.read(&place).expect("content"))),
        };
        let owner = (found.uid, found.gid);
        let (mode, links) = (u32::from(found.mode), u64::from(found.links));
        into.insert(path.clone(), line(kind, mode, owner, links, found.mtime.seconds, since, content));
        if kind == "directory" {
            disk_state(fs, dir, &path, since, into);
        }
    }
}

fn content(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
    format!("{} {:?}", bytes.len(), text.trim_end_matches('\0'))
}

/// Runs a copy: whether it succeeded, and what came out of the pipe that it may write into. A pipe that it reads from
/// says "piped", and so does standard input.
fn run(command: &mut Command, source: Option<&Path>, target: Option<&Path>) -> (bool, Vec<u8>) {
    let nonblocking = 0o4000;
    // Open before, so that the copy can open it for writing.
    let mut reader =
        target.map(|pipe| OpenOptions::new().read(true).custom_flags(nonblocking).open(pipe).expect("pipe"));
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = streams.spawn().expect("spawn");
    // A copy that reads nothing may be gone.
    let _ = child.stdin.take().expect("stdin").write_all(b"piped\n");
    let (mut is_fed, mut piped) = (false, Vec::new());
    let mut drain = |piped: &mut Vec<u8>| {
        if let Some(reader) = &mut reader {
            // Reads a pipe to its end if its writers are gone, else only what is there, so that the copy does not wait.
            let _ = reader.read_to_end(piped);
        }
    };
    let status = loop {
        drain(&mut piped);
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        if let (Some(pipe), false) = (source, is_fed) {
            // Fails while the pipe has no reader.
            let writer = OpenOptions::new().write(true).custom_flags(nonblocking).open(pipe);
            is_fed = writer.is_ok_and(|mut writer| writer.write_all(b"piped\n").is_ok());
        }
        std::thread::sleep(std::time::Duration::from_micros(300));
    };
    drain(&mut piped);
    (status.success(), piped)
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("clock").as_secs() as i64
}

/// Runs GNU cp for a case, in a directory of its own: what it left.
fn gnu(bench: &Bench, case: Case, since: i64) -> (bool, Vec<u8>, State) {
    let dir = bench.path("gnu").join(case.name());
    fs::create_dir_all(&dir).expect("directory");
    make_source(&dir, case.source);
    make_target(&dir, case.target);
    let mut command = bench.command("sh");
    command.current_dir(&dir).args(["-c", "umask 0; exec cp \"$@\"", "cp"]);
    command.args(case.arguments("", "", true));
    let source = (case.source == "fifo").then(|| dir.join("src"));
    let target = (case.target == "fifo").then(|| dir.join("dst"));
    let (succeeded, piped) = run(&mut command, source.as_deref(), target.as_deref());
    let mut left = State::new();
    state(&dir, "", since, &mut left);
    (succeeded, piped, left)
}

/// Compares a case, unless it is known to differ, for then it has to.
fn judge(
    case: Case,
    known: Option<&str>,
    gnu: &(bool, Vec<u8>, State),
    ours: &(bool, Vec<u8>, State),
) -> Option<String> {
    // Its exit status for files that are passed over has changed from version to version.
    let is_same = (gnu.0 == ours.0 || case.has("-n")) && gnu.1 == ours.1 && gnu.2 == ours.2;
    match (known, is_same) {
        (None, true) | (Some(_), false) => None,
        (Some(reason), true) => Some(format!("{}: does not differ: {reason}", case.name())),
        (None, false) => Some(format!("{}:\n  GNU  {gnu:?}\n  ours {ours:?}", case.name())),
    }
}

/// Whether the source is one whose content is copied, to what is there.
fn writes_content(case: Case) -> bool {
    let is_node = matches!(case.source, "fifo" | "device" | "/dev/null") && case.is_recursive();
    let is_link = matches!(case.source, "symlink" | "dangling") && case.is_recursive();
    let is_stopped = matches!(case.source, "directory" | "pair") || case.source == "dangling";
    // A pipe that is made just now is newer than any source.
    let is_passed_over = case.has("-n") || case.has("-u");
    !is_node && !is_link && !is_stopped && !is_passed_over && !case.has("--remove-destination")
}

const PAIR: &str = "hard links are kept within each source, not between two of them";

/// Differences of copies into a disk.
fn known_into(case: Case) -> Option<&'static str> {
    let is_into = case.target.starts_with("directory");
    match (case.source, case.target) {
        ("pair", _) if is_into && case.has("-a") => Some(PAIR),
        ("-", _) if is_into => Some("a stream has no name; a directory is refused"),
        ("-", "absent") => Some("a stream has no mode; its file gets 644"),
        (_, "fifo" | "device") if writes_content(case) => {
            Some("nothing serves a device or a pipe on a disk; writing into it is refused")
        }
        ("directory", "directory-link") if case.options == "-r -T" => {
            Some("a link to a directory is followed, as in a system whose /bin is a link to /usr/bin")
        }
        _ => None,
    }
}

/// Differences of copies out of a disk.
fn known_out_of(case: Case) -> Option<&'static str> {
    let is_into = case.target.starts_with("directory");
    match (case.source, case.target) {
        ("pair", _) if is_into && case.has("-a") => Some(PAIR),
        // GNU cp succeeds in passing over, or fails before it reads.
        ("fifo" | "device", target) if !case.is_recursive() => {
            let is_failure =
                target == "dangling" && !case.has("--remove-destination") || is_into && case.has("-T");
            let is_passed_over = case.has("-n") && target != "absent" && target != "dangling";
            (!is_failure && !is_passed_over)
                .then_some("nothing serves a device or a pipe of a disk; reading it is refused")
        }
        (_, "fifo" | "device") if writes_content(case) && (case.has("-p") || case.has("-a")) => {
            Some("a device or a pipe of the host keeps its owner and its mode")
        }
        _ => None,
    }
}

#[test]
fn copies_into_a_disk_leave_what_gnu_cp_leaves() {
    if tool("cp").is_none() || tool("mknod").is_none() {
        return;
    }
    let (bench, since) = (Bench::empty(), now() - 5);
    let cases = cases(false);
    for case in &cases {
        let (sources, targets) =
            (bench.path("sources").join(case.name()), bench.path("targets").join(case.name()));
        fs::create_dir_all(&sources).expect("directory");
        fs::create_dir_all(&targets).expect("directory");
        make_source(&sources, case.source);
        make_target(&targets, case.target);
    }
    bench.ok(&["mkfs", "-q", "-O", "^has_journal", "-d", "targets", "--free", "8M", DISK]);
    let ran: Vec<_> = cases
        .iter()
        .map(|case| {
            let (from, to) = (format!("sources/{}/", case.name()), format!("{DISK}:/{}/", case.name()));
            let mut command = bench.extant();
            command.arg("cp").args(case.arguments(&from, &to, false));
            let source = (case.source == "fifo").then(|| bench.path(&from).join("src"));
            run(&mut command, source.as_deref(), None)
        })
        .collect();
    let fs = Mount::new().read_only(true).open(bench.path(DISK)).expect("mount");
    let wrong: Vec<String> = cases
        .iter()
        .zip(ran)
        .filter_map(|(case, (succeeded, piped))| {
            let mut left = State::new();
            disk_state(&fs, &case.name(), "", since, &mut left);
            judge(*case, known_into(*case), &gnu(&bench, *case, since), &(succeeded, piped, left))
        })
        .collect();
    drop(fs);
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    println!("{} copies", cases.len());
}

#[test]
fn copies_out_of_a_disk_leave_what_gnu_cp_leaves() {
    if tool("cp").is_none() || tool("mknod").is_none() {
        return;
    }
    let (bench, since) = (Bench::empty(), now() - 5);
    let cases = cases(true);
    for case in &cases {
        let (sources, ours) = (bench.path("sources").join(case.name()), bench.path("ours").join(case.name()));
        fs::create_dir_all(&sources).expect("directory");
        fs::create_dir_all(&ours).expect("directory");
        make_source(&sources, case.source);
        make_target(&ours, case.target);
    }
    bench.ok(&["mkfs", "-q", "-O", "^has_journal", "-d", "sources", DISK]);
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let (from, to) = (format!("{DISK}:/{}/", case.name()), format!("ours/{}/", case.name()));
            let mut command = bench.command("sh");
            command.args(["-c", "umask 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_extant"), "cp"]);
            command.args(case.arguments(&from, &to, false));
            let target = (case.target == "fifo").then(|| bench.path(&to).join("dst"));
            let (succeeded, piped) = run(&mut command, None, target.as_deref());
            let mut left = State::new();
            state(&bench.path(&to), "", since, &mut left);
            judge(*case, known_out_of(*case), &gnu(&bench, *case, since), &(succeeded, piped, left))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    println!("{} copies", cases.len());
}
