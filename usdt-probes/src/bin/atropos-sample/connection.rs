//! One connection: lines in, answers out, on a thread of its own.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use crate::command::{Command, parse};
use crate::sessions;
use crate::statement::{Failure, Work};
use crate::stop::{self, Stop};
use crate::visible::{Session, write};

/// Longest line, bytes.
const LINE_BYTES: usize = 64 * 1024;

/// Serves a client until it goes or its session is ended.
pub(crate) fn serve(stream: TcpStream, patience: Duration) {
    let session = sessions::open(stream.as_raw_fd());
    stop::serve(Some(session));
    let mut work = Work::new(session, patience);
    let mut lines = Lines {
        stream,
        buffer: Vec::new(),
    };
    // A client that is gone is no news.
    let _ = converse(&mut lines, session, &mut work);
    work.end();
    // The handlers use the socket of the session that is served.
    stop::serve(None);
    sessions::close(session);
}

fn converse(lines: &mut Lines, session: &'static Session, work: &mut Work) -> io::Result<()> {
    while let Some(line) = lines.next()? {
        let answer = match parse(&line) {
            Ok(Command::Quit) => break,
            Ok(Command::User(name)) => {
                write(&session.user_bytes, name);
                Ok(format!(
                    "{} {}",
                    load(&session.id),
                    session.thread.load(std::sync::atomic::Ordering::Relaxed)
                ))
            }
            Ok(command) => {
                sessions::begin(session, &line);
                let result = work.run(command);
                sessions::end(session);
                result.map_err(|failure| match failure {
                    Failure::Stopped(Stop::Cancelled) => "cancelled".to_owned(),
                    Failure::Stopped(Stop::TimedOut) => "waited too long for a lock".to_owned(),
                    Failure::Stopped(Stop::Ended) => "session ended".to_owned(),
                    Failure::Refused(why) => why.to_owned(),
                })
            }
            Err(why) => Err(why),
        };
        let text = match answer {
            Ok(text) if text.is_empty() => "OK\n".to_owned(),
            Ok(text) => format!("OK {text}\n"),
            Err(why) => format!("ERR {why}\n"),
        };
        lines.stream.write_all(text.as_bytes())?;
        if stop::asked(session) == Err(Stop::Ended) {
            break;
        }
    }
    Ok(())
}

fn load(number: &std::sync::atomic::AtomicU64) -> u64 {
    number.load(std::sync::atomic::Ordering::Relaxed)
}

/// Lines of a stream. Not `BufRead`: that reads on after a signal without a look at what the signal said.
struct Lines {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Lines {
    /// The next line; nothing at the end.
    fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim().to_owned()));
            }
            if self.buffer.len() > LINE_BYTES {
                return Err(io::Error::other("the line is too long"));
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
