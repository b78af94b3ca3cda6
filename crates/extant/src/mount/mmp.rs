//! Multiple-mount protection: the host that writes to a disk says so in a block, which it renews, so that other hosts keep off.
//!
//! The block is taken before anything else is written, released after the last write, and renewed in between. At each renewal it
//! must be as it was left. If it is not, another host uses the disk: from then on every write fails, by which the journal aborts;
//! nothing more is written, this block included. A mount for reading neither asks nor takes it.
//!
//! The block is written durably outside of transactions, not through the journal, which is opened later. If that fails, the
//! device may have dropped other writes too and report it only once: the disk counts as lost, and every flush that overlaps it or
//! comes later fails.
//!
//! Leaves out, as does the kernel: two hosts that find the block unused at the same instant. The next renewal detects that.
//!
//! Locks: `MMP`: key 0 over the reading and writing of the block, the others for moments.
//!
//! Source: kernel `fs/ext4/mmp.c`. Tests: `../tests/formats/mmp.rs`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::time::Duration;

use extant_block::{BlockDevice, DurableRequests, Write};
use extant_ondisk::mmp::{
    DEFAULT_UPDATE_INTERVAL_S, MAX_CHECK_INTERVAL_S, MIN_CHECK_INTERVAL_S, MMP_SIZE, SEQ_CLEAN, SEQ_FSCK,
    SEQ_MAX,
};
use extant_ondisk::{Checksums, FsBlock, Geometry, IncompatFeatures, Mmp, Structure, Superblock};
use extant_rt::{Arc, LockClass, Monotonic, Mutex, OnceLock, WallClock};

use crate::error::{Location, MmpHolder, Result};
use crate::metadata::worker::{Signal, Worker};
use crate::mount::Volume;

/// Seconds between checks for each second between updates (kernel `EXT4_MMP_CHECK_MULT`).
const CHECKS_PER_UPDATE: u16 = 2;
/// The name of the device in the block: the engine does not know the real one.
const DEVICE_NAME: &[u8] = b"extant";

/// What the block says of its holder.
fn holder(mmp: &Mmp) -> MmpHolder {
    // The bytes are not trusted.
    let text = |bytes: &[u8]| {
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        if len == 0 { "?".to_owned() } else { bytes[..len].escape_ascii().to_string() }
    };
    MmpHolder {
        node: text(&mmp.mmp_nodename()),
        device: text(&mmp.mmp_bdevname()),
        time_s: mmp.mmp_time(),
        is_fsck: mmp.mmp_seq() == SEQ_FSCK,
    }
}

/// The block, held. Gives it up when dropped.
pub(crate) struct MmpGuard {
    fenced: Arc<FencedDevice>,
    worker: Worker,
}

