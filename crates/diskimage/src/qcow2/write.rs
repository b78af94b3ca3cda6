//! Writes: into the clusters that are mapped, and into new ones.
//!
//! New clusters get the written bytes, and around them what the disk has there, before the map refers to them.

use std::io;

use super::Qcow2;
use super::map::{Cluster, Map};

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

    /// Writes the buffers one after the other; with `is_fua` what is mapped already is durable on return.
    pub(super) fn write(&self, offset: u64, bufs: &[io::IoSlice<'_>], is_fua: bool) -> io::Result<()> {
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
}
