//! Runs statements: which locks they take and for how long, what they do, what is undone.

use std::time::Duration;

use usdt_probes::mark;

use crate::command::Command;
use crate::sessions::number;
use crate::stop::{self, Stop};
use crate::tables::Table;
use crate::visible::{Mode, Session, Ticket, state};
use crate::{cache, clock, locks, native, sleep};

/// What a session has beyond what it shows: locks it holds, and how to undo its transaction.
#[derive(Debug)]
pub(crate) struct Work {
    session: &'static Session,
    held: Vec<Held>,
    undo: Vec<Undo>,
    /// How long it waits for a lock, microseconds.
    patience_us: u64,
}

/// A lock that is held.
#[derive(Debug)]
struct Held {
    ticket: &'static Ticket,
    table: &'static Table,
    until: Until,
}

/// When a lock is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    StatementEnds,
    TransactionEnds,
    Unlock,
}

/// What a key was before the transaction wrote it.
#[derive(Debug)]
struct Undo {
    table: &'static Table,
    key: String,
    before: Option<String>,
}

/// Why a statement failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It was stopped.
    Stopped(Stop),
    /// It makes no sense.
    Refused(&'static str),
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

impl Work {
    /// A session that holds nothing.
    pub(crate) fn new(session: &'static Session, patience: Duration) -> Self {
        Self {
            session,
            held: Vec::new(),
            undo: Vec::new(),
            patience_us: us(patience),
        }
    }

    /// Runs one statement; its answer.
    pub(crate) fn run(&mut self, command: Command<'_>) -> Result<String, Failure> {
        let result = self.execute(command);
        self.release(Until::StatementEnds);
        result
    }

    /// The session is over: its transaction is undone and everything given back.
    pub(crate) fn end(&mut self) {
        self.finish(false);
        self.release(Until::Unlock);
    }

    fn execute(&mut self, command: Command<'_>) -> Result<String, Failure> {
        let done = Ok(String::new());
        match command {
            Command::Get { table, key } => {
                let table = self.lock(table, Mode::Shared)?;
                Ok(table.get(key).unwrap_or_default())
            }
            Command::Put { table, key, value } => {
                let table = self.lock(table, Mode::Exclusive)?;
                let before = table.set(key, Some(value.to_owned()));
                if self.session.is(state::IN_TRANSACTION) {
                    self.undo.push(Undo {
                        table,
                        key: key.to_owned(),
                        before,
                    });
                }
                done
            }
            Command::Scan { table, time } => {
                self.lock(table, Mode::Shared)?;
                self.pass(time)
            }
            Command::Exclusive { table, time } => {
                self.lock(table, Mode::Exclusive)?;
                self.pass(time)
            }
            Command::Lock { table, mode } => {
                self.lock_until(table, mode, Until::Unlock)?;
                self.session.set(state::EXPLICIT_LOCKS, true);
                done
            }
            Command::Unlock => {
                self.release(Until::Unlock);
                self.session.set(state::EXPLICIT_LOCKS, false);
                done
            }
            Command::Begin if self.session.is(state::IN_TRANSACTION) => {
                Err(Failure::Refused("a transaction is open"))
            }
            Command::Begin => {
                self.session.set(state::IN_TRANSACTION, true);
                done
            }
            Command::Commit => {
                self.finish(true);
                done
            }
            Command::Rollback => {
                self.finish(false);
                done
            }
            Command::Sleep(time) => self.pass(time),
            Command::Read { first, count } => {
                for read in 0..count {
                    stop::asked(self.session)?;
                    cache::read(self.session, first + read, |time| self.wait(time))?;
                    // Both each time: who watches may have come just now.
                    mark::work(number(self.session), count);
                    mark::progress(number(self.session), read + 1);
                }
                done
            }
            Command::Mutex { name, time } => native::with_mutex(name, || self.pass(time))
                .unwrap_or(Err(Failure::Refused("too many locks"))),
            Command::RwLock { name, mode, time } => {
                native::with_rw_lock(name, mode, || self.pass(time))
                    .unwrap_or(Err(Failure::Refused("too many locks")))
            }
            Command::User(_) | Command::Quit => Err(Failure::Refused("not a statement")),
        }
    }

    /// Locks a table for the statement, or for the transaction if one is open.
    fn lock(&mut self, table: &str, mode: Mode) -> Result<&'static Table, Failure> {
        let until = if self.session.is(state::IN_TRANSACTION) {
            Until::TransactionEnds
        } else {
            Until::StatementEnds
        };
        self.lock_until(table, mode, until)
    }

    fn lock_until(
        &mut self,
        table: &str,
        mode: Mode,
        until: Until,
    ) -> Result<&'static Table, Failure> {
        let table = Table::named(table).ok_or(Failure::Refused("too many tables"))?;
        let covered = self.held.iter().any(|held| {
            let long_enough = held.until == until || until == Until::StatementEnds;
            std::ptr::eq(held.table, table) && held.ticket.mode() >= mode && long_enough
        });
        if !covered {
            let until_us = clock::monotonic_us() + self.patience_us;
            let ticket = locks::acquire(self.session, table.lock, mode, until_us)?;
            self.held.push(Held {
                ticket,
                table,
                until,
            });
        }
        stop::asked(self.session)?;
        Ok(table)
    }

    /// Does nothing for a time; a signal ends it.
    fn pass(&self, time: Duration) -> Result<String, Failure> {
        self.wait(time)?;
        Ok(String::new())
    }

    /// Lets time pass; a signal ends it.
    fn wait(&self, time: Duration) -> Result<(), Stop> {
        let until_us = clock::monotonic_us() + us(time);
        loop {
            let seen = self.session.wake.load(std::sync::atomic::Ordering::Acquire);
            stop::asked(self.session)?;
            if clock::monotonic_us() >= until_us {
                return Ok(());
            }
            sleep::while_unchanged(&self.session.wake, seen, until_us);
        }
    }

    /// Ends the transaction.
    fn finish(&mut self, keep: bool) {
        for Undo { table, key, before } in self.undo.drain(..).rev() {
            if !keep {
                table.set(&key, before);
            }
        }
        self.session.set(state::IN_TRANSACTION, false);
        self.release(Until::TransactionEnds);
    }

    /// Gives back the locks that are held until then.
    fn release(&mut self, until: Until) {
        for held in self.held.extract_if(.., |held| held.until == until) {
            locks::release(held.ticket, held.table.lock);
        }
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 2)
}
