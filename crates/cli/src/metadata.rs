//! A file's metadata, as a line of text and as a JSON document.

use extant::mode::{
    S_IRGRP, S_IROTH, S_IRUSR, S_ISGID, S_ISUID, S_ISVTX, S_IWGRP, S_IWOTH, S_IWUSR, S_IXGRP, S_IXOTH,
    S_IXUSR,
};
use extant::{File, FileType, Metadata, Timestamp};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::json::{base64, nanoseconds, put_text};

/// The word for a kind of file.
pub fn kind(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "char_device",
        FileType::BlockDevice => "block_device",
        FileType::Unknown => "unknown",
    }
}

/// Type and permissions as `ls` writes them.
pub fn permissions(metadata: &Metadata) -> String {
    let first = match metadata.file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Unknown => '?',
    };
    let mode = metadata.mode;
    let bit = |bit: u16, letter| if mode & bit != 0 { letter } else { '-' };
    let execute = |execute: u16, special: u16, both, only| match (mode & execute != 0, mode & special != 0) {
        (true, true) => both,
        (false, true) => only,
        (true, false) => 'x',
        (false, false) => '-',
    };
    [
        first,
        bit(S_IRUSR, 'r'),
        bit(S_IWUSR, 'w'),
        execute(S_IXUSR, S_ISUID, 's', 'S'),
        bit(S_IRGRP, 'r'),
        bit(S_IWGRP, 'w'),
        execute(S_IXGRP, S_ISGID, 's', 'S'),
        bit(S_IROTH, 'r'),
        bit(S_IWOTH, 'w'),
        execute(S_IXOTH, S_ISVTX, 't', 'T'),
    ]
    .iter()
    .collect()
}

/// Date and time in UTC, to the second.
pub fn date(time: Timestamp) -> String {
    let days = time.seconds.div_euclid(86_400);
    let second = time.seconds.rem_euclid(86_400);
    // Days since 0000-03-01, in eras of 400 years (Howard Hinnant, "chrono-compatible low-level date algorithms").
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// The document of a file, without its name.
pub fn document(file: &File) -> Result<Map<String, Value>, extant::Error> {
    let metadata = file.metadata();
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("inode", metadata.inode.0.into());
    put("type", kind(metadata.file_type).into());
    put("mode", format!("{:04o}", metadata.mode).into());
    put("links", metadata.links.into());
    put("uid", metadata.uid.into());
    put("gid", metadata.gid.into());
    put("size_bytes", metadata.size.into());
    put("allocated_bytes", metadata.blocks_512.saturating_mul(512).into());
    put("atime_ns", nanoseconds(metadata.atime));
    put("mtime_ns", nanoseconds(metadata.mtime));
    put("ctime_ns", nanoseconds(metadata.ctime));
    if let Some(crtime) = metadata.crtime {
        put("crtime_ns", nanoseconds(crtime));
    }
    if matches!(metadata.file_type, FileType::CharDevice | FileType::BlockDevice) {
        put("device", json!({ "major": metadata.device.0, "minor": metadata.device.1 }));
    }
    if metadata.file_type == FileType::Symlink {
        put_text(&mut object, "target", &file.read_link()?);
    }
    Ok(object)
}

/// The documents of a file's extended attributes.
pub fn xattr_documents(file: &File) -> Result<Vec<Value>, extant::Error> {
    let mut names = file.list_xattrs()?;
    names.sort_unstable();
    let document = |name: Vec<u8>| {
        let mut object = Map::new();
        put_text(&mut object, "name", &name);
        object.insert("value_b64".to_owned(), base64(&file.xattr(&name)?).into());
        Ok(Value::Object(object))
    };
    names.into_iter().map(document).collect()
}

/// A failure at a place on a disk.
pub fn failed_at(place: &crate::address::DiskPath) -> impl FnOnce(extant::Error) -> Failure {
    let place = place.to_string();
    move |error| Failure::disk(place, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days_and_centuries() {
        let date = |seconds| date(Timestamp { seconds, nanoseconds: 0 });
        assert_eq!(date(0), "1970-01-01 00:00:00");
        assert_eq!(date(-1), "1969-12-31 23:59:59");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(date(1_767_323_045), "2026-01-02 03:04:05");
        assert_eq!(date(15_032_385_535), "2446-05-10 22:38:55");
    }
}
