//! What only the server can tell of a decision: names of tables, and which prepared transaction is in the way. Pure: no
//! connection here.

use std::collections::BTreeSet;

use tokio_postgres::SimpleQueryRow;

use crate::engine::record::Decision;

/// Kinds of instance whose name holds the numbers of a database and a table.
const OF_TABLES: [&str; 4] = ["table", "extension of table", "page", "row"];

/// Most questions that one decision is worth.
const QUESTIONS: usize = 8;

/// Something to ask.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Question {
    /// Which prepared transaction has this number.
    Prepared(u64),
    /// What this table of this database is called.
    Table { database: u32, table: u32 },
}

impl Question {
    /// What is worth asking of a decision: its first candidate, which it is about.
    pub(super) fn of(decision: &Decision) -> BTreeSet<Self> {
        let mut questions = BTreeSet::new();
        let Some(first) = decision.candidates.first() else {
            return questions;
        };
        if first.task.id == 0 && first.task.request != 0 {
            questions.insert(Self::Prepared(first.task.request));
        }
        let held = first.gains.iter().flat_map(|gain| &gain.instances);
        questions.extend(
            held.filter_map(|held| Self::table(&held.name))
                .take(QUESTIONS),
        );
        questions
    }

    /// The numbers in the name of a lock: "table 5.16384", "row 5.16384.7".
    fn table(name: &str) -> Option<Self> {
        let (kind, numbers) = name.rsplit_once(' ')?;
        let mut numbers = numbers.split('.');
        let mut next = || numbers.next()?.parse::<u32>().ok();
        let (database, table) = (next()?, next()?);
        OF_TABLES
            .contains(&kind)
            .then_some(Self::Table { database, table })
    }

    /// The query. It answers with one row of texts, or with none, and gives up soon: an order may come after it.
    pub(super) fn query(&self) -> String {
        let asked = match self {
            Self::Prepared(transaction) => format!(
                "SELECT gid, owner, database, prepared FROM pg_prepared_xacts WHERE transaction = '{transaction}'"
            ),
            // A table can be named in its own database only.
            Self::Table { database, table } => format!(
                "SELECT datname, CASE WHEN datname = current_database() THEN {table}::regclass END \
                 FROM pg_database WHERE oid = {database}"
            ),
        };
        format!("SET LOCAL statement_timeout = 200; {asked}")
    }

    /// The answer as a sentence.
    pub(super) fn sentence(&self, row: &SimpleQueryRow) -> Option<String> {
        let text = |index| row.try_get(index).ok().flatten();
        let texts = [text(0), text(1), text(2), text(3)];
        self.say(texts)
    }

    fn say(&self, texts: [Option<&str>; 4]) -> Option<String> {
        match (self, texts) {
            (
                Self::Prepared(transaction),
                [Some(gid), Some(owner), Some(database), Some(since)],
            ) => {
                let quoted = gid.replace('\'', "''");
                Some(format!(
                    "transaction {transaction} is the prepared transaction '{quoted}' of {owner} in database {database}, \
                     since {since}; there, COMMIT PREPARED '{quoted}' or ROLLBACK PREPARED '{quoted}' ends it"
                ))
            }
            (Self::Table { database, table }, [Some(name), Some(relation), ..]) => Some(format!(
                "table {database}.{table} is {relation} of database {name}"
            )),
            (Self::Table { database, table }, [Some(name), ..]) => Some(format!(
                "table {database}.{table} belongs to database {name}; `SELECT {table}::regclass` there names it"
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Question = Question::Table {
        database: 5,
        table: 16384,
    };

    #[test]
    fn numbers_of_tables_are_found_in_names_of_locks() {
        assert_eq!(Question::table("table 5.16384"), Some(TABLE));
        assert_eq!(Question::table("extension of table 5.16384"), Some(TABLE));
        assert_eq!(Question::table("row 5.16384.7.1"), Some(TABLE));
        for other in [
            "transaction 745",
            "advisory lock 5.42",
            "table",
            "table 5",
            "LWLock WALWrite",
        ] {
            assert_eq!(Question::table(other), None, "{other}");
        }
    }

    #[test]
    fn a_table_of_another_database_is_not_named_by_the_wrong_one() {
        let here = TABLE.say([Some("shop"), Some("orders"), None, None]);
        assert_eq!(here.unwrap(), "table 5.16384 is orders of database shop");
        let there = TABLE.say([Some("shop"), None, None, None]).unwrap();
        assert!(there.starts_with("table 5.16384 belongs to database shop"));
        assert_eq!(TABLE.say([None; 4]), None);
    }

    #[test]
    fn a_prepared_transaction_is_named_as_it_must_be_typed() {
        let said =
            Question::Prepared(745).say([Some("it's"), Some("app"), Some("shop"), Some("now")]);
        assert!(said.unwrap().contains("ROLLBACK PREPARED 'it''s' ends it"));
    }
}
