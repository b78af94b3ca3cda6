//! `mkfs --selinux`, with `setfiles` as the judge.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::bench::{Bench, DISK, is_root, tool};

/// The rules of the distribution's policy, of the package selinux-policy-default.
const POLICY: &str = "/etc/selinux/default/contexts/files/file_contexts";

/// Rules that show how libselinux reads them; of several the last counts, and of all those without meta characters.
const RULES: &str = "# a comment
/.*  system_u:object_r:default_t:s0

/  -d system_u:object_r:root_t:s0
/usr(/.*)? system_u:object_r:usr_t:s0
/usr/exact\\.txt -- system_u:object_r:exact_t:s0 and more
/usr/exact.* system_u:object_r:later_t:s0
/usr/(bin|sbin)(/.*)? system_u:object_r:bin_t:s0
/usr/a|/b system_u:object_r:alternative_t:s0
/usr/x[0-9]+ -- system_u:object_r:digits_t:s0
/usr/[^/]*\\.so(\\.[^/]*)* -- system_u:object_r:lib_t:s0
/usr/q{2}b?[[:upper:]] system_u:object_r:quantified_t:s0
/dev/.* -c system_u:object_r:chr_t:s0
/dev/.* -b system_u:object_r:blk_t:s0
/dev/.* -p system_u:object_r:fifo_t:s0
/dev/.* -l system_u:object_r:link_t:s0
/tmp/.* <<none>>
/tmp -d system_u:object_r:tmp_t:s0
/lost\\+found -d system_u:object_r:lost_found_t:s0
[^/]*/odd system_u:object_r:odd_t:s0
/home/[^/]+ -d system_u:object_r:home_t:s0
";

/// Labels by path.
fn labels(bench: &Bench, dir: &str) -> BTreeMap<String, String> {
    let script = format!(
        "cd {dir}; find . -print0 | xargs -0 getfattr -hn security.selinux -e hex 2>/dev/null || true"
    );
    let mut labels = BTreeMap::new();
    let mut path = String::new();
    for line in bench.shell(&script).lines() {
        if let Some(found) = line.strip_prefix("# file: ") {
            path = found.trim_end_matches('/').to_owned();
        } else if let Some(label) = line.strip_prefix("security.selinux=") {
            labels.insert(path.clone(), label.to_owned());
        }
    }
    labels
}

/// Asserts that a tree has the labels on a disk that `setfiles` gives it; how many files have one.
fn assert_same(bench: &Bench, contexts: &str) -> usize {
    bench.words(&format!("mkfs -q -F -d tree --selinux {contexts} --free 1M {DISK}"));
    bench.assert_clean(DISK);
    bench.shell(&format!(
        "mkdir -p mnt tree/lost+found
        setfiles -F -r \"$PWD/tree\" {contexts} \"$PWD/tree\" 2>/dev/null"
    ));
    let expected = labels(bench, "tree");
    bench.program("mount", &["-o", "loop,ro", DISK, "mnt"]);
    let found = labels(bench, "mnt");
    extant_testing::unmount(&bench.path("mnt"));
    let differ = found.keys().chain(expected.keys()).filter(|path| found.get(*path) != expected.get(*path));
    let differ: Vec<_> = differ.map(|path| (path, found.get(path), expected.get(path))).take(5).collect();
    assert!(differ.is_empty(), "path, label, that of setfiles: {differ:#?}");
    expected.len()
}

fn new_bench() -> Option<Bench> {
    ["setfiles", "getfattr", "e2fsck", "mount"].iter().map(|name| tool(name)).collect::<Option<Vec<_>>>()?;
    if !is_root() || !fs::exists("/dev/loop-control").unwrap_or(false) {
        println!("skipped: mounting needs root and loop devices");
        return None;
    }
    Some(Bench::empty())
}

