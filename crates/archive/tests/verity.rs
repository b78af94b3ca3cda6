//! Hash trees of dm-verity, beside those of `veritysetup`.

use std::fs::{self, File};
use std::path::Path;

use extant_archive::{HashTree, Verity};
use extant_block::{DeviceAccess, FileDevice, FileExt};
use extant_testing::{Command, Output};

const UUID: [u8; 16] = *b"extant's dm-test";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn veritysetup(words: &[&str]) -> Output {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    Command::new("veritysetup").args(words).env("PATH", &path).output().expect("veritysetup")
}

/// A file of so many blocks, some of them zero, and room for the tree.
fn data(path: &Path, blocks: u64) {
    let file = File::create(path).expect("file");
    for block in (0..blocks).filter(|block| block % 7 != 3) {
        let bytes: Vec<u8> = (0..4096).map(|byte| (byte * 31 + block * 17) as u8).collect();
        file.write_all_at(&bytes, block * 4096).expect("write");
    }
    file.set_len(blocks * 4096 + Verity::bytes_for(blocks * 4096)).expect("length");
}

fn write(path: &Path, blocks: u64, salt: &[u8]) -> std::io::Result<HashTree> {
    let device = FileDevice::open(path, DeviceAccess::read_write()).expect("device");
    Verity::new(UUID).salted(salt).expect("a salt").write(&device, blocks * 4096)
}

#[test]
fn a_tree_is_the_one_that_veritysetup_makes() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("directory");
    let path = dir.path().join("disk.img");
    let name = path.to_str().expect("text");
    for (blocks, salt) in [(1, &b""[..]), (2, b"x"), (128, b"salt"), (129, &[7; 32]), (16385, &[255; 256])] {
        data(&path, blocks);
        let tree = write(&path, blocks, salt).expect("tree");
        let mine = fs::read(&path).expect("image");
        let (root, offset) = (hex(&tree.root_hash), format!("--hash-offset={}", tree.hash_offset));
        let verified = veritysetup(&["verify", name, name, &root, &offset]);
        assert!(verified.status.success(), "{blocks}: {}", String::from_utf8_lossy(&verified.stderr));
        data(&path, blocks);
        let salt = if salt.is_empty() { "-".to_owned() } else { hex(salt) };
        let uuid = "--uuid=65787461-6e74-2773-2064-6d2d74657374";
        let data_blocks = format!("--data-blocks={blocks}");
        let formatted =
            veritysetup(&["format", name, name, &offset, &data_blocks, &format!("--salt={salt}"), uuid]);
        let said = String::from_utf8_lossy(&formatted.stdout).into_owned();
        assert!(formatted.status.success() && said.contains(&root), "{blocks}: {root}: {said}");
        assert!(fs::read(&path).expect("image") == mine, "{blocks}: other bytes");
        // And what was changed is found.
        let file = File::options().write(true).open(&path).expect("image");
        file.write_all_at(b"!", blocks * 4096 - 1).expect("write");
        assert!(!veritysetup(&["verify", name, name, &root, &offset]).status.success(), "{blocks}");
    }
}

#[test]
fn what_is_not_in_whole_blocks_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("directory");
    let path = dir.path().join("disk.img");
    data(&path, 2);
    let device = FileDevice::open(&path, DeviceAccess::read_write()).expect("device");
    let verity = Verity::new(UUID);
    for bytes in [0, 4095, 4097] {
        assert!(verity.write(&device, bytes).is_err(), "{bytes}");
    }
    assert!(verity.salted(&[0; 257]).is_none());
}
