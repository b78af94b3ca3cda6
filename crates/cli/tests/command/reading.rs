//! Verbs that read: what they show, and that they write nothing.

use std::fs::File;
use std::process::{Command, Stdio};

use super::bench::{Bench, DISK, tool};

/// Every way to read a disk.
const READINGS: [&[&str]; 14] = [
    &["ls", "-laR", DISK],
    &["ls", "--json", "-R", DISK],
    &["cat", "disk.img:/etc/passwd"],
    &["cat", "--json", "disk.img:/etc/passwd"],
    &["stat", "disk.img:/etc/link"],
    &["stat", "--json", "disk.img:/etc/link"],
    &["info", DISK],
    &["info", "--json", DISK],
    &["frag", DISK],
    &["frag", "--json", DISK],
    &["check", DISK],
    &["check", "--json", DISK],
    &["export", DISK, "-o", "out.tar"],
    &["cp", "-r", "disk.img:/etc", "out"],
];

#[test]
fn reading_changes_no_byte_and_needs_no_right_to_write() {
    let Some(bench) = Bench::new() else { return };
    bench.assert_untouched(DISK, || {
        for arguments in READINGS {
            bench.ok(arguments);
        }
    });
    assert!(bench.path("out.tar").exists() && bench.path("out/hostname").exists());
}

#[test]
fn ls_lists_names_in_their_order_and_hides_those_with_a_dot() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(bench.ok(&["ls", DISK]).out, "bin\nconf\ndeep\netc\nlost+found\nodd\n");
    assert_eq!(bench.ok(&["ls", "disk.img:/"]).out, bench.ok(&["ls", DISK]).out);
    assert!(bench.ok(&["ls", "-a", DISK]).out.starts_with(".\n..\n.hidden\nbin\n"));
    assert_eq!(bench.ok(&["ls", "-d", "disk.img:/etc"]).out, "/etc\n");
    assert_eq!(bench.ok(&["ls", "disk.img:/etc/hostname"]).out, "/etc/hostname\n");
    // A link to a directory, followed inside the disk.
    assert_eq!(bench.ok(&["ls", "disk.img:/conf"]).out, "group\nhostname\nlink\npasswd\n");
    let recursive = bench.ok(&["ls", "-R", "disk.img:/deep"]).out;
    assert!(recursive.ends_with("er:\nfile\n") && recursive.contains("deep:\ner\n"), "{recursive}");
    assert_eq!(bench.ok(&["ls", "disk.img:/odd"]).stdout, b"bad\xffname\ngr\xc3\xbcn\nnew\nline\n");
}

#[test]
fn ls_long_shows_modes_owners_by_the_disks_own_names_and_targets() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["chown", "web:www", "disk.img:/bin/tool"]);
    let lines = bench.ok(&["ls", "-l", "disk.img:/bin", "disk.img:/etc/link"]).out;
    let tool: Vec<&str> =
        lines.lines().find(|line| line.ends_with(" tool")).expect("tool").split_whitespace().collect();
    assert_eq!(tool[..5], ["-rwxr-xr-x", "1", "web", "www", "20"]);
    let link = lines.lines().find(|line| line.starts_with('l')).expect("link");
    assert!(link.starts_with("lrwxrwxrwx") && link.ends_with("/etc/link -> hostname"), "{link}");
    let numbers = bench.ok(&["ls", "-ln", "disk.img:/bin"]).out;
    assert!(numbers.contains(" 33 35 "), "{numbers}");
}

#[test]
fn cat_gives_the_bytes_of_every_file_that_can_be_read() {
    let Some(bench) = Bench::new() else { return };
    let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 / 5) as u8).collect();
    std::fs::write(bench.path("large"), &large).expect("file");
    bench.ok(&["cp", "large", "disk.img:/large"]);
    assert!(bench.ok(&["cat", "disk.img:/large"]).stdout == large);
    assert_eq!(bench.ok(&["cat", "disk.img:/conf/link"]).out, "guest\n");
    let run = bench.run(&["cat", "disk.img:/missing", "disk.img:/etc", "disk.img:/etc/hostname"]);
    assert_eq!((run.status, run.out.as_str()), (1, "guest\n"));
    assert!(run.err.contains("extant: disk.img:/missing: no such file or directory\n"), "{}", run.err);
    assert!(run.err.contains("extant: disk.img:/etc: is a directory\n"), "{}", run.err);
}

#[test]
fn stat_tells_what_debugfs_tells() {
    let Some(bench) = Bench::new() else { return };
    bench.debugfs_write(DISK, "ea_set /bin/tool user.origin value\n");
    let document = bench.ok(&["stat", "--json", "disk.img:/bin/tool"]).json();
    let file = &document["files"][0];
    assert_eq!(file["inode"].to_string(), bench.field(DISK, "/bin/tool", "Inode:"));
    assert_eq!((file["type"].as_str(), file["mode"].as_str()), (Some("file"), Some("0755")));
    assert_eq!((file["size_bytes"].as_u64(), file["links"].as_u64()), (Some(20), Some(1)));
    assert_eq!(file["xattrs"][0]["name"], "user.origin");
    assert_eq!(file["xattrs"][0]["value_b64"], "dmFsdWU=");
    assert!(file["mtime_ns"].as_i64().expect("mtime") > 1_600_000_000_000_000_000);
    let text = bench.ok(&["stat", "disk.img:/etc/link"]).out;
    assert!(text.contains("/etc/link -> hostname") && text.contains("0777/lrwxrwxrwx"), "{text}");
    assert!(bench.fails(1, &["stat", "disk.img:/missing"]).contains("disk.img:/missing"));
}

