//! What a programmer does with git: a tree of small files copied in, added, committed, packed and cloned.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::Result;
use crate::scratch::{Scratch, run};

const DIRECTORIES: usize = 46;
const FILES_EACH: usize = 100;

/// The tree to copy, and a home without anybody's settings.
pub struct Git {
    tree: PathBuf,
    home: PathBuf,
}

impl Git {
    /// Makes the tree.
    pub fn new(scratch: &Scratch) -> Result<Self> {
        let (tree, home) = (scratch.path("tree"), scratch.path("home"));
        std::fs::create_dir(&home)?;
        for dir in 0..DIRECTORIES {
            let path = tree.join(dir.to_string());
            std::fs::create_dir_all(&path)?;
            for file in 0..FILES_EACH {
                std::fs::write(path.join(file.to_string()), format!("{dir} {file}\n"))?;
            }
        }
        Ok(Self { tree, home })
    }

    /// Does it in `dir`; times per second.
    pub fn run(&self, dir: &Path) -> Result<f64> {
        let (repository, clone) = (dir.join("repository"), dir.join("clone"));
        let start = Instant::now();
        self.git(dir, &["init", "-q", "repository"])?;
        run(Command::new("cp").arg("-r").arg(&self.tree).arg(&repository))?;
        self.git(&repository, &["add", "."])?;
        self.git(&repository, &["commit", "-q", "-m", "all"])?;
        self.git(&repository, &["gc", "-q"])?;
        self.git(&repository, &["clone", "-q", ".", "../clone"])?;
        self.git(&clone, &["status"])?;
        Ok(1.0 / start.elapsed().as_secs_f64())
    }

    fn git(&self, dir: &Path, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("git");
        command.current_dir(dir).env("HOME", &self.home).env("GIT_CONFIG_NOSYSTEM", "1");
        // Nothing runs on behind the command's back.
        command.args(["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]);
        Ok(run(command.args(arguments))?)
    }
}
