//! The tools of others, and disks that they make.

use std::fs;
use std::path::{Path, PathBuf};

use extant_testing::{Command, symlink, text, write_at};

/// Runs a tool; whether it exited with 0, and what it printed.
pub fn run(tool: &str, arguments: &[&str]) -> (bool, String) {
    let output =
        Command::new(tool).args(arguments).env("LC_ALL", "C").output().expect("a tool that was there");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// A tree of a few files of each kind.
pub fn make_tree(tree: &Path) {
    fs::create_dir_all(tree.join("sub/deep")).expect("a directory");
    fs::create_dir(tree.join("many")).expect("a directory");
    for number in 0..300 {
        fs::write(tree.join(format!("many/a-rather-long-file-name-{number}")), b"x").expect("a file");
    }
    let noise: Vec<u8> = (0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(tree.join("big"), &noise).expect("a file");
    fs::write(tree.join("sub/inner"), b"inner").expect("a file");
    fs::write(tree.join("attributes"), b"attributes").expect("a file");
    fs::hard_link(tree.join("big"), tree.join("sub/hard")).expect("a link");
    symlink("target", &tree.join("short"));
    symlink(&"long/".repeat(30), &tree.join("long"));
    let sparse = fs::File::create(tree.join("sparse")).expect("a file");
    for at in 0..24_u64 {
        write_at(&sparse, &[7; 1024], at * 65_536).expect("a sparse file");
    }
}

/// A disk of `kilobytes` made with `options`, with [`make_tree`]'s files, attributes in a block and an indexed
/// directory; `None` if this `mke2fs` does not know the options.
pub fn make_disk(dir: &Path, options: &[&str], kilobytes: u32) -> Option<PathBuf> {
    let (tree, image) = (dir.join("tree"), dir.join("image"));
    if !tree.exists() {
        make_tree(&tree);
    }
    let _ = fs::remove_file(&image);
    let pipe = tree.join("pipe");
    let (made, said) = run("mkfifo", &[text(&pipe)]);
    assert!(made, "{said}");
    let (path, size) = (text(&image), format!("{kilobytes}k"));
    let fixed = "lazy_itable_init=0,hash_seed=00000000-0000-4000-8000-000000000001";
    let mut arguments = vec!["-q", "-F", "-t", "ext4", "-E", fixed, "-d", text(&tree)];
    arguments.extend(options);
    arguments.extend([path, &size]);
    let (made, said) = run("mke2fs", &arguments);
    // WASI opens what it does not know to remove a directory, and would wait for a writer.
    run("rm", &[text(&pipe)]);
    if !made {
        println!("skipped {options:?}: {said}");
        return None;
    }
    let value = "v".repeat(400);
    for command in [
        format!("ea_set /attributes user.long {value}"),
        "ea_set /sub user.short word".to_owned(),
        "mknod dev c 1 3".to_owned(),
    ] {
        debugfs(&image, &command);
    }
    if options.iter().any(|option| option.contains("ea_inode")) {
        let value = dir.join("value");
        fs::write(&value, "w".repeat(6000)).expect("a value");
        for path in ["/attributes", "/sub", "/sub/inner"] {
            debugfs(&image, &format!("ea_set -f {} {path} user.large", value.display()));
        }
    }
    // Only this makes indexes without a kernel; it exits with 1 for having done so.
    run("e2fsck", &["-fyD", path]);
    Some(image)
}

/// Runs one command of `debugfs` that may write.
pub fn debugfs(image: &Path, command: &str) -> String {
    run("debugfs", &["-w", "-R", command, text(image)]).1
}
