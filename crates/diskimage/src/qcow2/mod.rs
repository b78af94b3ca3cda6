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

/// Buffers of a write, of which a part was written.
struct Source<'a, 'b> {
    bufs: &'a [io::IoSlice<'b>],
    /// Bytes of the first buffer that were written.
    skip: usize,
    bytes: u64,
}

impl<'a> Source<'a, '_> {
    /// The next `bytes` bytes.
    fn first(&self, bytes: u64) -> Vec<io::IoSlice<'a>> {
        let (mut skip, mut left) = (self.skip, bytes as usize);
        let mut slices = Vec::with_capacity(self.bufs.len().min(64));
        for buf in self.bufs {
            if left == 0 {
                break;
            }
            let piece = &buf[skip..];
            let piece = &piece[..piece.len().min(left)];
            left -= piece.len();
            skip = 0;
            slices.push(io::IoSlice::new(piece));
        }
        slices
    }

    fn advance(&mut self, bytes: u64) {
        self.bytes -= bytes;
        let mut left = bytes as usize + self.skip;
        while let Some(first) = self.bufs.first().filter(|first| first.len() <= left) {
            left -= first.len();
            self.bufs = &self.bufs[1..];
        }
        self.skip = left;
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

    /// Writes into the clusters at `offset` that are mapped already: how many bytes.
    fn write_mapped(&self, map: &Map, offset: u64, source: &Source<'_, '_>, is_fua: bool) -> io::Result<u64> {
        let run = map.run(offset, source.bytes)?;
        let Cluster::Data { host, is_shared: false } = run.cluster else { return Ok(0) };
        let at = host + (offset & (map.cluster_bytes() - 1));
        match source.first(run.bytes).as_slice() {
            [one] if is_fua => self.file.write_fua(at, one)?,
            slices => self.file.write_vectored_at(at, slices)?,
        }
        Ok(run.bytes)
    }

    /// Maps clusters at `offset` that were not, with the next bytes of `source` in them: how many.
    fn write_unmapped(&self, map: &mut Map, offset: u64, source: &Source<'_, '_>) -> io::Result<u64> {
        map.own_table(&*self.file, offset)?;
        let run = map.run(offset, source.bytes)?;
        if let Cluster::Data { is_shared: false, .. } = run.cluster {
            // Another thread has mapped it.
            return self.write_mapped(map, offset, source, false);
        }
        let cluster = map.cluster_bytes();
        let within = offset & (cluster - 1);
        let refcounts = map.refcounts.as_mut().ok_or(io::ErrorKind::PermissionDenied)?;
        let clusters = refcounts.allocate(&*self.file, (within + run.bytes).div_ceil(cluster))?;
        let count = clusters.end - clusters.start;
        let host = clusters.start * cluster;
        let is_fresh = refcounts.is_fresh(host);
        refcounts.note_written(host + count * cluster);
        let bytes = run.bytes.min(count * cluster - within);
        if let Err(error) = self.fill(map, offset, source, bytes, (host, is_fresh)) {
            if let Some(refcounts) = map.refcounts.as_mut() {
                refcounts.release(&*self.file, clusters)?;
            }
            return Err(error);
        }
        for index in 0..count {
            let host = host + index * cluster;
            map.set(offset - within + index * cluster, Cluster::Data { host, is_shared: false })?;
        }
        Ok(bytes)
    }

    /// Writes whole clusters at `host`: the next `bytes` bytes of `source`, which are for `offset`, and around them what is there now.
    fn fill(
        &self,
        map: &Map,
        offset: u64,
        source: &Source<'_, '_>,
        bytes: u64,
        (host, is_fresh): (u64, bool),
    ) -> io::Result<()> {
        let cluster = map.cluster_bytes();
        let within = offset & (cluster - 1);
        let end = (within + bytes).next_multiple_of(cluster);
        let head = self.around(map, offset - within, within, is_fresh)?;
        let tail = self.around(map, offset + bytes, end - within - bytes, is_fresh)?;
        let mut slices = source.first(bytes);
        if let Some(tail) = &tail {
            slices.push(io::IoSlice::new(tail));
        }
        let at = match &head {
            Some(head) => {
                slices.insert(0, io::IoSlice::new(head));
                host
            }
            None => host + within,
        };
        self.file.write_vectored_at(at, &slices)
    }

    /// What is in a part of a cluster that is to be moved; none if nothing need be written for it.
    fn around(&self, map: &Map, offset: u64, bytes: u64, is_fresh: bool) -> io::Result<Option<Vec<u8>>> {
        if bytes == 0 {
            return Ok(None);
        }
        let is_zero = match map.run(offset, bytes)?.cluster {
            Cluster::Zero => true,
            Cluster::Unallocated => self.backing.as_ref().is_none_or(|backing| offset >= backing.size()),
            _ => false,
        };
        if is_zero && is_fresh {
            return Ok(None);
        }
        let mut content = vec![0; bytes as usize];
        if !is_zero {
            self.read_range(map, offset, &mut content)?;
        }
        Ok(Some(content))
    }

    fn write(&self, offset: u64, bufs: &[io::IoSlice<'_>], is_fua: bool) -> io::Result<()> {
        let bytes = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.check_write(offset, bytes)?;
        let mut source = Source { bufs, skip: 0, bytes };
        let mut at = offset;
        while source.bytes > 0 {
            let mut written = {
                let map = self.map_at(at)?;
                self.write_mapped(&map, at, &source, is_fua)?
            };
            if written == 0 {
                written = self.write_unmapped(&mut self.map.write(), at, &source)?;
            }
            source.advance(written);
            at += written;
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
