//! Checks a disk and walks over its tree: `check IMAGE`. Exits as `e2fsck -fn`: 0 clean, 4 damaged, 8 neither.

use std::process::ExitCode;

use extant::{FileType, Filesystem, Mount};

fn main() -> ExitCode {
    let Some(image) = std::env::args_os().nth(1) else {
        eprintln!("usage: check IMAGE");
        return ExitCode::from(16);
    };
    let fs = match Mount::new().read_only(true).open(image) {
        Ok(fs) => fs,
        Err(error) => {
            println!("refused: {error}");
            return ExitCode::from(8);
        }
    };
    let findings = match fs.check(&mut |_| {}) {
        Ok(findings) => findings,
        Err(error) => {
            println!("not checked: {error}");
            return ExitCode::from(8);
        }
    };
    for finding in &findings {
        println!("{finding}");
    }
    ExitCode::from(if findings.is_empty() { 0 } else { 4 })
}
