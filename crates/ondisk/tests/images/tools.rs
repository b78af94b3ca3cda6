//! The tools of others, and an image made by them.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use extant_testing::{Command, scratch};

/// A tool's standard output; `None` when it is missing or failed.
pub fn run(tool: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(tool).args(arguments).env("LC_ALL", "C").env("TZ", "UTC").output().ok()?;
    if !output.status.success() {
        println!("{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A disk in a file.
pub struct Image {
    pub path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Image {
    /// Makes a disk with a few files; the last option is the size.
    pub fn make(options: &[&str]) -> Option<Self> {
        Self::make_from(options, true)
    }

    /// Makes a disk without any files.
    pub fn make_empty(options: &[&str]) -> Option<Self> {
        Self::make_from(options, false)
    }

    fn make_from(options: &[&str], filled: bool) -> Option<Self> {
        let dir = scratch();
        let (size, options) = options.split_last()?;
        let path = dir.path().join("disk");
        let mut arguments = vec!["-q", "-F"];
        arguments.extend(options);
        let tree = dir.path().join("tree");
        let (tree_name, path_name) =
            (tree.to_string_lossy().into_owned(), path.to_string_lossy().into_owned());
        if filled {
            fs::create_dir(&tree).ok()?;
            fill(&tree).expect("files to put on the disk");
            arguments.extend(["-d", &tree_name]);
        }
        arguments.extend([&path_name, *size]);
        let made = run("mke2fs", &arguments);
        // WASI opens what it does not know to remove a directory, and would wait for a writer to the pipe.
        run("rm", &["-rf", &tree_name]).expect("rm");
        made?;
        Some(Self { path, _dir: dir })
    }

    /// The output of `dumpe2fs`.
    pub fn dumpe2fs(&self) -> String {
        run("dumpe2fs", &[&self.path.to_string_lossy()]).expect("dumpe2fs reads what mke2fs wrote")
    }

    /// The output of `debugfs` for each command.
    pub fn debugfs(&self, commands: &[String]) -> Vec<String> {
        let script = self.path.with_extension("script");
        fs::write(&script, commands.join("\n")).expect("a script");
        let output = run("debugfs", &["-f", &script.to_string_lossy(), &self.path.to_string_lossy()]);
        let output = output.expect("debugfs reads what mke2fs wrote");
        let answers: Vec<String> = output.split("debugfs: ").skip(1).map(str::to_owned).collect();
        assert_eq!(answers.len(), commands.len(), "one answer per command in {output}");
        answers.iter().map(|answer| answer.split_once('\n').map_or("", |(_, rest)| rest).to_owned()).collect()
    }
}

/// Files whose maps, owners and types differ.
fn fill(tree: &Path) -> std::io::Result<()> {
    fs::write(tree.join("small"), b"a few bytes")?;
    fs::write(tree.join("empty"), b"")?;
    fs::write(tree.join("whole"), vec![0xA5; 300_000])?;
    fs::hard_link(tree.join("small"), tree.join("hard link"))?;
    let at = |name: &str| tree.join(name).to_string_lossy().into_owned();
    run("chmod", &["4751", &at("whole")]).expect("a mode");
    run("ln", &["-s", "small", &at("short link")]).expect("a link");
    run("ln", &["-s", &"d/".repeat(100), &at("long link")]).expect("a link");
    fs::create_dir(tree.join("directory"))?;
    for number in 0..40 {
        fs::write(tree.join("directory").join(format!("a rather long name of file {number}")), b"x")?;
    }
    // Every second 4 KiB: 1,200 extents, or blocks in the first and second tree of block numbers.
    let mut sparse = fs::File::create(tree.join("sparse"))?;
    for number in 0..1200_u64 {
        sparse.seek(SeekFrom::Start(number * 8192))?;
        sparse.write_all(&[number as u8 | 1; 4096])?;
    }
    // The same at a stride that leaves holes between the largest blocks.
    let mut strided = fs::File::create(tree.join("strided"))?;
    for number in 0..40_u64 {
        strided.seek(SeekFrom::Start(number << 17))?;
        strided.write_all(&[number as u8 | 1; 4096])?;
    }
    // With blocks of 1 KiB, in the third tree of block numbers.
    let mut far = fs::File::create(tree.join("far"))?;
    far.seek(SeekFrom::Start(70 << 20))?;
    far.write_all(b"far")?;
    // Only root may; others' disks lack these files' peculiarities.
    let _ = run("chown", &["70000:80000", &at("whole")]);
    let _ = run("mknod", &[&at("old device"), "b", "8", "17"]);
    let _ = run("mknod", &[&at("new device"), "c", "259", "70000"]);
    let _ = run("mkfifo", &[&at("fifo")]);
    Ok(())
}
