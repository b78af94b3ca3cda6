//! Verbs that change names and attributes.

use super::bench::{Bench, DISK};

#[test]
fn mkdir_makes_directories_of_root() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mkdir", "disk.img:/srv", "disk.img:/opt"]);
    bench.ok(&["mkdir", "-p", "-m", "700", "disk.img:/srv/a/b", "disk.img:/etc"]);
    assert_eq!(bench.field(DISK, "/srv/a/b", "Mode:"), "0700");
    assert_eq!(bench.field(DISK, "/srv/a", "Mode:"), "0755");
    assert_eq!(bench.field(DISK, "/etc", "Mode:"), "0755");
    assert_eq!(bench.field(DISK, "/opt", "User:"), "0");
    bench.assert_clean(DISK);
    for (arguments, words) in [
        (&["mkdir", "disk.img:/srv"][..], "disk.img:/srv: file exists"),
        (&["mkdir", "disk.img:/x/y"], "disk.img:/x/y: no such file or directory"),
        (&["mkdir", "-p", "disk.img:/etc/hostname/x"], "not a directory"),
        (&["mkdir", "-p", "disk.img:/etc/hostname"], "file exists"),
    ] {
        let said = bench.fails(1, arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    // One that fails does not keep the others from being made.
    bench.fails(1, &["mkdir", "disk.img:/srv", "disk.img:/late"]);
    assert!(bench.debugfs(DISK, "stat /late").contains("directory"));
    bench.assert_clean(DISK);
}

#[test]
fn rm_removes_what_it_is_told() {
    let Some(bench) = Bench::new() else { return };
    let said = bench.fails(1, &["rm", "disk.img:/deep"]);
    assert!(said.contains("is a directory"), "{said}");
    assert!(bench.fails(1, &["rm", "disk.img:/missing"]).contains("no such file"));
    bench.ok(&["rm", "-f", "disk.img:/missing"]);
    bench.ok(&["rm", "disk.img:/etc/link", "disk.img:/conf"]);
    bench.ok(&["rm", "-rf", "disk.img:/deep", "disk.img:/odd"]);
    assert_eq!(bench.ok(&["ls", DISK]).out, "bin\netc\nlost+found\n");
    // The links went, not what they name.
    assert_eq!(bench.ok(&["ls", "disk.img:/etc"]).out, "group\nhostname\npasswd\n");
    bench.assert_clean(DISK);
    bench.fails(2, &["rm", "-r", "disk.img:/"]);
    bench.fails(2, &["rm", "-r", "disk.img:/etc/.."]);
    assert_eq!(bench.ok(&["ls", DISK]).out, "bin\netc\nlost+found\n");
    bench.assert_clean(DISK);
}

#[test]
fn mv_renames_and_moves() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mv", "disk.img:/etc/hostname", "disk.img:/etc/name"]);
    bench.ok(&["mv", "disk.img:/bin/tool", "disk.img:/etc/name", "disk.img:/deep"]);
    bench.ok(&["mv", "disk.img:/deep/er", "disk.img:/bin/"]);
    assert_eq!(bench.ok(&["ls", "disk.img:/deep"]).out, "name\ntool\n");
    assert_eq!(bench.content(DISK, "/bin/er/file"), b"deep\n");
    bench.ok(&["mv", "disk.img:/deep/name", "disk.img:/deep/tool"]);
    assert_eq!(bench.content(DISK, "/deep/tool"), b"guest\n");
    bench.assert_clean(DISK);
    for (arguments, words) in [
        (&["mv", "disk.img:/missing", "disk.img:/x"][..], "disk.img:/missing: no such file"),
        (&["mv", "disk.img:/bin", "disk.img:/bin/er"], "invalid argument"),
        (&["mv", "disk.img:/bin", "disk.img:/etc", "disk.img:/deep/tool"], "not a directory"),
        (&["mv", "disk.img:/deep/tool", "disk.img:/deep/tool"], "same file"),
    ] {
        let said = bench.fails(1, arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    assert_eq!(bench.content(DISK, "/deep/tool"), b"guest\n");
    bench.assert_clean(DISK);
}

#[test]
fn ln_makes_links_of_both_kinds() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["ln", "disk.img:/bin/tool", "disk.img:/bin/also"]);
    bench.ok(&["ln", "-s", "/no/such/file", "disk.img:/bin/soft"]);
    bench.ok(&["ln", "-s", "../etc/passwd", "disk.img:/bin"]);
    assert_eq!(bench.field(DISK, "/bin/tool", "Links:"), "2");
    assert!(bench.debugfs(DISK, "stat /bin/soft").contains("\"/no/such/file\""));
    assert_eq!(bench.ok(&["cat", "disk.img:/bin/passwd"]).stdout, bench.content(DISK, "/etc/passwd"));
    assert!(bench.fails(1, &["ln", "disk.img:/etc/group", "disk.img:/bin/also"]).contains("file exists"));
    bench.ok(&["ln", "-f", "disk.img:/etc/group", "disk.img:/bin/also"]);
    assert_eq!(bench.field(DISK, "/bin/tool", "Links:"), "1");
    bench.assert_clean(DISK);
    for arguments in [
        &["ln", "disk.img:/missing", "disk.img:/x"][..],
        &["ln", "disk.img:/etc", "disk.img:/x"],
        &["ln", "-sf", "x", "disk.img:/missing/y"],
    ] {
        bench.fails(1, arguments);
    }
    bench.assert_clean(DISK);
}

