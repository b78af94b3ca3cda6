//! Name hashes against `debugfs dx_hash`.

use extant_testing::Command;
use std::collections::HashSet;
use std::io::Write;

use extant_ondisk::dir_hash::{DirHasher, HashVersion};

use crate::rng::Rng;

const SEED_UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

fn version(number: u8) -> HashVersion {
    HashVersion::from_disk(number % 3, number >= 3).unwrap()
}

fn seed_words() -> [u32; 4] {
    [0x3322_1100, 0x7766_5544, 0xbbaa_9988, 0xffee_ddcc]
}

#[test]
fn hashes_of_known_names() {
    let hash = |number, seed| DirHasher::new(version(number), seed).hash(b"hello");
    assert_eq!(hash(0, [0; 4]).hash, 0x3225_2546);
    assert_eq!((hash(1, [0; 4]).hash, hash(1, [0; 4]).minor), (0x1746_da32, 0x4200_13b5));
    assert_eq!((hash(2, [0; 4]).hash, hash(2, [0; 4]).minor), (0x6f5b_b1a8, 0x2319_17c2));
    assert_eq!((hash(1, seed_words()).hash, hash(1, seed_words()).minor), (0x344c_a36e, 0x2ef1_6de2));
}

#[test]
fn hashes_agree_with_debugfs() {
    let mut rng = Rng::new(21);
    let mut expected = Vec::new();
    let mut script = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    for number in 0..6 {
        for len in (1..=70).chain([127, 128, 254, 255]) {
            // Bytes of both signs, without those that the tool's command line treats specially.
            let name: Vec<u8> =
                rng.name(len).iter().map(|b| if b % 3 == 0 { 0x80 | b } else { b'a' + b % 26 }).collect();
            let seeded = len % 2 == 0;
            let seed = if seeded { seed_words() } else { [0; 4] };
            let option = if seeded { format!("-s {SEED_UUID} ") } else { String::new() };
            script.write_all(format!("dx_hash -h {number} {option}").as_bytes()).unwrap();
            script.write_all(&name).unwrap();
            script.write_all(b"\n").unwrap();
            expected.push(DirHasher::new(version(number), seed).hash(&name));
        }
    }
    let Ok(output) = Command::new("debugfs").arg("-f").arg(script.path()).output() else {
        println!("skipped: no debugfs");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let answers: Vec<&str> = text.lines().filter(|l| l.starts_with("Hash of ")).collect();
    assert_eq!(answers.len(), expected.len());
    for (answer, expected) in answers.iter().zip(&expected) {
        let (_, numbers) = answer.rsplit_once(" is 0x").unwrap();
        let (hash, minor) = numbers.trim_end_matches(')').split_once(" (minor 0x").unwrap();
        let number = |text| u32::from_str_radix(text, 16).unwrap();
        assert_eq!((number(hash), number(minor)), (expected.hash, expected.minor), "{answer}");
    }
}

#[test]
fn the_lowest_bit_is_clear_and_the_end_marker_is_never_a_hash() {
    let mut rng = Rng::new(22);
    let mut seen = HashSet::new();
    for _ in 0..50_000 {
        let len = 1 + rng.below(20);
        let name = rng.name(len);
        let hash = DirHasher::new(HashVersion::Legacy, [0; 4]).hash(&name).hash;
        assert_eq!(hash & 1, 0);
        assert_ne!(hash, 0xffff_fffe);
        seen.insert(hash);
    }
    assert!(seen.len() > 40_000);
}
