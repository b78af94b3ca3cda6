//! Serving in the background: the same program again, in the foreground of a session of its own.
//!
//! A fork would be cheaper, but threads and locks do not survive one. The server writes an empty line when the mount
//! can be used; until then this process reports its errors.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Outcome;
use crate::failure::{EXIT_FAILED, Failure};

/// Starts a server and waits until the mount can be used or the server has failed.
pub fn start(image: &Path, dir: &Path, options: &[String]) -> Outcome {
    let program =
        std::env::current_exe().map_err(|error| Failure::host(Path::new("/proc/self/exe"), &error))?;
    let mut command = Command::new(&program);
    command.args(["mount", "--foreground", "--ready"]);
    for list in options {
        command.arg("-o").arg(list);
    }
    command.arg("--").arg(image).arg(dir).stdin(Stdio::null()).stdout(Stdio::piped());
    let failed = |error: std::io::Error| Failure::host(&program, &error);
    let mut server = command.spawn().map_err(failed)?;
    let mut line = [0];
    let is_ready = match &mut server.stdout {
        Some(output) => output.read(&mut line).map_err(failed)? == 1,
        None => false,
    };
    if is_ready {
        return Ok(0);
    }
    let status = server.wait().map_err(failed)?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        // It has said why.
        Some(code) if code != 0 => Ok(code),
        _ => {
            let message = format!("the server ended before the mount could be used: {status}");
            crate::output::note(&message);
            Ok(EXIT_FAILED)
        }
    }
}

/// Notifies the process that waits in [`start`], and leaves its terminal, its directory and its pipes.
pub fn let_go() -> Result<(), Failure> {
    let null = Path::new("/dev/null");
    let failed = |error: rustix::io::Errno| Failure::host(null, &error.into());
    // Already the leader of a session: then there is nothing to leave.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/").map_err(failed)?;
    let nothing = std::fs::OpenOptions::new().read(true).write(true).open(null);
    let nothing = nothing.map_err(|error| Failure::host(null, &error))?;
    // The process that started the daemon may have ended; the mount serves all the same.
    let _ = rustix::io::write(rustix::stdio::stdout(), b"\n");
    rustix::stdio::dup2_stdout(&nothing).map_err(failed)?;
    rustix::stdio::dup2_stderr(&nothing).map_err(failed)
}
