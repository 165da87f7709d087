//! The load's customers at MariaDB, and whoever is let in to hurt them.

use anyhow::Result;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};

use super::place::{CLOSED, Customer, Failure, LOST, Person, Place};
use super::server::{SMALL_ROWS, SMALL_TABLES, Server};

/// A customer at MariaDB.
pub(crate) struct Shopper {
    options: OptsBuilder,
    connection: Option<Conn>,
}

/// A connection that plays a role.
pub(crate) struct Guest(Conn);

impl Place for Server {
    type Customer = Shopper;
    type Person = Guest;

    fn pid(&self) -> u32 {
        Server::pid(self)
    }

    fn reach(&self) -> Vec<String> {
        let socket = self.socket().display().to_string();
        ["--socket", &socket, "--user", "root"]
            .map(str::to_owned)
            .into()
    }

    async fn customer(&self) -> Result<Shopper> {
        Ok(Shopper {
            options: self.options("shop"),
            connection: Some(self.connect("shop").await?),
        })
    }

    async fn person(&self, user: &'static str) -> Result<Guest> {
        self.connect(user).await.map(Guest)
    }
}

impl Customer for Shopper {
    async fn request(&mut self, number: u64) -> Result<(), u16> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let connection = Conn::new(self.options.clone())
                    .await
                    .map_err(|error| code(&error))?;
                none.insert(connection)
            }
        };
        let done = connection
            .query_drop(statement(number))
            .await
            .map_err(|error| code(&error));
        if matches!(done, Err(LOST | CLOSED)) {
            self.connection = None;
        }
        done
    }
}

impl Person for Guest {
    fn id(&self) -> u64 {
        u64::from(self.0.id())
    }

    async fn say(&mut self, statement: &str) -> Result<(), Failure> {
        let done = self.0.query_drop(statement).await;
        done.map_err(|error| Failure {
            code: code(&error),
            why: error.to_string(),
        })
    }

    async fn leave(self) {
        let _ = self.0.disconnect().await;
    }
}

/// The statement of the request with that number.
fn statement(number: u64) -> String {
    let table = number / 2 % SMALL_TABLES + 1;
    // A fixed scatter: the same requests in every run.
    let row = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % SMALL_ROWS + 1;
    if number.is_multiple_of(2) {
        format!("SELECT k, pad FROM demo.t{table} WHERE id = {row}")
    } else {
        format!("UPDATE demo.t{table} SET k = k + 1 WHERE id = {row}")
    }
}

/// The error number that a client would report.
fn code(error: &mysql_async::Error) -> u16 {
    match error {
        mysql_async::Error::Server(error) => error.code,
        _ => LOST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_read_and_written() {
        let all: Vec<String> = (0..2 * SMALL_TABLES).map(statement).collect();
        for table in 1..=SMALL_TABLES {
            assert!(
                all.iter()
                    .any(|text| text.starts_with(&format!("SELECT k, pad FROM demo.t{table} ")))
            );
            assert!(
                all.iter()
                    .any(|text| text.starts_with(&format!("UPDATE demo.t{table} ")))
            );
        }
    }
}
