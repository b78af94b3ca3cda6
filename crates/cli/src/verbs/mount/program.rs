//! Called by `mount(8)` and `umount(8)`: `mount.extant SOURCE DIR [-sfnv] [-o OPTIONS] [-t TYPE]`.
//!
//! Exits as `mount` does: 0, 1 for a wrong command line, 32 if it failed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Mount;
use crate::disks::ImageLocation;
use crate::failure::Failure;
use crate::output;
use crate::verbs::umount::Umount;

const EXIT_USAGE: u8 = 1;
const EXIT_MOUNT: u8 = 32;

/// Does what `mount` or `umount` wants, if the program was called by its name for them; the exit status.
pub fn called_by_mount(arguments: &[OsString]) -> Option<u8> {
    let name = Path::new(arguments.first()?).file_name()?.to_str()?;
    let rest = &arguments[1..];
    let result = match name {
        "mount.extant" | "mount.fuse.extant" => mount(rest),
        "umount.extant" | "umount.fuse.extant" => umount(rest),
        _ => return None,
    };
    Some(match result {
        Ok(0) => 0,
        Ok(_) => EXIT_MOUNT,
        Err(failure) => {
            output::report(&failure, false);
            if failure.kind == "usage" { EXIT_USAGE } else { EXIT_MOUNT }
        }
    })
}

struct Words {
    places: Vec<PathBuf>,
    options: Vec<String>,
    is_fake: bool,
    is_lazy: bool,
}

/// Reads letters as `mount` hands them on: some with a value, which may follow as a word of its own.
fn read(arguments: &[OsString]) -> Result<Words, Failure> {
    let mut words = Words { places: Vec::new(), options: Vec::new(), is_fake: false, is_lazy: false };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let Some(letters) = argument.to_str().and_then(|text| text.strip_prefix('-')) else {
            words.places.push(argument.into());
            continue;
        };
        for (index, letter) in letters.char_indices() {
            match letter {
                's' | 'n' | 'v' | 'r' | 'c' => {}
                'f' => words.is_fake = true,
                'l' => words.is_lazy = true,
                'o' | 't' | 'N' => {
                    let attached = &letters[index + 1..];
                    let value = if attached.is_empty() {
                        arguments.next().and_then(|value| value.to_str()).unwrap_or_default()
                    } else {
                        attached
                    };
                    if letter == 'o' {
                        words.options.push(value.to_owned());
                    }
                    break;
                }
                _ => return Err(Failure::usage(format!("unknown option -{letter}"))),
            }
        }
    }
    Ok(words)
}

fn mount(arguments: &[OsString]) -> super::Outcome {
    let words = read(arguments)?;
    let [image, dir] = words.places.as_slice() else {
        return Err(Failure::usage("mount.extant SOURCE DIR [-sfnv] [-o OPTIONS]"));
    };
    if words.is_fake {
        return Ok(0);
    }
    Mount {
        foreground: false,
        options: words.options,
        location: ImageLocation::default(),
        ready: false,
        image: image.clone(),
        dir: dir.clone(),
    }
    .run()
}

fn umount(arguments: &[OsString]) -> super::Outcome {
    let words = read(arguments)?;
    let [dir] = words.places.as_slice() else {
        return Err(Failure::usage("umount.extant DIR [-flnrv]"));
    };
    Umount { lazy: words.is_lazy, timeout: Umount::TIMEOUT, dir: dir.clone() }.run()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{called_by_mount, read};

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn letters_of_mount_are_read() {
        let words = read(&words("a.img /mnt -sn -o ro,noatime -t fuse.extant")).unwrap();
        assert_eq!(words.places, ["a.img", "/mnt"].map(std::path::PathBuf::from));
        assert_eq!(words.options, ["ro,noatime"]);
        assert!(!words.is_fake);
    }

    #[test]
    fn other_names_are_not_for_mount() {
        assert_eq!(called_by_mount(&words("/usr/bin/extant mount a b")), None);
        assert_eq!(called_by_mount(&words("/sbin/mount.extant")), Some(1));
        assert_eq!(called_by_mount(&words("mount.extant /nowhere/a.img /mnt -f")), Some(0));
    }
}
