//! Disk images: made by the tools, filled by the kernel, read and written here by offset.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use extant_ondisk::{
    Checksums, FsBlock, InodeNumber, RawInode, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};

/// Runs a program to success.
pub fn run(program: &str, args: &[&str]) -> String {
    let output = try_run(program, args);
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn try_run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"))
}

fn exists(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// An image file in memory, with a place to mount it.
pub struct Image {
    _home: tempfile::TempDir,
    path: PathBuf,
    mount_point: PathBuf,
    file: File,
}

/// Unmounts when the closure that uses the mount ends, also by a panic.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        extant_testing::unmount(self.0);
    }
}

impl Image {
    /// A new file system of `mebibytes`; `None`, and a line that says so, where tools or rights are missing.
    pub fn mkfs(mebibytes: u64, args: &[&str]) -> Option<Self> {
        for tool in ["mke2fs", "e2fsck", "debugfs", "setfattr", "getfattr"] {
            if !exists(tool) {
                println!("skipped: no {tool}");
                return None;
            }
        }
        let shm = Path::new("/dev/shm");
        let home = tempfile::tempdir_in(if shm.is_dir() { shm } else { Path::new("/tmp") }).unwrap();
        if home.path().metadata().unwrap().uid() != 0 {
            println!("skipped: not root");
            return None;
        }
        let (path, mount_point) = (home.path().join("image"), home.path().join("mount"));
        std::fs::create_dir(&mount_point).unwrap();
        File::create(&path).unwrap().set_len(mebibytes << 20).unwrap();
        run("mke2fs", &[&["-q", "-F", "-t", "ext4"], args, &[path.to_str().unwrap()]].concat());
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let image = Self { _home: home, path, mount_point, file };
        let probe = image.mount_output();
        if !probe.status.success() {
            println!("skipped: no loop mounts ({})", String::from_utf8_lossy(&probe.stderr).trim());
            return None;
        }
        drop(Mounted(&image.mount_point));
        Some(image)
    }

    fn mount_output(&self) -> Output {
        try_run(
            "mount",
            &["-o", "loop,noatime", self.path.to_str().unwrap(), self.mount_point.to_str().unwrap()],
        )
    }

    pub fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Mounts the image while `work` runs.
    pub fn mounted<T>(&self, work: impl FnOnce(&Path) -> T) -> T {
        let output = self.mount_output();
        assert!(output.status.success(), "mount: {}", String::from_utf8_lossy(&output.stderr));
        let _mounted = Mounted(&self.mount_point);
        work(&self.mount_point)
    }

    /// `e2fsck -fn` exits 0 and has nothing to say.
    pub fn assert_clean(&self) {
        let output = try_run("e2fsck", &["-fn", self.path()]);
        let text = [output.stdout, output.stderr].map(|o| String::from_utf8_lossy(&o).into_owned()).concat();
        assert!(output.status.success() && !text.contains("Fix?") && !text.contains("WARNING"), "{text}");
    }

    /// Output lines of debugfs commands, echoes left out.
    pub fn debugfs(&self, commands: &[String], writable: bool) -> Vec<String> {
        let mut script = tempfile::NamedTempFile::new().unwrap();
        script.write_all(commands.join("\n").as_bytes()).unwrap();
        let options = if writable { "-wf" } else { "-f" };
        let text = run("debugfs", &[options, script.path().to_str().unwrap(), self.path()]);
        text.lines().filter(|l| !l.starts_with("debugfs:")).map(str::to_owned).collect()
    }

    pub fn superblock(&self) -> Superblock {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        self.file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
        Superblock::parse(&bytes).unwrap()
    }

    pub fn block_bytes(&self) -> usize {
        self.superblock().block_size() as usize
    }

    pub fn read_block(&self, block: FsBlock) -> Vec<u8> {
        let mut bytes = vec![0; self.block_bytes()];
        let offset = block.0 * bytes.len() as u64;
        self.file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    pub fn write_block(&self, block: FsBlock, bytes: &[u8]) {
        self.file.write_all_at(bytes, block.0 * bytes.len() as u64).unwrap();
    }

    /// The blocks of an inode, in order.
    pub fn blocks(&self, ino: InodeNumber) -> Vec<FsBlock> {
        let count = self.inode(ino).size() / self.block_bytes() as u64;
        let commands: Vec<String> = (0..count).map(|block| format!("bmap <{ino}> {block}")).collect();
        self.debugfs(&commands, false).iter().map(|line| FsBlock(line.trim().parse().unwrap())).collect()
    }

    fn inode_location(&self, ino: InodeNumber) -> u64 {
        let text = self.debugfs(&[format!("imap <{ino}>")], false).concat();
        let (_, text) = text.split_once("block ").unwrap();
        let (_, text) = text.split_once("located at block ").unwrap();
        let (block, offset) = text.split_once(", offset 0x").unwrap();
        let block: u64 = block.parse().unwrap();
        block * self.block_bytes() as u64 + u64::from_str_radix(offset.trim(), 16).unwrap()
    }

    pub fn inode(&self, ino: InodeNumber) -> RawInode {
        let mut bytes = vec![0; usize::from(self.superblock().inode_size())];
        self.file.read_exact_at(&mut bytes, self.inode_location(ino)).unwrap();
        RawInode::parse(&bytes).unwrap()
    }

    /// Writes an inode, with its checksum.
    pub fn write_inode(&self, ino: InodeNumber, inode: &mut RawInode) {
        Checksums::new(&self.superblock()).update_inode(ino, inode);
        self.file.write_all_at(inode.as_bytes(), self.inode_location(ino)).unwrap();
    }
}
