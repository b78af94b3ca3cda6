//! Storage of a program's own below a file system.

use std::fs::File;
use std::sync::{Arc, Mutex};

use extant::device::{BlockDevice, FileExtDevice};
use extant::{Mount, mkfs::Mkfs};
use extant_testing::scratch;

#[test]
fn an_image_in_a_vector_is_mounted_and_taken_back() {
    let bytes = Arc::new(Mutex::new(vec![0; 16 << 20]));
    Mkfs::new().format(&bytes).expect("format");
    let fs = Mount::new().open_device(bytes.clone()).expect("mount");
    fs.write("/file", "content").expect("write");
    fs.grow(32 << 20).expect("a longer vector");
    fs.unmount().expect("unmount");
    let image = Arc::into_inner(bytes).expect("the last use").into_inner().expect("no panic");
    assert_eq!(image.len(), 32 << 20);
    let fs = Mount::new().read_only(true).open_device(Mutex::new(image)).expect("mount");
    assert_eq!(fs.read("/file").expect("read"), b"content");
}

#[test]
fn an_open_file_of_the_host_holds_a_file_system() {
    let scratch = scratch();
    let path = scratch.path().join("image");
    File::create(&path).and_then(|file| file.set_len(16 << 20)).expect("a file");
    let device = || {
        let file = File::options().read(true).write(true).open(&path).expect("an open file");
        FileExtDevice::new(file, 16 << 20, |file| file.sync_data())
    };
    Mkfs::new().format(&device()).expect("format");
    let fs = Mount::new().open_device(device()).expect("mount");
    fs.write("/file", vec![7; 100_000]).expect("write");
    fs.unmount().expect("unmount");
    let boxed: Box<dyn BlockDevice> = Box::new(device());
    let fs = Mount::new().read_only(true).open_device(boxed).expect("mount");
    assert!(fs.read("/file").expect("read") == [7; 100_000]);
    assert!(fs.check(&mut |_| {}).expect("a check").is_empty());
}
