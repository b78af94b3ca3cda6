//! An ordinary user mounts through `fusermount3`.

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Output};

use crate::common::{Disk, EXTANT, assert_clean, can_mount, is_root, run};

const USER: u32 = 65534;

/// Runs a shell's words as an ordinary user.
fn user(words: &str) -> Output {
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        let id = USER.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "env", "HOME=/", "sh", "-ec", words]);
        command
    } else {
        let mut command = Command::new("sh");
        command.args(["-ec", words]);
        command
    };
    command.output().expect("a shell")
}

/// Whether an ordinary user can mount here.
fn can_user_mount(disk: &Disk) -> bool {
    let words = format!(
        "test -w /dev/fuse && test -x {EXTANT} && command -v fusermount3 && test -w {}",
        disk.point.display()
    );
    let can = user(&words).status.success();
    if !can {
        println!("skipped: an ordinary user has no /dev/fuse, no fusermount3 or no way to the program");
    }
    can
}

/// A disk whose image and mount point are the user's, the files in it root's; if the user can mount here.
fn users_disk() -> Option<Disk> {
    if !can_mount() {
        return None;
    }
    let disk = Disk::new("64M");
    if is_root() {
        for path in [disk.image.as_path(), &disk.point, disk.image.parent().expect("directory")] {
            chown(path, Some(USER), Some(USER)).expect("owner");
        }
        let dir = disk.image.parent().expect("directory");
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).expect("mode");
    }
    can_user_mount(&disk).then_some(disk)
}

fn assert_done(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn ordinary_user_mounts_and_files_are_stored_as_roots() {
    let Some(disk) = users_disk() else { return };
    let (image, point) = (disk.image.display(), disk.point.display());
    let owner = assert_done(&user(&format!(
        "{EXTANT} mount {image} {point}; echo x >{point}/file; mkdir {point}/dir; stat -c %u {point}/file; \
         test -w {point}/lost+found; {EXTANT} umount {point}"
    )));
    assert_clean(&disk.image);
    let own = if is_root() { USER } else { rustix::process::getuid().as_raw() };
    assert_eq!(owner.trim(), own.to_string());
    let stored = run(&["stat", "--json", &format!("{image}:/file")]);
    assert!(stored.contains("\"uid\": 0"), "{stored}");
}

#[test]
fn idmap_swaps_root_and_the_user() {
    let Some(disk) = users_disk() else { return };
    let (image, point) = (disk.image.display(), disk.point.display());
    assert_done(&user(&format!(
        "{EXTANT} mount -o idmap {image} {point}; echo x >{point}/file; {EXTANT} umount {point}"
    )));
    assert!(run(&["stat", "--json", &format!("{image}:/file")]).contains("\"uid\": 0"));
    assert_clean(&disk.image);
}
