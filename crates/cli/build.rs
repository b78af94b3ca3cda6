//! The commit that the program is built from, for `--version`; none where the source is not a checkout, as in a published crate.

use std::path::Path;
use std::process::Command;

fn main() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let version = env!("CARGO_PKG_VERSION");
    let version = match commit(Path::new(root)) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    };
    println!("cargo::rustc-env=EXTANT_VERSION={version}");
    println!("cargo::rerun-if-changed=build.rs");
}

/// The commit's short name and date.
fn commit(root: &Path) -> Option<String> {
    // Without it git would find a checkout that the source merely lies in.
    root.join(".git").exists().then_some(())?;
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        Some(text.trim().to_owned())
    };
    // It changes whenever the checkout moves to another commit.
    println!(
        "cargo::rerun-if-changed={}",
        root.join(git(&["rev-parse", "--git-path", "logs/HEAD"])?).display()
    );
    git(&["show", "--no-patch", "--abbrev=9", "--date=short", "--format=%h %cd", "HEAD"])
}
