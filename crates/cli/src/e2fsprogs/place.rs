//! The device that a program works on, with options behind it as e2fsprogs have them: `disk.img?offset=1048576`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::disks::ImageLocation;
use crate::failure::Failure;
use crate::size;

/// A device, and where on it the file system begins.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// The file or block special.
    pub image: PathBuf,
    offset: Option<u64>,
}

impl Place {
    /// Reads a device. What exists under the whole name is that file.
    ///
    /// # Errors
    /// An option that is not known, by name.
    pub fn parse(device: &OsStr) -> Result<Self, Failure> {
        let bytes = device.as_bytes();
        let whole = Self { image: device.into(), offset: None };
        let Some(at) = bytes.iter().position(|byte| *byte == b'?').filter(|_| !whole.image.exists()) else {
            return Ok(whole);
        };
        let (image, words) = (OsStr::from_bytes(&bytes[..at]), String::from_utf8_lossy(&bytes[at + 1..]));
        let mut offset = None;
        for word in words.split('&') {
            let Some(value) = word.strip_prefix("offset=") else {
                return Err(Failure::usage(format!(
                    "device option '{word}' is not served by Extant; offset=BYTES is"
                )));
            };
            offset = Some(size::parse_bytes(value).map_err(Failure::usage)?);
        }
        Ok(Self { image: image.into(), offset })
    }

    /// Where the file system begins, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset.unwrap_or(0)
    }

    /// The place for Extant's own functions.
    pub fn location(&self) -> ImageLocation {
        ImageLocation { offset: self.offset, ..ImageLocation::default() }
    }

    /// The words that name it to a verb: an offset if there is one, and the image.
    pub fn words(&self) -> impl Iterator<Item = OsString> {
        let offset = self.offset.map(|offset| format!("--offset={offset}").into());
        offset.into_iter().chain(["--".into(), self.image.as_os_str().to_owned()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_follow_a_question_mark() {
        let parse = |text: &str| Place::parse(OsStr::new(text)).map_err(|failure| failure.to_string());
        assert_eq!(parse("a.img").unwrap(), Place { image: "a.img".into(), offset: None });
        assert_eq!(parse("a.img?offset=1M").unwrap(), Place { image: "a.img".into(), offset: Some(1 << 20) });
        assert!(parse("a.img?offset=x").unwrap_err().contains("'x'"));
        assert!(parse("a.img?cache=on").unwrap_err().contains("'cache=on'"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a?offset=7");
        std::fs::write(&file, "").unwrap();
        assert_eq!(Place::parse(file.as_os_str()).unwrap(), Place { image: file, offset: None });
    }
}
