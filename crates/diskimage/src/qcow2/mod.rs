//! qcow2 images, read and written.
//!
//! Leaves out: encryption, external data files, subclusters, making snapshots, growth beyond the clusters that the level-1 table has.
//! What is written is never packed.
//!
//! Invariants: a read, and a write into clusters that are mapped already, hold the map's lock shared over their I/O; a thread that maps or
//! frees clusters holds it alone. So no cluster is freed while it is read. Data is in the file before the map refers to it in memory,
//! and durable before the map refers to it in the file (`map`).
//!
//! Locks: `DISK_IMAGE` by the depth in the chain of backing files, over I/O; `DEVICE` for packed clusters, not over I/O. Source: QEMU's
//! `docs/interop/qcow2.txt`. Tests: `tests/qcow2`.

mod header;
mod map;
mod packed;
mod refcounts;
mod write;

use std::io;

use extant_block::{BlockDevice, check_range};
use extant_rt::{Arc, AtomicU64, LockClass, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::Format;
use crate::error::{Error, Result};
use crate::field::read_padded;
use header::{AUTOCLEAR_OFFSET, Header, SIZE_OFFSET};
use map::{Cluster, Map};
use packed::Packed;

const SECTOR_BYTES: u64 = 512;

/// The size of clusters of new images, as QEMU's.
const NEW_CLUSTER_BITS: u32 = 16;

/// A file that an image lies over.
pub(crate) struct BackingName {
    pub(crate) name: String,
    pub(crate) format: Option<String>,
}

/// An image whose header was read.
pub(crate) struct Opening {
    file: Arc<dyn BlockDevice>,
    header: Header,
}

impl Opening {
    /// Reads the header.
    pub(crate) fn new(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let header = Header::read(&*file)?;
        Ok(Self { file, header })
    }

    pub(crate) fn size(&self) -> u64 {
        self.header.size
    }

    pub(crate) fn compression(&self) -> &'static str {
        if self.header.is_zstd { "zstd" } else { "deflate" }
    }

    pub(crate) fn backing(&self) -> Option<BackingName> {
        let format = self.header.backing_format.clone();
        self.header.backing.clone().map(|name| BackingName { name, format })
    }

    /// The device, over `backing`; `depth` is its place in the chain.
    pub(crate) fn open(self, backing: Option<Arc<dyn BlockDevice>>, depth: u64) -> Result<Qcow2> {
        let Self { file, header } = self;
        let is_read_only = file.is_read_only();
        if !is_read_only {
            if header.is_dirty {
                let reason = "its refcounts are not up to date, for it was not closed; `qemu-img check -r all IMAGE` brings them up to date";
                return Err(Error::damaged(Format::Qcow2, reason));
            }
            // What others recorded beside the tables is not kept up to date, such as bitmaps.
            if header.autoclear != 0 {
                file.write_fua(AUTOCLEAR_OFFSET, &[0; 8])?;
            }
        }
        let map = Map::read(&*file, &header, is_read_only)?;
        if !is_read_only {
            complete_last_cluster(&*file, header.cluster_bytes())?;
        }
        let packed = Packed::new(header.cluster_bits, header.is_zstd);
        Ok(Qcow2 {
            size: AtomicU64::new(header.size),
            has_snapshots: header.snapshots > 0,
            has_zero_clusters: header.version >= 3,
            map: RwLock::with_key(LockClass::DISK_IMAGE, depth, map),
            file,
            backing,
            packed,
            is_read_only,
        })
    }
}

/// Has the last cluster whole in the file, so that all of it can be written; QEMU leaves out what is behind the disk's end.
fn complete_last_cluster(file: &dyn BlockDevice, cluster_bytes: u64) -> io::Result<()> {
    match file.grow(file.size().next_multiple_of(cluster_bytes)) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        grown => grown,
    }
}

