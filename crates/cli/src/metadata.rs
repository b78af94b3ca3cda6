//! A file's metadata, as a line of text and as a JSON document.

use extant::mode::{
    S_IRGRP, S_IROTH, S_IRUSR, S_ISGID, S_ISUID, S_ISVTX, S_IWGRP, S_IWOTH, S_IWUSR, S_IXGRP, S_IXOTH,
    S_IXUSR,
};
use extant::{File, FileType, Metadata};
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
