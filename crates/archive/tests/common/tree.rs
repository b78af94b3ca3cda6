//! A tree with everything in it, and running programs.

use std::fs;
use std::path::Path;

use extant_archive::Source;
use extant_testing::Command;
use tempfile::TempDir;

#[cfg(unix)]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Programs of Linux, which the runner of the tests runs on other hosts, say it.
#[cfg(not(unix))]
pub fn is_root() -> bool {
    let said = Command::new("id").arg("-u").output().unwrap();
    said.stdout == b"0\n"
}

/// Runs a shell script in `dir`, which must succeed.
pub fn shell(dir: &Path, script: &str) {
    let out = Command::new("sh").arg("-ec").arg(script).current_dir(dir).output().unwrap();
    let said = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "{script}\n{}", String::from_utf8_lossy(&said));
}

/// A directory of the host with a directory `tree` in it, which has one of everything that the user may make.
pub struct Tree {
    pub dir: TempDir,
}

impl Tree {
    pub fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        make_tree(&dir.path().join("tree"));
        Self { dir }
    }

    /// The tree as it is now.
    pub fn source(&self) -> impl Source + Send + 'static + use<> {
        self.source_of("tree")
    }

    /// What is in the directory `name` beside the tree, or the tree itself. Other hosts show no owners, devices, attributes, holes or odd
    /// names; GNU tar's archive has them all.
    pub fn source_of(&self, name: &str) -> impl Source + Send + 'static + use<> {
        #[cfg(target_os = "linux")]
        return extant_archive::Walk::new(self.dir.path().join(name));
        #[cfg(not(target_os = "linux"))]
        {
            use extant_archive::{Input, TarReader, UserDatabase};
            let rich =
                "--format=posix --pax-option=delete=atime,delete=ctime --xattrs --xattrs-include=* --acls";
            shell(
                self.dir.path(),
                &format!("tar {rich} --numeric-owner -S --sort=name -C {name} -cf {name}.tar ."),
            );
            let archive = fs::File::open(self.dir.path().join(format!("{name}.tar"))).unwrap();
            // GNU tar takes the host's names into default lists.
            let names =
                UserDatabase::parse(&fs::read("/etc/passwd").unwrap(), &fs::read("/etc/group").unwrap());
            TarReader::new(Input::file(archive).unwrap()).names(names)
        }
    }
}

/// Windows and WASI do not remove what they have no names for, and WASI waits for a writer to a pipe.
#[cfg(not(unix))]
impl Drop for Tree {
    fn drop(&mut self) {
        shell(self.dir.path(), "rm -rf tree out");
    }
}

/// Makes a tree with one of everything that the user may make.
fn make_tree(root: &Path) {
    fs::create_dir(root).unwrap();
    shell(
        root,
        r#"
        umask 022
        mkdir -p dir/deep/er empty sticky
        printf hello > dir/small
        : > dir/nothing
        head -c 3000001 /dev/zero | tr '\0' 'x' > dir/large
        ln dir/small dir/deep/hard
        ln -s ../small dir/deep/link
        ln -s "$(head -c 200 /dev/zero | tr '\0' l)" longlink
        mkfifo pipe
        n=$(head -c 180 /dev/zero | tr '\0' n)
        mkdir "$n"
        printf long > "$n/$n"
        printf odd > "$(printf 'odd\nname\377 \\')"
        truncate -s 20000000 sparse
        printf middle | dd of=sparse bs=1 seek=8000000 conv=notrunc 2>/dev/null
        truncate -s 5000000 hole
        cp --sparse=always sparse hard-sparse
        chmod 4755 dir/small; chmod 1777 sticky; chmod 0 empty
        touch -d '1969-12-31 23:59:58.25 UTC' dir/nothing
        touch -d '2026-01-02 03:04:05.123456789 UTC' dir/large
        touch -h -d '2001-02-03 04:05:06.5 UTC' dir/deep/link
        chmod 755 empty
        touch -d '2010-01-01 UTC' dir/deep dir
        "#,
    );
    if is_root() {
        shell(
            root,
            r#"
            mknod null c 1 3; mknod disk b 259 1000
            chown 1234:5678 dir/large; chown -h 7:8 dir/deep/link; chown 4000000000:3 sparse
            setfattr -n user.note -v 'a=b%' dir/large
            setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 dir/nothing
            setfacl -m u:7:r--,g:9:rwx dir/large
            setfacl -d -m u:7:r-x dir/deep
            touch -d '2010-01-01 UTC' dir/deep dir
            "#,
        );
    }
}