#[test]
fn ln_over_the_same_or_for_a_missing_file_removes_nothing() {
    let Some(bench) = Bench::new() else { return };
    bench.fails(1, &["ln", "-f", "disk.img:/etc/hostname", "disk.img:/etc/hostname"]);
    bench.fails(1, &["ln", "-f", "disk.img:/missing", "disk.img:/etc/hostname"]);
    bench.fails(1, &["ln", "-f", "disk.img:/etc", "disk.img:/etc/hostname"]);
    assert_eq!(bench.content(DISK, "/etc/hostname"), b"guest\n");
    bench.assert_clean(DISK);
}

#[test]
fn chmod_changes_modes_as_chmod_does() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["chmod", "4711", "disk.img:/bin/tool"]);
    assert_eq!(bench.field(DISK, "/bin/tool", "Mode:"), "04711");
    bench.ok(&["chmod", "-s,go=", "disk.img:/bin/tool"]);
    assert_eq!(bench.field(DISK, "/bin/tool", "Mode:"), "0700");
    bench.ok(&["chmod", "-R", "go=u-w,a-x+X", "disk.img:/deep"]);
    assert_eq!(bench.field(DISK, "/deep/er/file", "Mode:"), "0644");
    assert_eq!(bench.field(DISK, "/deep/er", "Mode:"), "0755");
    bench.ok(&["chmod", "600", "disk.img:/conf/link"]);
    assert_eq!(bench.field(DISK, "/etc/hostname", "Mode:"), "0600");
    bench.assert_clean(DISK);
    assert!(bench.fails(1, &["chmod", "600", "disk.img:/missing"]).contains("disk.img:/missing"));
    bench.fails(2, &["chmod", "9", "disk.img:/etc"]);
}

#[test]
fn chown_takes_the_disks_own_names_and_drops_privileges() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["chmod", "6755", "disk.img:/bin/tool"]);
    bench.debugfs_write(DISK, "ea_set /bin/tool security.capability value\n");
    let owner = |path: &str| (bench.field(DISK, path, "User:"), bench.field(DISK, path, "Group:"));
    let pair = |user: &str, group: &str| (user.to_owned(), group.to_owned());
    bench.ok(&["chown", "web", "disk.img:/bin/tool"]);
    assert_eq!(owner("/bin/tool"), pair("33", "0"));
    assert_eq!(bench.field(DISK, "/bin/tool", "Mode:"), "0755");
    assert!(!bench.debugfs(DISK, "ea_list /bin/tool").contains("security.capability"));
    bench.ok(&["chown", "web:", "disk.img:/bin/tool"]);
    assert_eq!(owner("/bin/tool"), pair("33", "34"));
    bench.ok(&["chown", ":www", "disk.img:/bin/tool"]);
    assert_eq!(owner("/bin/tool"), pair("33", "35"));
    bench.ok(&["chown", "-R", "1000:100000", "disk.img:/deep", "disk.img:/etc/link"]);
    assert_eq!(owner("/deep/er/file"), pair("1000", "100000"));
    assert_eq!(owner("/etc/hostname"), pair("1000", "100000"));
    assert_eq!(owner("/etc/link"), pair("0", "0"));
    bench.ok(&["chown", "-h", "7", "disk.img:/etc/link"]);
    assert_eq!(owner("/etc/link"), pair("7", "0"));
    bench.assert_clean(DISK);
    let said = bench.fails(1, &["chown", "nobody", "disk.img:/etc"]);
    assert!(said.contains("'nobody'"), "{said}");
    bench.fails(2, &["chown", ":", "disk.img:/etc"]);
    bench.assert_clean(DISK);
}

#[test]
fn disks_named_in_two_ways_are_one() {
    let Some(bench) = Bench::new() else { return };
    let whole = bench.path(DISK).display().to_string();
    bench.ok(&["mkdir", "disk.img:/one", &format!("{whole}:/two")]);
    bench.ok(&["mv", "disk.img:/one", &format!("{whole}:/two/one")]);
    bench.ok(&["cp", "-r", &format!("{whole}:/etc"), "disk.img:/two/etc"]);
    assert_eq!(bench.ok(&["ls", "disk.img:/two"]).out, "etc\none\n");
    bench.assert_clean(DISK);
}
