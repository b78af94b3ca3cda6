//! Many threads on one tree: nothing deadlocks, and the disk stays whole.

use extant_ondisk::InodeNumber;
use extant_rt::Arc;

use super::disk::{Random, assert_clean, format, has_e2fsprogs, has_threads};
use super::names::new;
use crate::error::{Error, Result};
use crate::incore::inode_cache::InodeRef;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::{NewKind, RenameFlags};

const DIRS: u64 = 5;
const THREADS: u64 = 4;
const STEPS: u32 = 3_000;

/// A directory somewhere in a tree that others change.
fn somewhere(volume: &Arc<Volume>, random: &mut Random) -> Result<InodeRef> {
    let mut here = volume.inode(InodeNumber::ROOT)?;
    for _ in 0..random.below(5) {
        match volume.lookup(&here, &name(random)) {
            Ok(next) if next.is_directory() => here = next,
            Ok(_) | Err(Error::NotFound) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(here)
}

fn name(random: &mut Random) -> Vec<u8> {
    format!("d{}", random.below(DIRS)).into_bytes()
}

fn step(volume: &Arc<Volume>, random: &mut Random) -> Result<()> {
    let dir = somewhere(volume, random)?;
    let name_here = name(random);
    match random.below(12) {
        0..3 => volume.create(&dir, &name_here, &new(NewKind::Directory)).map(drop),
        3..5 => volume.create(&dir, &name_here, &new(NewKind::File)).map(drop),
        5 => volume.rmdir(&dir, &name_here),
        6 => volume.unlink(&dir, &name_here),
        7 => {
            let to = somewhere(volume, random)?;
            let file = volume.lookup(&dir, &name_here)?;
            volume.link(&file, &to, &name(random))
        }
        8 => volume.tmpfile(&dir, &new(NewKind::File)).map(drop),
        kind => {
            let to = somewhere(volume, random)?;
            let flags = RenameFlags { exchange: kind == 9, ..RenameFlags::default() };
            volume.rename(&dir, &name_here, &to, &name(random), flags)
        }
    }
}

#[test]
fn threads_that_move_directories_about_leave_a_whole_tree() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    for seed in 0..4 {
        let (device, _) = format(&["-b", "1024"], 32 << 10, &[]);
        let device = Arc::new(device);
        let options = Options { background: seed % 2 == 1, ..Options::default() };
        let volume = Volume::mount(device.clone(), &options).unwrap().0;
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let volume = &volume;
                scope.spawn(move || {
                    let mut random = Random::new(seed << 8 | thread);
                    for _ in 0..STEPS {
                        match step(volume, &mut random) {
                            Ok(())
                            | Err(
                                Error::NotFound
                                | Error::Exists
                                | Error::NotADirectory
                                | Error::IsADirectory
                                | Error::NotEmpty
                                | Error::NotPermitted
                                | Error::InvalidArgument(_),
                            ) => {}
                            Err(error) => panic!("seed {seed}: {error}"),
                        }
                        volume.evict_unlinked();
                        if random.below(200) == 0 {
                            volume.sync().unwrap();
                        }
                    }
                });
            }
        });
        volume.unmount().unwrap();
        assert_clean(&*device, &format!("seed {seed}"));
    }
}
