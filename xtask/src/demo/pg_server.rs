//! A private PostgreSQL cluster: own data directory, socket and loopback port, gone without a trace when dropped.
//!
//! Uses no configuration of the machine and touches no other cluster. Runs as the invoking user; root's runs as `nobody`,
//! since the server refuses to run as root.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, chown};
use tokio_postgres::{Client, Config, NoTls};

use super::folder::{Folder, tail};
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
/// How long a start may take on a slow disk.
const START: Duration = Duration::from_mins(1);
/// How long it may take to stop before it is stopped without order.
const STOP: Duration = Duration::from_secs(10);

/// A running cluster. Its superuser `postgres` needs no password.
pub(crate) struct PgServer {
    child: Child,
    folder: Folder,
    programs: PathBuf,
    port: u16,
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
        // Nobody else takes a port that was free a moment ago, but for bad luck, which the log would show.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = spawn(&programs, &folder, port, settings)?;
        let mut server = Self {
            child,
            folder,
            programs,
            port,
        };
        server.wait().await?;
        Ok(server)
    }

    /// Process id of the postmaster.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(&format!(".s.PGSQL.{}", self.port))
    }

    /// Folder of the socket.
    pub(crate) fn host(&self) -> &Path {
        self.folder.path()
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Folder with the programs of its version.
    pub(crate) fn programs(&self) -> &Path {
        &self.programs
    }

    /// How to connect as that user, who is the name of the application as well.
    pub(crate) fn options(&self, user: &str) -> Config {
        let mut options = Config::new();
        options
            .host_path(self.folder.path())
            .port(self.port)
            .user(user)
            .dbname("postgres")
            .application_name(user);
        options
    }

    /// A connection as that user.
    pub(crate) async fn connect(&self, user: &str) -> Result<Client> {
        connect(&self.options(user))
            .await
            .with_context(|| format!("cannot connect to {} as {user}", self.socket().display()))
    }

    async fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "postgres ended while starting: {status}; its log ends with:\n{}",
                    self.folder.tail("log")
                );
            }
            match connect(&self.options("postgres")).await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => {
                    bail!(
                        "postgres does not answer after {START:?}: {error}; its log ends with:\n{}",
                        self.folder.tail("log")
                    );
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
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
    let output = as_nobody(&programs.join("initdb"), folder)
        .args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
            "-D",
        ])
        .arg(folder.join("data"))
        .output()
        .context("cannot start initdb through setpriv")?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        bail!(
            "initdb failed: {}: {}",
            output.status,
            tail(&String::from_utf8_lossy(&text))
        );
    }
    Ok(())
}

fn spawn(programs: &Path, folder: &Folder, port: u16, settings: &[&str]) -> Result<Child> {
    let log = fs::File::create(folder.join("log")).context("cannot make the log file")?;
    let port = format!("port={port}");
    let socket = format!("unix_socket_directories={}", folder.path().display());
    // A slow disk must not be what the demo shows.
    let own = [
        "listen_addresses=127.0.0.1",
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
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // Ctrl-C is for us; we end the server.
        .process_group(0);
    command
        .spawn()
        .context("cannot start postgres through setpriv")
}
