//! Starts the sample server as a child process and ends it when it is no longer wanted.

use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::client::Client;

/// A running server. Dropping it ends it; so does the death of this process, because the server ends with its input.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts the program on a free port of loopback.
    ///
    /// # Errors
    /// When it cannot be started, or does not say where it listens.
    pub fn start(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args(["--port", "0", "--until-input-ends"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line
            .trim()
            .rsplit(' ')
            .next()
            .and_then(|word| word.parse().ok());
        let Some(address) = address else {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::other(format!(
                "{} did not say where it listens: `{line}`",
                program.display()
            )));
        };
        Ok(Self { child, address })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection as a user.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect(&self, user: &str) -> io::Result<Client> {
        Client::connect(self.address, user)
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// When the kernel cannot tell.
    pub fn is_alive(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when the process is gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
