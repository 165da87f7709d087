//! A private `MariaDB` server: own data directory, socket and loopback port; gone when dropped, also on panic.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use tempfile::TempDir;

use super::{Deadline, clock_ns};

/// Servers that one test program runs at a time: more than a small machine can start within the limit helps nobody.
const SERVERS: usize = 3;
static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

const START_LIMIT: Duration = Duration::from_mins(1);
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// `ER_CON_COUNT_ERROR`: every connection is taken, for a moment perhaps by one that has just been given up.
const TOO_MANY_CONNECTIONS: u16 = 1040;

/// What [`code`] gives for a connection that is gone.
pub const GONE: u16 = 0;

/// The server's error code, or [`GONE`].
pub fn code(error: mysql_async::Error) -> u16 {
    match error {
        mysql_async::Error::Server(error) => error.code,
        _ => GONE,
    }
}

/// A running server. Account `root` has no password. It ends with the thread that started it: start it in the test
/// itself, not on a thread that goes away.
pub struct MariaDb {
    /// Process id of `mariadbd`.
    pub pid: u32,
    /// Its socket.
    pub socket: PathBuf,
    /// Its TCP ports on 127.0.0.1, if it has any.
    pub ports: Option<Ports>,
    /// Its data directory.
    pub datadir: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    child: Child,
    directory: TempDir,
    _slot: Slot,
}

/// Where a server listens.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// The ordinary one.
    pub port: u16,
    /// `extra_port`.
    pub extra: u16,
}

impl Ports {
    /// Two that were free a moment ago.
    fn pick() -> Self {
        let listen = || TcpListener::bind(("127.0.0.1", 0)).expect("a free loopback port");
        let (port, extra) = (listen(), listen());
        let number = |listener: &TcpListener| {
            let address = listener.local_addr();
            address.expect("a bound socket has an address").port()
        };
        Self {
            port: number(&port),
            extra: number(&extra),
        }
    }

    fn arguments(self) -> [String; 3] {
        [
            "--bind-address=127.0.0.1".to_owned(),
            format!("--port={}", self.port),
            format!("--extra-port={}", self.extra),
        ]
    }
}

/// One of [`SERVERS`].
struct Slot;

impl Slot {
    fn take() -> Self {
        let (running, freed) = &RUNNING;
        let running = running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running = freed
            .wait_while(running, |running| *running >= SERVERS)
            .unwrap_or_else(PoisonError::into_inner);
        *running += 1;
        Self
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let (running, freed) = &RUNNING;
        *running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        freed.notify_one();
    }
}

/// The server's program, if this machine has one.
pub fn program() -> Option<PathBuf> {
    find(&["mariadbd"])
}

/// The same, or said that it is missing.
fn installed() -> Option<PathBuf> {
    let program = program();
    if program.is_none() {
        super::skip("MariaDB is not installed (apt-get install mariadb-server)");
    }
    program
}

fn find(names: &[&str]) -> Option<PathBuf> {
    let directories = [
        "/usr/sbin",
        "/usr/bin",
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/libexec",
    ];
    names
        .iter()
        .flat_map(|name| {
            directories
                .iter()
                .map(move |directory| Path::new(directory).join(name))
        })
        .find(|path| path.exists())
}

impl MariaDb {
    /// Starts a server with its defaults, or `None` where none is installed.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts a server with further options, or `None` where none is installed.
    pub fn start_with(options: &[&str]) -> Option<Self> {
        Self::make(&installed()?, options, None)
    }

    /// The same with TCP, an ordinary port and an extra one.
    pub fn start_listening(options: &[&str]) -> Option<Self> {
        Self::make(&installed()?, options, Some(Ports::pick()))
    }

    /// Starts this program as the server, or `None` where no installer of MariaDB is installed.
    pub fn start_program(server: &Path) -> Option<Self> {
        Self::make(server, &[], None)
    }

    fn make(server: &Path, options: &[&str], ports: Option<Ports>) -> Option<Self> {
        let Some(installer) = find(&["mariadb-install-db", "mysql_install_db"]) else {
            super::skip("MariaDB is not installed (apt-get install mariadb-server)");
            return None;
        };
        let slot = Slot::take();
        let directory = tempfile::Builder::new()
            .prefix("atropos-mariadb-")
            .tempdir()
            .expect("a temporary directory");
        install(&installer, &directory.path().join("data"), directory.path());
        let mut arguments = vec![
            "--skip-log-bin".to_owned(),
            "--innodb-buffer-pool-size=32M".to_owned(),
            "--innodb-flush-log-at-trx-commit=2".to_owned(),
            "--basedir=/usr".to_owned(),
        ];
        arguments.extend(options.iter().map(|option| (*option).to_owned()));
        let child = spawn(server, directory.path(), &arguments, ports);
        let mut this = Self {
            pid: child.id(),
            socket: directory.path().join("s"),
            ports,
            datadir: directory.path().join("data"),
            program: server.to_owned(),
            arguments,
            child,
            directory,
            _slot: slot,
        };
        while let Err(log) = this.wait_until_up() {
            // Somebody else may have taken a port in the meantime.
            assert!(
                this.ports.is_some() && log.contains("Address already in use"),
                "mariadbd did not come up: {log}"
            );
            this.ports = Some(Ports::pick());
            this.spawn_again();
        }
        Some(this)
    }

