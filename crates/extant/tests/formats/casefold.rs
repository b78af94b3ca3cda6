//! Directories in which names are found in any case.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use extant::{Error, Mount};
use extant_ondisk::dir_hash::{DirHasher, HashVersion};
use extant_ondisk::{Superblock, casefold};
use extant_testing::{has_e2fsprogs, scratch};

use super::disk::{alone, assert_clean, debugfs, make, run};

/// Pairs of one name, in two forms.
const SAME: [(&str, &str); 12] = [
    ("README", "readme"),
    ("Äpfel", "a\u{308}PFEL"),
    ("straße", "STRASSE"),
    ("\u{FB01}sh", "FISH"),
    ("ΣΊΣΥΦΟΣ", "Σίσυφος"),
    ("soft\u{AD}hyphen", "Soft\u{200B}Hyphen"),
    ("\u{1F88}", "\u{1F00}\u{3B9}"),
    ("\u{212A}elvin", "kelvin"),
    ("가", "\u{1100}\u{1161}"),
    ("\u{13A0}", "\u{AB70}"),
    ("q\u{307}\u{323}", "Q\u{323}\u{307}"),
    ("x\u{345}", "Xι"),
];

/// A directory `/d` that folds case, with one of each pair and `more`, each holding its own name; `/plain` with one of each.
fn disk(scratch: &Path, more: usize) -> PathBuf {
    let image = make(scratch, &["-O", "casefold", "-E", "encoding=utf8", "-N", "1024"], |tree| {
        for dir in ["d", "plain"] {
            fs::create_dir(tree.join(dir)).expect("a directory");
            for (name, _) in SAME {
                fs::write(tree.join(dir).join(name), name).expect(name);
            }
        }
        for number in 0..more {
            let name = format!("File-{number:040}");
            fs::write(tree.join("d").join(&name), &name).expect("a file");
        }
    });
    debugfs(&image, "sif d flags 0x40080000\n");
    image
}

#[test]
fn names_are_found_in_any_form_and_listed_as_they_stand() {
    let Some(_alone) = alone() else { return };
    for more in [0, 500] {
        let scratch = scratch();
        let image = disk(scratch.path(), more);
        if more > 0 {
            // Gives the directory an index, by its own tables.
            assert!(run("e2fsck", &["-fyD"], &image).status.success());
        }
        assert_clean(&image, "folding");
        let fs = Mount::new().read_only(true).open(&image).expect("a mount");
        let is_indexed = fs.metadata("/d").expect("d").flags.contains(extant::InodeFlags::INDEX);
        assert_eq!(is_indexed, more > 0);
        for (name, other) in SAME {
            for form in [name, other] {
                assert_eq!(fs.read(format!("/d/{form}")).expect(form), name.as_bytes());
            }
            assert_eq!(fs.read(format!("/plain/{name}")).expect(name), name.as_bytes());
            assert!(!fs.exists(format!("/plain/{other}")).expect(other), "{other}");
        }
        for number in 0..more {
            let name = format!("fILE-{number:040}");
            let content = fs.read(format!("/d/{name}")).expect(&name);
            assert!(content.eq_ignore_ascii_case(name.as_bytes()), "{name}");
        }
        for missing in ["readm", "strase", "kelvin ", "\u{200B}.", "\u{200B}"] {
            assert!(!fs.exists(format!("/d/{missing}")).expect(missing), "{missing}");
        }
        let mut listed: Vec<_> = fs
            .dir("/d")
            .and_then(|dir| dir.entries())
            .expect("d")
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        let mut expected: Vec<_> = SAME.iter().map(|(name, _)| name.as_bytes().to_vec()).collect();
        expected.extend((0..more).map(|number| format!("File-{number:040}").into_bytes()));
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected);
        drop(fs);
        match Mount::new().open(&image) {
            Err(Error::ReadOnlyFeatures(names)) => assert_eq!(names, "casefold"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn names_fold_as_e2fsprogs_folds_them() {
    if !has_e2fsprogs() {
        return;
    }
    let letters = [0xC0..0x250, 0x250..0x530, 0x10A0..0x1100, 0x13A0..0x13FE, 0x1C80..0x1C89, 0x1E00..0x2000]
        .into_iter()
        .chain([0x2100..0x2190, 0xA640..0xA69C, 0xAB70..0xABC0, 0xAC00..0xAC40, 0xFB00..0xFB07])
        .chain([0xFF21..0xFF3B, 0x10400..0x10450, 0x118A0..0x118E0, 0x1E900..0x1E944])
        .flatten()
        .filter_map(char::from_u32);
    let names = letters.map(|letter| format!("a{letter}\u{323}"));
    let names: Vec<_> =
        names.chain(SAME.iter().flat_map(|(name, other)| [*name, *other]).map(str::to_owned)).collect();
    let scratch = scratch();
    let script = scratch.path().join("script");
    let mut requests = String::new();
    for name in &names {
        writeln!(requests, "dx_hash -h half_md4 -c -e utf8 {name}").expect("a string");
    }
    fs::write(&script, requests).expect("a script");
    let said = run("debugfs", &["-f"], &script).stdout;
    let said = String::from_utf8_lossy(&said);
    let hasher = DirHasher::new(HashVersion::HalfMd4, [0; 4]);
    let mut compared = 0;
    for (name, line) in names.iter().zip(said.lines().filter(|line| line.starts_with("Hash of"))) {
        let hash = hasher.hash(casefold::fold(name.as_bytes()).expect("UTF-8").as_bytes());
        let expected = format!("Hash of {name} is {:#x} (minor {:#x})", hash.hash, hash.minor);
        assert_eq!(line, expected, "{:?}", name.escape_unicode().to_string());
        compared += 1;
    }
    assert_eq!(compared, names.len());
}

#[test]
fn an_unknown_encoding_is_refused() {
    if !has_e2fsprogs() {
        return;
    }
    let scratch = scratch();
    let image = disk(scratch.path(), 0);
    let mut bytes = fs::read(&image).expect("an image");
    let mut superblock = Superblock::parse(&bytes[1024..2048]).expect("a superblock");
    superblock.set_s_encoding(2);
    superblock.update_checksum();
    bytes[1024..2048].copy_from_slice(superblock.as_bytes());
    fs::write(&image, bytes).expect("an image");
    let refused = Mount::new().read_only(true).open(&image).map(drop).expect_err("refused").to_string();
    assert!(refused.contains("unknown encoding"), "{refused}");
}
