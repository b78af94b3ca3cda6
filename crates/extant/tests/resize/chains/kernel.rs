//! What the kernel does to a disk on a loop device.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Chain, Done};
use crate::disk::{Image, run, text};
use crate::tree::Census;

/// A mount, which ends with it.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Image) -> Result<Self, String> {
        let point = image.path.with_extension("mounted");
        fs::create_dir_all(&point).map_err(|e| e.to_string())?;
        run("mount", &["-t", "ext4", "-o", "loop", text(&image.path), text(&point)])?;
        Ok(Self(point))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        extant_testing::unmount(&self.0);
    }
}

/// The kernel reads the tree, and writes in its directory.
pub fn write(chain: &mut Chain) -> Result<Done, String> {
    let mounted = match Mounted::new(&chain.image) {
        Ok(mounted) => mounted,
        Err(why) => return Ok(Done::Refused(why)),
    };
    compare(&chain.tree, &mounted.0)?;
    let dir = mounted.0.join("kernel").join(chain.links.to_string());
    let failed = |e: std::io::Error| e.to_string();
    // A full disk is one, too.
    if fs::create_dir(&dir).is_err() {
        return Ok(Done::Refused("no room for a directory".to_owned()));
    }
    for number in 0..chain.random.below(30) {
        let bytes = vec![number as u8 + 1; chain.random.below(20_000) as usize];
        if fs::write(dir.join(format!("file{number}")), bytes).is_err() {
            break;
        }
        if number % 5 == 0 {
            let _ = std::os::unix::fs::symlink(
                "t".repeat(40 + 10 * number as usize),
                dir.join(format!("link{number}")),
            );
        }
        if number % 4 == 3 {
            fs::remove_file(dir.join(format!("file{}", number - 1))).map_err(failed)?;
        }
    }
    if chain.links > 2 {
        let old = mounted.0.join("kernel").join((chain.links - 2).to_string());
        let _ = fs::remove_dir_all(old);
    }
    drop(mounted);
    Ok(Done::Below(&["/kernel"]))
}

/// Files and links have the content that the kernel reads.
fn compare(tree: &Census, point: &Path) -> Result<(), String> {
    for (path, told, content) in tree {
        let place = point.join(path.trim_start_matches('/'));
        let theirs = if told.starts_with("Regular") {
            fs::read(&place).map_err(|e| format!("the kernel reads {path}: {e}"))?
        } else if told.starts_with("Symlink") {
            let target = fs::read_link(&place).map_err(|e| format!("the kernel reads {path}: {e}"))?;
            target.into_os_string().into_encoded_bytes()
        } else {
            continue;
        };
        if theirs != *content {
            return Err(format!("the kernel reads other content of {path}"));
        }
    }
    Ok(())
}

/// The kernel makes the disk larger while it is mounted.
pub fn grow(chain: &mut Chain) -> Result<Done, String> {
    let bytes = super::links::larger(chain);
    super::links::lengthen(&chain.image, bytes);
    let mounted = match Mounted::new(&chain.image) {
        Ok(mounted) => mounted,
        Err(why) => return Ok(Done::Refused(why)),
    };
    let device = run("findmnt", &["-no", "SOURCE", text(&mounted.0)])?;
    let grown = run("resize2fs", &[device.trim()]);
    drop(mounted);
    Ok(grown.map_or_else(Done::Refused, |_| Done::Same))
}