/// Makes an empty image of `bytes` bytes in an empty file.
pub(crate) fn create(file: &dyn BlockDevice, bytes: u64) -> io::Result<()> {
    let cluster = 1 << NEW_CLUSTER_BITS;
    let l1_entries = bytes.div_ceil(cluster * (cluster / 8));
    let l1_clusters = (l1_entries * 8).div_ceil(cluster);
    // A header, a refcount table, a block of it and the level-1 table.
    let clusters = 3 + l1_clusters;
    let (Ok(l1_entries), true) = (u32::try_from(l1_entries), l1_clusters <= 512) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too large for a qcow2 image"));
    };
    file.grow(clusters * cluster)?;
    let header = header::new_header(NEW_CLUSTER_BITS, bytes, (3 * cluster, l1_entries), (cluster, 1));
    file.write_at(0, &header)?;
    file.write_at(cluster, &(2 * cluster).to_be_bytes())?;
    let refcounts: Vec<u8> = (0..clusters).flat_map(|_| 1u16.to_be_bytes()).collect();
    file.write_at(2 * cluster, &refcounts)?;
    file.flush()
}

/// An image as a device.
pub(crate) struct Qcow2 {
    size: AtomicU64,
    has_snapshots: bool,
    has_zero_clusters: bool,
    map: RwLock<Map>,
    file: Arc<dyn BlockDevice>,
    backing: Option<Arc<dyn BlockDevice>>,
    packed: Packed,
    is_read_only: bool,
}

impl Drop for Qcow2 {
    fn drop(&mut self) {
        // What was not flushed may be lost, but need not be.
        if !self.is_read_only {
            let _ = self.flush();
        }
    }
}

impl Qcow2 {
    /// The map with the table for `offset` in memory.
    fn map_at(&self, offset: u64) -> io::Result<RwLockReadGuard<'_, Map>> {
        loop {
            let map = self.map.read();
            if map.is_loaded(offset) {
                return Ok(map);
            }
            drop(map);
            self.map.write().load(&*self.file, offset)?;
        }
    }

    /// Reads what lies together at `offset`: how much.
    fn read_run(&self, map: &Map, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let run = map.run(offset, buf.len() as u64)?;
        let within = offset & (map.cluster_bytes() - 1);
        let buf = &mut buf[..run.bytes as usize];
        match run.cluster {
            Cluster::Zero => buf.fill(0),
            Cluster::Unallocated => match &self.backing {
                Some(backing) => read_padded(&**backing, offset, buf)?,
                None => buf.fill(0),
            },
            Cluster::Data { host, .. } => read_padded(&*self.file, host + within, buf)?,
            Cluster::Packed { host, bytes } => self.packed.read(&*self.file, host, bytes, within, buf)?,
        }
        Ok(buf.len())
    }

    fn read_range(&self, map: &Map, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            done += self.read_run(map, offset + done as u64, &mut buf[done..])?;
        }
        Ok(())
    }

    fn check_write(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if self.is_read_only {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        check_range(self.size(), offset, bytes)
    }

    /// Makes whole clusters of a range read as zero without a place in the file. Calls `rest` for what are no whole ones.
    fn unmap(
        &self,
        offset: u64,
        bytes: u64,
        mut rest: impl FnMut(u64, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut map = self.map.write();
        let cluster = map.cluster_bytes();
        let end = offset + bytes;
        // The disk's last cluster may be a part.
        let whole_end = if end == self.size() { end.next_multiple_of(cluster) } else { end - end % cluster };
        let whole_start = offset.next_multiple_of(cluster);
        if whole_start >= whole_end {
            drop(map);
            return rest(offset, bytes);
        }
        let mut at = whole_start;
        while at < whole_end {
            map.load(&*self.file, at)?;
            let run = map.run(at, whole_end - at)?;
            let run_bytes = run.bytes.next_multiple_of(cluster);
            let (is_zero_already, empty) = match (run.cluster, self.backing.is_none()) {
                (cluster, true) => (cluster == Cluster::Unallocated, Cluster::Unallocated),
                (cluster, false) => (cluster == Cluster::Zero, Cluster::Zero),
            };
            if !is_zero_already {
                for start in (at..at + run_bytes).step_by(cluster as usize) {
                    map.own_table(&*self.file, start)?;
                    map.set(start, empty)?;
                }
            }
            at += run_bytes;
        }
        drop(map);
        if offset < whole_start {
            rest(offset, whole_start - offset)?;
        }
        if whole_end < end {
            rest(whole_end, end - whole_end)?;
        }
        Ok(())
    }

    /// Whether a cluster can be made to read as zero without a place in the file.
    fn can_unmap(&self) -> bool {
        self.has_zero_clusters || self.backing.is_none()
    }

    /// Whether a range reads as zero, by the map alone.
    fn is_zero(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        let mut at = offset;
        while at < offset + bytes {
            let run = self.map_at(at)?.run(at, offset + bytes - at)?;
            match run.cluster {
                Cluster::Zero => {}
                Cluster::Unallocated if self.backing.is_none() => {}
                _ => return Ok(false),
            }
            at += run.bytes;
        }
        Ok(true)
    }

    /// The map, to be changed, if there is something in memory that the file does not have.
    fn uncommitted(&self) -> Option<RwLockWriteGuard<'_, Map>> {
        let is_clean = self.map.read().is_clean();
        (!is_clean).then(|| self.map.write())
    }
}

