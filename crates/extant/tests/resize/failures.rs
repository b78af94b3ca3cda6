//! Devices that fail while a file system grows.

use std::io::ErrorKind;

use extant::Mount;
use extant_block::{BlockDevice, Fault, FaultDevice, Operation};
use extant_rt::Arc;

use crate::disk::{Image, MIB, contents, fill};

#[test]
fn a_request_that_fails_is_reported_and_loses_nothing() {
    let arguments = ["-b1024", "-g2048", "-N2048", "-Jsize=1"];
    let Some(image) = Image::made(7 * MIB, &arguments) else { return };
    let fs = image.mount();
    fill(&fs, 9, 12);
    let tree = contents(&fs);
    fs.unmount().expect("unmount");
    let start = image.load(15 * MIB);
    let operations =
        [Operation::Read, Operation::Write, Operation::WriteFua, Operation::Flush, Operation::WriteZeroes];
    let mut failures = 0;
    for operation in operations {
        for index in 0.. {
            let device = Arc::new(FaultDevice::new(start.snapshot(), move |request| {
                let is_it = request.operation == operation && request.index == index;
                if is_it { Fault::Error(ErrorKind::Other) } else { Fault::None }
            }));
            let wide: Arc<dyn BlockDevice> = device.clone();
            let result = Mount::new().grow_device(&wide, 15 * MIB);
            if device.count(operation) <= index {
                break;
            }
            let case = format!("{operation:?} {index}");
            assert!(result.is_err(), "{case}: no error, but {result:?}");
            failures += 1;
            let left: Arc<dyn BlockDevice> = Arc::new(device.inner().snapshot());
            let grown = Mount::new().grow_device(&left, 15 * MIB).unwrap_or_else(|e| panic!("{case}: {e}"));
            assert_eq!(grown.to_bytes, 15 * MIB, "{case}");
            let fs = Mount::new().read_only(true).open_device(left).expect("mount");
            assert!(contents(&fs) == tree, "{case}: another tree");
        }
    }
    println!("failed: {failures} requests");
    assert!(failures > 20, "{failures}");
}
