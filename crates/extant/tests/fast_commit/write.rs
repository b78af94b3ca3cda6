//! Fast commits that Extant writes: what a sync costs, and that Linux and Extant replay them.

use std::collections::BTreeMap;
use std::path::Path;

use extant::{AccessTimes, Fallocate, Filesystem, Mount, XattrMode};
use extant_testing::{Random, assert_clean, copy, scratch};

use crate::disk::make;

/// What syncs cost.
#[derive(Debug, Default)]
struct Costs {
    syncs: u32,
    /// Syncs that wrote one block of the journal.
    of_one_block: u32,
}

impl Costs {
    fn sync(&mut self, fs: &Filesystem, path: &str) {
        let blocks = |fs: &Filesystem| {
            let stats = fs.journal_statistics().expect("a journal");
            stats.log_blocks + stats.fast_commit_blocks
        };
        let before = blocks(fs);
        fs.lookup(path).expect("a file").sync_all().expect("sync");
        self.syncs += 1;
        self.of_one_block += u32::from(blocks(fs) - before == 1);
    }

    fn assert_cheap(&self, what: &str) {
        println!("{what}: {} of {} syncs wrote one block of the journal", self.of_one_block, self.syncs);
        assert!(self.of_one_block * 100 >= self.syncs * 80, "{what}: {self:?}");
    }
}

type Contents = BTreeMap<String, Vec<u8>>;
type Load = fn(&Filesystem, &mut Contents) -> Costs;

/// Messages that are written, synced, and moved or removed.
fn mail(fs: &Filesystem, contents: &mut Contents) -> Costs {
    let mut costs = Costs::default();
    let mut random = Random::new(1);
    for dir in ["new", "cur"] {
        fs.create_dir(format!("/{dir}")).expect("mkdir");
    }
    for message in 0..200_u32 {
        let name = format!("/new/{message}");
        let content = vec![message as u8; 4096 + random.below(12_000) as usize];
        fs.write(&name, &content).expect("write");
        costs.sync(fs, &name);
        contents.insert(name.clone(), content);
        if random.below(2) == 0 {
            let moved = format!("/cur/{message}");
            fs.rename(&name, &moved).expect("rename");
            let content = contents.remove(&name).expect("a message");
            contents.insert(moved, content);
        } else if let Some((name, _)) = contents.iter().nth(random.below(contents.len() as u64) as usize) {
            let name = name.clone();
            fs.remove_file(&name).expect("remove");
            contents.remove(&name);
        }
    }
    // What was moved and removed last is to be there too.
    fs.write("/last", b"last").expect("write");
    costs.sync(fs, "/last");
    contents.insert("/last".to_owned(), b"last".to_vec());
    costs
}

/// A database: pages overwritten in place and a log that grows, each synced, and the log begun anew at times.
fn database(fs: &Filesystem, contents: &mut Contents) -> Costs {
    let mut costs = Costs::default();
    let mut random = Random::new(2);
    let (mut pages, mut log) = (vec![0; 64 * 4096], Vec::new());
    fs.write("/pages", &pages).expect("write");
    fs.write("/log", b"").expect("write");
    for turn in 0..300_u32 {
        let entry = vec![turn as u8; 100 + random.below(6000) as usize];
        let file = fs.lookup("/log").expect("the log");
        file.write_all_at(&entry, log.len() as u64).expect("append");
        log.extend(entry);
        costs.sync(fs, "/log");
        if turn % 10 == 9 {
            let at = random.below(60) as usize * 4096;
            fs.lookup("/pages").expect("pages").write_all_at(&[turn as u8; 4096], at as u64).expect("write");
            pages[at..at + 4096].fill(turn as u8);
            costs.sync(fs, "/pages");
        }
        if turn % 100 == 99 {
            file.set_len(0).expect("truncate");
            log.clear();
            costs.sync(fs, "/log");
        }
    }
    contents.insert("/pages".to_owned(), pages);
    contents.insert("/log".to_owned(), log);
    costs
}

fn assert_contents(found: impl Fn(&str) -> Option<Vec<u8>>, contents: &Contents, what: &str) {
    for (name, content) in contents {
        assert!(found(name).as_ref() == Some(content), "{what}: {name} has another content");
    }
}

/// The disk, mounted by Extant all the time, as it is after a crash now.
fn crash(image: &Path, contents: &Contents, what: &str) {
    let ours = image.with_file_name("ours");
    copy(image, &ours);
    #[cfg(target_os = "linux")]
    crash_under_linux(image, contents, &format!("{what}, recovered by Linux"));
    let fs = Mount::new().open(&ours).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(fs.mounted().replayed_fast_commits > 0, "{what}: no fast commits");
    assert_contents(|name| fs.read(name).ok(), contents, what);
    fs.unmount().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_clean(&ours, what);
}

/// Likewise, as Linux recovers it.
#[cfg(target_os = "linux")]
fn crash_under_linux(image: &Path, contents: &Contents, what: &str) {
    use crate::mounted::{Mounted, tree};
    let linux = image.with_file_name("linux");
    copy(image, &linux);
    match Mounted::new(&linux, "noatime") {
        Ok(mounted) => {
            let found = tree(&mounted.point);
            let content = |name: &str| found.get(Path::new(&name[1..])).map(|shown| shown.content().to_vec());
            assert_contents(content, contents, what);
        }
        Err(why) => println!("not compared with Linux: {why}"),
    }
    assert_clean(&linux, what);
}

