//! Disk image formats as block devices.
//!
//! qcow2 is read and written; VHDX, VHD, VMDK and Android's sparse images are read. Every byte of an image is taken for hostile: no field
//! makes a panic, an endless loop, or an allocation beyond the file's own size or a constant bound, and files that an image refers to
//! are opened only where the caller allows it (`references`).
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use extant_block::{DeviceAccess, FileDevice};
//!
//! let path = Path::new("disk.qcow2");
//! let file = Arc::new(FileDevice::open(path, DeviceAccess::read_write())?);
//! let image = extant_diskimage::open(path, file, &[])?;
//! let fs = extant::Mount::new().open_device(image.device)?;
//! fs.write("/hostname", "guest\n")?;
//! fs.unmount()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Leaves out: ext4, partitions, what a file is compressed with.

mod android;
mod error;
mod field;
mod format;
mod qcow2;
mod read_only;
mod recognise;
mod references;
mod scratch;
mod vhd;
mod vhdx;
mod vmdk;

use std::path::{Path, PathBuf};

use extant_block::BlockDevice;
use extant_rt::Arc;

pub use error::{Error, Result};
pub use format::Format;
pub use scratch::{SCRATCH_BYTES_MAX, spool};

use read_only::{Pieces, ReadOnly};
use references::References;

/// Images of one chain at most.
pub const CHAIN_MAX: usize = 32;

/// A disk image that is open.
pub struct DiskImage {
    /// The disk.
    pub device: Arc<dyn BlockDevice>,
    /// Its file, then what that lies over, and so on.
    pub layers: Vec<Layer>,
}

/// A file of a chain of images.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// Bytes of the disk that it describes.
    pub bytes: u64,
    /// How clusters of it may be packed.
    pub compression: Option<&'static str>,
}

/// Opens the image in `file`, which is at `path`, as its content says, for reading only if `file` is. Files that it refers to are opened
/// for reading, if they are regular ones below its directory or below one of `allowed`.
///
/// # Errors
/// [`Error::ReadOnly`] for a format that is not written, where `file` is open for writing; [`Error::Damaged`],
/// [`Error::Unsupported`], [`Error::Reference`] and [`Error::Backing`] for images that cannot be opened; [`Error::Io`].
pub fn open(path: &Path, file: Arc<dyn BlockDevice>, allowed: &[PathBuf]) -> Result<DiskImage> {
    let format = Format::recognise(&*file)?;
    let mut layers = Vec::new();
    let device = open_as(format, path, file, &mut References::new(path, allowed), &mut layers)?;
    Ok(DiskImage { device, layers })
}

/// Whether `file` is an image of a format that is written here and is not raw.
///
/// # Errors
/// The device's own.
pub fn is_written(file: &dyn BlockDevice) -> Result<bool> {
    let format = Format::recognise(file)?;
    Ok(format != Format::Raw && may_be_written(format, file)?)
}

fn may_be_written(format: Format, file: &dyn BlockDevice) -> Result<bool> {
    Ok(match format {
        Format::Raw | Format::Qcow2 => true,
        Format::Vhd => vhd::is_fixed(file)?,
        Format::Vhdx | Format::Vmdk | Format::AndroidSparse => false,
    })
}

/// Makes an empty qcow2 image of a disk of `bytes` bytes in `file`, which is empty.
///
/// # Errors
/// [`Error::Io`], also for a disk that is too large.
pub fn create_qcow2(file: &dyn BlockDevice, bytes: u64) -> Result<()> {
    Ok(qcow2::create(file, bytes)?)
}

fn open_as(
    format: Format,
    path: &Path,
    file: Arc<dyn BlockDevice>,
    references: &mut References<'_>,
    layers: &mut Vec<Layer>,
) -> Result<Arc<dyn BlockDevice>> {
    let mut layer = Layer { path: path.to_owned(), format, bytes: file.size(), compression: None };
    if !file.is_read_only() && !may_be_written(format, &*file)? {
        return Err(Error::ReadOnly { format });
    }
    let device: Arc<dyn BlockDevice> = match format {
        Format::Qcow2 => return open_qcow2(layer, file, references, layers),
        Format::Raw => file,
        Format::Vhd => vhd::open(file)?,
        Format::Vhdx => read_only(vhdx::Vhdx::open(file)?),
        Format::Vmdk => read_only(vmdk::Vmdk::open(path, file, references)?),
        Format::AndroidSparse => read_only(android::AndroidSparse::open(file)?),
    };
    layer.bytes = device.size();
    layers.push(layer);
    Ok(device)
}

fn read_only(pieces: impl Pieces + 'static) -> Arc<dyn BlockDevice> {
    Arc::new(ReadOnly(pieces))
}

fn open_qcow2(
    mut layer: Layer,
    file: Arc<dyn BlockDevice>,
    references: &mut References<'_>,
    layers: &mut Vec<Layer>,
) -> Result<Arc<dyn BlockDevice>> {
    let depth = layers.len() as u64;
    let opening = qcow2::Opening::new(file)?;
    layer.bytes = opening.size();
    layer.compression = Some(opening.compression());
    let path = layer.path.clone();
    layers.push(layer);
    let backing = match opening.backing() {
        None => None,
        Some(backing) => Some(open_backing(&path, &backing, references, layers)?),
    };
    Ok(Arc::new(opening.open(backing, depth)?))
}

fn open_backing(
    image: &Path,
    backing: &qcow2::BackingName,
    references: &mut References<'_>,
    layers: &mut Vec<Layer>,
) -> Result<Arc<dyn BlockDevice>> {
    let name = &backing.name;
    let format = match backing.format.as_deref() {
        Some("raw" | "file") => Format::Raw,
        Some("qcow2") => Format::Qcow2,
        Some("vhdx") => Format::Vhdx,
        Some("vpc") => Format::Vhd,
        Some("vmdk") => Format::Vmdk,
        Some(other) => {
            let reason = format!("which is of the format '{other:.32}', not read here");
            return Err(Error::Reference { name: name.clone(), reason });
        }
        // What it looks like may be its guest's choice.
        None => {
            let reason =
                "without its format; `qemu-img rebase -u -F FORMAT -b NAME IMAGE` enters that".to_owned();
            return Err(Error::Reference { name: name.clone(), reason });
        }
    };
    if layers.len() >= CHAIN_MAX {
        let reason = format!("the last of a chain of more than {CHAIN_MAX} images");
        return Err(Error::Reference { name: name.clone(), reason });
    }
    let (path, file) = references.open(image, name)?;
    let opened = open_as(format, &path, file, references, layers);
    opened.map_err(|source| Error::Backing { name: name.clone(), source: Box::new(source) })
}
