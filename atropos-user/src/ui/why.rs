//! `atropos why` as text: one screen, the tree from the root, then what could be done.

use std::fmt::Write as _;

use crate::agent::processor::Processor;
use crate::agent::watch::Slots;
use crate::agent::why::{Choice, MutexWait, Node, Report, Told, Unowned};
use crate::engine::input::BlockKind;

/// Waiters with the same statement that are shown one by one; more are counted.
const SHOWN_ALIKE: usize = 2;
/// Longest statement that is shown, characters.
const STATEMENT_CHARS: usize = 60;

/// The report as text.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let Report {
        pid,
        program,
        preset,
        took_ms,
        session_count,
        waiting_count,
        ..
    } = report;
    line(
        &mut out,
        &format!(
            "{program} (pid {pid}, preset {preset}): {session_count} sessions, {waiting_count} waiting; seen in {took_ms:.1} ms"
        ),
    );
    for root in &report.roots {
        out.push('\n');
        node(&mut out, root, 0);
    }
    unowned(&mut out, &report.unowned);
    locks(&mut out, &report.mutexes);
    if !report.candidates.is_empty() {
        line(&mut out, "\nWhat could be ended, best first:");
        for (rank, choice) in report.candidates.iter().enumerate() {
            candidate(&mut out, rank + 1, choice);
        }
    }
    line(&mut out, &format!("\n{}", report.summary));
    beside(&mut out, report);
    if !report.unseen.is_empty() {
        line(&mut out, "\nNot seen:");
        for reason in &report.unseen {
            line(&mut out, &format!("  - {}", reason.replace('\n', "\n    ")));
        }
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// A session and, indented, those that it keeps waiting.
fn node(out: &mut String, node: &Node, depth: usize) {
    let indent = "  ".repeat(depth);
    let arrow = if depth == 0 { "" } else { "└─ " };
    line(out, &format!("{indent}{arrow}{}", describe(node)));
    if !node.children.is_empty() {
        for way in &node.in_the_way {
            let verb = if way.kind == BlockKind::Granted {
                "holds"
            } else {
                "is queued for"
            };
            let waiters = node.waiters_count;
            line(
                out,
                &format!(
                    "{indent}   {verb} {} on {}, {waiters} waiting behind it",
                    way.mode, way.instance
                ),
            );
        }
    }
    let mut shown: Vec<(&str, usize)> = Vec::new();
    for child in &node.children {
        let alike = shown
            .iter_mut()
            .find(|(statement, _)| *statement == child.statement);
        match alike {
            Some((_, count)) if child.children.is_empty() && *count >= SHOWN_ALIKE => *count += 1,
            Some((_, count)) => {
                *count += 1;
                self::node(out, child, depth + 1);
            }
            None => {
                shown.push((&child.statement, 1));
                self::node(out, child, depth + 1);
            }
        }
    }
    for (statement, count) in shown.iter().filter(|(_, count)| *count > SHOWN_ALIKE) {
        let more = count - SHOWN_ALIKE;
        line(
            out,
            &format!(
                "{indent}  └─ and {more} more that wait alike: {}",
                cut(statement)
            ),
        );
    }
}

/// One session in one line.
fn describe(node: &Node) -> String {
    let mut text = format!("session {}", node.id);
    if node.thread != 0 {
        let _ = write!(
            text,
            " (thread {}{}{})",
            node.thread,
            if node.principal.is_empty() { "" } else { ", " },
            node.principal
        );
    }
    let processor = node.processor.as_ref().map(Processor::words);
    let _ = write!(text, ": {}{}", node.doing, processor.unwrap_or_default());
    if !node.statement.is_empty() {
        let _ = write!(text, ": {}", cut(&node.statement));
    }
    if let Some(waits) = &node.waits_for {
        let _ = write!(
            text,
            " — waits for {} on {}, at most {:.1} s",
            waits.mode, waits.instance, waits.for_s
        );
    }
    if !node.also_behind.is_empty() {
        let others: Vec<String> = node.also_behind.iter().map(ToString::to_string).collect();
        let _ = write!(text, " (also behind {})", others.join(", "));
    }
    text
}

/// One candidate in one or two lines.
fn candidate(out: &mut String, rank: usize, choice: &Choice) {
    let Choice {
        id,
        command,
        frees_count,
        gain_s,
        undo_s,
        but,
    } = choice;
    let mut text = format!(
        "  {rank}. {command:<24} session {id}: {frees_count} go on, about {gain_s:.1} s saved"
    );
    if *undo_s > 0.05 {
        let _ = write!(text, ", after about {undo_s:.1} s of undo");
    }
    if let Some(reason) = but {
        let _ = write!(text, " — not advised: {reason}");
    }
    line(out, &text);
}

/// Waits for what nobody can be told to hold.
fn unowned(out: &mut String, waits: &[Unowned]) {
    if waits.is_empty() {
        return;
    }
    line(out, "\nWaits whose holders cannot be told:");
    for Unowned {
        resource,
        instance,
        sessions,
    } in waits
    {
        let wait = if *sessions == 1 {
            "session waits"
        } else {
            "sessions wait"
        };
        line(
            out,
            &format!("  {sessions} {wait} for {instance} ({resource})"),
        );
    }
}

/// What is worth telling beside waits: places for sessions that are nearly all taken, and the preset's notes.
fn beside(out: &mut String, report: &Report) {
    if let Some(slots) = report.slots.filter(Slots::is_scarce) {
        let Slots {
            limit,
            taken,
            busy,
            idle_in_transaction,
        } = slots;
        line(
            out,
            &format!(
                "\n{taken} of {limit} places for sessions are taken: {busy} run a request, {idle_in_transaction} are idle in a transaction."
            ),
        );
    }
    for Told { id, doing, says } in &report.notes {
        let doing = if doing.is_empty() {
            String::new()
        } else {
            format!(" ({doing})")
        };
        line(out, &format!("\nSession {id}{doing}: {says}"));
    }
}

/// Locks of the C library that threads wait for.
fn locks(out: &mut String, mutexes: &[MutexWait]) {
    if mutexes.is_empty() {
        return;
    }
    line(out, "\nLocks of the C library that threads wait for:");
    let who = |thread: u32, session: Option<u64>| {
        session.map_or_else(
            || format!("thread {thread}"),
            |id| format!("thread {thread} (session {id})"),
        )
    };
    for wait in mutexes {
        let owner = wait.owner_thread.map_or_else(
            || "nobody who can be named".to_owned(),
            |t| who(t, wait.owner_session),
        );
        line(
            out,
            &format!(
                "  {} waits for {}, held by {owner}",
                who(wait.thread, wait.session),
                wait.lock
            ),
        );
    }
}

/// A statement, cut to what fits a line.
fn cut(statement: &str) -> String {
    if statement.chars().count() <= STATEMENT_CHARS {
        return statement.to_owned();
    }
    statement
        .chars()
        .take(STATEMENT_CHARS - 1)
        .chain(['…'])
        .collect()
}
