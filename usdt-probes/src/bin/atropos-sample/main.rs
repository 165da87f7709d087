//! `atropos-sample`: a key-value server with table locks and a cache, for trying Atropos where no database is at hand.
//!
//! It reads lines over TCP on loopback and serves each connection on a thread of its own. Its commands and the ways in
//! which it can be stalled are in `presets/sample/README.md`.

mod cache;
mod clock;
mod command;
mod connection;
mod list;
mod locks;
mod marks;
mod native;
mod sessions;
mod sleep;
mod statement;
mod stop;
mod tables;
mod visible;

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const USAGE: &str =
    "usage: atropos-sample [--port N] [--lock-timeout-ms N] [--cache N] [--load-us N]
                      [--until-input-ends]

  --port N             port on 127.0.0.1; 0 takes a free one [default: 7070]
  --lock-timeout-ms N  how long a statement waits for a lock [default: 3600000]
  --cache N            values that the cache has room for [default: 256]
  --load-us N          how long it takes to load one that is not there [default: 1000]
  --until-input-ends   end when standard input does";

/// Connections at one time.
const MOST_CONNECTIONS: usize = 1000;

/// What the command line says.
struct Options {
    port: u16,
    patience: Duration,
    cache: usize,
    load: Duration,
    until_input_ends: bool,
}

#[expect(
    clippy::print_stderr,
    reason = "the one place where an error becomes text"
)]
fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("atropos-sample: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match serve(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "atropos-sample: cannot serve on 127.0.0.1:{}: {error}",
                options.port
            );
            ExitCode::FAILURE
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        port: 7070,
        patience: Duration::from_hours(1),
        cache: cache::ROOM,
        load: cache::LOAD,
        until_input_ends: false,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{argument} wants a value"))
        };
        let wrong = |value: &str| format!("{argument} does not take `{value}`");
        match argument.as_str() {
            "--port" => {
                options.port = value().and_then(|text| text.parse().map_err(|_| wrong(&text)))?;
            }
            "--lock-timeout-ms" => {
                let ms = value().and_then(|text| text.parse().map_err(|_| wrong(&text)))?;
                options.patience = Duration::from_millis(ms);
            }
            "--cache" => {
                options.cache = value().and_then(|text| text.parse().map_err(|_| wrong(&text)))?;
            }
            "--load-us" => {
                let us = value().and_then(|text| text.parse().map_err(|_| wrong(&text)))?;
                options.load = Duration::from_micros(us);
            }
            "--until-input-ends" => options.until_input_ends = true,
            _ => return Err(format!("unknown argument `{argument}`")),
        }
    }
    Ok(options)
}

fn serve(options: &Options) -> io::Result<()> {
    stop::listen()?;
    cache::set_up(options.cache, options.load);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
    let mut out = io::stdout();
    writeln!(out, "listening on {}", listener.local_addr()?)?;
    out.flush()?;
    if options.until_input_ends {
        thread::spawn(end_with_input);
    }
    let connections = Arc::new(());
    for stream in listener.incoming() {
        // A client that was gone before it was taken is no reason to stop.
        let Ok(stream) = stream else { continue };
        let (patience, ticket) = (options.patience, Arc::clone(&connections));
        if Arc::strong_count(&connections) > MOST_CONNECTIONS + 1 {
            refuse(&stream);
            continue;
        }
        let name = "session".to_owned();
        // A thread that cannot be had drops the stream, which the client sees.
        let _ = thread::Builder::new()
            .name(name)
            .stack_size(256 * 1024)
            .spawn(move || {
                let _ = stream.set_nodelay(true);
                connection::serve(stream, patience);
                drop(ticket);
            });
    }
    Ok(())
}

fn refuse(mut stream: &TcpStream) {
    let _ = stream.write_all(b"ERR too many connections\n");
}

/// Ends the process when whoever started it is gone.
fn end_with_input() {
    let mut buffer = [0; 64];
    while io::stdin().read(&mut buffer).is_ok_and(|count| count > 0) {}
    std::process::exit(0);
}
