//! The fields of a superblock, line by line as `tune2fs -l` and `dumpe2fs -h` print them.
//!
//! Dates are in UTC. Left out: fields of snapshots, which no kernel has.

use std::fmt::Display;
use std::path::Path;

use extant::Timestamp;
use extant_ondisk::{CompatFeatures, IncompatFeatures, RoCompatFeatures, State, SuperFlags, Superblock};

use crate::output::escape;
use crate::owner::NamesByNumber;
use crate::verbs::uuid_text;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Days from the one of 1970-01-01.
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const DAY_S: u32 = 86_400;
/// `EXT4_ERR_*`, from 1.
const ERRORS: [&str; 17] = [
    "UNKNOWN",
    "EIO",
    "ENOMEM",
    "EFSBADCRC",
    "EFSCORRUPTED",
    "ENOSPC",
    "ENOKEY",
    "EROFS",
    "EFBIG",
    "EEXIST",
    "ERANGE",
    "EOVERFLOW",
    "EBUSY",
    "ENOTDIR",
    "ENOTEMPTY",
    "ESHUTDOWN",
    "EFAULT",
];

/// Lines of a name and a value.
#[derive(Default)]
pub struct Lines(Vec<String>);

impl Lines {
    /// A line; values begin in one column.
    pub fn put(&mut self, name: &str, value: impl Display) {
        self.0.push(format!("{:<26}{value}", format!("{name}:")));
    }

    fn put_unless_zero(&mut self, name: &str, value: impl Into<u64>) {
        match value.into() {
            0 => {}
            value => self.put(name, value),
        }
    }

