//! The kernel's own ext4, through a loop device, as a judge.

use std::path::Path;
use std::process::Command;

use extant_block::{BlockDevice, MemoryDevice};
use tempfile::TempDir;

use super::disk::{load, scratch, store};

/// A disk that the kernel has mounted. Unmounted when dropped.
pub(crate) struct KernelMount {
    scratch: TempDir,
}

impl KernelMount {
    /// Mounts a copy of the disk for reading and writing; None, and says so, where that is not allowed.
    pub(crate) fn new(device: &dyn BlockDevice) -> Option<Self> {
        let scratch = scratch();
        let image = store(device, &scratch);
        let target = scratch.path().join("mount");
        std::fs::create_dir(&target).unwrap();
        let output = Command::new("mount")
            .args(["-t", "ext4", "-o", "loop,acl,user_xattr"])
            .args([&image, &target])
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Self { scratch }),
            other => {
                println!("skipped: no mount by the kernel: {other:?}");
                None
            }
        }
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.scratch.path().join("mount")
    }

    /// The output of a command that must succeed, run in the root of the disk.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).current_dir(self.path()).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Unmounts; the disk as it is now.
    pub(crate) fn unmount(self) -> MemoryDevice {
        unmount(&self.path());
        load(&self.scratch.path().join("stored"))
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        unmount(&self.path());
    }
}

/// Does nothing if it is unmounted already.
fn unmount(path: &Path) {
    let _ = Command::new("umount").arg(path).output();
}

/// The extended attributes that the kernel shows of a file, value in hexadecimal.
pub(crate) fn kernel_xattrs(mounted: &KernelMount, name: &str) -> std::collections::BTreeMap<String, String> {
    let said = mounted.run("getfattr", &["-h", "-d", "-m", "-", "-e", "hex", "--absolute-names", name]);
    said.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            let value = value.trim_start_matches("0x").trim_matches('"');
            (name.to_owned(), value.to_owned())
        })
        .collect()
}