#[test]
fn info_tells_what_dumpe2fs_tells() {
    let Some(bench) = Bench::new() else { return };
    bench.program("tune2fs", &["-L", "data", DISK]);
    let listed = bench.program("dumpe2fs", &["-h", DISK]).out;
    let field = |name: &str| {
        let line = listed.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}"));
        line[name.len()..].trim().to_owned()
    };
    let document = bench.ok(&["info", "--json", DISK]).json();
    assert_eq!(document["uuid"].as_str(), Some(field("Filesystem UUID:").as_str()));
    assert_eq!(document["label"], "data");
    assert_eq!(document["blocks"].to_string(), field("Block count:"));
    assert_eq!(document["free_inodes"].to_string(), field("Free inodes:"));
    assert_eq!(document["size_bytes"].as_u64(), Some(16 << 20));
    let free: u64 = field("Free blocks:").parse().expect("number");
    assert_eq!(document["free_bytes"].as_u64(), Some(free * 4096));
    let features: Vec<&str> =
        document["features"].as_array().expect("array").iter().filter_map(|f| f.as_str()).collect();
    assert_eq!(features.join(" "), field("Filesystem features:"));
    let text = bench.ok(&["info", DISK]).out;
    assert!(text.contains("data") && text.contains(&field("Filesystem UUID:")), "{text}");
}

#[test]
fn frag_counts_what_e2freefrag_and_debugfs_count() {
    let Some(bench) = Bench::new() else { return };
    bench.debugfs_write(DISK, "rm /bin/tool\n");
    let listed = bench.program("e2freefrag", &[DISK]).out;
    let field = |name: &str| {
        let line = listed.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}"));
        line[name.len()..].split_whitespace().next().expect("a value").to_owned()
    };
    let document = bench.ok(&["frag", "--json", DISK]).json();
    assert_eq!(document["free"]["runs"].to_string(), field("Num. free extent:"));
    let free: u64 = field("Free blocks:").parse().expect("number");
    assert_eq!(document["free"]["bytes"].as_u64(), Some(free * 4096));
    let extents = |path: &str| {
        let blocks = bench.program("debugfs", &["-R", &format!("blocks {path}"), DISK]).out;
        let blocks: Vec<u64> =
            blocks.split_whitespace().map(|block| block.parse().expect("a block")).collect();
        blocks.chunk_by(|a, b| a + 1 == *b).count() as u64
    };
    let large: Vec<u8> = vec![7; 300_000];
    std::fs::write(bench.path("large"), &large).expect("file");
    let before = document["extents"]["runs"].as_u64().expect("number");
    bench.ok(&["cp", "large", "disk.img:/large"]);
    let document = bench.ok(&["frag", "--json", DISK]).json();
    assert_eq!(document["extents"]["runs"].as_u64(), Some(before + extents("/large")));
    let text = bench.ok(&["frag", DISK]).out;
    assert!(text.contains("free space: ") && text.contains("\nscore: "), "{text}");
}

#[test]
fn documents_carry_names_that_are_no_utf8() {
    let Some(bench) = Bench::new() else { return };
    let document = bench.ok(&["ls", "--json", "disk.img:/odd"]).json();
    let entries = document["listings"][0]["entries"].as_array().expect("entries");
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[0]["name_b64"], "YmFk/25hbWU=");
    assert!(entries[0].get("name").is_none());
    assert_eq!((&entries[1]["name"], &entries[2]["name"]), (&"gr\u{fc}n".into(), &"new\nline".into()));
    for (key, kind) in [("size_bytes", "u64"), ("inode", "u64"), ("mtime_ns", "u64"), ("mode", "text")] {
        let value = &entries[0][key];
        assert!(if kind == "text" { value.is_string() } else { value.is_u64() }, "{key}: {value}");
    }
    let content = bench.ok(&["cat", "--json", "disk.img:/etc/hostname"]).json();
    assert_eq!(content["files"][0]["content"], "guest\n");
}

#[test]
fn check_of_a_clean_disk_says_so() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(bench.ok(&["check", DISK]).out, "disk.img: clean\n");
    let document = bench.ok(&["check", "--json", DISK]).json();
    assert_eq!(
        (document["is_clean"].as_bool(), document["findings"].as_array().map(Vec::len)),
        (Some(true), Some(0))
    );
}

#[test]
fn names_are_escaped_on_a_terminal() {
    let (Some(bench), Some(_)) = (Bench::new(), tool("script")) else { return };
    let command = format!("{} ls disk.img:/odd", env!("CARGO_BIN_EXE_extant"));
    let shown = bench.program("script", &["-qec", &command, "/dev/null"]).out;
    assert_eq!(shown.replace('\r', ""), "bad\\377name\ngr\u{fc}n\nnew\\nline\n");
}