#[test]
fn most_syncs_write_one_block_and_a_crash_loses_nothing() {
    let scratch = scratch();
    let image = scratch.path().join("image");
    let loads: [(&str, Load); 2] = [("mail", mail), ("database", database)];
    for (what, load) in loads {
        for page_cache in [0, 16 << 20] {
            let Some(()) = make(&image, 4096, "metadata_csum") else { return };
            let mount = Mount::new().background(false).page_cache_bytes(page_cache);
            let fs = mount.open(&image).expect("mount");
            let mut contents = Contents::new();
            let costs = load(&fs, &mut contents);
            crash(&image, &contents, what);
            costs.assert_cheap(what);
            fs.unmount().expect("unmount");
            assert_clean(&image, what);
        }
    }
}

/// What a sync is to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    FastCommit,
    Commit,
}

/// Of each operation, what the sync of the file or folder that it changed writes; a crash loses none.
#[test]
fn what_records_cannot_say_is_committed() {
    use Kind::{Commit, FastCommit};
    let scratch = scratch();
    let image = scratch.path().join("image");
    let crashed = scratch.path().join("crashed");
    type Act = fn(&Filesystem) -> extant::Result<()>;
    let acts: [(&str, Kind, &str, Act); 21] = [
        ("create", FastCommit, "/d/new", |fs| fs.write("/d/new", b"")),
        ("write", FastCommit, "/d/file", |fs| fs.lookup("/d/file")?.write_all_at(&[1; 9000], 70_000)),
        ("chmod", FastCommit, "/d/file", |fs| fs.set_mode("/d/file", 0o600)),
        ("truncate", FastCommit, "/d/file", |fs| fs.lookup("/d/file")?.set_len(8192)),
        ("hole", FastCommit, "/d/file", |fs| fs.lookup("/d/file")?.allocate(Fallocate::PunchHole, 0, 4096)),
        ("link", FastCommit, "/d/link", |fs| fs.hard_link("/d/file", "/d/link")),
        ("unlink", FastCommit, "/d", |fs| fs.remove_file("/d/link")),
        ("rename", FastCommit, "/moved", |fs| fs.rename("/d/new", "/moved")),
        ("rename over", FastCommit, "/d/other", |fs| fs.rename("/moved", "/d/other")),
        ("access", FastCommit, "/d", |fs| fs.lookup("/d")?.touch_atime(AccessTimes::Strict)),
        ("chmod of a folder", Commit, "/d", |fs| fs.set_mode("/d", 0o711)),
        ("owner of a folder", Commit, "/d", |fs| fs.set_owner("/d", 5, 6)),
        ("mkdir", Commit, "/d/folder", |fs| fs.create_dir("/d/folder")),
        ("rename of a folder", Commit, "/d/f2", |fs| fs.rename("/d/folder", "/d/f2")),
        ("rmdir", Commit, "/d", |fs| fs.remove_dir("/d/f2")),
        ("symlink", Commit, "/d", |fs| fs.symlink("target", "/d/symlink")),
        ("rename of a symlink", Commit, "/d", |fs| fs.rename("/d/symlink", "/d/s2")),
        ("unlink of a symlink", Commit, "/d", |fs| fs.remove_file("/d/s2")),
        ("collapse", Commit, "/d/file", |fs| {
            fs.lookup("/d/file")?.allocate(Fallocate::CollapseRange, 0, 4096)
        }),
        ("attribute", Commit, "/d/file", |fs| {
            fs.lookup("/d/file")?.set_xattr(b"user.name", b"value", XattrMode::default())
        }),
        ("unlink with attributes", Commit, "/d", |fs| fs.remove_file("/d/file")),
    ];
    let Some(()) = make(&image, 4096, "metadata_csum") else { return };
    let fs = Mount::new().background(false).open(&image).expect("mount");
    fs.create_dir("/d").expect("mkdir");
    fs.write("/d/file", [7; 60_000]).expect("write");
    fs.write("/d/other", b"other").expect("write");
    fs.sync().expect("sync");
    for (what, kind, synced, act) in acts {
        let counts =
            || fs.journal_statistics().map(|stats| (stats.commits, stats.fast_commits)).expect("a journal");
        let before = counts();
        act(&fs).unwrap_or_else(|e| panic!("{what}: {e}"));
        fs.lookup(synced).expect("what is synced").sync_all().expect("sync");
        let after = counts();
        let found = match (after.0 - before.0, after.1 - before.1) {
            (0, 0 | 1) => FastCommit,
            _ => Commit,
        };
        assert_eq!(found, kind, "{what}");
        copy(&image, &crashed);
        let recovered = Mount::new().read_only(true).open(&crashed).unwrap_or_else(|e| panic!("{what}: {e}"));
        let shown = |fs: &Filesystem| {
            let names = fs.dir("/d").and_then(|dir| dir.entries()).expect("a folder");
            let names: Vec<_> = names.into_iter().map(|entry| entry.name).collect();
            let of = |path: &str| {
                fs.metadata(path).ok().map(|of| (of.mode, of.uid, of.links, of.size, of.blocks_512))
            };
            let xattrs = fs.lookup("/d/file").and_then(|file| file.list_xattrs()).ok();
            (names, of("/d"), of("/d/file"), of("/d/other"), fs.read("/d/file").ok(), xattrs)
        };
        assert!(shown(&recovered) == shown(&fs), "{what}: lost by a crash");
    }
    fs.unmount().expect("unmount");
}
