//! Images over images, and files that may not be opened.

use std::path::Path;

use extant_testing::scratch;

use super::common::{Random, assert_equal, content, open, qemu_img, raw_disk, seed};

const DISK_BYTES: u64 = 2 << 20;

fn error(path: &Path) -> String {
    open(path, true).err().expect("no error").to_string()
}

fn overlay(dir: &Path, base: &str, format: &str, name: &str) {
    qemu_img(dir, &["create", "-q", "-f", "qcow2", "-F", format, "-b", base, name]);
}

#[test]
fn chain_of_ten_is_read_and_only_its_top_is_written() {
    let mut random = Random(seed("chain"));
    let dir = scratch();
    let mut model = raw_disk(dir.path(), "0", DISK_BYTES, &mut random);
    for number in 1..=10 {
        let (below, name) = ((number - 1).to_string(), number.to_string());
        overlay(dir.path(), &below, if number == 1 { "raw" } else { "qcow2" }, &name);
        let before = std::fs::read(dir.path().join(&below)).expect("the file below");
        let image = open(&dir.path().join(&name), false).expect("an image");
        assert_eq!(image.layers.len(), number + 1);
        for _ in 0..6 {
            let len = random.below(100_000) + 1;
            let at = random.below(DISK_BYTES - len);
            let range = at as usize..(at + len) as usize;
            if random.below(3) == 0 {
                image.device.write_zeroes(at, len).expect("zeroes");
                model[range].fill(0);
            } else {
                let bytes = random.bytes(len as usize);
                image.device.write_at(at, &bytes).expect("a write");
                model[range].copy_from_slice(&bytes);
            }
        }
        assert_equal(&content(&*image.device), &model, &name);
        drop(image);
        assert_eq!(std::fs::read(dir.path().join(&below)).expect("the file below"), before);
        qemu_img(dir.path(), &["check", "-f", "qcow2", &name]);
    }
    std::fs::write(dir.path().join("model"), &model).expect("the model");
    qemu_img(dir.path(), &["compare", "-f", "qcow2", "-F", "raw", "10", "model"]);
}

#[test]
fn image_that_is_longer_than_its_backing_file_ends_with_zeroes() {
    let mut random = Random(seed("longer"));
    let dir = scratch();
    let mut model = raw_disk(dir.path(), "base", DISK_BYTES + 512, &mut random);
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "base", "a.qcow2", "4M"]);
    model.resize(4 << 20, 0);
    let image = open(&dir.path().join("a.qcow2"), false).expect("an image");
    assert_equal(&content(&*image.device), &model, "read");
    let at = DISK_BYTES as usize - 100;
    image.device.write_at(at as u64, &[9; 4000]).expect("a write");
    model[at..at + 4000].fill(9);
    assert_equal(&content(&*image.device), &model, "written");
    drop(image);
    std::fs::write(dir.path().join("model"), &model).expect("the model");
    qemu_img(dir.path(), &["compare", "-f", "qcow2", "-F", "raw", "a.qcow2", "model"]);
}

#[cfg(not(windows))]
#[test]
fn backing_files_are_below_the_directory_of_the_image_or_one_that_is_allowed() {
    use extant_block::{DeviceAccess, FileDevice};
    use extant_rt::Arc;
    let dir = scratch();
    let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
    std::fs::create_dir_all(inside.join("below")).expect("a directory");
    std::fs::create_dir(&outside).expect("a directory");
    let base = outside.join("base.raw");
    std::fs::write(&base, vec![1; 1 << 20]).expect("a base");
    std::fs::copy(&base, inside.join("below/base.raw")).expect("a base");
    extant_testing::symlink(extant_testing::text(&base), &inside.join("link.raw"));
    // WASI follows no absolute link.
    let through_link =
        if cfg!(target_os = "wasi") { "cannot be opened" } else { "not below its own directory" };
    let names = [
        ("below/base.raw".to_owned(), None),
        (inside.join("below/base.raw").display().to_string(), None),
        ("../outside/base.raw".to_owned(), Some("not below its own directory; EXTANT_BACKING_DIRS")),
        (base.display().to_string(), Some("not below its own directory")),
        ("link.raw".to_owned(), Some(through_link)),
        ("below".to_owned(), Some("no regular file")),
        ("missing".to_owned(), Some("cannot be opened: No such file")),
        ("nbd://localhost/x".to_owned(), Some("no path of a file")),
        ("json:{\"driver\":\"file\"}".to_owned(), Some("no path of a file")),
    ];
    for (name, refused) in &names {
        let image = inside.join("a.qcow2");
        qemu_img(&inside, &["create", "-q", "-f", "qcow2", "-u", "-F", "raw", "-b", name, "a.qcow2", "1M"]);
        match refused {
            None => assert_equal(&content(&*open(&image, true).expect(name).device), &[1; 1 << 20], name),
            Some(why) => {
                let told = error(&image);
                assert!(told.contains(why) && told.contains(name.as_str()), "{name}: {told}");
            }
        }
    }
    qemu_img(
        &inside,
        &["create", "-q", "-f", "qcow2", "-u", "-F", "raw", "-b", "../outside/base.raw", "a.qcow2", "1M"],
    );
    let file = FileDevice::open(inside.join("a.qcow2"), DeviceAccess::read_only()).expect("the file");
    let image = extant_diskimage::open(&inside.join("a.qcow2"), Arc::new(file), &[outside]).expect("allowed");
    assert_equal(&content(&*image.device), &[1; 1 << 20], "allowed");
}

#[test]
fn format_of_a_backing_file_is_never_guessed() {
    let dir = scratch();
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "base", "1M"]);
    let base = std::fs::read(dir.path().join("base")).expect("the base");
    // A guest that wrote an image's header onto its raw disk.
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "-u", "-F", "raw", "-b", "base", "a.qcow2", "1M"]);
    let found = content(&*open(&dir.path().join("a.qcow2"), true).expect("an image").device);
    assert_equal(&found[..base.len()], &base, "a header that is content");
    // Without the extension that names the format.
    let path = dir.path().join("a.qcow2");
    let mut image = std::fs::read(&path).expect("the image");
    let at = image.windows(4).position(|bytes| bytes == [0xe2, 0x79, 0x2a, 0xca]).expect("the extension");
    image[at] = 0x12;
    std::fs::write(&path, image).expect("written");
    let told = error(&path);
    assert!(told.contains("'base', without its format; `qemu-img rebase -u -F FORMAT"), "{told}");
}

#[test]
fn loops_and_endless_chains_are_named() {
    let dir = scratch();
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "a", "1M"]);
    overlay(dir.path(), "a", "qcow2", "b");
    qemu_img(dir.path(), &["rebase", "-u", "-F", "qcow2", "-b", "b", "a"]);
    let told = error(&dir.path().join("b"));
    assert_eq!(told, "backing file 'a': refers to 'b', which lies above it: the chain is a loop");
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "0", "1M"]);
    for number in 1..40 {
        let (below, name) = ((number - 1).to_string(), number.to_string());
        qemu_img(
            dir.path(),
            &["create", "-q", "-f", "qcow2", "-u", "-F", "qcow2", "-b", &below, &name, "1M"],
        );
    }
    open(&dir.path().join("31"), true).expect("a chain of 32");
    let told = error(&dir.path().join("32"));
    assert!(told.ends_with("refers to '0', the last of a chain of more than 32 images"), "{told}");
}
