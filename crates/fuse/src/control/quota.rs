//! The control file `quota`: usage, limits and grace times of a mount, for which `quotactl` wants a block device.
//!
//! A line `grace TYPE SPACE_S INODES_S` for each type that the disk counts, followed by `enforced` if its limits are in force, and a line
//! `TYPE ID BYTES INODES SOFT_BYTES HARD_BYTES SOFT_INODES HARD_INODES SPACE_END_S INODES_END_S` for each id; times that do not run are 0.
//! Written are `grace TYPE SPACE_S INODES_S` and `TYPE ID SOFT_BYTES HARD_BYTES SOFT_INODES HARD_INODES`.

use extant::{Filesystem, QuotaGrace, QuotaType, SetQuota};
use rustix::io::Errno;

use crate::errno::errno;
use crate::ops::Reply;

/// What is read; the error of reading it if that fails.
pub(super) fn text(fs: &Filesystem) -> String {
    let lines = || -> extant::Result<String> {
        if !fs.is_read_only() {
            // What is delayed counts too.
            fs.sync()?;
        }
        let mut text = String::new();
        for quota_type in fs.quota_types() {
            let name = quota_type.name();
            let QuotaGrace { space_seconds, inode_seconds } = fs.quota_grace(quota_type)?;
            let enforced = if fs.is_quota_enforced(quota_type) { " enforced" } else { "" };
            text += &format!("grace {name} {space_seconds} {inode_seconds}{enforced}\n");
            for quota in fs.quotas(quota_type)? {
                let limits = quota.limits;
                text += &format!(
                    "{name} {} {} {} {} {} {} {} {} {}\n",
                    quota.id,
                    quota.space_bytes,
                    quota.inodes,
                    limits.space_soft_bytes,
                    limits.space_hard_bytes,
                    limits.inodes_soft,
                    limits.inodes_hard,
                    quota.space_grace_end_s.unwrap_or(0),
                    quota.inode_grace_end_s.unwrap_or(0)
                );
            }
        }
        Ok(text)
    };
    lines().unwrap_or_else(|error| format!("error {error}\n"))
}

/// Does what a line says.
///
/// # Errors
/// `EINVAL` for another line; the engine's.
pub(super) fn set(fs: &Filesystem, line: &str) -> Reply<()> {
    let mut words = line.split_whitespace();
    let first = words.next().ok_or(Errno::INVAL)?;
    let is_grace = first == "grace";
    let name = if is_grace { words.next().ok_or(Errno::INVAL)? } else { first };
    let quota_type =
        QuotaType::ALL.into_iter().find(|quota_type| quota_type.name() == name).ok_or(Errno::INVAL)?;
    let numbers: Vec<u64> = words.map(|word| word.parse().map_err(|_| Errno::INVAL)).collect::<Reply<_>>()?;
    let small = |number: u64| u32::try_from(number).map_err(|_| Errno::INVAL);
    let done = match (is_grace, &numbers[..]) {
        (true, [space, inodes]) => {
            let grace = QuotaGrace { space_seconds: small(*space)?, inode_seconds: small(*inodes)? };
            fs.set_quota_grace(quota_type, grace)
        }
        (false, [id, space_soft, space_hard, inodes_soft, inodes_hard]) => {
            let set = SetQuota {
                space_soft_bytes: Some(*space_soft),
                space_hard_bytes: Some(*space_hard),
                inodes_soft: Some(*inodes_soft),
                inodes_hard: Some(*inodes_hard),
                ..SetQuota::default()
            };
            fs.set_quota(quota_type, small(*id)?, &set)
        }
        _ => return Err(Errno::INVAL),
    };
    done.map_err(|error| errno(&error))
}

#[cfg(test)]
mod tests {
    use extant::{Mount, mkfs::Mkfs};
    use extant_block::MemoryDevice;
    use extant_rt::Arc;

    use super::*;

    #[test]
    fn limits_are_written_and_read() {
        let device = MemoryDevice::new(16 << 20);
        Mkfs::new().features("quota").expect("features").format(&device).expect("a disk");
        let how = Mount::new().background(false).enforce_quotas(&[QuotaType::User]);
        let fs = how.open_device(Arc::new(device)).expect("a mount");
        assert_eq!(set(&fs, "user 1000 1025 4096 0 7"), Ok(()));
        assert_eq!(set(&fs, "grace group 60 120"), Ok(()));
        let said = text(&fs);
        assert!(said.contains("user 1000 0 0 2048 4096 0 7 0 0\n"), "{said}");
        assert!(said.contains("grace user 604800 604800 enforced\n"), "{said}");
        assert!(said.contains("grace group 60 120\n"), "{said}");
        for bad in
            ["", "user", "owner 1 1 1 1 1", "user 1 2 3 4", "user x 1 2 3 4", "user 4294967296 1 2 3 4"]
        {
            assert_eq!(set(&fs, bad), Err(Errno::INVAL), "{bad}");
        }
        assert_eq!(set(&fs, "project 1 1 1 1 1"), Err(Errno::OPNOTSUPP));
        assert_eq!(text(&fs), said);
    }
}
