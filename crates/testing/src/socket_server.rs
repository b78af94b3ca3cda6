//! A program that serves a socket, and can be killed and started again.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until it can be connected to.
const START_TIME_MAX: Duration = Duration::from_secs(10);

/// How long it may take to end when it is asked to.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// A server on a socket in a directory; killed on drop.
#[derive(Debug)]
pub struct SocketServer {
    child: Child,
    command: Vec<String>,
    socket: PathBuf,
}

impl SocketServer {
    /// Starts a server whose command line has `SOCKET` where the socket's path belongs, and waits until it can be connected to.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(dir: &Path, command: &[&str]) -> Self {
        let socket = dir.join("socket");
        let path = socket.to_string_lossy();
        let command: Vec<String> = command.iter().map(|word| word.replace("SOCKET", &path)).collect();
        let child = spawn(&command, &socket);
        Self { child, command, socket }
    }

    /// The path of its socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Kills it: what it has in memory is gone.
    ///
    /// # Panics
    /// If it had ended before.
    pub fn kill(&mut self) {
        self.child.kill().expect("it ran");
        self.child.wait().expect("it ended");
    }

    /// Asks it to end, and waits until it has. What it has in memory may be kept.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn terminate(&mut self) {
        let status = Command::new("kill").arg(self.child.id().to_string()).status();
        assert!(status.expect("a program of the system").success(), "it ran");
        let begun = Instant::now();
        while self.child.try_wait().expect("a child").is_none() {
            assert!(begun.elapsed() < END_TIME_MAX, "{:?} does not end", self.command);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts it again after its end.
    ///
    /// # Panics
    /// As [`SocketServer::start`].
    pub fn start_again(&mut self) {
        self.child = spawn(&self.command, &self.socket);
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(command: &[String], socket: &Path) -> Child {
    let _ = std::fs::remove_file(socket);
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = process.spawn().unwrap_or_else(|error| panic!("{}: {error}", command[0]));
    let begun = Instant::now();
    while UnixStream::connect(socket).is_err() {
        assert!(begun.elapsed() < START_TIME_MAX, "{command:?} does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}
