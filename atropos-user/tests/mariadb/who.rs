//! Who a session belongs to: users that change, users that are not known yet, rights that a routine lends, and threads of the
//! server itself.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use atropos::agent::clock::monotonic_ns;
use atropos::agent::resolve::Resolved;
use atropos::agent::watch::{View, Watcher};
use atropos::config;
use atropos::engine::input::SessionState;
use atropos::target::Process;
use mysql_async::prelude::Queryable as _;
use mysql_async::{ChangeUserOpts, Conn, OptsBuilder};

use crate::common::eventually;
use crate::common::mariadb::MariaDb;
use crate::scene::{Person, server, waiting};

/// One who looks at a server, and remembers.
struct Eyes {
    resolved: Resolved,
    watcher: Watcher,
}

impl Eyes {
    fn on(server: &MariaDb) -> Self {
        let preset = config::load("mariadb").unwrap_or_else(|problems| panic!("{problems}"));
        let resolved = Resolved::new(Process::open(server.pid).unwrap(), preset).unwrap();
        let watcher = resolved.watcher().unwrap();
        Self { resolved, watcher }
    }

    /// One look; a torn one is taken again.
    fn look(&mut self) -> View {
        for _ in 0..100 {
            let memory = &self.resolved.memory;
            let view = self.watcher.look(memory, monotonic_ns(), &[]);
            if !view.unseen && view.snapshots.len() == 1 {
                return view;
            }
        }
        panic!(
            "nothing can be seen: {:?}",
            self.watcher.list_trust().last()
        );
    }

    /// A session as the engine is told of it.
    fn session(&mut self, id: u64) -> Option<SessionState> {
        let view = self.look();
        view.sessions.into_iter().find(|state| state.id == id)
    }

    fn principal(&mut self, id: u64) -> String {
        self.session(id)
            .unwrap_or_else(|| panic!("session {id} is not told of"))
            .principal
    }
}

/// Stands between a client and a server; what the client says is passed on when it is told to.
struct HeldBack {
    port: u16,
    go: Sender<()>,
}

impl HeldBack {
    fn before(server: &MariaDb) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (port, upstream) = (
            listener.local_addr().unwrap().port(),
            server.ports.unwrap().port,
        );
        let (go, told) = channel();
        thread::spawn(move || pass_on(&listener, upstream, &told));
        Self { port, go }
    }
}

fn pass_on(listener: &TcpListener, upstream: u16, told: &Receiver<()>) -> io::Result<()> {
    let (client, _) = listener.accept()?;
    let server = TcpStream::connect(("127.0.0.1", upstream))?;
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || io::copy(&mut from_server, &mut to_client));
    let (mut from_client, mut to_server, mut bytes) = (client, server, [0; 4096]);
    let mut held = true;
    loop {
        let count = from_client.read(&mut bytes)?;
        if std::mem::take(&mut held) && told.recv().is_err() {
            return Ok(());
        }
        if count == 0 {
            return to_server.shutdown(std::net::Shutdown::Both);
        }
        to_server.write_all(&bytes[..count])?;
    }
}

async fn connection_id(conn: &mut Conn) -> u64 {
    let id = conn.query_first("select connection_id()").await.unwrap();
    id.expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_logs_in_runs_no_request_and_is_known_by_name_afterwards() {
    let Some(server) = MariaDb::start_listening(&[]) else {
        return;
    };
    server
        .run(&["create database w", "create table w.t (id int primary key)"])
        .await;
    let mut eyes = Eyes::on(&server);
    let held = HeldBack::before(&server);
    let options = OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(held.port)
        .user(Some("root"))
        .prefer_socket(false);
    let mut admin = server.connect().await;
    let conn = tokio::spawn(Conn::new(options));
    let logging_in =
        "select id from information_schema.processlist where user = 'unauthenticated user'";
    let mut id = 0;
    eventually("somebody to log in", async || {
        id = admin.query_first(logging_in).await.unwrap().unwrap_or(0);
        (id > 0).then_some(())
    })
    .await;
    assert_eq!(eyes.session(id), None, "it has asked for nothing yet");
    held.go.send(()).unwrap();
    let mut conn = conn.await.unwrap().unwrap();
    conn.query_drop("begin").await.unwrap();
    conn.query_drop("select * from w.t").await.unwrap();
    assert_eq!(connection_id(&mut conn).await, id);
    assert_eq!(eyes.principal(id), "root");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_changes_its_user_belongs_to_the_new_one() {
    let Some(server) = server().await else { return };
    server
        .run(&[
            "create user other@localhost",
            "grant all on *.* to other@localhost",
        ])
        .await;
    let mut eyes = Eyes::on(&server);
    let mut conn = server.connect().await;
    let id = connection_id(&mut conn).await;
    conn.query_drop("begin").await.unwrap();
    assert_eq!(eyes.principal(id), "root");
    let other = ChangeUserOpts::default().with_user(Some("other".to_owned()));
    conn.change_user(other).await.unwrap();
    conn.query_drop("begin").await.unwrap();
    conn.query_drop("select * from w.t").await.unwrap();
    let alter = Person::new(&server).await.starts("alter table w.t force");
    waiting(&server, 1).await;
    assert_eq!(eyes.principal(id), "other");
    conn.query_drop("commit").await.unwrap();
    alter.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_routine_that_runs_as_its_definer_belongs_to_who_called_it_and_an_event_to_its_definer() {
    let Some(server) = server().await else { return };
    server
        .run(&[
            "create user app@localhost",
            "grant all on w.* to app@localhost",
            "create procedure w.p() begin start transaction; select * from w.t; do sleep(60); end",
            "create user planner@localhost",
            "grant all on *.* to planner@localhost",
            "create definer = planner@localhost event w.e on schedule at now() do \
             begin start transaction; select * from w.t; do sleep(61); end",
        ])
        .await;
    let mut eyes = Eyes::on(&server);
    let mut app = server.connect_as("app", None).await;
    let id = connection_id(&mut app).await;
    let call = tokio::spawn(async move { app.query_drop("call w.p()").await });
    let mut admin = server.connect().await;
    admin
        .query_drop("set global event_scheduler = on")
        .await
        .unwrap();
    let sleeps = "select id from information_schema.processlist where info like 'do sleep(61)%'";
    let mut event = 0;
    eventually("the event to sleep", async || {
        event = admin.query_first(sleeps).await.unwrap().unwrap_or(0);
        (event > 0).then_some(())
    })
    .await;
    let alter = Person::new(&server).await.starts("alter table w.t force");
    waiting(&server, 1).await;
    eventually("the call to keep it waiting", async || {
        eyes.session(id)
            .filter(|state| !state.digest.is_empty())
            .map(|_| ())
    })
    .await;
    assert_eq!(eyes.principal(id), "app");
    assert_eq!(eyes.principal(event), "planner");
    for id in [id, event] {
        let end = format!("kill {id}");
        admin.query_drop(end).await.unwrap();
    }
    let _ = call.await.unwrap();
    alter.await.unwrap().unwrap();
}
