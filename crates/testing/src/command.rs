//! Programs of Linux, for tests on a host that has none: e2fsprogs judge there too.
//!
//! The runner of the tests runs them (`scripts/test-portable`). It looks into the directory that `EXTANT_PROGRAMS` names for
//! `N.request`, which has the words after `env` of a command with a zero after each, and answers with `N.stdout`, `N.stderr` and at last
//! `N.status`, which has the exit status in decimal digits.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, fs, io, thread};

/// What is used of [`std::process::Command`], by the same names.
#[derive(Debug)]
pub struct Command {
    /// The options and settings of `env`, which starts it.
    place: Vec<OsString>,
    words: Vec<OsString>,
}

/// What a program said, and how it ended.
#[derive(Debug)]
pub struct Output {
    /// How the program ended.
    pub status: ExitStatus,
    /// What it wrote to its output.
    pub stdout: Vec<u8>,
    /// What it wrote to its error output.
    pub stderr: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub struct ExitStatus(i32);

impl ExitStatus {
    #[must_use]
    pub fn success(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub fn code(self) -> Option<i32> {
        Some(self.0)
    }
}

impl Command {
    /// A command without arguments.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self { place: Vec::new(), words: vec![program.as_ref().to_owned()] }
    }

    /// Adds an argument.
    pub fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Self {
        self.words.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(&mut self, arguments: impl IntoIterator<Item = A>) -> &mut Self {
        self.words.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the environment.
    pub fn env(&mut self, name: &str, value: &str) -> &mut Self {
        self.place.push(format!("{name}={value}").into());
        self
    }

    /// Sets the directory in which the program starts.
    pub fn current_dir(&mut self, directory: impl AsRef<Path>) -> &mut Self {
        self.place.splice(0..0, ["-C".into(), directory.as_ref().into()]);
        self
    }

    /// How the program ends; what it says is lost.
    ///
    /// # Errors
    /// As [`Self::output`].
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        Ok(self.output()?.status)
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// If no runner runs programs for this one, or there is no such program.
    pub fn output(&mut self) -> io::Result<Output> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let missing =
            || io::Error::new(io::ErrorKind::NotFound, format!("{:?}: no such program", self.words));
        let directory = PathBuf::from(env::var_os("EXTANT_PROGRAMS").ok_or_else(missing)?);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = |of: &str| directory.join(format!("{number}.{of}"));
        let words =
            self.place.iter().chain(&self.words).map(|word| [word.as_encoded_bytes(), b"\0"].concat());
        fs::write(file("pending"), words.collect::<Vec<_>>().concat())?;
        fs::rename(file("pending"), file("request"))?;
        let status = loop {
            match fs::read_to_string(file("status")) {
                Ok(status) => break status,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    thread::sleep(Duration::from_millis(1))
                }
                Err(error) => return Err(error),
            }
        };
        let status = ExitStatus(status.parse().map_err(io::Error::other)?);
        // As the shell says that there is no such program.
        if status.0 == 127 {
            return Err(missing());
        }
        Ok(Output { status, stdout: fs::read(file("stdout"))?, stderr: fs::read(file("stderr"))? })
    }
}