    /// The text, a line feed behind each line.
    pub fn text(&self) -> String {
        self.0.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// The lines of a superblock.
pub fn lines(superblock: &Superblock) -> Lines {
    let mut lines = Lines::default();
    identity(&mut lines, superblock);
    sizes(&mut lines, superblock);
    history(&mut lines, superblock);
    files(&mut lines, superblock);
    errors(&mut lines, superblock);
    let (incompat, ro_compat) = (superblock.incompat(), superblock.ro_compat());
    if incompat.contains(IncompatFeatures::MMP) {
        lines.put("MMP block number", superblock.s_mmp_block());
        lines.put("MMP update interval", superblock.s_mmp_update_interval());
    }
    lines.put_unless_zero("User quota inode", superblock.s_usr_quota_inum());
    lines.put_unless_zero("Group quota inode", superblock.s_grp_quota_inum());
    lines.put_unless_zero("Project quota inode", superblock.s_prj_quota_inum());
    if ro_compat.contains(RoCompatFeatures::METADATA_CSUM) {
        lines.put("Checksum type", "crc32c");
        lines.put("Checksum", format!("0x{:08x}", superblock.s_checksum()));
    }
    if superblock.s_encrypt_pw_salt() != [0; 16] {
        lines.put("Encryption PW Salt", uuid_text(superblock.s_encrypt_pw_salt()));
    }
    if incompat.contains(IncompatFeatures::CSUM_SEED) {
        lines.put("Checksum seed", format!("0x{:08x}", superblock.s_checksum_seed()));
    }
    if incompat.contains(IncompatFeatures::CASEFOLD) {
        let name = if superblock.s_encoding() == 1 { "utf8-12.1" } else { "unknown" };
        lines.put("Character encoding", name);
    }
    if superblock.compat().contains(CompatFeatures::ORPHAN_FILE) {
        lines.put("Orphan file inode", superblock.s_orphan_file_inum());
    }
    lines
}

fn identity(lines: &mut Lines, superblock: &Superblock) {
    let or = |text: String, none: &str| if text.is_empty() { none.to_owned() } else { text };
    lines.put("Filesystem volume name", or(text(&superblock.s_volume_name()), "<none>"));
    lines.put("Last mounted on", or(text(&superblock.s_last_mounted()), "<not available>"));
    let uuid = superblock.s_uuid();
    lines.put("Filesystem UUID", if uuid == [0; 16] { "<none>".to_owned() } else { uuid_text(uuid) });
    lines.put("Filesystem magic number", format!("0x{:04X}", superblock.s_magic()));
    let revision = superblock.s_rev_level();
    let kind = ["original", "dynamic"].get(revision as usize).unwrap_or(&"unknown");
    lines.put("Filesystem revision #", format!("{revision} ({kind})"));
    let (compat, incompat, ro_compat) = (superblock.compat(), superblock.incompat(), superblock.ro_compat());
    let names = compat.all_names().chain(incompat.all_names()).chain(ro_compat.all_names());
    lines.put("Filesystem features", words(names));
    let flags = superblock.flags();
    if !flags.is_empty() {
        let names = [
            (SuperFlags::SIGNED_HASH, "signed_directory_hash "),
            (SuperFlags::UNSIGNED_HASH, "unsigned_directory_hash "),
            (SuperFlags::TEST_FILESYS, "test_filesystem "),
        ];
        let shown: String =
            names.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| *name).collect();
        lines.put("Filesystem flags", or(shown, "(none)"));
    }
    lines.put("Default mount options", words(default_mount_options(superblock.s_default_mount_opts())));
    let options = text(&superblock.s_mount_opts());
    if !options.is_empty() {
        lines.put("Mount options", options);
    }
    let state = superblock.state();
    let clean = if state.contains(State::VALID) { "clean" } else { "not clean" };
    let with_errors = if state.contains(State::ERROR) { " with errors" } else { "" };
    lines.put("Filesystem state", format!("{clean}{with_errors}"));
    lines.put(
        "Errors behavior",
        match superblock.s_errors() {
            1 => "Continue",
            2 => "Remount read-only",
            3 => "Panic",
            _ => "Unknown (continue)",
        },
    );
    let systems = ["Linux", "GNU/Hurd", "Masix", "FreeBSD", "Lites"];
    lines.put(
        "Filesystem OS type",
        systems.get(superblock.s_creator_os() as usize).unwrap_or(&"(unknown os)"),
    );
}

fn default_mount_options(bits: u32) -> Vec<String> {
    let journal = match bits & 0x60 {
        0x20 => "journal_data",
        0x40 => "journal_data_ordered",
        0x60 => "journal_data_writeback",
        _ => "",
    };
    let options = [
        (0x60, journal),
        (0x1, "debug"),
        (0x2, "bsdgroups"),
        (0x4, "user_xattr"),
        (0x8, "acl"),
        (0x10, "uid16"),
        (0x100, "nobarrier"),
        (0x200, "block_validity"),
        (0x400, "discard"),
        (0x800, "nodelalloc"),
    ];
    let set = options.iter().filter(|(bit, name)| bits & bit != 0 && !name.is_empty());
    set.map(|(_, name)| (*name).to_owned()).collect()
}

fn sizes(lines: &mut Lines, superblock: &Superblock) {
    let has_clusters = superblock.ro_compat().contains(RoCompatFeatures::BIGALLOC);
    let block_size = superblock.block_size();
    lines.put("Inode count", superblock.s_inodes_count());
    lines.put("Block count", superblock.blocks_count());
    lines.put("Reserved block count", superblock.r_blocks_count());
    lines.put_unless_zero("Overhead clusters", superblock.s_overhead_clusters());
    lines.put("Free blocks", superblock.free_blocks_count());
    lines.put("Free inodes", superblock.s_free_inodes_count());
    lines.put("First block", superblock.s_first_data_block());
    lines.put("Block size", block_size);
    let (cluster, clusters) = if has_clusters {
        ("Cluster size", "Clusters per group")
    } else {
        ("Fragment size", "Fragments per group")
    };
    lines.put(cluster, u64::from(block_size) * u64::from(superblock.cluster_ratio()));
    if superblock.incompat().contains(IncompatFeatures::BIT64) {
        lines.put("Group descriptor size", superblock.desc_size());
    }
    lines.put_unless_zero("Reserved GDT blocks", superblock.s_reserved_gdt_blocks());
    lines.put("Blocks per group", superblock.s_blocks_per_group());
    lines.put(clusters, superblock.s_clusters_per_group());
    lines.put("Inodes per group", superblock.s_inodes_per_group());
    let table_bytes = u64::from(superblock.s_inodes_per_group()) * u64::from(superblock.inode_size());
    lines.put("Inode blocks per group", table_bytes.div_ceil(u64::from(block_size)));
    lines.put_unless_zero("RAID stride", superblock.s_raid_stride());
    lines.put_unless_zero("RAID stripe width", superblock.s_raid_stripe_width());
    lines.put_unless_zero("First meta block group", superblock.s_first_meta_bg());
    if superblock.s_log_groups_per_flex() > 0 {
        lines.put("Flex block group size", 1_u64 << superblock.s_log_groups_per_flex().min(63));
    }
}

fn history(lines: &mut Lines, superblock: &Superblock) {
    if superblock.mkfs_time() > 0 {
        lines.put("Filesystem created", date(superblock.mkfs_time()));
    }
    let mounted = superblock.mount_time();
    lines.put("Last mount time", if mounted == 0 { "n/a".to_owned() } else { date(mounted) });
    lines.put("Last write time", date(superblock.write_time()));
    lines.put("Mount count", superblock.s_mnt_count());
    lines.put("Maximum mount count", superblock.s_max_mnt_count().cast_signed());
    lines.put("Last checked", date(superblock.check_time()));
    let interval_s = superblock.s_checkinterval();
    lines.put("Check interval", format!("{interval_s} ({})", interval(interval_s)));
    if interval_s > 0 {
        lines.put("Next check after", date(superblock.check_time() + u64::from(interval_s)));
    }
    let kib = superblock.s_kbytes_written();
    if kib > 0 {
        let units = [(13, 0, "kB"), (23, 10, "MB"), (33, 20, "GB"), (43, 30, "TB")];
        let unit = units.iter().find(|(limit, ..)| kib < 1 << limit);
        let (_, shift, name) = unit.copied().unwrap_or((64, 40, "PB"));
        lines.put("Lifetime writes", format!("{} {name}", kib.saturating_add((1 << shift) >> 1) >> shift));
    }
    let names = NamesByNumber::below(Path::new("/"));
    let uid = u32::from(superblock.s_def_resuid_hi()) << 16 | u32::from(superblock.s_def_resuid());
    let gid = u32::from(superblock.s_def_resgid_hi()) << 16 | u32::from(superblock.s_def_resgid());
    let named =
        |name: String, number: u32| if name == number.to_string() { "unknown".to_owned() } else { name };
    lines.put("Reserved blocks uid", format!("{uid} (user {})", named(names.user(uid), uid)));
    lines.put("Reserved blocks gid", format!("{gid} (group {})", named(names.group(gid), gid)));
}

fn files(lines: &mut Lines, superblock: &Superblock) {
    if superblock.s_rev_level() > 0 {
        lines.put("First inode", superblock.s_first_ino());
        // A tab, as e2fsprogs has it.
        lines.0.push(format!("Inode size:\t          {}", superblock.s_inode_size()));
        lines.put_unless_zero("Required extra isize", superblock.s_min_extra_isize());
        lines.put_unless_zero("Desired extra isize", superblock.s_want_extra_isize());
    }
    if superblock.s_journal_uuid() != [0; 16] {
        lines.put("Journal UUID", uuid_text(superblock.s_journal_uuid()));
    }
    lines.put_unless_zero("Journal inode", superblock.s_journal_inum());
    if superblock.s_journal_dev() != 0 {
        lines.0.push(format!("Journal device:\t          0x{:04x}", superblock.s_journal_dev()));
    }
    lines.put_unless_zero("First orphan inode", superblock.s_last_orphan());
    if superblock.compat().contains(CompatFeatures::DIR_INDEX) || superblock.s_hash_seed() != [0; 4] {
        let names =
            ["legacy", "half_md4", "tea", "legacy_unsigned", "half_md4_unsigned", "tea_unsigned", "siphash"];
        let version = usize::from(superblock.s_def_hash_version());
        let name = names.get(version).map_or_else(|| version.to_string(), |name| (*name).to_owned());
        lines.put("Default directory hash", name);
        let seed = superblock.s_hash_seed().map(u32::to_le_bytes).concat();
        if let Some(seed) = <[u8; 16]>::try_from(seed).ok().filter(|seed| *seed != [0; 16]) {
            lines.put("Directory Hash Seed", uuid_text(seed));
        }
    }
    match superblock.s_jnl_backup_type() {
        0 => {}
        1 => lines.put("Journal backup", "inode blocks"),
        other => lines.put("Journal backup", format!("type {other}")),
    }
    if superblock.compat().contains(CompatFeatures::SPARSE_SUPER2) {
        let groups = superblock.s_backup_bgs().into_iter().filter(|group| *group != 0);
        let shown: String = groups.map(|group| format!("{group} ")).collect();
        if !shown.is_empty() {
            lines.put("Backup block groups", shown);
        }
    }
}

fn errors(lines: &mut Lines, superblock: &Superblock) {
    lines.put_unless_zero("FS Error count", superblock.s_error_count());
    let (first, last) = (superblock.first_error_time(), superblock.last_error_time());
    let errors = [
        (
            "First",
            first,
            superblock.s_first_error_func(),
            superblock.s_first_error_line(),
            superblock.s_first_error_ino(),
            superblock.s_first_error_block(),
            superblock.s_first_error_errcode(),
        ),
        (
            "Last",
            last,
            superblock.s_last_error_func(),
            superblock.s_last_error_line(),
            superblock.s_last_error_ino(),
            superblock.s_last_error_block(),
            superblock.s_last_error_errcode(),
        ),
    ];
    for (which, time, function, line, inode, block, code) in errors.into_iter().filter(|error| error.1 > 0) {
        lines.put(&format!("{which} error time"), date(time));
        lines.put(&format!("{which} error function"), text(&function));
        lines.put(&format!("{which} error line #"), line);
        lines.put_unless_zero(&format!("{which} error inode #"), inode);
        lines.put_unless_zero(&format!("{which} error block #"), block);
        if let Some(at) = usize::from(code).checked_sub(1) {
            let name =
                ERRORS.get(at).map_or_else(|| format!("Unknown err {code}"), |name| (*name).to_owned());
            lines.put(&format!("{which} error err"), name);
        }
    }
}

/// Text of a field up to its first zero byte, safe to show.
fn text(field: &[u8]) -> String {
    escape(field.split(|byte| *byte == 0).next().unwrap_or_default())
}

/// Words with a space between them, or that there are none.
pub fn words(words: impl IntoIterator<Item = String>) -> String {
    let words: Vec<_> = words.into_iter().collect();
    if words.is_empty() { "(none)".to_owned() } else { words.join(" ") }
}

/// As C's `ctime` writes it, in UTC: `Wed Nov 25 15:21:28 2026`.
fn date(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let day = DAYS[seconds.div_euclid(DAY_S.into()).rem_euclid(7) as usize];
    let text = Timestamp { seconds, nanoseconds: 0 }.date_time();
    let (date, time) = text.split_once(' ').unwrap_or((&text, ""));
    let fields: Vec<_> = date.split('-').collect();
    let [year, month, of_month] = fields.as_slice() else { return text };
    let month =
        month.parse().ok().and_then(|month: usize| MONTHS.get(month.checked_sub(1)?)).unwrap_or(&"???");
    format!("{day} {month} {:>2} {time} {year}", of_month.trim_start_matches('0'))
}

/// Seconds in months, weeks, days, hours, minutes and seconds.
fn interval(seconds: u32) -> String {
    if seconds == 0 {
        return "<none>".to_owned();
    }
    let units = [
        (30 * DAY_S, "month"),
        (7 * DAY_S, "week"),
        (DAY_S, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (unit_s, name) in units {
        let count = rest / unit_s;
        rest %= unit_s;
        if count > 0 {
            parts.push(format!("{count} {name}{}", if count == 1 { "" } else { "s" }));
        }
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_intervals_are_written_as_e2fsprogs_writes_them() {
        assert_eq!(date(1_795_620_088), "Wed Nov 25 15:21:28 2026");
        assert_eq!(date(0), "Thu Jan  1 00:00:00 1970");
        for (seconds, text) in
            [(0, "<none>"), (15_552_000, "6 months"), (90_061, "1 day, 1 hour, 1 minute, 1 second")]
        {
            assert_eq!(interval(seconds), text);
        }
    }
}
