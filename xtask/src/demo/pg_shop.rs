//! The load's customers at PostgreSQL, and whoever is let in to hurt them.
//!
//! A customer prepares its statements once and runs them over and over, as a pool's connections do.

use anyhow::Result;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, Statement};

use super::pg_server::{BIG_ROWS, PgServer, SMALL_ROWS, SMALL_TABLES, connect};
use super::place::{CLOSED, Customer, Failure, INTERRUPTED, LOST, OTHER, Person, Place};

/// A customer at PostgreSQL.
pub(crate) struct PgShopper {
    options: Config,
    /// `None` once it is lost.
    open: Option<Prepared>,
}

/// A connection with its statements, by table.
struct Prepared {
    client: Client,
    reads: Vec<Statement>,
    writes: Vec<Statement>,
}

/// A connection that plays a role.
pub(crate) struct PgPerson {
    client: Client,
    pid: u64,
}

impl Place for PgServer {
    type Customer = PgShopper;
    type Person = PgPerson;

    fn pid(&self) -> u32 {
        PgServer::pid(self)
    }

    fn reach(&self) -> Vec<String> {
        let socket = self.socket().display().to_string();
        ["--socket", &socket, "--user", "postgres"]
            .map(str::to_owned)
            .into()
    }

    async fn customer(&self) -> Result<PgShopper> {
        let options = self.options("shop");
        let open = Some(Prepared::open(&options).await?);
        Ok(PgShopper { options, open })
    }

    async fn person(&self, user: &'static str) -> Result<PgPerson> {
        let client = self.connect(user).await?;
        let pid: i32 = client
            .query_one("SELECT pg_backend_pid()", &[])
            .await?
            .get(0);
        Ok(PgPerson {
            client,
            pid: u64::try_from(pid)?,
        })
    }
}

impl Prepared {
    async fn open(options: &Config) -> Result<Self, Error> {
        let client = connect(options).await?;
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for table in 0..=SMALL_TABLES {
            let name = table_name(table);
            let read = format!("SELECT k, pad FROM {name} WHERE id = $1");
            let write = format!("UPDATE {name} SET k = k + 1 WHERE id = $1");
            reads.push(client.prepare(&read).await?);
            writes.push(client.prepare(&write).await?);
        }
        Ok(Self {
            client,
            reads,
            writes,
        })
    }
}

impl Customer for PgShopper {
    async fn request(&mut self, number: u64) -> Result<(), u16> {
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(
                Prepared::open(&self.options)
                    .await
                    .map_err(|error| code(&error))?,
            ),
        };
        let (table, row) = aim(number);
        let statements = if number.is_multiple_of(2) {
            &open.reads
        } else {
            &open.writes
        };
        let done = open.client.execute(&statements[table], &[&row]).await;
        let done = done.map(drop).map_err(|error| code(&error));
        if matches!(done, Err(LOST | CLOSED)) {
            self.open = None;
        }
        done
    }
}

impl Person for PgPerson {
    fn id(&self) -> u64 {
        self.pid
    }

    async fn say(&mut self, statement: &str) -> Result<(), Failure> {
        let done = self.client.batch_execute(statement).await;
        done.map_err(|error| Failure {
            code: code(&error),
            why: error
                .as_db_error()
                .map_or_else(|| error.to_string(), |said| said.message().to_owned()),
        })
    }

    // Dropping the client says good-bye.
    async fn leave(self) {}
}

/// `t1` to `t4`, then `big`.
fn table_name(table: u64) -> String {
    if table < SMALL_TABLES {
        format!("t{}", table + 1)
    } else {
        "big".to_owned()
    }
}

/// Index of the table and the row of the request with that number.
fn aim(number: u64) -> (usize, i32) {
    let table = number / 2 % (SMALL_TABLES + 1);
    let rows = if table < SMALL_TABLES {
        SMALL_ROWS
    } else {
        BIG_ROWS
    };
    // A fixed scatter: the same requests in every run.
    let row = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % rows + 1;
    (table as usize, row as i32)
}

/// The code that stands for what the server, or the client library, says.
fn code(error: &Error) -> u16 {
    match error.code() {
        Some(state) if *state == SqlState::QUERY_CANCELED => INTERRUPTED,
        Some(state) if *state == SqlState::ADMIN_SHUTDOWN => CLOSED,
        Some(_) => OTHER,
        None => LOST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_read_and_written_and_every_row_is_there() {
        for written in 0..2 {
            let aims: Vec<_> = (0..1000)
                .map(|request| aim(2 * request + written))
                .collect();
            for table in 0..=SMALL_TABLES as usize {
                let rows: Vec<i32> = aims
                    .iter()
                    .filter(|aim| aim.0 == table)
                    .map(|aim| aim.1)
                    .collect();
                let most = if table_name(table as u64) == "big" {
                    BIG_ROWS
                } else {
                    SMALL_ROWS
                };
                assert_eq!(rows.len(), 200);
                assert!(
                    rows.iter().all(|row| (1..=most as i32).contains(row)),
                    "{rows:?}"
                );
            }
        }
    }
}
