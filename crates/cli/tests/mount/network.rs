//! A mount of a network block device whose server is killed and started again while programs write. nbdkit's cache has what was written
//! in its memory until a flush, so that a kill loses all that no flush has covered.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use extant_testing::{Random, SocketServer};

use crate::common::{Disk, assert_clean, can_mount, seed};

const WRITERS: u64 = 3;
/// Most files of a writer: older ones are removed.
const FILES_MAX: u64 = 300;

/// Files that were made durable, by their paths below the root.
type Durable = Mutex<Vec<(PathBuf, Vec<u8>)>>;

/// How often the server is killed; more by an environment variable.
fn kills() -> u64 {
    std::env::var("EXTANT_NBD_KILLS").map_or(10, |text| text.parse().expect("a number"))
}

/// A mount of a disk that a server of another project serves from the file.
struct Network {
    disk: Disk,
    file: PathBuf,
    server: SocketServer,
}

impl Network {
    fn start() -> Self {
        let mut disk = Disk::new("256M");
        let file = disk.image.clone();
        let path = file.to_str().expect("UTF-8");
        let dir = file.parent().expect("a directory");
        let command = ["nbdkit", "-f", "-U", "SOCKET", "--filter=cache", "file", path, "cache=writeback"];
        let server = SocketServer::start(dir, &command);
        disk.image = format!("nbd+unix:///?socket={}", server.socket().display()).into();
        Self { disk, file, server }
    }

    /// Kills the server: what it had not written is gone. The file is a disk as after a loss of power.
    fn assert_files_hold(mut self, durable: &Durable) {
        self.server.kill();
        self.disk.image = self.file.clone();
        self.disk.serve();
        assert_durable(&self.disk.point, durable);
        self.disk.finish();
    }
}

fn assert_durable(root: &Path, durable: &Durable) {
    let durable = durable.lock().expect("list");
    assert!(!durable.is_empty());
    for (name, content) in &*durable {
        let found = fs::read(root.join(name)).unwrap_or_else(|error| panic!("{}: {error}", name.display()));
        assert!(found == *content, "{} differs", name.display());
    }
}

/// Writes, syncs and removes files until `ends` says so of an error or of none.
fn write(
    root: &Path,
    seed: u64,
    writer: u64,
    durable: &Durable,
    ends: impl Fn(Option<std::io::Error>) -> bool,
) {
    let mut random = Random::new(seed ^ writer);
    for number in 0_u64.. {
        let name_of = |number: u64| PathBuf::from(format!("{seed}-{writer}/{}/{number}", number % 7));
        let name = name_of(number);
        let content = vec![random.below(256) as u8; random.below(100_000) as usize + 1];
        let path = root.join(&name);
        let (syncs, removes) = (random.below(3) == 0, random.below(4) == 0);
        let wrote = fs::create_dir_all(path.parent().expect("directory"))
            .and_then(|()| fs::File::create(&path))
            .and_then(|mut file| file.write_all(&content).map(|()| file))
            .and_then(|file| if syncs { file.sync_all() } else { Ok(()) })
            .and_then(|()| if removes && !syncs { fs::remove_file(&path) } else { Ok(()) });
        let is_durable = wrote.is_ok() && syncs;
        if is_durable {
            durable.lock().expect("list").push((name, content));
        }
        if ends(wrote.err()) {
            return;
        }
        if let Some(old) = number.checked_sub(FILES_MAX).map(name_of) {
            durable.lock().expect("list").retain(|(name, _)| *name != old);
            let removed = fs::remove_file(root.join(old));
            if ends(removed.err().filter(|error| error.kind() != std::io::ErrorKind::NotFound)) {
                return;
            }
        }
    }
}

#[test]
fn mount_goes_on_when_its_server_is_killed_and_started_again() {
    if !can_mount() {
        return;
    }
    let seed = seed();
    let mut network = Network::start();
    network.disk.serve();
    let (durable, done) = (Durable::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (root, durable, done) = (&network.disk.point, &durable, &done);
            scope.spawn(move || {
                write(root, seed, writer, durable, |error| {
                    assert!(error.is_none(), "EXTANT_SEED={seed}: {error:?}");
                    done.load(Ordering::Acquire)
                });
            });
        }
        let mut random = Random::new(seed);
        for _ in 0..kills() {
            std::thread::sleep(Duration::from_millis(20 + random.below(150)));
            network.server.kill();
            std::thread::sleep(Duration::from_millis(random.below(100)));
            network.server.start_again();
        }
        done.store(true, Ordering::Release);
    });
    assert_durable(&network.disk.point, &durable);
    network.disk.umount();
    network.disk.wait();
    assert_clean(&network.file);
    network.assert_files_hold(&durable);
}

#[test]
fn what_was_synced_is_there_after_server_and_mount_were_killed_together() {
    if !can_mount() {
        return;
    }
    let seed = seed();
    for round in 0..2 {
        let mut network = Network::start();
        network.disk.serve();
        let durable = Durable::default();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (root, durable) = (network.disk.point.clone(), &durable);
                scope.spawn(move || write(&root, seed + round, writer, durable, |error| error.is_some()));
            }
            std::thread::sleep(Duration::from_millis(300));
            network.server.kill();
            network.disk.kill();
        });
        network.disk.umount();
        network.server.start_again();
        network.assert_files_hold(&durable);
    }
}

/// Commits of git and transactions of sqlite, as many as the argument says; a shell script.
const PROGRAMS: &str = r#"
set -eu
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
git init -q repository
cd repository
git config user.email t@example.org
git config user.name t
for round in $(seq "$1"); do
    for file in $(seq 20); do echo "$round $file" >"file-$file"; done
    git add -A
    git commit -q -m "$round"
    sqlite3 ../base "create table if not exists t(a); begin; insert into t values($round); insert into t values(-$round); commit;"
done
git fsck --strict
test "$(git rev-list --count HEAD)" = "$1"
test "$(sqlite3 ../base 'pragma integrity_check; select count(*), sum(a) from t;' | tr '\n' ' ')" = "ok $((2 * $1))|0 "
"#;

#[test]
#[ignore = "a minute: make test-nbd"]
fn git_and_sqlite_go_on_when_their_server_is_killed() {
    let seed = seed();
    let mut network = Network::start();
    network.disk.serve();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (root, done) = (&network.disk.point, &done);
        scope.spawn(move || {
            let script = ["-c", PROGRAMS, "programs", "150"];
            let output = std::process::Command::new("sh").args(script).current_dir(root).output();
            done.store(true, Ordering::Release);
            let output = output.expect("a shell");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "EXTANT_SEED={seed}: {text}");
        });
        let mut random = Random::new(seed);
        while !done.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(100 + random.below(500)));
            network.server.kill();
            std::thread::sleep(Duration::from_millis(random.below(100)));
            network.server.start_again();
        }
    });
    network.disk.umount();
    network.disk.wait();
    assert_clean(&network.file);
}