impl MmpGuard {
    /// How long [`MmpGuard::take`] would wait.
    ///
    /// # Errors
    /// `Corrupt`; `Io`.
    pub(crate) fn wait(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Duration> {
        let mmp = MmpBlock::of(device, superblock)?.read(device)?;
        Ok(wait_for_renewal(&mmp, update_interval_s(superblock)))
    }

    /// Takes the block. Waits, six minutes at most and eleven seconds as a rule, if it was not released, to see whether its
    /// holder renews it.
    ///
    /// # Errors
    /// `InUse`; `Corrupt`; `Io`.
    pub(crate) fn take(
        device: Arc<dyn BlockDevice>,
        superblock: &Superblock,
        clock: WallClock,
    ) -> Result<Self> {
        let block = MmpBlock::of(device.as_ref(), superblock)?;
        let location = block.location;
        let update_interval_s = update_interval_s(superblock);
        let mut mmp = block.read(&*device)?;
        if mmp.mmp_seq() == SEQ_FSCK {
            return Err(holder(&mmp).into());
        }
        let wait = wait_for_renewal(&mmp, update_interval_s);
        if !wait.is_zero() {
            extant_rt::sleep(wait);
            let seq = mmp.mmp_seq();
            mmp = block.read(&*device)?;
            if mmp.mmp_seq() != seq {
                return Err(holder(&mmp).into());
            }
        }
        mmp.set_mmp_seq((RandomState::new().build_hasher().finish() % u64::from(SEQ_MAX)) as u32 + 1);
        mmp.set_mmp_nodename(name(&extant_block::host_name()));
        mmp.set_mmp_bdevname(name(DEVICE_NAME));
        let interval_s = u64::from(CHECKS_PER_UPDATE) * u64::from(update_interval_s);
        mmp.set_mmp_check_interval(check_interval_s(interval_s));
        block.write(&*device, clock, &mut mmp)?;
        let found = block.read(&*device)?;
        if !is_same(&found, &mmp) {
            return Err(holder(&found).into());
        }
        let held = Mutex::new(LockClass::MMP, Some(mmp));
        let (lost, durable) = (OnceLock::new(), DurableRequests::new());
        let fenced = Arc::new(FencedDevice { device, block, clock, held, lost, durable });
        let (renewed, worker) = (fenced.clone(), Worker::new(LockClass::MMP));
        let interval = Duration::from_secs(u64::from(update_interval_s));
        let mmp_guard = Self { fenced, worker };
        let run = move |signal: &Signal| {
            let watch = RenewalWatch { fenced: &renewed, has_ended: false };
            while signal.rest(interval) && renewed.renew(interval) {}
            watch.end();
        };
        mmp_guard.worker.start("extant-mmp", run).map_err(|error| location.io(error))?;
        Ok(mmp_guard)
    }

    /// The device, which takes writes as long as the block is held.
    pub(crate) fn device(&self) -> Arc<dyn BlockDevice> {
        self.fenced.clone()
    }

    /// Releases the block. Does nothing if it was released, or lost.
    ///
    /// # Errors
    /// `Io`.
    fn release(&self) -> Result<()> {
        self.worker.stop();
        let FencedDevice { device, block, clock, held, .. } = &*self.fenced;
        let Some(mut mmp) = held.lock().take() else { return Ok(()) };
        mmp.set_mmp_seq(SEQ_CLEAN);
        // It names no host, so that the same work gives the same bytes on every host.
        mmp.set_mmp_nodename(name(b""));
        mmp.set_mmp_bdevname(name(b""));
        block.write(&**device, *clock, &mut mmp)
    }
}

impl Drop for MmpGuard {
    fn drop(&mut self) {
        // Drop cannot report an error; `unmount` does.
        let _ = self.release();
    }
}

impl Volume {
    /// Informs other hosts that this one writes no more.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn release_mmp(&self) -> Result<()> {
        self.mmp_guard.as_ref().map_or(Ok(()), MmpGuard::release)
    }

    /// The holder of the disk's multiple-mount protection; none if the disk has no such protection.
    ///
    /// # Errors
    /// `Corrupt`; `Io`.
    pub(crate) fn mmp_holder(&self) -> Result<Option<MmpHolder>> {
        let superblock = self.superblock.lock().clone();
        if !superblock.incompat().contains(IncompatFeatures::MMP) {
            return Ok(None);
        }
        let mmp = MmpBlock::of(&*self.device, &superblock)?.read(&*self.device)?;
        Ok((mmp.mmp_seq() != SEQ_CLEAN).then(|| holder(&mmp)))
    }
}

/// Where the block is.
struct MmpBlock {
    location: Location,
    offset: u64,
    checksums: Checksums,
}

impl MmpBlock {
    fn of(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Self> {
        let geometry =
            Geometry::new(superblock).map_err(|error| Location::of(Structure::Superblock).format(error))?;
        let block = FsBlock(superblock.s_mmp_block());
        let location = Location::of(Structure::Mmp).block(block);
        let offset = block.0.checked_mul(u64::from(geometry.block_size));
        match offset.filter(|_| geometry.is_valid_block_run(block, 1)) {
            Some(offset) if offset < device.size() => {
                Ok(Self { location, offset, checksums: Checksums::new(superblock) })
            }
            _ => Err(location.corrupt("outside the disk")),
        }
    }

    fn read(&self, device: &dyn BlockDevice) -> Result<Mmp> {
        let mut bytes = [0; MMP_SIZE];
        let read = device
            .refresh(self.offset, MMP_SIZE as u64)
            .and_then(|()| device.read_at(self.offset, &mut bytes));
        read.map_err(|error| self.location.io(error))?;
        Mmp::parse(&bytes, &self.checksums).map_err(|error| self.location.format(error))
    }

    fn write(&self, device: &dyn BlockDevice, clock: WallClock, mmp: &mut Mmp) -> Result<()> {
        mmp.set_mmp_time(u64::try_from(clock.now().0).unwrap_or(0));
        mmp.update_checksum(&self.checksums);
        device.write_fua(self.offset, mmp.as_bytes()).map_err(|error| self.location.io(error))
    }
}

/// A device that takes no writes once another host has taken the block.
struct FencedDevice {
    device: Arc<dyn BlockDevice>,
    block: MmpBlock,
    clock: WallClock,
    /// What the block holds; none once it is released or lost.
    held: Mutex<Option<Mmp>>,
    /// Why it was lost.
    lost: OnceLock<String>,
    /// Flushes and renewals: lost writes that the device reports to the one it does not report to the other.
    durable: DurableRequests,
}

/// Counts the block as lost if a panic ends the thread that renews it: others take the disk soon.
struct RenewalWatch<'f> {
    fenced: &'f FencedDevice,
    has_ended: bool,
}

