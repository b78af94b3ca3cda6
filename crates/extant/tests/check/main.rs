//! The consistency check against `e2fsck -fn`: the same verdict on whole disks, on disks with one damage each, and on
//! disks with random bytes in their metadata.
//!
//! "Clean" of `e2fsck` is: exit status 0, no question and no warning. Where the two differ on purpose, the table of
//! the test says so and why.

mod clean;
mod damage;
mod damages;
mod disk;
mod e2fsck;
mod fields;
mod fuzz;
mod hostile;
#[cfg(target_os = "linux")]
mod kernel;
mod layouts;
mod random;
mod tools;

use std::path::Path;
use std::time::{Duration, Instant};

use extant::{Filesystem, Mount};
use extant_block::{DeviceAccess, FileDevice, Model, ModelledDevice};

use e2fsck::e2fsck;

/// No check of the small disks here may take longer, whatever is on them.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Whether Extant finds a disk clean, and what it said. A refused mount is a finding. What is read ahead of a device that takes time
/// changes nothing of it.
fn extant(image: &Path) -> (bool, String) {
    let start = Instant::now();
    let verdict = verdict(Mount::new().read_only(true).open(image));
    let file = FileDevice::open(image, DeviceAccess::read_only()).expect("the image");
    let device = ModelledDevice::new(file, Model::kept("pmem").expect("a model"));
    let with_latency = Mount::new().read_only(true).open_device(device);
    assert_eq!(self::verdict(with_latency), verdict, "of a device that takes time");
    assert!(start.elapsed() < TIME_MAX, "the check took {:?}", start.elapsed());
    verdict
}

fn verdict(opened: extant::Result<Filesystem>) -> (bool, String) {
    match opened {
        Err(error) => (false, format!("refused: {error}\n")),
        Ok(fs) => match fs.check(&mut |_| {}) {
            Err(error) => (false, format!("not checked: {error}\n")),
            Ok(findings) => {
                let said = findings.iter().map(|finding| format!("{finding}\n")).collect();
                (findings.is_empty(), said)
            }
        },
    }
}

/// How the verdicts of both on one disk compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreement {
    BothClean,
    BothDamaged,
    /// `e2fsck` finds nothing.
    Stricter,
    /// Extant finds nothing.
    Laxer,
}

/// Compares the verdicts; what both said for messages.
fn compare(image: &Path) -> (Agreement, String) {
    let ((theirs, they_said), (ours, we_said)) = (e2fsck(image), extant(image));
    let agreement = match (theirs, ours) {
        (true, true) => Agreement::BothClean,
        (false, false) => Agreement::BothDamaged,
        (true, false) => Agreement::Stricter,
        (false, true) => Agreement::Laxer,
    };
    (agreement, format!("e2fsck:\n{they_said}extant:\n{we_said}"))
}
