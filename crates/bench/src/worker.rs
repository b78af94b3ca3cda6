//! Processes of the ceiling that share nothing: each has an image of its own, stays between measurements, as threads of one process do, and
//! begins with each line of its input.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Result;

/// One of them, from outside. It ends when its input does.
pub struct Worker {
    child: Child,
    /// None once it is to end.
    input: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Worker {
    /// This program with other arguments.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { input: child.stdin.take(), child, said })
    }

    fn tell(&mut self, what: &str) -> Result<()> {
        Ok(writeln!(self.input.as_mut().ok_or("no input")?, "{what}")?)
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        let count = self.said.read_line(&mut line)?;
        if count > 0 { Ok(line.trim().to_owned()) } else { Err("a process of the ceiling failed".into()) }
    }
}

/// Has all of them do something at once: what they say of it.
pub fn all(workers: &mut [Worker], what: &str) -> Result<Vec<String>> {
    workers.iter_mut().try_for_each(|worker| worker.tell(what))?;
    workers.iter_mut().map(Worker::answer).collect()
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
