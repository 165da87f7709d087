//! The cases, and at which server each can be played.

use clap::ValueEnum;

use super::Kind;
use super::scene::{Plot, Role, Scene};

/// A case, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// MariaDB: a backup lock behind a long update. At the sample server, an EXCLUSIVE behind a long scan.
    C1,
    /// MariaDB: an ALTER behind a forgotten transaction. At the sample server, an EXCLUSIVE behind it.
    M01,
    /// PostgreSQL: a batch locks a table and then updates every row of it.
    C6,
    /// PostgreSQL: an ALTER behind a session that is idle in its transaction.
    Idle,
}

impl Case {
    /// What is played at that server; nothing if the case is not one for it.
    pub(crate) fn at(self, server: Kind) -> Option<Scene> {
        match (self, server) {
            (Self::C1, Kind::Mariadb) => Some(BACKUP_LOCK),
            (Self::M01, Kind::Mariadb) => Some(FORGOTTEN_TRANSACTION),
            (Self::C1, Kind::Sample) => Some(LONG_SCAN),
            (Self::M01, Kind::Sample) => Some(FORGOTTEN_SESSION),
            (Self::C6, Kind::Postgresql) => Some(TABLE_LOCK),
            (Self::Idle, Kind::Postgresql) => Some(IDLE_IN_TRANSACTION),
            _ => None,
        }
    }

    /// Every case of that server.
    pub(crate) fn all_at(server: Kind) -> impl Iterator<Item = (Self, Scene)> {
        Self::value_variants()
            .iter()
            .filter_map(move |case| Some((*case, case.at(server)?)))
    }
}

/// The case as one types it.
pub(crate) fn word(case: Case) -> String {
    case.to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

const BACKUP_LOCK: Scene = Scene {
    id: "c1",
    title: "a backup's FLUSH TABLES WITH READ LOCK queues behind a long UPDATE, and every write queues behind the backup",
    expected: "backup",
    undo: &[],
    plot: Plot::Queued {
        long: Role {
            name: "update",
            user: "batch",
            says: &["UPDATE demo.big SET k = CRC32(SHA2(REPEAT(id, 1000), 512)) DIV 2"],
            does: "UPDATE of every row of a big table",
        },
        queued: Role {
            name: "backup",
            user: "backup",
            says: &["FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES"],
            does: "FLUSH TABLES WITH READ LOCK",
        },
    },
};

const FORGOTTEN_TRANSACTION: Scene = Scene {
    id: "m01",
    title: "a session forgets its transaction; an ALTER TABLE queues behind it, and everybody queues behind the ALTER",
    expected: "forgotten",
    undo: &["ALTER TABLE demo.t1 DROP COLUMN IF EXISTS note"],
    plot: Plot::Forgotten {
        holder: Role {
            name: "forgotten",
            user: "report",
            says: &["BEGIN", "SELECT k FROM demo.t1 WHERE id = 1"],
            does: "BEGIN, SELECT one row of t1",
        },
        queued: Role {
            name: "alter",
            user: "deploy",
            says: &["ALTER TABLE demo.t1 ADD COLUMN note INT"],
            does: "ALTER TABLE t1",
        },
    },
};

// It only reads, so nothing is to be undone, as there is for MariaDB's long update; and all go on, the EXCLUSIVE too.
// Without the EXCLUSIVE the readers would go on as well, until the next one queues.
const LONG_SCAN: Scene = Scene {
    id: "s-c1",
    title: "an EXCLUSIVE queues behind a long SCAN of its table, and every reader of it queues behind the EXCLUSIVE",
    expected: "scan",
    undo: &[],
    plot: Plot::Queued {
        long: Role {
            name: "scan",
            user: "batch",
            says: &["SCAN t1 10000"],
            does: "SCAN t1, a long one",
        },
        queued: Role {
            name: "exclusive",
            user: "backup",
            says: &["EXCLUSIVE t1 10"],
            does: "EXCLUSIVE t1",
        },
    },
};

const FORGOTTEN_SESSION: Scene = Scene {
    id: "s-m01",
    title: "a session forgets its transaction; an EXCLUSIVE queues behind it, and every reader of the table behind that",
    expected: "forgotten",
    undo: &[],
    plot: Plot::Forgotten {
        holder: Role {
            name: "forgotten",
            user: "report",
            says: &["BEGIN", "GET t1 k1"],
            does: "BEGIN, GET a key of t1",
        },
        queued: Role {
            name: "exclusive",
            user: "deploy",
            says: &["EXCLUSIVE t1 10"],
            does: "EXCLUSIVE t1",
        },
    },
};

// The mode excludes writers and nobody else. The statements are those of the paper's case, with a table that is updated for
// seconds in the place of one that is slept on.
const TABLE_LOCK: Scene = Scene {
    id: "c6",
    title: "a batch locks a big table in EXCLUSIVE mode and updates every row of it, and every writer of that table waits",
    expected: "batch",
    undo: &[],
    plot: Plot::Alone(Role {
        name: "batch",
        user: "batch",
        says: &[
            "BEGIN",
            "LOCK TABLE big IN EXCLUSIVE MODE",
            "UPDATE big SET k = k + 1",
            "COMMIT",
        ],
        does: "BEGIN, LOCK TABLE big IN EXCLUSIVE MODE, UPDATE of every row of it",
    }),
};

const IDLE_IN_TRANSACTION: Scene = Scene {
    id: "idle",
    title: "a session is idle in its transaction; an ALTER TABLE queues behind it, and everybody queues behind the ALTER",
    expected: "forgotten",
    undo: &["ALTER TABLE t1 DROP COLUMN IF EXISTS note"],
    plot: Plot::Forgotten {
        holder: Role {
            name: "forgotten",
            user: "report",
            says: &["BEGIN", "SELECT k FROM t1 WHERE id = 1"],
            does: "BEGIN, SELECT one row of t1",
        },
        queued: Role {
            name: "alter",
            user: "deploy",
            says: &["ALTER TABLE t1 ADD COLUMN note INT"],
            does: "ALTER TABLE t1",
        },
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_has_a_case_and_every_case_a_server() {
        for server in Kind::value_variants() {
            assert!(Case::all_at(*server).next().is_some(), "{server:?}");
        }
        for case in Case::value_variants() {
            let mut servers = Kind::value_variants().iter();
            assert!(servers.any(|server| case.at(*server).is_some()), "{case:?}");
        }
    }

    #[test]
    fn whose_ending_is_right_is_somebody_who_is_let_in() {
        for scene in Kind::value_variants()
            .iter()
            .flat_map(|server| Case::all_at(*server))
        {
            let scene = scene.1;
            let names = match scene.plot {
                Plot::Alone(role) => vec![role.name],
                Plot::Queued { long, queued } => vec![long.name, queued.name],
                Plot::Forgotten { holder, queued } => vec![holder.name, queued.name],
            };
            assert!(names.contains(&scene.expected), "{scene:?}");
        }
    }
}
