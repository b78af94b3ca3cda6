//! A kernel that counts quotas, in a guest: many hosts' kernels are built without, and a test may stop it at any moment.
//!
//! `EXTANT_QUOTA_KERNEL` names a `vmlinuz` of Debian with its modules in `../lib/modules`; `make test-quota` downloads one. Without it, or
//! without QEMU, what needs the guest is skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::common::path;

/// Loaded in this order; a kernel with these built in needs none.
const MODULES: [&str; 8] = [
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci",
    "drivers/block/virtio_blk",
    "fs/quota/quota_tree",
    "fs/quota/quota_v2",
];

const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
while read -r module; do insmod "/$module"; done </modules
mount -t ext4 -o usrquota,grpquota,prjquota /dev/vda /mnt || echo "R mount failed"
perl /agent.pl /mnt /dev/vdb /dev/vda
umount /mnt
poweroff -f
"#;

/// How a guest is started.
pub struct Guest {
    kernel: PathBuf,
    initrd: PathBuf,
    dir: TempDir,
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
    pub fn find() -> Option<Self> {
        let Some(kernel) = std::env::var_os("EXTANT_QUOTA_KERNEL").map(PathBuf::from) else {
            println!("skipped: the kernel's side, for EXTANT_QUOTA_KERNEL names no kernel (make test-quota)");
            return None;
        };
        let missing: Vec<&str> =
            ["qemu-system-x86_64", "busybox", "perl"].into_iter().filter(|program| !has(program)).collect();
        if !missing.is_empty() {
            println!("skipped: the kernel's side, for {missing:?} are missing");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("extant-guest-").tempdir().expect("directory");
        let root = dir.path().join("root");
        for name in ["bin", "dev", "proc", "mnt"] {
            fs::create_dir_all(root.join(name)).expect("directory");
        }
        shell("cp \"$(command -v busybox)\" \"$(command -v perl)\" bin/", &root);
        shell(
            "for file in bin/*; do ldd $file 2>/dev/null | grep -o '/[^ )]*' | xargs -r -I% cp -L --parents % . ; done",
            &root,
        );
        fs::write(root.join("agent.pl"), include_str!("agent.pl")).expect("agent");
        fs::write(root.join("init"), INIT).expect("init");
        let name = kernel.file_name().expect("a name").to_string_lossy().replace("vmlinuz-", "");
        let modules = kernel.parent().expect("a directory").join("../lib/modules").join(name).join("kernel");
        let mut list = String::new();
        for module in MODULES {
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

    /// Has the kernel do `steps` on a disk whose limits it enforces: what came of each.
    pub fn work(&self, image: &Path, steps: &[String]) -> Vec<String> {
        let script = self.dir.path().join("script");
        let mut text = steps.join("\n") + "\nend\n";
        text.extend(std::iter::repeat_n('\n', 4096 - text.len() % 4096));
        fs::write(&script, text).expect("script");
        let drive = |file: &Path| format!("file={},format=raw,if=virtio", file.display());
        // Without `no_timer_check` a kernel on a busy host takes the emulated timer for broken.
        let output = Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg", "-cpu", "max", "-m", "256", "-nographic", "-nodefaults", "-no-reboot"])
            .args([
                "-serial",
                "stdio",
                "-append",
                "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check",
            ])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initrd)
            .args(["-drive", &drive(image), "-drive", &drive(&script)])
            .stdin(Stdio::null())
            .output()
            .expect("qemu");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("R end"), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        super::results(&said)
    }
}