/// Makes something at a path, of a type that a rule may ask for; nothing if there is something in the way.
fn place(bench: &Bench, path: &str, kind: u8) {
    let path = bench.path("tree").join(path.trim_start_matches('/'));
    if fs::symlink_metadata(&path).is_ok() || path.parent().is_none_or(|dir| fs::create_dir_all(dir).is_err())
    {
        return;
    }
    let special = |kind| rustix::fs::mknodat(rustix::fs::CWD, &path, kind, 0o644.into(), 259);
    // A name may be too long for the host.
    let _ = match kind {
        b'd' => fs::create_dir(&path),
        b'l' => symlink("nowhere", &path),
        b'p' => special(rustix::fs::FileType::Fifo).map_err(Into::into),
        b'c' => special(rustix::fs::FileType::CharacterDevice).map_err(Into::into),
        b'b' => special(rustix::fs::FileType::BlockDevice).map_err(Into::into),
        b's' => special(rustix::fs::FileType::Socket).map_err(Into::into),
        _ => fs::write(&path, b""),
    };
}

#[test]
fn labels_are_those_of_setfiles() {
    let Some(bench) = new_bench() else { return };
    for (name, text) in [
        ("contexts", RULES),
        ("contexts.homedirs", "/home/one/.* system_u:object_r:one_t:s0\n"),
        ("contexts.local", "/usr/local/.* system_u:object_r:local_t:s0\n/usr/local/x -- <<none>>\n"),
        ("contexts.subs", "/alias /usr/bin\n# none\n/slash /\n"),
        ("contexts.subs_dist", "/lib /usr/lib\n/usr/bin/deep /tmp\n"),
    ] {
        fs::write(bench.path(name), text).expect("rules");
    }
    for path in [
        "/usr/exact.txt",
        "/usr/exact.tx",
        "/usr/bin/x",
        "/usr/sbin/deep/x",
        "/usr/a",
        "/usr/ab",
        "/b/c",
        "/usr/c/b",
        "/usr/x12",
        "/usr/x",
        "/usr/x1x",
        "/usr/l.so",
        "/usr/l.so.1",
        "/usr/l.sox",
        "/usr/qqbX",
        "/usr/qqX",
        "/usr/qb",
        "/tmp/any/file",
        "/home/one/f",
        "/home/two/f",
        "/usr/local/x",
        "/usr/local/y",
        "/alias/x",
        "/alias/deep/x",
        "/aliasx",
        "/slash/usr/bin/x",
        "/lib/x",
        "/top",
        "/odd",
        "/deep/odd",
        "/usr/new\nline",
        "/usr/exact.txt\n",
    ] {
        place(&bench, path, b'-');
    }
    for kind in b"dlpcbs-" {
        place(&bench, &format!("/dev/{}", char::from(*kind)), *kind);
        place(&bench, &format!("/usr/x0{kind}"), *kind);
    }
    bench.shell("setfattr -n security.selinux -v kept tree/tmp/any/file");
    let count = assert_same(&bench, "contexts");
    assert!(count > 40, "{count}");
    let place_of = |line: &str| {
        fs::write(bench.path("bad"), format!("\n{line}\n")).expect("rules");
        bench.fails(1, &["mkfs", "-q", "-F", "-d", "tree", "--selinux", "bad", "bad.img"])
    };
    for line in ["/usr", "/usr -x a:b:c:s0", "/usr(?=a) a:b:c:s0", "/usr/\u{fc} a:b:c:s0"] {
        let said = place_of(line);
        assert!(said.contains("bad:2: "), "{line}: {said}");
    }
    assert!(!bench.path("bad.img").exists());
}

/// An archive may list files only; the directories above them have labels too, and so has a disk without content.
#[test]
fn directories_that_no_entry_lists_have_labels() {
    let Some(bench) = new_bench() else { return };
    fs::write(bench.path("contexts"), RULES).expect("rules");
    place(&bench, "/usr/deep/er/file", b'-');
    bench.shell("tar -C tree -cf files.tar usr/deep/er/file; mkdir mnt; : >table");
    for source in ["-d files.tar", "--device-table table"] {
        bench.words(&format!("mkfs -q -F {source} --selinux contexts --free 1M -E root_owner=7:8 {DISK}"));
        bench.program("mount", &["-o", "loop,ro", DISK, "mnt"]);
        let found = labels(&bench, "mnt");
        let root = bench.shell("stat -c '%a %u %g' mnt mnt/lost+found");
        extant_testing::unmount(&bench.path("mnt"));
        assert_eq!(found.len(), if source.contains("tar") { 6 } else { 2 }, "{found:?}");
        assert_eq!(root, "755 7 8\n700 0 0\n");
        bench.assert_clean(DISK);
    }
}

