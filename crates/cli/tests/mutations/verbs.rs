//! Each verb of the command that takes an image.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{CaseDir, run};

/// Verbs that read, and what a reader may be asked for.
const READING: &[&str] = &[
    "check IMAGE",
    "info IMAGE",
    "df IMAGE",
    "du IMAGE",
    "ls -lR IMAGE:/",
    "ls -lR --norecovery IMAGE:/",
    "find IMAGE:/ --size +1k",
    "stat IMAGE:/ IMAGE:/sub IMAGE:/big IMAGE:/attributes IMAGE:/long IMAGE:/pipe",
    "cat IMAGE:/big IMAGE:/sparse IMAGE:/sub/inner",
    "frag IMAGE",
    "export IMAGE -o TAR",
    "cp -a IMAGE:/. OUT/tree",
];

/// Verbs that write, in turn on one disk.
const WRITING: &[&str] = &[
    "replay COPY",
    "touch COPY:/sub/inner COPY:/touched",
    "mkdir -p COPY:/sub/new",
    "cp FILE COPY:/sub/new/file",
    "cp FILE COPY:/big",
    "cp -a IMAGE:/sub COPY:/copied",
    "import COPY:/sub TAR",
    "mv COPY:/attributes COPY:/many/moved",
    "ln COPY:/sub/inner COPY:/linked",
    "ln -sf elsewhere COPY:/short",
    "chmod -R 700 COPY:/sub",
    "chown -R 1000:1000 COPY:/sub",
    "rm -rf COPY:/many",
    "exec COPY -- ls -l .",
    "resize COPY +64M",
];

fn run_verb(verb: &str, dir: &CaseDir) -> Result<i32, String> {
    let place = |word: &str| {
        let (name, rest) = word.find([':', '/']).map_or((word, ""), |at| word.split_at(at));
        let path = match name {
            "IMAGE" => &dir.image,
            "COPY" => &dir.copy,
            "TAR" => &dir.tar,
            "OUT" => &dir.out,
            "FILE" => &dir.file,
            _ => return word.to_owned(),
        };
        format!("{}{rest}", path.display())
    };
    let words: Vec<String> = verb.split(' ').map(place).collect();
    run(&words.iter().map(String::as_str).collect::<Vec<_>>(), &dir.words)
}

/// Everything below `dir` but what a verb that reads may make.
fn outside(dir: &CaseDir) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![dir.path.clone()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(&at).expect("a directory").flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && path != dir.out.join("tree") {
                left.push(path.clone());
            }
            found.push(path);
        }
    }
    found.retain(|path| *path != dir.tar && *path != dir.words);
    found.sort();
    found
}

/// All that read; whether `check` found the disk clean.
pub fn read(dir: &CaseDir, bytes: &[u8]) -> Result<bool, String> {
    fs::create_dir_all(dir.out.join("tree")).expect("a directory");
    // Of the case before: each is the same by itself.
    let _ = fs::remove_file(&dir.tar);
    let before = outside(dir);
    let mut is_clean = false;
    for verb in READING {
        let status = run_verb(verb, dir)?;
        is_clean |= verb.starts_with("check ") && status == 0;
    }
    if outside(dir) != before {
        return Err("a copy went outside of its directory".to_owned());
    }
    remove_tree(&dir.out.join("tree"));
    has_not_written(&dir.image, bytes)?;
    Ok(is_clean)
}

/// A tree with any modes: tests run by other users than root must enter to empty it.
fn remove_tree(tree: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mut left = vec![tree.to_owned()];
    while let Some(at) = left.pop() {
        let _ = fs::set_permissions(&at, fs::Permissions::from_mode(0o700));
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(tree).expect("an empty place");
}

pub fn has_not_written(image: &Path, bytes: &[u8]) -> Result<(), String> {
    match fs::read(image).expect("an image") == bytes {
        true => Ok(()),
        false => Err("reading has written".to_owned()),
    }
}

/// All that write, on `dir`'s copy.
pub fn write(dir: &CaseDir) -> Result<(), String> {
    WRITING.iter().try_for_each(|verb| run_verb(verb, dir).map(|_| ()))
}