impl RenewalWatch<'_> {
    fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for RenewalWatch<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            // The first reason stays.
            let _ = self.fenced.lost.set("the thread that renews the protection's block panicked".to_owned());
        }
    }
}

impl FencedDevice {
    /// Renews the block every `interval`; false if there is no more to renew.
    fn renew(&self, interval: Duration) -> bool {
        let mut held = self.held.lock();
        let Some(mut mmp) = held.take() else { return false };
        let start = Monotonic::now();
        let renewed = self.block.read(&*self.device).and_then(|found| {
            if !is_same(&found, &mmp) {
                return Err(holder(&found).into());
            }
            mmp.set_mmp_seq(if mmp.mmp_seq() < SEQ_MAX { mmp.mmp_seq() + 1 } else { 1 });
            self.block.write(self, self.clock, &mut mmp)
        });
        if let Err(error) = renewed {
            let _ = self.lost.set(error.to_string());
            return false;
        }
        // A slow device makes others wait longer.
        let took_s = (interval + start.elapsed()).as_secs();
        mmp.set_mmp_check_interval(check_interval_s(u64::from(CHECKS_PER_UPDATE).saturating_mul(took_s)));
        *held = Some(mmp);
        true
    }

    fn check(&self) -> io::Result<()> {
        match self.lost.get() {
            Some(why) => Err(io::Error::other(why.clone())),
            None => Ok(()),
        }
    }
}

impl BlockDevice for FencedDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.check()?;
        self.device.write_vectored_at(offset, bufs)
    }

    fn write_many(&self, writes: &[Write<'_>]) -> io::Result<()> {
        self.check()?;
        self.device.write_many(writes)
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check()?;
        self.durable.run(|| self.device.write_fua(offset, buf))
    }

    fn flush(&self) -> io::Result<()> {
        self.check()?;
        self.durable.run(|| self.device.flush())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check()?;
        self.device.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check()?;
        self.device.write_zeroes(offset, bytes)
    }

    fn refresh(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.device.refresh(offset, bytes)
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        self.device.grow(bytes)
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn has_latency(&self) -> bool {
        self.device.has_latency()
    }
}

/// Whether the block is as this host left it.
fn is_same(found: &Mmp, left: &Mmp) -> bool {
    found.mmp_seq() == left.mmp_seq() && found.mmp_nodename() == left.mmp_nodename()
}

/// Seconds between renewals, bounded, for the disk says them.
fn update_interval_s(superblock: &Superblock) -> u16 {
    match superblock.s_mmp_update_interval() {
        0 => DEFAULT_UPDATE_INTERVAL_S,
        seconds => seconds.min(MAX_CHECK_INTERVAL_S),
    }
}

/// How long to watch a block that was not released; a check by e2fsck is not waited for.
fn wait_for_renewal(mmp: &Mmp, update_interval_s: u16) -> Duration {
    if matches!(mmp.mmp_seq(), SEQ_CLEAN | SEQ_FSCK) {
        return Duration::ZERO;
    }
    let interval_s = check_interval_s(u64::from(update_interval_s.max(mmp.mmp_check_interval())));
    Duration::from_secs(u64::from((2 * interval_s + 1).min(interval_s + 60)))
}

/// Seconds between checks, within the format's bounds.
fn check_interval_s(seconds: u64) -> u16 {
    seconds.clamp(u64::from(MIN_CHECK_INTERVAL_S), u64::from(MAX_CHECK_INTERVAL_S)) as u16
}

/// A name in its field, cut to leave a NUL.
fn name<const LEN: usize>(bytes: &[u8]) -> [u8; LEN] {
    let mut field = [0; LEN];
    let len = bytes.len().min(LEN - 1);
    field[..len].copy_from_slice(&bytes[..len]);
    field
}
