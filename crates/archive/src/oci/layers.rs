//! The archives of the layers, unpacked and with their digests checked.
//!
//! The digest of a blob is checked before anything of it is unpacked. An archive that lies unpacked in the image is read
//! in place; others are unpacked into files without a name. Layers are read on several threads.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use extant_rt::{AtomicBool, AtomicU64, AtomicUsize, Ordering, available_parallelism, parallel};
use oci_spec::image::Digest;

use super::digest::Hasher;
use super::layout::{FoundLayer, wrong_digest};
use crate::error::{Error, Result};
use crate::packing::{BUFFER_BYTES, Unpacked, unpack};
use crate::tar::unnamed_file;
use crate::window::Window;

/// Threads that read layers. Each holds what unpacking takes.
const THREADS_MAX: usize = 4;

/// How the layers of an image are read.
pub struct ReadLayers<'a> {
    /// The directory where layers are unpacked, into files without a name.
    pub directory: &'a Path,
    /// Bytes that one layer may have when it is unpacked.
    pub layer_bytes_max: u64,
    /// Called now and then, by any thread.
    pub progress: &'a (dyn Fn(Reading) + Sync),
}

/// How far the reading of layers is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Layers that are read.
    pub layers: usize,
    /// Layers of the image.
    pub layers_total: usize,
    /// Bytes that were unpacked.
    pub bytes: u64,
}

/// A layer whose digests are right.
#[derive(Debug)]
pub(super) struct Layer {
    /// For messages.
    pub name: String,
    pub archive: Window,
}

struct Counters<'a> {
    options: &'a ReadLayers<'a>,
    total: usize,
    layers: AtomicUsize,
    bytes: AtomicU64,
}

/// Reads the layers.
pub(super) fn read(found: Vec<FoundLayer>, options: &ReadLayers<'_>) -> Result<Vec<Layer>> {
    let counters =
        Counters { options, total: found.len(), layers: AtomicUsize::new(0), bytes: AtomicU64::new(0) };
    // The largest first, so that no thread is left with it at the end.
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(found[*index].blob.size()));
    // The threads share nothing but these counts, which order nothing.
    let (taken, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let read_some = |_| {
        let mut read = Vec::new();
        while !has_failed.load(Ordering::Relaxed)
            && let Some(index) = order.get(taken.fetch_add(1, Ordering::Relaxed))
        {
            let layer = counters.read(&found[*index]);
            has_failed.fetch_or(layer.is_err(), Ordering::Relaxed);
            read.push((*index, layer));
        }
        read
    };
    let threads = available_parallelism().min(THREADS_MAX).min(found.len());
    let mut read: Vec<_> = parallel(threads, read_some).into_iter().flatten().collect();
    read.sort_by_key(|(index, _)| *index);
    read.into_iter().map(|(_, layer)| layer).collect()
}

impl Counters<'_> {
    fn count(&self, bytes: usize) {
        let bytes = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let layers = self.layers.load(Ordering::Relaxed);
        (self.options.progress)(Reading { layers, layers_total: self.total, bytes });
    }

    fn read(&self, found: &FoundLayer) -> Result<Layer> {
        let failed = |error: io::Error| Error::image(&found.name, error.to_string());
        let blob = found.blob.rewound();
        if let Some(digest) = &found.digest {
            self.check(found, digest, &mut blob.rewound(), &mut |_| Ok(()))?;
        }
        let archive = match unpack(blob.clone()).map_err(failed)? {
            Unpacked::Plain(_) if found.digest.as_ref() == Some(&found.diff_id) => blob,
            Unpacked::Plain(mut reader) => {
                self.check(found, &found.diff_id, &mut reader, &mut |_| Ok(()))?;
                blob
            }
            Unpacked::Packed(mut reader) => self.unpack(found, &mut reader)?,
        };
        self.layers.fetch_add(1, Ordering::Relaxed);
        self.count(0);
        Ok(Layer { name: found.name.clone(), archive })
    }

    fn unpack(&self, found: &FoundLayer, reader: &mut dyn Read) -> Result<Window> {
        let host = || Error::host(self.options.directory);
        let mut file: File = unnamed_file(self.options.directory).map_err(host())?;
        let mut left = self.options.layer_bytes_max;
        self.check(found, &found.diff_id, reader, &mut |bytes| {
            let fits = left.checked_sub(bytes.len() as u64);
            left = fits.ok_or_else(|| {
                let limit = self.options.layer_bytes_max;
                Error::image(&found.name, format!("it unpacks to more than {limit} bytes, which is far more than there is room for; say a larger SIZE if that is right"))
            })?;
            self.count(bytes.len());
            file.write_all(bytes).map_err(host())
        })?;
        Window::whole(file).map_err(host())
    }

    /// Reads to the end, passes on what is read, and compares its digest.
    fn check(
        &self,
        found: &FoundLayer,
        digest: &Digest,
        reader: &mut dyn Read,
        pass: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let unknown = || Error::image(&found.name, "a digest that is neither SHA-256 nor SHA-512");
        let mut hasher = Hasher::new(digest.algorithm()).ok_or_else(unknown)?;
        let mut piece = vec![0; BUFFER_BYTES];
        loop {
            match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => {
                    hasher.update(&piece[..read]);
                    pass(&piece[..read])?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::image(&found.name, error.to_string())),
            }
        }
        let sum = hasher.finish();
        if sum == digest.as_ref() { Ok(()) } else { Err(wrong_digest(&found.name, &sum)) }
    }
}