    /// Starts the server again on the same data, after [`Self::crash`].
    pub fn restart(&mut self) {
        let _ = fs::remove_file(&self.socket);
        self.spawn_again();
        if let Err(log) = self.wait_until_up() {
            panic!("mariadbd did not come up again: {log}");
        }
    }

    fn spawn_again(&mut self) {
        let folder = self.directory.path();
        self.child = spawn(&self.program, folder, &self.arguments, self.ports);
        self.pid = self.child.id();
    }

    /// # Errors
    /// What the server wrote before it ended, or until the time was over.
    fn wait_until_up(&mut self) -> Result<(), String> {
        let deadline_ns = clock_ns() + START_LIMIT.as_nanos() as u64;
        while std::os::unix::net::UnixStream::connect(&self.socket).is_err() {
            let ended = self.child.try_wait().expect("the child can be asked");
            if ended.is_some() || clock_ns() > deadline_ns {
                return Err(self.log());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// What the server wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// A connection as `root`.
    pub async fn connect(&self) -> Conn {
        self.connect_as("root", None).await
    }

    /// A connection as somebody else.
    pub async fn connect_as(&self, user: &str, password: Option<&str>) -> Conn {
        let options = OptsBuilder::default()
            .socket(Some(self.socket.display().to_string()))
            .user(Some(user))
            .pass(password)
            .prefer_socket(false);
        let deadline = Deadline::new();
        loop {
            match Conn::new(options.clone()).await {
                Ok(conn) => return conn,
                Err(mysql_async::Error::Server(error)) if error.code == TOO_MANY_CONNECTIONS => {}
                Err(error) => panic!("the private server refuses the connection: {error}"),
            }
            deadline.pause("a free connection").await;
        }
    }

    /// Runs statements as `root`.
    pub async fn run(&self, statements: &[&str]) {
        let mut conn = self.connect().await;
        for statement in statements {
            conn.query_drop(*statement)
                .await
                .unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        conn.disconnect().await.expect("the server says goodbye");
    }

    /// Ends the server at once, as a crash would.
    pub fn crash(&mut self) {
        // The child is ours and not reaped yet, so the pid is still its.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops every thread of the server (`SIGSTOP`): connections stay, nothing answers.
    pub fn freeze(&self) {
        self.signal(nix::sys::signal::Signal::SIGSTOP);
        let deadline_ns = clock_ns() + STOP_LIMIT.as_nanos() as u64;
        while !self.is_frozen() {
            assert!(clock_ns() < deadline_ns, "the server does not stop");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_frozen(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).expect("the server is there");
        tasks.flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(nix::sys::signal::Signal::SIGCONT);
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.pid).expect("a pid is small"));
        // It may have crashed already.
        let _ = nix::sys::signal::kill(pid, signal);
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        self.thaw();
        self.signal(nix::sys::signal::Signal::SIGTERM);
        let deadline_ns = clock_ns() + STOP_LIMIT.as_nanos() as u64;
        while clock_ns() < deadline_ns {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.crash();
    }
}

/// Starts a server on the data directory in this folder.
fn spawn(server: &Path, folder: &Path, arguments: &[String], ports: Option<Ports>) -> Child {
    let log = File::create(folder.join("log")).expect("a log file");
    // The server also ends when the test process is killed and can drop nothing.
    let mut command = match find(&["setpriv"]) {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "TERM"]).arg(server);
            command
        }
        None => Command::new(server),
    };
    command
        .arg("--no-defaults")
        .arg(format!("--datadir={}", folder.join("data").display()))
        .arg(format!("--socket={}", folder.join("s").display()))
        // A server that starts deletes every `#sql` file in its tmpdir, also those of its neighbours.
        .arg(format!("--tmpdir={}", folder.display()))
        .arg(format!("--pid-file={}", folder.join("pid").display()))
        .args(arguments)
        .args(as_root())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0);
    match ports {
        Some(ports) => command.args(ports.arguments()),
        None => command.arg("--skip-networking"),
    };
    command.spawn().expect("mariadbd starts")
}

fn as_root() -> Option<&'static str> {
    nix::unistd::geteuid().is_root().then_some("--user=root")
}

fn install(installer: &Path, datadir: &Path, tmpdir: &Path) {
    let output = Command::new(installer)
        .args([
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ])
        .arg(format!("--datadir={}", datadir.display()))
        .args(as_root())
        .env("TMPDIR", tmpdir)
        .output()
        .expect("the installer of MariaDB runs");
    assert!(
        output.status.success(),
        "cannot install a data directory: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
