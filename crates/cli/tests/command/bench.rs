//! A directory with a disk in it, and the command run there.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The name of the disk that every bench has.
pub const DISK: &str = "disk.img";

/// The result of a command.
pub struct Run {
    pub status: i32,
    pub stdout: Vec<u8>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            // A signal has no status; none of these is one that the command gives.
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            stdout: output.stdout,
        }
    }
}

impl Run {
    /// The one document on standard output.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

pub struct Bench {
    dir: TempDir,
}

/// Where a program is, `/usr/sbin` included; says that a test is skipped if it is missing.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = dirs.map(|dir| dir.join(name)).find(|path| path.is_file());
    if found.is_none() {
        println!("skipped: {name} is missing");
    }
    found
}

pub fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.split_whitespace().take(2).eq(["Uid:", "0"]))
}

impl Bench {
    /// An empty directory, in memory if there is such a file system.
    pub fn empty() -> Self {
        let shm = Path::new("/dev/shm");
        let dir = if shm.is_dir() { TempDir::new_in(shm) } else { TempDir::new() };
        Self { dir: dir.expect("temporary directory") }
    }

    /// A directory with a small tree, and with a disk that holds it.
    pub fn new() -> Option<Self> {
        tool("mke2fs").and(tool("debugfs")).and(tool("e2fsck"))?;
        let bench = Self::empty();
        bench.make_tree();
        bench.mke2fs(DISK, "16M", &["-d", "tree"]);
        Some(bench)
    }

    fn make_tree(&self) {
        let tree = self.path("tree");
        for dir in ["etc", "bin", "deep/er", "odd"] {
            fs::create_dir_all(tree.join(dir)).expect("directory");
        }
        let files: [(&str, &[u8], u32); 6] = [
            ("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/:/bin/false\n", 0o644),
            ("etc/group", b"root:x:0:\nwww:x:35:\n", 0o644),
            ("etc/hostname", b"guest\n", 0o644),
            ("bin/tool", b"#!/bin/sh\necho tool\n", 0o755),
            ("deep/er/file", b"deep\n", 0o600),
            (".hidden", b"", 0o644),
        ];
        for (name, content, mode) in files {
            let path = tree.join(name);
            fs::write(&path, content).expect("file");
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
        }
        for name in [&b"bad\xffname"[..], b"new\nline", "gr\u{fc}n".as_bytes()] {
            fs::write(tree.join("odd").join(OsStr::from_bytes(name)), name).expect("file");
        }
        symlink("hostname", tree.join("etc/link")).expect("link");
        symlink("/etc", tree.join("conf")).expect("link");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A program in this directory, in a plain environment.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.dir.path())
            .env_remove("SOURCE_DATE_EPOCH")
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    pub fn extant(&self) -> Command {
        self.command(env!("CARGO_BIN_EXE_extant"))
    }

    /// Puts the command here, where other users may run it. `cp` does so: were the file open for writing in this
    /// process, a test that starts a program meanwhile would keep it from being run.
    pub fn install(&self) {
        self.program("cp", &[env!("CARGO_BIN_EXE_extant"), "extant"]);
    }

    /// Runs the command, whatever becomes of it; only a panic is never right.
    pub fn run(&self, arguments: &[&str]) -> Run {
        self.finish(self.extant().args(arguments), b"")
    }

