//! All of it as an ordinary user: nothing is done on the host that needs root.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::bench::{Bench, DISK, Run, is_root, tool};

/// The command as a user without privileges; as the one that runs the tests, if unprivileged.
fn as_user(bench: &Bench) -> Option<impl Fn(&[&str]) -> Run> {
    let setpriv = if is_root() { Some(tool("setpriv")?) } else { None };
    let program = bench.path("extant");
    bench.install();
    std::fs::set_permissions(bench.dir(), std::fs::Permissions::from_mode(0o777)).expect("mode");
    Some(move |arguments: &[&str]| {
        let mut command: Command = match &setpriv {
            Some(setpriv) => {
                let mut command = bench.command(setpriv);
                command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
                command
            }
            None => bench.command(&program),
        };
        bench.finish(command.args(arguments), b"")
    })
}

#[test]
fn ordinary_user_builds_and_edits_a_disk_with_roots_files() {
    let (Some(bench), Some(_)) = (Bench::new(), tool("tar")) else { return };
    let Some(extant) = as_user(&bench) else { return };
    let ok = |arguments: &[&str]| {
        let run = extant(arguments);
        assert_eq!((run.status, run.err.as_str()), (0, ""), "{arguments:?}");
        run
    };
    bench.program("tar", &["--owner=33", "--group=35", "-cf", "web.tar", "-C", "tree", "bin", "etc"]);
    ok(&["mkfs", "-q", "-d", "web.tar", "own.img", "16M"]);
    ok(&["chown", "0:0", "own.img:/bin/tool"]);
    ok(&["chmod", "4755", "own.img:/bin/tool"]);
    ok(&["cp", "--chown", "web", "tree/etc/hostname", "own.img:/etc/copy"]);
    ok(&["mkdir", "own.img:/srv"]);
    ok(&["export", "own.img", "-o", "own.tar"]);
    ok(&["check", "own.img"]);
    bench.assert_clean("own.img");
    assert_eq!(bench.field("own.img", "/bin/tool", "Mode:"), "04755");
    assert_eq!(bench.field("own.img", "/bin/tool", "User:"), "0");
    assert_eq!(bench.field("own.img", "/etc/passwd", "User:"), "33");
    assert_eq!(bench.field("own.img", "/etc/copy", "User:"), "33");
    let listed = bench.program("tar", &["--numeric-owner", "-tvf", "own.tar"]).out;
    let tool = listed.lines().find(|line| line.ends_with("bin/tool")).expect("tool");
    assert!(tool.starts_with("-rwsr-xr-x 0/0"), "{tool}");
}

#[test]
fn disk_of_somebody_else_is_read_but_not_written() {
    let Some(bench) = Bench::new() else { return };
    if !is_root() {
        println!("skipped: not root");
        return;
    }
    let Some(extant) = as_user(&bench) else { return };
    std::fs::set_permissions(bench.path(DISK), std::fs::Permissions::from_mode(0o444)).expect("mode");
    let run = extant(&["cat", "disk.img:/etc/hostname"]);
    assert_eq!((run.status, run.out.as_str()), (0, "guest\n"), "{}", run.err);
    // Modes inside the disk do not bind a user who can open the image.
    assert_eq!(extant(&["cat", "disk.img:/deep/er/file"]).out, "deep\n");
    bench.assert_untouched(DISK, || {
        let run = extant(&["mkdir", "disk.img:/x"]);
        assert!(run.status == 1 && run.err.to_lowercase().contains("permission denied"), "{}", run.err);
    });
}
