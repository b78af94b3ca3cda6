//! Clusters that are packed, and some that were unpacked of late.

use std::collections::VecDeque;
use std::io::{self, Read};

use extant_block::BlockDevice;
use extant_rt::{Arc, LockClass, Mutex};
use flate2::{Decompress, FlushDecompress};

use crate::Format;
use crate::error::damage;
use crate::field::read_padded;

/// Bytes of unpacked clusters that are kept.
const KEPT_BYTES: usize = 4 << 20;

/// Unpacks clusters.
pub(super) struct Packed {
    cluster_bytes: usize,
    is_zstd: bool,
    /// The place of each and its content, the latest last.
    kept: Mutex<VecDeque<(u64, Arc<[u8]>)>>,
}

impl Packed {
    pub(super) fn new(cluster_bits: u32, is_zstd: bool) -> Self {
        let kept = Mutex::new(LockClass::DEVICE, VecDeque::new());
        Self { cluster_bytes: 1 << cluster_bits, is_zstd, kept }
    }

    /// Reads from `within` of the cluster that is packed in `bytes` bytes at `host`.
    pub(super) fn read(
        &self,
        file: &dyn BlockDevice,
        host: u64,
        bytes: u64,
        within: u64,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let within = within as usize;
        let kept =
            self.kept.lock().iter().find(|(place, _)| *place == host).map(|(_, content)| content.clone());
        let content = match kept {
            Some(content) => content,
            None => self.unpack(file, host, bytes)?,
        };
        let content = content.get(within..within + buf.len());
        buf.copy_from_slice(content.ok_or_else(|| damage(Format::Qcow2, "a packed cluster is too short"))?);
        Ok(())
    }

    fn unpack(&self, file: &dyn BlockDevice, host: u64, bytes: u64) -> io::Result<Arc<[u8]>> {
        // Two clusters at most: the field has as many bits as a cluster has sectors, and one more.
        let mut packed = vec![0; bytes as usize];
        read_padded(file, host, &mut packed)?;
        let mut content = vec![0; self.cluster_bytes];
        let broken = || damage(Format::Qcow2, format!("the packed cluster at {host}"));
        if self.is_zstd {
            let decoder = ruzstd::decoding::StreamingDecoder::new(packed.as_slice());
            decoder.map_err(|_| broken())?.read_exact(&mut content).map_err(|_| broken())?;
        } else {
            let mut decoder = Decompress::new(false);
            // The packed bytes end before the last sector does.
            decoder.decompress(&packed, &mut content, FlushDecompress::Finish).map_err(|_| broken())?;
            if decoder.total_out() != content.len() as u64 {
                return Err(broken());
            }
        }
        let content: Arc<[u8]> = content.into();
        let mut kept = self.kept.lock();
        if (kept.len() + 1) * self.cluster_bytes > KEPT_BYTES {
            kept.pop_front();
        }
        kept.push_back((host, content.clone()));
        Ok(content)
    }
}