/// Knuth's MMIX generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// A path that a pattern may be for: each of its parts by chance, and sometimes a little more or less.
fn path_for(pattern: &str, random: &mut Random) -> String {
    let mut path = String::new();
    let letters: Vec<char> = pattern.chars().collect();
    let mut at = 0;
    // Where each open group began in the path, and whether it is passed over.
    let mut groups: Vec<(usize, bool)> = Vec::new();
    while at < letters.len() {
        let next = letters.get(at + 1).copied().unwrap_or_default();
        let is_passed = groups.iter().any(|(_, is_passed)| *is_passed);
        match letters[at] {
            '(' => groups.push((path.len(), false)),
            '|' => {
                if let Some((start, is_passed)) = groups.last_mut() {
                    let is_chosen = *is_passed || random.below(2) == 0;
                    *is_passed = is_chosen;
                    if !is_chosen {
                        path.truncate(*start);
                    }
                }
            }
            ')' => {
                let start = groups.pop().map_or(0, |group| group.0);
                if matches!(next, '?' | '*') && random.below(2) == 0 {
                    path.truncate(start);
                }
            }
            '?' | '*' | '+' | '^' | '$' => {}
            '[' => {
                let end = letters[at..].iter().position(|letter| *letter == ']').unwrap_or(1);
                let class = &letters[at + 1..at + end];
                let letter = if class.first() == Some(&'^') { 'k' } else { class[random.below(class.len())] };
                at += end;
                if !is_passed {
                    path.push(letter);
                }
            }
            letter => {
                at += usize::from(letter == '\\');
                let any: Vec<char> = "abcdefgh/0123-.".chars().collect();
                let letter = if letter == '.' { any[random.below(any.len())] } else { letters[at] };
                let is_left_out = matches!(letters.get(at + 1), Some('?' | '*')) && random.below(2) == 0;
                if !is_passed && !is_left_out {
                    path.push(letter);
                }
            }
        }
        at += 1;
    }
    match random.below(8) {
        0 => path += &format!("/{}", random.below(1000)),
        1 => path += &random.below(1000).to_string(),
        2 => drop(path.pop()),
        _ => {}
    }
    path
}

/// Paths by the patterns of the distribution's policy, `per_rule` for each of them.
fn assert_policy(per_rule: usize) -> Option<usize> {
    let bench = new_bench()?;
    if !Path::new(POLICY).exists() {
        println!("skipped: {POLICY} is missing");
        return None;
    }
    bench.shell(&format!(
        "for suffix in '' .homedirs .subs_dist; do cp {POLICY}$suffix contexts$suffix; done"
    ));
    fs::create_dir_all(bench.path("tree/lost+found")).expect("directory");
    let seed = std::process::id();
    println!("seed {seed}");
    let mut random = Random(u64::from(seed));
    for name in ["contexts", "contexts.homedirs"] {
        let text = fs::read_to_string(bench.path(name)).expect("rules");
        for line in text.lines().filter(|line| line.starts_with('/')) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let kind = if fields.len() == 3 { fields[1].as_bytes()[1] } else { b"-d"[random.below(2)] };
            for _ in 0..per_rule {
                let path = path_for(fields[0], &mut random);
                let kind = if random.below(8) == 0 { b"-dlpcbs"[random.below(7)] } else { kind };
                place(&bench, &path, kind);
            }
        }
    }
    Some(assert_same(&bench, "contexts"))
}

#[test]
fn the_distributions_policy_gives_the_labels_of_setfiles() {
    if let Some(count) = assert_policy(1) {
        assert!(count > 2000, "{count}");
    }
}

/// The same with 50,000 paths: `make test-labels`.
#[test]
#[ignore = "minutes"]
fn fifty_thousand_paths_have_the_labels_of_setfiles() {
    let count = assert_policy(80).expect("setfiles, a policy and root");
    assert!(count >= 50_000, "{count}");
}
