//! Images that e2fsprogs make, and what they say of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use extant::Mount;
use extant_testing::{Command, Output, has_e2fsprogs, run_while_busy, text};

/// One test at a time: a program that another has just started would hold this one's image open. None without e2fsprogs.
pub fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    has_e2fsprogs().then_some(guard)
}

pub fn run(program: &str, arguments: &[&str], image: &Path) -> Output {
    Command::new(program).args(arguments).arg(image).output().expect(program)
}

/// A disk of 16 MiB, made with these options of mke2fs, with the content of `tree`.
pub fn make(scratch: &Path, options: &[&str], tree: impl FnOnce(&Path)) -> PathBuf {
    let (from, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&from).expect("a directory");
    tree(&from);
    let made = ["-q", "-F", "-t", "ext4", "-b", "1024", "-d", text(&from)];
    extant_testing::run("mke2fs", &[&made, options, &[text(&image), "16M"]].concat()).expect("mke2fs");
    image
}

/// Unmounts what the kernel has mounted, and waits for it to release the image: it does so later if another program
/// looks at loop devices just then.
pub fn unmount_by_kernel(at: &Path, image: &Path) -> bool {
    let is_unmounted = run_while_busy(Command::new("umount").arg(at)).status.success();
    for _ in 0..1000 {
        if run("losetup", &["-j"], image).stdout.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    is_unmounted
}

/// Does what the lines say to the disk.
pub fn debugfs(image: &Path, commands: &str) {
    let script = image.with_extension("debugfs");
    fs::write(&script, commands).expect("a script");
    let output = run("debugfs", &["-w", "-f", text(&script)], image);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.lines().count() <= 1, "{said}");
}

/// Panics unless neither `e2fsck` nor our own check finds anything.
pub fn assert_clean(image: &Path, what: &str) {
    extant_testing::assert_clean(image, what);
    let findings = Mount::new().read_only(true).open(image).expect(what).check(&mut |_| {}).expect(what);
    assert!(findings.is_empty(), "{what}: {findings:?}");
}
