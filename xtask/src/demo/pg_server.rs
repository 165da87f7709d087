//! A private PostgreSQL cluster: own data directory and socket, no TCP, gone without a trace when dropped.
//!
//! Uses no configuration of the machine and touches no other cluster. Runs as the invoking user; root's runs as `nobody`,
//! since the server refuses to run as root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, chown};
use tokio_postgres::{Client, Config, NoTls};

use super::folder::Folder;
use super::start;
use crate::process::is_root;
use crate::setup::require_postgresql;

/// Rows of each small table.
pub(crate) const SMALL_ROWS: u64 = 10_000;
/// Small tables, `t1` to `t4`.
pub(crate) const SMALL_TABLES: u64 = 4;
/// Rows of `big`: an update of all of them takes several seconds.
pub(crate) const BIG_ROWS: u64 = 700_000;
/// Who comes; the bench counts and ends them by these names.
pub(crate) const USERS: [&str; 4] = ["shop", "batch", "report", "deploy"];
/// Port of every cluster: part of its socket's name and nothing else, since it listens nowhere but in its own folder.
pub(crate) const PORT: u16 = 5432;
/// How long it may take to stop before it is stopped without order.
const STOP: Duration = Duration::from_secs(10);

/// A running cluster. Its superuser `postgres` needs no password.
pub(crate) struct PgServer {
    child: Child,
    folder: Folder,
    programs: PathBuf,
}

impl PgServer {
    /// Makes the data directory, starts the cluster, waits until it answers, fills the tables.
    pub(crate) async fn start() -> Result<Self> {
        let server = Self::bare(&[]).await?;
        server.fill().await?;
        Ok(server)
    }

    /// The same without any tables, and with more settings, each as `name=value`.
    pub(crate) async fn bare(settings: &[&str]) -> Result<Self> {
        let programs = require_postgresql()?;
        let folder = Folder::new()?;
        if is_root() {
            let nobody = User::from_name("nobody")?
                .context("there is no user nobody to run PostgreSQL as")?;
            chown(folder.path(), Some(nobody.uid), None)
                .with_context(|| format!("cannot give {} to nobody", folder.path().display()))?;
        }
        init(&programs, &folder)?;
        let child = spawn(&programs, &folder, settings)?;
        let mut server = Self {
            child,
            folder,
            programs,
        };
        let Self { child, folder, .. } = &mut server;
        let options = options(folder, "postgres");
        start::answers("postgres", child, folder, async || connect(&options).await).await?;
        Ok(server)
    }

    /// Process id of the postmaster.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(&format!(".s.PGSQL.{PORT}"))
    }

    /// Folder of the socket.
    pub(crate) fn host(&self) -> &Path {
        self.folder.path()
    }

    /// Folder with the programs of its version.
    pub(crate) fn programs(&self) -> &Path {
        &self.programs
    }

    /// How to connect as that user, who is the name of the application as well.
    pub(crate) fn options(&self, user: &str) -> Config {
        options(&self.folder, user)
    }

    /// A connection as that user.
    pub(crate) async fn connect(&self, user: &str) -> Result<Client> {
        connect(&self.options(user))
            .await
            .with_context(|| format!("cannot connect to {} as {user}", self.socket().display()))
    }

    async fn fill(&self) -> Result<()> {
        let client = self.connect("postgres").await?;
        for user in USERS {
            client
                .batch_execute(&format!("CREATE ROLE {user} LOGIN SUPERUSER"))
                .await?;
        }
        for number in 1..=SMALL_TABLES {
            table(&client, &format!("t{number}"), SMALL_ROWS).await?;
        }
        table(&client, "big", BIG_ROWS).await?;
        // The index makes the update of all rows long.
        client.batch_execute("CREATE INDEX ON big (k)").await?;
        // A vacuum in the middle would be one more who wants the tables.
        client.batch_execute("VACUUM ANALYZE").await?;
        Ok(())
    }
}

fn options(folder: &Folder, user: &str) -> Config {
    let mut options = Config::new();
    options
        .host_path(folder.path())
        .port(PORT)
        .user(user)
        .dbname("postgres")
        .application_name(user);
    options
}

/// A connection that is served until its client is dropped.
pub(crate) async fn connect(options: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = options.connect(NoTls).await?;
    // How a connection ends is told to whoever waits for an answer on it.
    tokio::spawn(connection);
    Ok(client)
}

async fn table(client: &Client, name: &str, rows: u64) -> Result<()> {
    let text = format!(
        "CREATE TABLE {name} (id INT PRIMARY KEY, k INT NOT NULL, pad CHAR(60) NOT NULL);
         INSERT INTO {name} SELECT i, i, repeat('x', 60) FROM generate_series(1, {rows}) i"
    );
    client
        .batch_execute(&text)
        .await
        .with_context(|| format!("cannot fill {name}"))
}

impl Drop for PgServer {
    fn drop(&mut self) {
        // "Fast": every backend is sent home. The child is not reaped yet, so the pid is still its.
        let pid = Pid::from_raw(self.child.id().cast_signed());
        for signal in [Signal::SIGINT, Signal::SIGQUIT] {
            let _ = kill(pid, signal);
            let deadline = Instant::now() + STOP;
            while Instant::now() < deadline {
                if matches!(self.child.try_wait(), Ok(Some(_))) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        eprintln!("demo: cannot end postgres, process {pid}");
    }
}

/// A program of the cluster, as a user that it accepts. It ends with us, also if we are killed.
fn as_nobody(program: &Path, folder: &Folder) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "INT"]);
    if is_root() {
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    }
    command.arg(program).current_dir(folder.path());
    command
}

fn init(programs: &Path, folder: &Folder) -> Result<()> {
    let mut command = as_nobody(&programs.join("initdb"), folder);
    command
        .args(["-U", "postgres", "-A", "trust", "-E", "UTF8"])
        .args(["--locale=C", "--no-sync", "-D"])
        .arg(folder.join("data"));
    start::make("initdb (through setpriv)", &mut command)
}

fn spawn(programs: &Path, folder: &Folder, settings: &[&str]) -> Result<Child> {
    let log = fs::File::create(folder.join("log")).context("cannot make the log file")?;
    let port = format!("port={PORT}");
    let socket = format!("unix_socket_directories={}", folder.path().display());
    // A slow disk must not be what the demo shows.
    let own = [
        "listen_addresses=",
        "shared_buffers=256MB",
        "max_wal_size=4GB",
        "fsync=off",
    ];
    let mut command = as_nobody(&programs.join("postgres"), folder);
    command.arg("-D").arg(folder.join("data"));
    for setting in own
        .into_iter()
        .chain([port.as_str(), socket.as_str()])
        .chain(settings.iter().copied())
    {
        command.args(["-c", setting]);
    }
    start::launch("postgres (through setpriv)", &mut command, log.into())
}