    /// Runs a command on some input.
    pub fn finish(&self, command: &mut Command, input: &[u8]) -> Run {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("spawn");
        let mut stdin = child.stdin.take().expect("stdin");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // A command that does not read all of its input shows that by its exit status.
            let _ = stdin.write_all(&input);
        });
        let run = Run::from(child.wait_with_output().expect("output"));
        writer.join().expect("writer");
        assert!(!run.err.contains("panicked"), "{command:?}: {}", run.err);
        run
    }

    /// Runs the command, which is to succeed and to have nothing to say about it.
    pub fn ok(&self, arguments: &[&str]) -> Run {
        let run = self.run(arguments);
        // Whatever takes its time says how far it is.
        let said: Vec<_> = run.err.lines().filter(|line| !line.starts_with("{\"progress\":")).collect();
        assert_eq!((run.status, said.as_slice()), (0, [].as_slice()), "{arguments:?}: {}", run.out);
        run
    }

    /// As [`Bench::ok`], of one line; what was written.
    pub fn words(&self, line: &str) -> String {
        self.ok(&line.split(' ').collect::<Vec<_>>()).out
    }

    /// As [`Bench::words`], of a document.
    pub fn document(&self, line: &str) -> Value {
        self.ok(&line.split(' ').collect::<Vec<_>>()).json()
    }

    /// Runs a shell script, which is to succeed; what it wrote.
    pub fn shell(&self, script: &str) -> String {
        let run = self.finish(self.command("sh").args(["-ec", script]), b"");
        assert_eq!(run.status, 0, "{script}\n{}", run.err);
        run.out
    }

    /// Runs the command, which is to fail with this status; what it said.
    pub fn fails(&self, status: i32, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!(run.status, status, "{arguments:?}: {}{}", run.out, run.err);
        assert!(!run.err.is_empty(), "{arguments:?} failed in silence");
        run.err
    }

    /// Runs another program, which is to succeed.
    pub fn program(&self, name: &str, arguments: &[&str]) -> Run {
        let program = tool(name).unwrap_or_else(|| panic!("{name} is missing"));
        let run = self.finish(self.command(program).args(arguments), b"");
        assert_eq!(run.status, 0, "{name} {arguments:?}: {}{}", run.out, run.err);
        run
    }

    pub fn mke2fs(&self, image: &str, size: &str, more: &[&str]) {
        self.program("mke2fs", &[&["-q", "-t", "ext4", "-b", "4096"], more, &[image, size]].concat());
    }

    /// The output of `debugfs` for a request.
    pub fn debugfs(&self, image: &str, request: &str) -> String {
        let run = self.program("debugfs", &["-R", request, image]);
        format!("{}{}", run.out, run.err)
    }

    /// Changes a disk past its journal.
    pub fn debugfs_write(&self, image: &str, requests: &str) {
        let program = tool("debugfs").expect("debugfs");
        let run = self.finish(self.command(program).args(["-w", "-f", "-", image]), requests.as_bytes());
        assert_eq!(run.status, 0, "{requests}: {}{}", run.out, run.err);
    }

    /// Asserts that `e2fsck` finds nothing to mend.
    pub fn assert_clean(&self, image: &str) {
        let program = tool("e2fsck").expect("e2fsck");
        let run = self.finish(self.command(program).args(["-fn", image]), b"");
        let said = format!("{}{}", run.out, run.err);
        assert!(run.status == 0 && !said.contains("Fix?") && !said.contains("WARNING"), "{said}");
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("bytes")
    }

    /// Asserts that `work` changes no byte of a file, and does not even touch it.
    pub fn assert_untouched(&self, name: &str, work: impl FnOnce()) {
        let modified = || fs::metadata(self.path(name)).and_then(|found| found.modified()).expect("time");
        let (bytes, time) = (self.bytes(name), modified());
        work();
        assert!(self.bytes(name) == bytes, "{name} has other bytes");
        assert_eq!(modified(), time, "{name} was written");
    }

    /// The content of a file of a disk, by `debugfs`.
    pub fn content(&self, image: &str, path: &str) -> Vec<u8> {
        self.program("debugfs", &["-R", &format!("cat {path}"), image]).stdout
    }

    /// One field of `debugfs stat`, as `User:`.
    pub fn field(&self, image: &str, path: &str, name: &str) -> String {
        let text = self.debugfs(image, &format!("stat {path}"));
        let after = text.split(name).nth(1).unwrap_or_else(|| panic!("no {name} in {text}"));
        after.split_whitespace().next().unwrap_or_default().to_owned()
    }
}
