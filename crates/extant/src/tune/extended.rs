//! The words of `-E`: extended options.
//!
//! Source: `parse_extended_opts` of `misc/tune2fs.c`.

use extant_ondisk::{SuperFlags, Superblock};

use crate::error::{Error, Result};

/// `EXT4_MMP_MAX_UPDATE_INTERVAL`.
const MMP_UPDATE_INTERVAL_MAX_S: u16 = 300;

/// Sets what an extended option of `tune2fs` says.
///
/// # Errors
/// `InvalidArgument` for an unknown option or value.
pub(super) fn set_extended(superblock: &mut Superblock, name: &str, value: &str) -> Result<()> {
    let number = || {
        value
            .parse::<u32>()
            .map_err(|_| Error::InvalidArgument("stride and stripe_width are numbers of blocks"))
    };
    match name {
        "stride" => {
            let blocks = u16::try_from(number()?);
            superblock.set_s_raid_stride(
                blocks.map_err(|_| Error::InvalidArgument("a stride has 65535 blocks at most"))?,
            );
        }
        "stripe_width" | "stripe-width" => superblock.set_s_raid_stripe_width(number()?),
        "hash_alg" => {
            let version = ["legacy", "half_md4", "tea"].iter().position(|known| *known == value);
            let version = version.ok_or(Error::InvalidArgument("hash_alg is legacy, half_md4 or tea"))?;
            superblock.set_s_def_hash_version(version as u8);
        }
        "mount_opts" => {
            superblock.set_s_mount_opts(padded(value.as_bytes(), "mount_opts has 64 bytes at most")?)
        }
        "mmp_update_interval" => {
            let seconds = value.parse().ok().filter(|seconds| *seconds <= MMP_UPDATE_INTERVAL_MAX_S);
            let invalid = "mmp_update_interval is from 0 to 300 seconds";
            superblock.set_s_mmp_update_interval(seconds.ok_or(Error::InvalidArgument(invalid))?);
        }
        "test_fs" => superblock.set_flags(superblock.flags() | SuperFlags::TEST_FILESYS),
        "^test_fs" => superblock.set_flags(superblock.flags() - SuperFlags::TEST_FILESYS),
        _ => {
            return Err(Error::InvalidArgument(
                "unknown extended option; there are stride, stripe_width, hash_alg, mount_opts, mmp_update_interval, orphan_file_size, test_fs and ^test_fs",
            ));
        }
    }
    Ok(())
}

/// `4096`, `64K`, `1M`: bytes.
///
/// # Errors
/// `InvalidArgument`.
pub(super) fn parse_bytes(text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        _ => {
            return Err(Error::InvalidArgument(
                "a size is a number of bytes, with K or M behind it or nothing",
            ));
        }
    };
    let bytes = digits.parse::<u32>().map(|number| u64::from(number) << shift);
    bytes.map_err(|_| Error::InvalidArgument("a size is a number of bytes, with K or M behind it or nothing"))
}

/// A text in a field of `N` bytes.
///
/// # Errors
/// `InvalidArgument` if it is longer.
pub(super) fn padded<const N: usize>(text: &[u8], too_long: &'static str) -> Result<[u8; N]> {
    let mut field = [0; N];
    field.get_mut(..text.len()).ok_or(Error::InvalidArgument(too_long))?.copy_from_slice(text);
    Ok(field)
}
