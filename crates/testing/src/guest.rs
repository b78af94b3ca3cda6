//! A kernel in a guest, for what the host's kernel does not do: many are built without quotas, and some refuse to change the size of a
//! mounted disk. A test may also stop it at any moment.
//!
//! `EXTANT_GUEST_KERNEL` names a `vmlinuz` of Debian with its modules in `../lib/modules`; make targets download one. Without it, or
//! without QEMU, what needs the guest is skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Loaded in this order; a kernel with these built in needs none.
const MODULES: [&str; 6] = [
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci",
    "drivers/block/virtio_blk",
];

/// What the guest does first.
const BEGIN: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
while read -r module; do insmod "/$module"; done </modules
"#;

/// What a guest has and does.
pub struct Setup<'a> {
    /// Programs of the host.
    pub programs: &'a [&'a str],
    /// Modules of the kernel beside those of the devices, without `.ko`.
    pub modules: &'a [&'a str],
    /// Files, by their names below the root, and their content.
    pub files: &'a [(&'a str, &'a str)],
    /// Commands of a shell. Disks are `/dev/vda` and those that follow.
    pub commands: &'a str,
}

/// How a guest is started.
pub struct Guest {
    kernel: PathBuf,
    initrd: PathBuf,
    dir: TempDir,
}

/// `PATH`, and where the host has the programs of root.
fn path() -> String {
    std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin"
}

fn shell(command: &str, dir: &Path) {
    let output = Command::new("sh").args(["-ec", command]).current_dir(dir).env("PATH", path()).output();
    let output = output.expect("sh");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

fn has(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).env("PATH", path()).output();
    found.is_ok_and(|output| output.status.success())
}

impl Guest {
    /// A guest, if there is a kernel for it; says so if not.
    ///
    /// # Panics
    /// If its initial file system cannot be made.
    #[must_use]
    pub fn find(setup: &Setup<'_>) -> Option<Self> {
        let Some(kernel) = std::env::var_os("EXTANT_GUEST_KERNEL").map(PathBuf::from) else {
            println!(
                "skipped: the kernel's side, for EXTANT_GUEST_KERNEL names no kernel; make test-quota and test-online-growth do"
            );
            return None;
        };
        let needed = ["qemu-system-x86_64", "busybox"].iter().chain(setup.programs);
        let missing: Vec<&&str> = needed.filter(|program| !has(program)).collect();
        if !missing.is_empty() {
            println!("skipped: the kernel's side, for {missing:?} are missing");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("extant-guest-").tempdir().expect("directory");
        let root = dir.path().join("root");
        for name in ["bin", "dev", "proc", "mnt"] {
            fs::create_dir_all(root.join(name)).expect("directory");
        }
        for program in ["busybox"].iter().chain(setup.programs) {
            shell(&format!("cp \"$(command -v {program})\" bin/"), &root);
        }
        shell(
            "for file in bin/*; do ldd $file 2>/dev/null | grep -o '/[^ )]*' | xargs -r -I% cp -L --parents % . ; done",
            &root,
        );
        for (name, content) in setup.files {
            fs::write(root.join(name), content).expect("a file");
        }
        fs::write(root.join("init"), format!("{BEGIN}{}poweroff -f\n", setup.commands)).expect("init");
        let name = kernel.file_name().expect("a name").to_string_lossy().replace("vmlinuz-", "");
        let modules = kernel.parent().expect("a directory").join("../lib/modules").join(name).join("kernel");
        let mut list = String::new();
        for module in MODULES.iter().chain(setup.modules) {
            let file = format!("{}.ko", module.rsplit('/').next().unwrap_or(module));
            if fs::copy(modules.join(format!("{module}.ko")), root.join(&file)).is_ok() {
                list += &format!("{file}\n");
            }
        }
        fs::write(root.join("modules"), list).expect("list");
        shell("chmod 755 init; find . | busybox cpio -o -H newc 2>/dev/null >../initrd", &root);
        let initrd = dir.path().join("initrd");
        Some(Self { kernel, initrd, dir })
    }

    /// Runs it with images as its disks, and a script as the last one: what it printed.
    ///
    /// # Panics
    /// If QEMU cannot be run.
    #[must_use]
    pub fn run(&self, images: &[&Path], script: &str) -> String {
        let file = self.dir.path().join("script");
        let padding = "\n".repeat(4096 - script.len() % 4096);
        fs::write(&file, format!("{script}{padding}")).expect("script");
        let mut command = Command::new("qemu-system-x86_64");
        // Without `no_timer_check` a kernel on a busy host takes the emulated timer for broken.
        command
            .args(["-accel", "tcg", "-cpu", "max", "-m", "512", "-nographic", "-nodefaults", "-no-reboot"])
            .args([
                "-serial",
                "stdio",
                "-append",
                "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check",
            ])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initrd);
        for image in images.iter().copied().chain([file.as_path()]) {
            let drive =
                format!("file={},format=raw,if=virtio,discard=unmap,detect-zeroes=unmap", image.display());
            command.args(["-drive", &drive]);
        }
        let output = command.stdin(Stdio::null()).output().expect("qemu");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }
}
