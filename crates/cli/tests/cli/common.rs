//! Running the command and the tools that judge its work.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory of its own, and commands run in it.
pub struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command with `arguments`, separated by blanks.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
        command
            .args(arguments.split_whitespace())
            .current_dir(self.dir.path())
            .env_remove("SOURCE_DATE_EPOCH");
        command
    }

    /// Runs it, whatever comes of it.
    pub fn try_run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs it, which must succeed and say nothing on standard error; what it writes.
    pub fn run(&self, arguments: &str) -> String {
        let out = self.try_run(arguments);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.is_empty(), "extant {arguments}: {said}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// Runs it, which must exit with `status`; what it says on standard error.
    pub fn fail(&self, status: i32, arguments: &str) -> String {
        let out = self.try_run(arguments);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(status), "extant {arguments}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    /// Runs it and reads its document.
    pub fn json(&self, arguments: &str) -> serde_json::Value {
        serde_json::from_str(&self.run(arguments)).unwrap()
    }

    /// Runs it with bytes on standard input.
    pub fn feed(&self, arguments: &str, input: &[u8]) -> Output {
        let mut command = self.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // It may stop reading early.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let out = child.wait_with_output().unwrap();
        writer.join().unwrap();
        out
    }

    /// Runs a shell script, which must succeed; what it writes.
    pub fn shell(&self, script: &str) -> String {
        let out = Command::new("sh").arg("-ec").arg(script).current_dir(self.dir.path()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{script}\n{said}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// A file's content in the directory.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// What `e2fsck -fn` has to say against the image; nothing if it is clean.
    pub fn assert_clean(&self, image: &str) {
        let Some(e2fsck) = tool("e2fsck") else { return println!("skipped: no e2fsck") };
        let out = Command::new(e2fsck).arg("-fn").arg(self.path(image)).output().unwrap();
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        let is_clean = out.status.success() && !said.contains("Fix?") && !said.contains("WARNING");
        assert!(is_clean, "{image}: {said}");
    }
}

/// Where a tool is, if it is installed.
pub fn tool(name: &str) -> Option<PathBuf> {
    let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    places.iter().map(|place| Path::new(place).join(name)).find(|path| path.exists())
}

/// Whether all of `names` are installed; says so if not.
pub fn has_tools(names: &[&str]) -> bool {
    let missing: Vec<_> = names.iter().filter(|name| tool(name).is_none()).collect();
    if !missing.is_empty() {
        println!("skipped: {missing:?} not installed");
    }
    missing.is_empty()
}

/// Whether this is root; says so if not.
pub fn is_root() -> bool {
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0);
    if !is_root {
        println!("skipped: not root");
    }
    is_root
}

/// The bytes of a file, to see whether they change.
pub fn bytes(path: impl AsRef<OsStr>) -> Vec<u8> {
    std::fs::read(Path::new(path.as_ref())).unwrap()
}
