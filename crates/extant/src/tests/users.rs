//! Permissions of users through the API, compared with the kernel step by step: both succeed or both fail, and the
//! trees are the same in the end.

use std::path::Path;
use std::process::Command;

use extant_ondisk::InodeFlags;
use extant_rt::Arc;

use super::disk::{assert_clean, format, has_e2fsprogs};
use super::kernel::KernelMount;
use crate::error::{Error, Result};
use crate::inode::attributes::SetAttributes;
use crate::inode::xattr::XattrMode;
use crate::namespace::{Credentials, New, NewKind};
use crate::{Filesystem, Mount};

/// The user, what the shell does, and what the API does.
type Step = (&'static str, fn(&Filesystem) -> Result<()>);

/// Users 1 (of group 10 and 11) and 2 (of group 10). Made by root.
const TREE: &str =
    "umask 0; mkdir -m 777 open; mkdir -m 755 own shut; mkdir -m 2777 handed; mkdir -m 1777 sticky
    mkdir -m 755 open/theirs own/mine; chown 1:10 own own/mine; chgrp 99 handed; chown 2:10 open/theirs
    for f in own/a own/b own/c open/d sticky/e; do : > $f; chown 1:10 $f; chmod 664 $f; done
    : > open/g; chown 1:99 open/g; chmod 755 open/g; : > sticky/h; chown 2:10 sticky/h
    setfattr -n trusted.t -v 1 own/a";

fn mode(fs: &Filesystem, path: &str, mode: u16) -> Result<()> {
    fs.set_mode(path, mode)
}

fn owner(fs: &Filesystem, path: &str, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    let set = SetAttributes { uid, gid, clear_set_id: true, ..SetAttributes::default() };
    fs.lookup(path)?.set_attributes(&set)
}

fn xattr(fs: &Filesystem, path: &str, name: &str) -> Result<()> {
    fs.lookup(path)?.set_xattr(name.as_bytes(), b"v", XattrMode::default())
}

fn make(fs: &Filesystem, dir: &str, name: &str, kind: NewKind<'_>, mode: u16) -> Result<()> {
    let new = New { kind, mode, uid: 0, gid: 0, times: None, xattrs: &[] };
    fs.dir(dir)?.create(name.as_bytes(), &new).map(drop)
}

fn flag(fs: &Filesystem, path: &str, flag: InodeFlags) -> Result<()> {
    let file = fs.lookup(path)?;
    file.set_flags(file.metadata().flags | flag)
}

/// As user 1, of groups 10 and 11.
const STEPS: &[Step] = &[
    ("chown 2 own/a", |fs| owner(fs, "own/a", Some(2), None)),
    ("chgrp 11 own/a", |fs| owner(fs, "own/a", None, Some(11))),
    ("chgrp 12 own/a", |fs| owner(fs, "own/a", None, Some(12))),
    ("chmod 6755 own/b", |fs| mode(fs, "own/b", 0o6755)),
    ("chgrp 11 own/b", |fs| owner(fs, "own/b", None, Some(11))),
    ("chmod 2755 open/g", |fs| mode(fs, "open/g", 0o2755)),
    ("chmod 700 open/theirs", |fs| mode(fs, "open/theirs", 0o700)),
    ("setfattr -n user.u -v v own/a", |fs| xattr(fs, "own/a", "user.u")),
    ("setfattr -n trusted.u -v v own/a", |fs| xattr(fs, "own/a", "trusted.u")),
    ("setfattr -n user.u -v v sticky/h", |fs| xattr(fs, "sticky/h", "user.u")),
    ("setfattr -n user.u -v v sticky", |fs| xattr(fs, "sticky", "user.u")),
    ("setfattr -n user.u -v v open", |fs| xattr(fs, "open", "user.u")),
    ("getfattr -n user.u own/a", |fs| fs.lookup("own/a")?.xattr(b"user.u").map(drop)),
    ("getfattr -n trusted.t own/a", |fs| fs.lookup("own/a")?.xattr(b"trusted.t").map(drop)),
    ("mkdir shut/x", |fs| make(fs, "shut", "x", NewKind::Directory, 0o755)),
    ("mkdir -m 755 open/x", |fs| make(fs, "open", "x", NewKind::Directory, 0o755)),
    ("mkdir -m 755 handed/x", |fs| make(fs, "handed", "x", NewKind::Directory, 0o755)),
    ("mkfifo -m 644 open/p", |fs| make(fs, "open", "p", NewKind::Fifo, 0o644)),
    ("mknod open/q c 1 3", |fs| make(fs, "open", "q", NewKind::CharDevice { major: 1, minor: 3 }, 0o644)),
    ("rm -f sticky/h && test ! -e sticky/h", |fs| fs.remove_file("sticky/h")),
    ("rm -f sticky/e && test ! -e sticky/e", |fs| fs.remove_file("sticky/e")),
    ("mv -T open/theirs open/renamed", |fs| fs.rename("open/theirs", "open/renamed")),
    ("mv -T open/renamed handed/theirs", |fs| fs.rename("open/renamed", "handed/theirs")),
    ("mv -T own/mine open/mine", |fs| fs.rename("own/mine", "open/mine")),
    ("mv -T own/c shut/c", |fs| fs.rename("own/c", "shut/c")),
    ("chattr +d own/c", |fs| flag(fs, "own/c", InodeFlags::NODUMP)),
    ("chattr +i own/c", |fs| flag(fs, "own/c", InodeFlags::IMMUTABLE)),
    ("chattr +d sticky/h", |fs| flag(fs, "sticky/h", InodeFlags::NODUMP)),
    ("cat own/a", |fs| fs.read("own/a").map(drop)),
    ("ln own/a shut/a", |fs| fs.hard_link("own/a", "shut/a")),
    ("ln -s x shut/a", |fs| fs.symlink("x", "shut/a")),
];

/// Whether a command succeeds as user 1.
fn succeeds(kernel: &KernelMount, script: &str) -> bool {
    let output = Command::new("setpriv")
        .args(["--reuid=1", "--regid=10", "--groups=11", "sh", "-c", script])
        .current_dir(kernel.path())
        .output()
        .unwrap();
    output.status.success()
}

fn listing(kernel: &KernelMount) -> String {
    kernel.run(
        "sh",
        &["-c", "find . -name lost+found -prune -o -printf '%p %m %U %G %n %y\n' | sort; lsattr -R ."],
    )
}

#[test]
fn users_may_do_what_the_kernel_lets_them() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, _) = format(&["-b", "1024"], 8 << 10, &[]);
    let Some(kernel) = KernelMount::new(&device) else { return };
    kernel.run("sh", &["-c", TREE]);
    if Command::new("setpriv").arg("--version").output().is_err() {
        println!("skipped: no setpriv");
        return;
    }
    let device = Arc::new(kernel.unmount());
    let Some(kernel) = KernelMount::new(&*device) else { return };
    let fs = Mount::new().open_device(device.clone()).unwrap();
    let user = fs.as_user(Credentials { uid: 1, gid: 10, groups: vec![11] });
    for (script, step) in STEPS {
        let (ours, theirs) = (step(&user), succeeds(&kernel, script));
        assert_eq!(ours.is_ok(), theirs, "{script}: {ours:?}");
        if let Err(error) = ours {
            let is_refusal =
                matches!(error.cause(), Error::NotPermitted | Error::PermissionDenied | Error::NoAttribute);
            assert!(is_refusal, "{script}: {error:?}");
        }
    }
    assert_eq!(user.lookup("own/a").unwrap().list_xattrs().unwrap(), [b"user.u"]);
    assert!(user.symlink_lookup(Path::new("open/none")).is_err());
    drop(user);
    fs.unmount().unwrap();
    assert_clean(&*device, "after the user");
    let ours = KernelMount::new(&*device).unwrap();
    assert_eq!(listing(&ours), listing(&kernel));
}
