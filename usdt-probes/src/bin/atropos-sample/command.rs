//! The line protocol: one line, one command. What is wrong with a line is said in a sentence for its writer.

use std::time::Duration;

use crate::visible::Mode;

/// Longest time that a command may name, milliseconds: an hour.
const LONGEST_MS: u64 = 3_600_000;

/// What a client can ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command<'a> {
    /// Says who the client is; no statement.
    User(&'a str),
    /// Reads a key.
    Get {
        table: &'a str,
        key: &'a str,
    },
    /// Writes a key.
    Put {
        table: &'a str,
        key: &'a str,
        value: &'a str,
    },
    /// Works with a table that it shares, for a time.
    Scan {
        table: &'a str,
        time: Duration,
    },
    /// Works with a table that it has alone, for a time.
    Exclusive {
        table: &'a str,
        time: Duration,
    },
    /// Holds a table's lock until `Unlock` or the end of the session.
    Lock {
        table: &'a str,
        mode: Mode,
    },
    Unlock,
    Begin,
    Commit,
    Rollback,
    /// Does nothing for a time.
    Sleep(Duration),
    /// Reads so many values through the cache, one after another, from this number on.
    Read {
        first: u64,
        count: u64,
    },
    /// Holds a mutex of the C library for a time.
    Mutex {
        name: &'a str,
        time: Duration,
    },
    /// Holds a readers-writer lock of the C library for a time.
    RwLock {
        name: &'a str,
        mode: Mode,
        time: Duration,
    },
    /// Ends the session.
    Quit,
}

/// Reads a line.
pub(crate) fn parse(line: &str) -> Result<Command<'_>, String> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let verb = words
        .first()
        .copied()
        .unwrap_or_default()
        .to_ascii_uppercase();
    let command = match (verb.as_str(), words.get(1..).unwrap_or_default()) {
        ("USER", [name]) => Command::User(name),
        ("GET", [table, key]) => Command::Get { table, key },
        ("PUT", [table, key, value]) => Command::Put { table, key, value },
        ("SCAN", [table, ms]) => Command::Scan {
            table,
            time: time(ms)?,
        },
        ("EXCLUSIVE", [table, ms]) => Command::Exclusive {
            table,
            time: time(ms)?,
        },
        ("LOCK", [table]) => Command::Lock {
            table,
            mode: Mode::Exclusive,
        },
        ("LOCK", [table, mode]) => Command::Lock {
            table,
            mode: self::mode(mode)?,
        },
        ("UNLOCK", []) => Command::Unlock,
        ("BEGIN", []) => Command::Begin,
        ("COMMIT", []) => Command::Commit,
        ("ROLLBACK", []) => Command::Rollback,
        ("SLEEP", [ms]) => Command::Sleep(time(ms)?),
        ("READ", [first, count]) => Command::Read {
            first: number(first)?,
            count: number(count)?,
        },
        ("MUTEX", [name, ms]) => Command::Mutex {
            name,
            time: time(ms)?,
        },
        ("RWLOCK", [name, mode, ms]) => Command::RwLock {
            name,
            mode: self::mode(mode)?,
            time: time(ms)?,
        },
        ("QUIT", []) => Command::Quit,
        _ => return Err(usage(&verb)),
    };
    Ok(command)
}

/// How a command is written, or which there are.
fn usage(verb: &str) -> String {
    const FORMS: [&str; 15] = [
        "USER name",
        "GET table key",
        "PUT table key value",
        "SCAN table ms",
        "EXCLUSIVE table ms",
        "LOCK table [r|w]",
        "UNLOCK",
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "SLEEP ms",
        "READ first count",
        "MUTEX name ms",
        "RWLOCK name r|w ms",
        "QUIT",
    ];
    match FORMS
        .iter()
        .find(|form| form.split(' ').next() == Some(verb))
    {
        Some(form) => format!("write: {form}"),
        None => format!("unknown command; there are: {}", FORMS.join(", ")),
    }
}

fn time(ms: &str) -> Result<Duration, String> {
    let ms: Option<u64> = ms.parse().ok().filter(|ms| *ms <= LONGEST_MS);
    ms.map(Duration::from_millis)
        .ok_or_else(|| format!("a time is a number of milliseconds up to {LONGEST_MS}"))
}

/// No number is so large that two of them could not be added.
fn number(digits: &str) -> Result<u64, String> {
    const LARGEST: u64 = 1_000_000_000_000;
    let number = digits.parse().ok().filter(|number| *number <= LARGEST);
    number.ok_or_else(|| format!("write a number up to {LARGEST}"))
}

fn mode(letter: &str) -> Result<Mode, String> {
    match letter {
        "r" | "R" => Ok(Mode::Shared),
        "w" | "W" => Ok(Mode::Exclusive),
        _ => Err("a mode is r (shared) or w (exclusive)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_whatever_its_case_and_spacing() {
        assert_eq!(
            parse(" get  t1 k "),
            Ok(Command::Get {
                table: "t1",
                key: "k"
            })
        );
        let time = Duration::from_millis(20);
        assert_eq!(
            parse("RWLOCK l w 20"),
            Ok(Command::RwLock {
                name: "l",
                mode: Mode::Exclusive,
                time
            })
        );
        assert_eq!(
            parse("LOCK t r"),
            Ok(Command::Lock {
                table: "t",
                mode: Mode::Shared
            })
        );
    }

    #[test]
    fn values_are_read_by_number_and_count() {
        let read = Command::Read { first: 3, count: 2 };
        assert_eq!(parse("read 3 2"), Ok(read));
        assert!(parse("READ 3 18446744073709551615").is_err());
        assert_eq!(parse("READ"), Err("write: READ first count".to_owned()));
    }

    #[test]
    fn a_wrong_line_is_answered_with_how_it_is_written() {
        assert_eq!(parse("SCAN t"), Err("write: SCAN table ms".to_owned()));
        assert!(parse("SCAN t soon").is_err_and(|text| text.contains("milliseconds")));
        assert!(parse("SCAN t 99999999").is_err());
        assert!(parse("").is_err_and(|text| text.contains("EXCLUSIVE table ms")));
    }
}
