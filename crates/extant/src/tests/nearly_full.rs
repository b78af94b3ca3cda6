//! Nearly full disks: a write that the page cache accepted never fails with `NoSpace` afterwards.

use extant_block::MemoryDevice;
use extant_ondisk::InodeNumber;
use extant_rt::Arc;

use super::disk::{Random, assert_clean, format, has_e2fsprogs};
use super::names::new;
use crate::error::{Error, Result};
use crate::file::fallocate::Fallocate;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::NewKind;

const FILES: u64 = 5;
const SIZE_MAX: u64 = 700_000;

/// Files on a nearly full disk and what they must hold.
struct Load {
    volume: Arc<Volume>,
    files: Vec<InodeRef>,
    contents: Vec<Vec<u8>>,
    random: Random,
    /// Writes that were accepted without a block, and those that were refused.
    counts: (u64, u64),
    what: String,
}

fn create(volume: &Arc<Volume>, name: &str) -> InodeRef {
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    volume.create(&root, name.as_bytes(), &new(NewKind::File)).unwrap()
}

/// Fills a disk but for free pieces of a few blocks each, or clusters, of `unit` bytes.
fn leave_crumbs(volume: &Arc<Volume>, unit: u64, random: &mut Random) {
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let files: Vec<_> = (0..200).map(|number| create(volume, &format!("fill{number}"))).collect();
    let mut is_full = false;
    while !is_full {
        for file in &files {
            let content = vec![1; ((1 + random.below(3)) * unit) as usize];
            is_full |= volume.write_at(file, None, &content, true).is_err();
            volume.flush(file).unwrap();
        }
    }
    drop(files);
    for number in (0..200).step_by(16) {
        volume.unlink(&root, format!("fill{number}").as_bytes()).unwrap();
    }
    volume.evict_unlinked();
    volume.sync().unwrap();
}

impl Load {
    /// Without the reserved pool, so that each reservation must suffice alone.
    fn new(device: &Arc<MemoryDevice>, unit: u64, seed: u64, what: String) -> Self {
        let pages = Options { page_cache_bytes: Some(64 << 20), reserved_pool_max: 0, ..Options::default() };
        let options = Options { background: false, ..pages };
        let volume = Volume::mount(device.clone(), &options).unwrap().0;
        let mut random = Random::new(seed);
        let files = (0..FILES).map(|number| create(&volume, &format!("f{number}"))).collect();
        leave_crumbs(&volume, unit, &mut random);
        let contents = vec![Vec::new(); FILES as usize];
        Self { volume, files, contents, random, counts: (0, 0), what }
    }

    fn step(&mut self) {
        let index = self.random.below(FILES) as usize;
        let (at, bytes) = (self.random.below(SIZE_MAX), 1 + self.random.below(20_000));
        let file = self.files[index].clone();
        let keep_size = self.random.below(2) == 0;
        let done = match self.random.below(20) {
            0..12 => return self.write(index, at, bytes),
            12 => self.fallocate(&file, Fallocate::Allocate { keep_size }, at, bytes),
            13 => self.fallocate(&file, Fallocate::ZeroRange { keep_size }, at, bytes),
            14 | 15 => self.fallocate(&file, Fallocate::PunchHole, at, bytes),
            16 => self.volume.set_size(&file, at),
            17 => self.volume.sync_inode(&file, self.random.below(2) == 0),
            18 => self.volume.flush_all(),
            _ => return self.write(index, 0, 50),
        };
        match done {
            Ok(()) | Err(Error::NoSpace) => {}
            Err(error) => panic!("{}: {error}", self.what),
        }
        // Part of a range may be done.
        self.contents[index] = self.read(index);
    }

    fn fallocate(&self, file: &InodeRef, what: Fallocate, at: u64, bytes: u64) -> Result<()> {
        self.volume.fallocate(file, what, at, bytes, true)
    }

    fn write(&mut self, index: usize, at: u64, bytes: u64) {
        let content = self.random.bytes(bytes as usize);
        match self.volume.write_at(&self.files[index], Some(at), &content, true) {
            Ok(written) => {
                self.counts.0 += u64::from(self.files[index].state().delalloc.delayed > 0);
                let expected = &mut self.contents[index];
                let end = at as usize + written;
                expected.resize(expected.len().max(end), 0);
                expected[at as usize..end].copy_from_slice(&content[..written]);
            }
            Err(Error::NoSpace) => self.counts.1 += 1,
            Err(error) => panic!("{}: {error}", self.what),
        }
    }

    fn read(&self, index: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.volume.attributes(&self.files[index]).size as usize];
        assert_eq!(self.volume.read_at(&self.files[index], 0, &mut bytes).unwrap(), bytes.len());
        bytes
    }

    /// All is written back, and on the disk as it was accepted.
    fn check(&self) {
        self.volume.sync().unwrap_or_else(|error| panic!("{}: {error}", self.what));
        for index in 0..FILES as usize {
            self.volume.drop_pages(&self.files[index], 0..u32::MAX);
            assert!(self.read(index) == self.contents[index], "{}: file {index}", self.what);
        }
    }
}

#[test]
fn what_was_accepted_is_written_back_whole() {
    if !has_e2fsprogs() {
        return;
    }
    let first = std::env::var("EXTANT_SEED").map_or(1, |seed| seed.parse().expect("a seed"));
    let count = std::env::var("EXTANT_NEARLY_FULL_SEEDS").map_or(6, |count| count.parse().expect("a count"));
    for seed in first..first + count {
        let block_size = [1024, 4096][seed as usize % 2];
        let features = ["extent", "inline_data", "bigalloc"][seed as usize / 2 % 3];
        let what = format!("EXTANT_SEED={seed}: blocks of {block_size}, features {features}");
        let (block_argument, cluster_size) = (block_size.to_string(), 16 * block_size);
        let clusters = cluster_size.to_string();
        let mut arguments = vec!["-b", &block_argument, "-J", "size=4", "-N", "512", "-O", features];
        let (unit, kilobytes) = match features {
            "bigalloc" => {
                arguments.extend(["-C", &clusters]);
                (cluster_size, 12 * block_size as u32)
            }
            _ => (block_size, 16 << 10),
        };
        let device = Arc::new(format(&arguments, kilobytes, &[]).0);
        let mut load = Load::new(&device, unit, seed, what);
        for step in 1..=600 {
            load.step();
            if step % 150 == 0 {
                load.check();
            }
        }
        load.check();
        let (accepted, refused) = load.counts;
        assert!(accepted > 20 && refused > 20, "{}: {accepted} accepted, {refused} refused", load.what);
        let Load { volume, files, what, .. } = load;
        drop(files);
        volume.unmount().unwrap();
        assert_clean(&*device, &what);
    }
}
