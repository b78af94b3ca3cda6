//! The tests that pages of design and of results name exist.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Underscores from which on a word between code marks is the name of a test, if it is no name of another interface.
const UNDERSCORES_LEAST: usize = 3;

/// Names of the kernel and of other programs that look like one.
const OTHERS: [&str; 7] = [
    "calc_concurrency_ag_geometry",
    "fuse_io_uring_ops",
    "open_by_handle_at",
    "s_inode_list_lock",
    "s_mb_last_groups",
    "s_next_gen_lock",
    "s_vfs_rename_mutex",
];

/// All files below `dir` with this extension.
fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

/// The functions without arguments that Rust sources define.
fn functions(root: &Path) -> HashSet<String> {
    let sources =
        files(&root.join("crates"), "rs").into_iter().map(|path| fs::read_to_string(path).expect("a source"));
    let names = |source: String| {
        let lines = source.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.split_once("()"));
        lines.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    sources.flat_map(names).collect()
}

#[test]
fn tests_that_pages_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let functions = functions(&root);
    let pages = ["docs/design", "docs/results"].map(|dir| files(&root.join(dir), "md")).concat();
    let mut count = 0;
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page");
        for word in text.split('`').skip(1).step_by(2) {
            let name = word.rsplit("::").next().unwrap_or(word);
            let is_name =
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            let is_other = name.starts_with("ext4_") || OTHERS.contains(&name);
            if !is_name || is_other || name.matches('_').count() < UNDERSCORES_LEAST {
                continue;
            }
            count += 1;
            assert!(functions.contains(name), "{}: no test {name}", page.display());
        }
    }
    assert!(count > 50, "{count}");
}
