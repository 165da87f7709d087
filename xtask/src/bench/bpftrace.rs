//! The same probes under bpftrace, for comparison: at each hit a timestamp is kept for the thread, as the least that a program
//! that measures must do.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::usage::find_below;
use crate::process::as_root;

/// How long it may take to attach.
const ATTACH: Duration = Duration::from_mins(1);
/// How long it may take to stop.
const STOP: Duration = Duration::from_mins(1);
/// What it prints when everything is attached.
const READY: &str = "attached";

/// A running bpftrace.
pub(super) struct Bpftrace {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

/// The program for the places of the report of `atropos check`, which counts for one process only or, where sessions are
/// processes, for all that run the probed files; `None` if there are no places.
pub(super) fn script(report: &Value, only: Option<u32>) -> Option<String> {
    // bpftrace's own option for a process does not keep uprobes from others.
    let filter = only.map_or_else(String::new, |pid| format!("/pid == {pid}/ "));
    let mut text = format!("BEGIN {{ printf(\"{READY}\\n\"); }}\n");
    let mut probes = 0;
    for probe in report["probes"].as_array()? {
        let place = &probe["place"]["Ok"];
        let (Some(file), Some(symbol)) = (place["file"].as_str(), place["symbol"].as_str()) else {
            continue;
        };
        // A USDT probe has several sites and no symbol of its own.
        if place["site_count"] != 1 || symbol.contains(':') {
            continue;
        }
        probes += 1;
        let _ = writeln!(
            text,
            "uprobe:{file}:{symbol} {filter}{{ @at{probes}[tid] = nsecs; }}"
        );
    }
    // What was kept is not to be printed at the end.
    text += "END {";
    for probe in 1..=probes {
        let _ = write!(text, " clear(@at{probe});");
    }
    text += " }\n";
    (probes > 0).then_some(text)
}

/// A program that takes the time from a receive to the last send of the same thread before it receives again for a request: a
/// long statement comes in several receives, a long answer goes in several sends. `filter` says whose.
pub(super) fn socket_script(filter: &str) -> String {
    format!(
        "BEGIN {{ printf(\"{READY}\\n\"); }}\n\
         tracepoint:sock:sock_recv_length /{filter} && args->ret > 0/ {{ \
             if (@end[tid] > 0) {{ \
                 $us = (@end[tid] - @at[tid]) / 1000; \
                 if ($us < 1000) {{ @short = lhist($us, 0, 1000, 1); }} else {{ @long = lhist($us, 1000, 21000, 20); }} \
                 @end[tid] = 0; @at[tid] = nsecs; \
             }} else if (@at[tid] == 0) {{ @at[tid] = nsecs; }} \
         }}\n\
         tracepoint:sock:sock_send_length /{filter} && @at[tid] > 0/ {{ @end[tid] = nsecs; }}\n\
         END {{ clear(@at); clear(@end); }}\n"
    )
}

/// The rows of a linear histogram: the middle of each, and its count.
pub(super) fn histogram(printed: &str) -> impl Iterator<Item = (f64, u64)> {
    printed.lines().filter_map(|line| {
        let (range, rest) = line.trim().strip_prefix('[')?.split_once(')')?;
        let (low, high) = range.split_once(',')?;
        let count = rest.split('|').next()?.trim().parse().ok()?;
        Some((f64::midpoint(number(low)?, number(high)?), count))
    })
}

/// A number as bpftrace shortens it: multiples of 1024 with a `K`.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    match text.strip_suffix('K') {
        Some(thousands) => Some(thousands.parse::<f64>().ok()? * 1024.0),
        None => text.parse().ok(),
    }
}

impl Bpftrace {
    /// Starts it with that program and waits until it is attached.
    pub(super) async fn start(program: &Path, script: &str) -> Result<Self> {
        let mut command = Command::from(as_root(program)?);
        command
            .args(["-B", "line", "-e", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().context("cannot start bpftrace")?;
        let output = child.stdout.take().context("bpftrace has no output")?;
        let mut output = BufReader::new(output).lines();
        let ready = async {
            while let Some(line) = output.next_line().await? {
                if line.trim() == READY {
                    return Ok::<bool, std::io::Error>(true);
                }
            }
            Ok(false)
        };
        match timeout(ATTACH, ready).await {
            Ok(Ok(true)) => Ok(Self { child, output }),
            Ok(_) => {
                let ended = child.wait_with_output().await?;
                let errors = String::from_utf8_lossy(&ended.stderr);
                bail!("bpftrace ended before it was attached: {}", errors.trim())
            }
            Err(_) => bail!("bpftrace is not attached after {ATTACH:?}"),
        }
    }

    /// The process itself, which may be sudo's child.
    pub(super) fn pid(&self) -> Result<u32> {
        let started = self.child.id().context("bpftrace has ended")?;
        find_below(started, "bpftrace").context("there is no bpftrace")
    }

    /// Ends it in order: its probes are gone when this returns. What it printed then.
    pub(super) async fn stop(mut self) -> Result<String> {
        let pid = self.pid()?.to_string();
        let mut interrupt = Command::from(as_root("kill")?);
        let asked = interrupt.args(["-s", "INT", &pid]).status().await;
        if !asked.context("cannot start kill")?.success() {
            bail!("cannot end bpftrace, process {pid}");
        }
        let mut printed = String::new();
        let ended = async {
            while let Some(line) = self.output.next_line().await? {
                printed += &line;
                printed.push('\n');
            }
            self.child.wait().await
        };
        let ended = timeout(STOP, ended).await;
        ended.with_context(|| format!("bpftrace is still there after {STOP:?}"))??;
        Ok(printed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_probe_with_one_place_gets_a_line() {
        let report = json!({"probes": [
            {"name": "a", "place": {"Ok": {"symbol": "f", "file": "/bin/x", "site_count": 1}}},
            {"name": "b", "place": {"Err": ["no such function"]}},
            {"name": "c", "place": {"Ok": {"symbol": "p:note", "file": "/bin/x", "site_count": 3}}},
        ]});
        let text = script(&report, Some(7)).unwrap();
        assert_eq!(text.matches("uprobe:").count(), 1, "{text}");
        assert!(
            text.contains("uprobe:/bin/x:f /pid == 7/ { @at1[tid] = nsecs; }"),
            "{text}"
        );
        assert_eq!(script(&json!({"probes": []}), None), None);
    }

    #[test]
    fn a_linear_histogram_is_read_row_by_row() {
        let printed =
            "\n@us: \n[95, 100)            123 |@@@@@@|\n[1K, 1029)             2 |      |\n";
        assert_eq!(
            histogram(printed).collect::<Vec<_>>(),
            [(97.5, 123), (1026.5, 2)]
        );
    }
}
