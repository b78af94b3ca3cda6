//! The links of chains. Another one is a line of [`LINKS`].

use extant::{DefragOptions, Error, Mount, ShrinkTo, Tune};
use extant_block::{BlockDevice, DeviceAccess, FileDevice};
use extant_rt::Arc;

#[cfg(target_os = "linux")]
use super::kernel;
use super::{Chain, Done};
use crate::disk::{Image, KIB, MIB, run, text};

/// A name, and what performs it.
pub type Link = (&'static str, fn(&mut Chain) -> Result<Done, String>);

pub const LINKS: &[Link] = &[
    ("grow", grow),
    ("shrink", shrink),
    ("shrink", shrink),
    ("min", minimum),
    ("resize2fs", by_resize2fs),
    #[cfg(target_os = "linux")]
    ("growth by the kernel", kernel::grow),
    ("tune", tune),
    ("trim", trim),
    ("defrag", defrag),
    ("writes", write),
    #[cfg(target_os = "linux")]
    ("writes of the kernel", kernel::write),
];

/// What a disk may become at most.
const BYTES_MAX: u64 = 800 * MIB;

fn device(image: &Image) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(&image.path, DeviceAccess::read_write()).expect("the image"))
}

fn bytes(chain: &Chain) -> u64 {
    let superblock = Mount::new().read_only(true).open(&chain.image.path).expect("mount").superblock();
    superblock.blocks_count() * u64::from(superblock.block_size())
}

/// A size that is larger than the disk's.
pub fn larger(chain: &mut Chain) -> u64 {
    let bytes = bytes(chain);
    (bytes + bytes / 100 * chain.random.below(150) + 64 * KIB).min(BYTES_MAX).max(bytes)
}

/// Makes the file as long.
pub fn lengthen(image: &Image, bytes: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(&image.path).expect("the image");
    let len = file.metadata().expect("the image").len();
    file.set_len(bytes.max(len)).expect("a length");
}

/// A refusal is none of a fault.
fn done<T>(result: extant::Result<T>) -> Result<Option<String>, String> {
    match result.map_err(Error::into_cause) {
        Ok(_) => Ok(None),
        Err(
            error @ (Error::Unsupported(_) | Error::NoSpace | Error::NoInodes | Error::OutOfRange { .. }),
        ) => Ok(Some(error.to_string())),
        Err(error) => Err(error.to_string()),
    }
}

fn same(refused: Option<String>) -> Done {
    refused.map_or(Done::Same, Done::Refused)
}

fn grow(chain: &mut Chain) -> Result<Done, String> {
    let bytes = larger(chain);
    Ok(same(done(chain.image.grow(bytes))?))
}

fn shrink_to(chain: &Chain, to: ShrinkTo) -> Result<Done, String> {
    let shrunk = chain.image.shrink(to);
    if let Ok(shrunk) = &shrunk {
        chain.image.cut(shrunk);
    }
    Ok(same(done(shrunk)?))
}

fn shrink(chain: &mut Chain) -> Result<Done, String> {
    let plan = match Mount::new().plan_shrink(&device(&chain.image), ShrinkTo::Minimum) {
        Ok(plan) => plan,
        Err(error) => return Ok(same(done::<()>(Err(error))?)),
    };
    let bytes = plan.min_bytes + chain.random.below(plan.from_bytes - plan.min_bytes + 1);
    shrink_to(chain, ShrinkTo::Bytes(bytes))
}

fn minimum(chain: &mut Chain) -> Result<Done, String> {
    shrink_to(chain, ShrinkTo::Minimum)
}

fn by_resize2fs(chain: &mut Chain) -> Result<Done, String> {
    let bytes = match chain.random.below(2) {
        0 => larger(chain),
        _ => bytes(chain) / 100 * (60 + chain.random.below(40)),
    };
    lengthen(&chain.image, bytes);
    let size = format!("{}K", bytes / KIB);
    match run("resize2fs", &["-f", text(&chain.image.path), &size]) {
        Ok(_) if chain.has_clusters() => {
            // It leaves wrong bitmaps there; its exit status says that e2fsck changed something.
            let _ = run("e2fsck", &["-fy", text(&chain.image.path)]);
            Ok(Done::Content)
        }
        Ok(_) => Ok(Done::Content),
        Err(why) if chain.image.faults().is_none() => Ok(Done::Refused(why)),
        Err(why) => Ok(Done::Damaged(why)),
    }
}

fn tune(chain: &mut Chain) -> Result<Done, String> {
    let features = [
        "metadata_csum",
        "^metadata_csum",
        "metadata_csum_seed",
        "^metadata_csum_seed",
        "fast_commit",
        "^fast_commit",
        "quota",
        "^quota",
        "project",
        "^project",
        "uninit_bg",
        "large_dir",
        "has_journal",
        "^has_journal",
        "orphan_file",
        "^orphan_file",
        "64bit",
        "^64bit",
        "dir_index",
        "^dir_index",
        "mmp",
        "^mmp",
    ];
    let tune = Tune::new();
    let feature = features[chain.random.below(features.len() as u64) as usize];
    let what = chain.random.below(4);
    let tune = match what {
        0 => tune.label(format!("label{}", chain.links).as_bytes()),
        1 => Ok(tune.uuid([chain.random.below(250) as u8 + 1; 16])),
        _ => tune.features(feature),
    }
    .map_err(|e| e.to_string())?;
    let refused = done(tune.apply(device(&chain.image)))?;
    let changes_directories = what >= 2 && feature == "^dir_index" && refused.is_none();
    Ok(if changes_directories { Done::Directories } else { same(refused) })
}

fn trim(chain: &mut Chain) -> Result<Done, String> {
    let fs = chain.image.mount();
    let refused = match fs.trim(0..u64::MAX, 0) {
        // Image files have no holes there.
        Err(Error::Unsupported(what)) if !cfg!(target_os = "linux") => Some(what.to_string()),
        trimmed => trimmed.map(|_| None).map_err(|e| e.to_string())?,
    };
    fs.unmount().map_err(|e| e.to_string())?;
    Ok(same(refused))
}

fn defrag(chain: &mut Chain) -> Result<Done, String> {
    let fs = chain.image.mount();
    let refused = done(fs.defrag("/", &DefragOptions::default(), &mut |_| true))?;
    fs.unmount().map_err(|e| e.to_string())?;
    Ok(refused.map_or(Done::Directories, Done::Refused))
}

fn write(chain: &mut Chain) -> Result<Done, String> {
    let fs = chain.image.mount();
    let dir = format!("/ours/{}", chain.links);
    let written = fs.create_dir(&dir).and_then(|()| {
        for number in 0..chain.random.below(40) {
            let bytes = vec![number as u8 + 1; chain.random.below(20_000) as usize];
            fs.write(format!("{dir}/file{number}"), bytes)?;
            if number % 4 == 3 {
                fs.remove_file(format!("{dir}/file{}", number - 1))?;
            }
        }
        Ok(())
    });
    let refused = done(written)?;
    fs.unmount().map_err(|e| e.to_string())?;
    if let Some(why) = refused {
        println!("{why}");
    }
    Ok(Done::Below(&["/ours"]))
}
