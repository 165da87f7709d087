//! Compiles and drives `tests/fixtures/ops.c`, `usdt.c` and `busy.c`. One process a test; it ends with the test, also when the test fails.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use crate::common::PATIENCE;

/// A running fixture.
pub(crate) struct Fixture {
    child: Child,
    /// The program's own process: `child`, or a child of it.
    pid: u32,
    stdin: ChildStdin,
    lines: Receiver<String>,
    program: PathBuf,
}

impl Fixture {
    pub(crate) fn start() -> Self {
        Self::run(Self::ops().to_owned())
    }

    /// The program that does what it is told.
    pub(crate) fn ops() -> &'static Path {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        compiled(&PROGRAM, "ops")
    }

    /// The fixture with hand-made USDT notes, in a file of its own: a semaphore goes up in every process of a file, also in
    /// those of tests that run beside.
    pub(crate) fn usdt() -> Self {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        static COPIES: AtomicUsize = AtomicUsize::new(0);
        let program = compiled(&PROGRAM, "usdt");
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        let copy = program.with_extension(number.to_string());
        crate::common::copy_program(program, &copy);
        Self::run(copy)
    }

    /// The fixture that passes a site as fast as it can.
    pub(crate) fn busy() -> Self {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        Self::run(compiled(&PROGRAM, "busy").to_owned())
    }

    /// The fixture that does what it is told, where it counts its processes and threads from 1.
    pub(crate) fn contained() -> Self {
        let mut contained = crate::common::in_own_pid_namespace(Self::ops());
        let mut fixture = Self::start_as(&mut contained, Self::ops().to_owned());
        fixture.pid = crate::common::only_child(fixture.child.id());
        fixture
    }

    /// A process of this program.
    pub(crate) fn run(program: PathBuf) -> Self {
        Self::start_as(&mut Command::new(&program), program)
    }

    fn start_as(command: &mut Command, program: PathBuf) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the fixture starts");
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let mut fixture = Self {
            pid: child.id(),
            child,
            stdin,
            lines,
            program,
        };
        assert_eq!(fixture.line(), "ready");
        fixture
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Sends a command and waits until it was carried out.
    pub(crate) fn tell(&mut self, command: &str) {
        self.send(command);
        assert_eq!(self.line(), "done", "after `{command}`");
    }

    /// Sends a command that answers with a line, and waits until it was carried out.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.send(command);
        let answer = self.line();
        assert_eq!(self.line(), "done", "after `{command}`");
        answer
    }

    /// Sends a command and does not wait.
    pub(crate) fn send(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").expect("the fixture reads");
    }

    /// Signal that ended it, if one did.
    pub(crate) fn ended_by(&mut self) -> Option<i32> {
        let status = self.child.try_wait().expect("the fixture is ours");
        status.and_then(|status| status.signal())
    }

    /// Ends it and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether a command that was sent has been carried out.
    pub(crate) fn answered(&mut self) -> bool {
        self.lines.try_recv().is_ok_and(|line| line == "done")
    }

    fn line(&mut self) -> String {
        self.lines
            .recv_timeout(PATIENCE)
            .expect("the fixture answers in time")
    }

    /// File offset of a function, past the `endbr64` that some compilers put first.
    pub(crate) fn offset_of(&self, function: &str) -> u64 {
        let bytes = std::fs::read(&self.program).expect("the fixture can be read");
        let elf = object::File::parse(&*bytes).expect("the fixture is an ELF file");
        let symbol = elf
            .symbols()
            .find(|s| s.name() == Ok(function))
            .expect("the function has a symbol");
        let segment = elf
            .segments()
            .find(|s| (s.address()..s.address() + s.size()).contains(&symbol.address()))
            .expect("the function lies in a segment");
        let offset = symbol.address() - segment.address() + segment.file_range().0;
        let at = usize::try_from(offset).expect("the fixture is small");
        if bytes[at..].starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
            offset + 4
        } else {
            offset
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A fixture program, compiled once for this test run.
fn compiled(program: &'static OnceLock<PathBuf>, name: &str) -> &'static Path {
    program.get_or_init(|| {
        let source = format!("{}/tests/fixtures/{name}.c", env!("CARGO_MANIFEST_DIR"));
        let program =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let made = Command::new("cc")
            .args(["-O1", "-g0", "-fno-inline", "-pthread", "-rdynamic", "-o"])
            .arg(&program)
            .arg(&source)
            .status()
            .expect("a C compiler is installed");
        assert!(made.success(), "cc could not compile {source}");
        program
    })
}
