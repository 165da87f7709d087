//! A private `PostgreSQL` cluster: own data directory and socket, no TCP; gone when dropped, also on panic.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

use super::{Deadline, clock_ns, in_own_pid_namespace, only_child};

const START_LIMIT: Duration = Duration::from_mins(1);
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Part of the socket's name and nothing else: the server listens nowhere but in its own folder.
const PORT: u16 = 5432;

/// A disk that takes a millisecond for a page while a file is there, in front of the C library.
const SLOW_READS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
ssize_t pread(int fd, void *to, size_t size, off_t at) {
  static ssize_t (*next)(int, void *, size_t, off_t);
  if (!next) next = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
  static const char *file;
  if (!file) file = getenv("SLOW_WHILE");
  struct timespec time = {0, 1000000};
  if (size == 8192 && file && access(file, F_OK) == 0) clock_nanosleep(CLOCK_MONOTONIC, 0, &time, 0);
  return next(fd, to, size, at);
}
"#;

/// A running cluster. User `postgres` has no password. It ends with the thread that started it.
pub struct Postgres {
    /// Process id of the postmaster.
    pub pid: u32,
    /// Its socket.
    pub socket: PathBuf,
    /// Its port, which is part of the socket's name.
    pub port: u16,
    child: Child,
    directory: TempDir,
}

/// Folder with the server's programs: what `ATROPOS_POSTGRESQL` names, else the newest version that this machine has.
fn programs() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("ATROPOS_POSTGRESQL") {
        return Some(folder.into());
    }
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    versions.sort();
    versions.pop()
}

/// The server refuses to run as root, so root runs it as `nobody`. It also ends when the test process is killed.
fn as_nobody(program: &Path) -> Command {
    by_setpriv(Command::new("setpriv"), program)
}

fn by_setpriv(mut command: Command, program: &Path) -> Command {
    command.args(["--pdeathsig", "INT"]);
    if nix::unistd::geteuid().is_root() {
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    }
    command.arg(program);
    command
}

impl Postgres {
    /// A program that comes with the server, to be run as the server is.
    pub fn program(name: &str) -> Option<Command> {
        programs().map(|bin| as_nobody(&bin.join(name)))
    }

    /// Starts a cluster, or `None` where none is installed.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with more settings, each as `name=value`.
    pub fn start_with(settings: &[&str]) -> Option<Self> {
        Self::start_by(|program, _| as_nobody(program), settings)
    }

    /// The same where reads can be slowed down.
    pub fn start_on_a_disk(settings: &[&str]) -> Option<Self> {
        Self::start_by(
            |program, directory| {
                let library = directory.join("slow.so");
                super::compile(SLOW_READS, &library, &["-O2", "-fPIC", "-shared"]);
                let mut command = as_nobody(program);
                command.env("LD_PRELOAD", &library);
                command.env("SLOW_WHILE", directory.join("slow"));
                command
            },
            settings,
        )
    }

    /// From now on a page that is not in the buffer pool takes a millisecond.
    pub fn slow_down(&self) {
        File::create(self.directory.path().join("slow")).expect("a file");
    }

    /// The same where the server counts its processes from 1, as in a container.
    pub fn start_contained() -> Option<Self> {
        let contained = |program: &Path, _: &Path| {
            by_setpriv(in_own_pid_namespace(Path::new("setpriv")), program)
        };
        let mut server = Self::start_by(contained, &[])?;
        server.pid = only_child(server.child.id());
        Some(server)
    }

    fn start_by(command: impl Fn(&Path, &Path) -> Command, settings: &[&str]) -> Option<Self> {
        let Some(bin) = programs() else {
            super::skip("PostgreSQL is not installed (apt-get install postgresql)");
            return None;
        };
        let directory = tempfile::Builder::new()
            .prefix("atropos-postgresql-")
            .tempdir()
            .expect("a temporary directory");
        if let Ok(Some(nobody)) = nix::unistd::User::from_name("nobody")
            && nix::unistd::geteuid().is_root()
        {
            nix::unistd::chown(directory.path(), Some(nobody.uid), None).expect("root may chown");
        }
        let data = directory.path().join("data");
        let made = as_nobody(&bin.join("initdb"))
            .args(["-U", "postgres", "-A", "trust", "--no-sync", "-D"])
            .arg(&data)
            .current_dir(directory.path())
            .output()
            .expect("initdb runs");
        assert!(
            made.status.success(),
            "cannot make a cluster: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        let log = File::create(directory.path().join("log")).expect("a log file");
        let child = command(&bin.join("postgres"), directory.path())
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses="])
            .args(["-c", "shared_buffers=16MB", "-c", "fsync=off"])
            .args(["-c", "max_prepared_transactions=10"])
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .args(["-c", &format!("port={PORT}")])
            .arg("-c")
            .arg(format!(
                "unix_socket_directories={}",
                directory.path().display()
            ))
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("postgres starts");
        let mut this = Self {
            pid: child.id(),
            socket: directory.path().join(format!(".s.PGSQL.{PORT}")),
            port: PORT,
            child,
            directory,
        };
        this.wait_until_up(&bin);
        Some(this)
    }

    fn wait_until_up(&mut self, bin: &Path) {
        let deadline_ns = clock_ns() + START_LIMIT.as_nanos() as u64;
        let is_ready = || {
            Command::new(bin.join("pg_isready"))
                .arg("-h")
                .arg(self.directory.path())
                .args(["-p", &self.port.to_string(), "-q"])
                .status()
                .is_ok_and(|status| status.success())
        };
        while !is_ready() {
            assert!(
                clock_ns() < deadline_ns,
                "postgres did not come up: {}",
                fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// A connection as `postgres` with its process id.
    pub async fn connect(&self) -> (Client, u64) {
        let mut config = Config::new();
        config
            .host_path(self.directory.path())
            .port(self.port)
            .user("postgres")
            .dbname("postgres")
            .application_name("person");
        let deadline = Deadline::new();
        let (client, connection) = loop {
            match config.connect(NoTls).await {
                Ok(connected) => break connected,
                // The place of a session that has just gone is free a moment later.
                Err(error) if error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) => {}
                Err(error) => panic!("the private server refuses the connection: {error}"),
            }
            deadline.pause("a free connection").await;
        };
        tokio::spawn(connection);
        let pid: i32 = client
            .query_one("select pg_backend_pid()", &[])
            .await
            .expect("a number")
            .get(0);
        (client, u64::try_from(pid).expect("a pid is above zero"))
    }

    /// Runs statements.
    pub async fn run(&self, statements: &[&str]) {
        let (client, _) = self.connect().await;
        for statement in statements {
            client
                .batch_execute(statement)
                .await
                .unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The child is ours and not reaped yet, so the pid is still its.
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.pid).expect("a pid is small"));
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT);
        let deadline_ns = clock_ns() + STOP_LIMIT.as_nanos() as u64;
        while clock_ns() < deadline_ns {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGQUIT);
        let _ = self.child.wait();
    }
}
