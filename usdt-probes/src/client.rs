//! A connection to the sample server: one command, one answer, and how long that took.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A connection, which is one session of the server.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
    session: u64,
    thread: u32,
    sent_at: Option<Instant>,
}

/// The answer to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What the server said: the text behind `OK`, or behind `ERR`.
    pub result: Result<String, String>,
    /// Time from the sending of the command to the answer.
    pub took: Duration,
}

impl Reply {
    /// The statement was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.result == Err("cancelled".to_owned())
    }
}

impl Client {
    /// Connects as a user.
    ///
    /// # Errors
    /// When the server cannot be reached, is full, or does not take the name.
    pub fn connect(address: SocketAddr, user: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut client = Self {
            stream: BufReader::new(stream),
            session: 0,
            thread: 0,
            sent_at: None,
        };
        let text = client
            .command(&format!("USER {user}"))?
            .result
            .map_err(io::Error::other)?;
        let numbers = text
            .split_once(' ')
            .and_then(|(id, tid)| Some((id.parse().ok()?, tid.parse().ok()?)));
        let strange = || {
            io::Error::other(format!(
                "the server answered `{text}` where session and thread were due"
            ))
        };
        (client.session, client.thread) = numbers.ok_or_else(strange)?;
        Ok(client)
    }

    /// The session's number in the server.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// The server's thread for this session.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// Sends one command and waits for its answer.
    ///
    /// # Errors
    /// When the connection is gone: `UnexpectedEof` if the server ended the session.
    pub fn command(&mut self, line: &str) -> io::Result<Reply> {
        self.send(line)?;
        self.receive()
    }

    /// Sends one command and does not wait.
    ///
    /// # Errors
    /// When the connection is gone.
    #[expect(
        clippy::disallowed_methods,
        reason = "a client outside the agent times what it does itself"
    )]
    pub fn send(&mut self, line: &str) -> io::Result<()> {
        self.sent_at = Some(Instant::now());
        self.stream
            .get_mut()
            .write_all(format!("{line}\n").as_bytes())
    }

    /// Waits for the answer to the command that was sent last.
    ///
    /// # Errors
    /// When the connection is gone: `UnexpectedEof` if the server ended the session. `WouldBlock` or `TimedOut` if no
    /// answer came within the limit of [`Self::set_patience`].
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server ended the session",
            ));
        }
        let took = self.sent_at.map_or(Duration::ZERO, |at| at.elapsed());
        let line = line.trim_end();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let result = match word {
            "OK" => Ok(rest.to_owned()),
            "ERR" => Err(rest.to_owned()),
            _ => return Err(io::Error::other(format!("the server answered `{line}`"))),
        };
        Ok(Reply { result, took })
    }

    /// The longest time that an answer may take; `None` waits for ever.
    ///
    /// # Errors
    /// When the limit is zero.
    pub fn set_patience(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(limit)
    }
}
