//! What is compared, and mounting it.

use clap::ValueEnum;

use crate::Result;
use crate::mounted::Mounted;
use crate::scratch::Scratch;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// The command `extant` of the same build.
    Extant,
    /// The empty server, content in memory.
    Empty,
    /// The empty server, content in an image file.
    EmptyOnImage,
    /// That of e2fsprogs.
    Fuse2fs,
    /// The kernel's ext4 on a loop device.
    Kernel,
}

impl Side {
    /// All, in the order of the report.
    pub const ALL: [Self; 5] = [Self::Extant, Self::Empty, Self::EmptyOnImage, Self::Fuse2fs, Self::Kernel];

    /// What the report calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Extant => "extant",
            Self::Empty => "empty server",
            Self::EmptyOnImage => "empty server, image",
            Self::Fuse2fs => "fuse2fs",
            Self::Kernel => "kernel ext4",
        }
    }

    /// Whether a run can do without it.
    pub const fn may_be_missing(self) -> bool {
        matches!(self, Self::Fuse2fs | Self::Kernel)
    }

    /// Mounts a fresh file system of it.
    pub fn mount(self, scratch: &Scratch) -> Result<Mounted> {
        let (point, own) = (scratch.path("mount"), std::env::current_exe()?);
        let path = scratch.path("disk.img");
        // The last run's, if there was one.
        let _ = std::fs::remove_file(&path);
        std::fs::create_dir_all(&point)?;
        match self {
            Self::Extant => Mounted::extant(&scratch.image("disk.img")?, &point),
            Self::Empty => Mounted::served(&own, &["empty".as_ref(), point.as_ref()], &point),
            Self::EmptyOnImage => {
                Mounted::served(&own, &["empty".as_ref(), point.as_ref(), path.as_ref()], &point)
            }
            Self::Fuse2fs => Mounted::fuse2fs(&scratch.image("disk.img")?, &point),
            Self::Kernel => Mounted::kernel(&scratch.image("disk.img")?, &point),
        }
    }
}