#[test]
fn errors_do_not_carry_control_characters() {
    let Some(bench) = Bench::new() else { return };
    let said = bench.fails(1, &["cat", "disk.img:/a\x1b[31m\n\u{202e}b"]);
    assert_eq!(said.lines().count(), 1, "{said:?}");
    assert!(!said.contains('\x1b') && !said.contains('\u{202e}'), "{said:?}");
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let Some(bench) = Bench::new() else { return };
    for arguments in
        READINGS.iter().filter(|arguments| !arguments.contains(&"out") && !arguments.contains(&"out.tar"))
    {
        let full = File::options().write(true).open("/dev/full").expect("/dev/full");
        let output =
            bench.extant().args(*arguments).stdout(full).stderr(Stdio::piped()).output().expect("run");
        let said = String::from_utf8_lossy(&output.stderr);
        let status = if arguments[0] == "check" { 8 } else { 1 };
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains("space left"), "{arguments:?}: {said}");
    }
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let status =
        bench.extant().args(["export", DISK]).stdout(full).stderr(Stdio::null()).status().expect("run");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn reader_that_goes_away_is_no_panic() {
    let Some(bench) = Bench::new() else { return };
    std::fs::write(bench.path("large"), vec![b'x'; 4 << 20]).expect("file");
    bench.ok(&["cp", "large", "disk.img:/large"]);
    for arguments in [&["cat", "disk.img:/large"][..], &["export", DISK], &["ls", "-lR", DISK]] {
        let mut command = bench.extant();
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("spawn");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("output");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}: {:?}", output.status);
    }
}

#[test]
fn what_is_encrypted_is_listed_and_refused_by_name() {
    let Some(bench) = Bench::new() else { return };
    bench.program("mkdir", &["from", "from/enc"]);
    std::fs::write(bench.path("from/enc/sixteen-bytes-xx"), "content").expect("file");
    bench.mke2fs("e.img", "16M", &["-O", "encrypt", "-d", "from"]);
    bench.debugfs_write("e.img", "sif /enc flags 0x80800\nsif /enc/sixteen-bytes-xx flags 0x80800\n");
    let names = bench.ok(&["ls", "e.img:/enc"]).out;
    let name = names.trim_end();
    assert!(name.len() == 32 && name.ends_with("aXh0ZWVuLWJ5dGVzLXh4"), "{name}");
    let place = format!("e.img:/enc/{name}");
    assert!(bench.ok(&["ls", "-l", &place]).out.contains(" 7 "));
    let no_key = "required key not available\n";
    assert_eq!(bench.fails(1, &["cat", &place]), format!("extant: {place}: {no_key}"));
    assert_eq!(bench.fails(1, &["export", "e.img", "-o", "e.tar"]), format!("extant: {place}: {no_key}"));
    let refused = bench.fails(1, &["rm", &place]);
    assert!(refused.contains("can only be read, for it has the features encrypt"), "{refused}");
    assert!(bench.ok(&["info", "e.img"]).out.contains(" encrypt "));
    bench.ok(&["check", "e.img"]);
}

#[test]
fn names_have_the_colours_of_ls() {
    let Some(bench) = Bench::new() else { return };
    bench.shell(
        "cd tree; mkdir sticky open both; chmod 1755 sticky; chmod 777 open; chmod 1777 both
        touch a.tar b.gz set group twice; ln twice other; ln -s etc dir; chmod 4755 set; chmod 2755 group; mkfifo pipe",
    );
    bench.mke2fs("colours.img", "16M", &["-d", "tree"]);
    let list = |mut command: Command, colors: &str, arguments: &[&str]| {
        let run = bench.finish(command.args(arguments).env("LS_COLORS", colors), b"");
        assert_eq!(run.status, 0, "{}", run.err);
        // The two reset the terminal at different places.
        let plain = ["\u{1b}[0m", "\u{1b}[00m", "\u{1b}[m"]
            .iter()
            .fold(run.out, |text, reset| text.replace(reset, ""));
        plain.lines().filter(|line| !line.contains("lost+found")).map(str::to_owned).collect::<Vec<_>>()
    };
    for colors in [
        "",
        "di=00:*.tar=31:*.gz=01;31:ex=:ow=0:mh=44",
        "*.tar=31:*tar=32:fi=33:ln=5;31",
        "st=:tw=:su=0:pi=35",
    ] {
        let ls = list(bench.command("ls"), colors, &["--color=always", "-1", "tree"]);
        assert_eq!(list(bench.extant(), colors, &["ls", "--color", "colours.img"]), ls, "{colors}");
        assert!(ls.len() > 15 && ls.iter().any(|line| line.starts_with('\u{1b}')), "{ls:?}");
    }
    // Without a terminal there are none.
    let plain = list(bench.extant(), "di=31", &["ls", "colours.img"]);
    assert_eq!(plain, list(bench.extant(), "di=31", &["ls", "--color=never", "colours.img"]));
    assert!(plain.iter().all(|line| !line.contains('\u{1b}')));
}