/// Zeroes written at a time.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

impl BlockDevice for Qcow2 {
    fn size(&self) -> u64 {
        // Orders nothing: who needs more bytes had them added before.
        self.size.load(Ordering::Relaxed)
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        let old = self.size();
        if bytes <= old {
            return Ok(());
        }
        self.check_write(0, 0)?;
        // Snapshots would have another size; what the backing file has further on would appear.
        let is_covered = self.backing.as_ref().is_some_and(|backing| backing.size() > old);
        if self.has_snapshots || is_covered {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let bytes = bytes.checked_next_multiple_of(SECTOR_BYTES).ok_or(io::ErrorKind::Unsupported)?;
        let entries = self.map.write().grow_l1(&*self.file, bytes)?;
        // The size, the kind of encryption, which is none, and the entries of the table, in one sector.
        let mut fields = bytes.to_be_bytes().to_vec();
        fields.extend([0; 4]);
        fields.extend(entries.to_be_bytes());
        self.file.write_fua(SIZE_OFFSET, &fields)?;
        self.size.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.size(), offset, buf.len() as u64)?;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            done += self.read_run(&*self.map_at(at)?, at, &mut buf[done..])?;
        }
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.write(offset, bufs, false)
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let bufs = [io::IoSlice::new(buf)];
        // Where the file has the whole map, what is written is found.
        let is_clean = self.map.read().is_clean();
        self.write(offset, &bufs, is_clean)?;
        match self.uncommitted() {
            Some(mut map) => map.commit(&*self.file),
            None if is_clean => Ok(()),
            None => self.file.flush(),
        }
    }

    fn flush(&self) -> io::Result<()> {
        match self.uncommitted() {
            Some(mut map) => map.commit(&*self.file),
            None if self.is_read_only => Ok(()),
            None => self.file.flush(),
        }
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check_write(offset, bytes)?;
        if !self.can_unmap() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.unmap(offset, bytes, |_, _| Ok(()))
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check_write(offset, bytes)?;
        let write = |offset: u64, bytes: u64| {
            if self.is_zero(offset, bytes)? {
                return Ok(());
            }
            let mut done = 0;
            while done < bytes {
                let len = (bytes - done).min(ZEROES.len() as u64);
                self.write_at(offset + done, &ZEROES[..len as usize])?;
                done += len;
            }
            Ok(())
        };
        if self.can_unmap() { self.unmap(offset, bytes, write) } else { write(offset, bytes) }
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn has_latency(&self) -> bool {
        self.file.has_latency() || self.backing.as_ref().is_some_and(|backing| backing.has_latency())
    }
}
