//! The output of `dumpe2fs` for an image.

use std::path::Path;

use crate::tools::run;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub blocks: u64,
    pub free_blocks: u64,
    pub free_inodes: u64,
    /// Blocks kept for root.
    pub reserved_blocks: u64,
}

impl Usage {
    pub fn of(image: &Path) -> Self {
        let (success, text) = run("dumpe2fs", &["-h"], image);
        assert!(success, "{text}");
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
        };
        Self {
            blocks: number("Block count:"),
            free_blocks: number("Free blocks:"),
            free_inodes: number("Free inodes:"),
            reserved_blocks: number("Reserved block count:"),
        }
    }
}
