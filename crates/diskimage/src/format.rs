//! The formats.

use std::fmt;

/// A format of disk images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// The disk byte by byte.
    Raw,
    /// QEMU's.
    Qcow2,
    /// Hyper-V's.
    Vhdx,
    /// Virtual PC's.
    Vhd,
    /// VMware's.
    Vmdk,
    /// Android's sparse images.
    AndroidSparse,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vhdx => "VHDX",
            Self::Vhd => "VHD",
            Self::Vmdk => "VMDK",
            Self::AndroidSparse => "Android sparse",
        })
    }
}

impl Format {
    /// Its name in programs' output.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vhdx => "vhdx",
            Self::Vhd => "vhd",
            Self::Vmdk => "vmdk",
            Self::AndroidSparse => "android-sparse",
        }
    }

    /// The command that makes an image of it which can be written here.
    #[must_use]
    pub fn conversion(self) -> &'static str {
        match self {
            Self::AndroidSparse => "`simg2img IMAGE NEW` makes a raw copy of it",
            _ => "`qemu-img convert -O qcow2 IMAGE NEW` makes a copy of it that can be written",
        }
    }
}
