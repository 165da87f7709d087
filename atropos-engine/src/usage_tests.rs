//! Tests of who is to blame for time lost to the use of others.

use super::super::blame::{assign, assign_without};
use super::super::gain::score;
use super::super::input::{Evidence, ResourceId, SessionKey, SessionUsage, Usage};
use super::super::ledger::Ledger;
use super::super::peers::STAND_OUT;
use super::super::settings::{Kind, Settings};
use super::super::testkit::{MS, busy, settings, tick};

const CPU: ResourceId = ResourceId(0);

fn of_kind(kind: Kind) -> Settings {
    let mut settings = settings();
    settings.resources[0].kind = kind;
    settings
}

fn used(session: u64, used: u64, lost_ms: u64, held: u64) -> SessionUsage {
    SessionUsage {
        session: SessionKey(session),
        used,
        lost_ns: lost_ms * MS,
        held,
    }
}

/// Sessions 1 to 30 have run since 9.9 s, and this is what they used in the last 100 ms.
fn ledger(settings: &Settings, sessions: &[SessionUsage]) -> Ledger {
    let mut ledger = Ledger::new(&settings.resources, settings.tuning.window_ns);
    let running = || (1..=30).map(|key| busy(key, 9900)).collect();
    ledger.tick(&tick(9900, running()));
    ledger.usage(&report(sessions));
    ledger.tick(&tick(10_000, running()));
    ledger
}

fn report(sessions: &[SessionUsage]) -> Usage {
    Usage {
        at_ns: 10_000 * MS,
        resource: CPU,
        covered_ns: 100 * MS,
        evidence: Evidence::Event,
        complete: true,
        sessions: sessions.to_vec(),
    }
}

/// One that used 300 ms of processor time among nine that used 10 and lost 20 each.
fn hog() -> Vec<SessionUsage> {
    let mut sessions = vec![used(1, 300 * MS, 5, 0)];
    sessions.extend((2..=10).map(|key| used(key, 10 * MS, 20, 0)));
    sessions
}

fn assert_close(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-9, "{left} is not {right}");
}

#[test]
fn what_others_lost_is_charged_by_the_share_of_use_to_those_that_stand_out() {
    let ledger = ledger(&of_kind(Kind::Cpu), &hog());
    let charges = ledger.accounts[0].charges(ledger.now_ns);
    assert_eq!(charges.len(), 1);
    assert_eq!(charges[0].session, SessionKey(1));
    assert_close(charges[0].share, 300.0 / 390.0);
    assert_close(charges[0].blamed_s, 0.18 * 300.0 / 390.0);
    assert_eq!(ledger.lost_ns(CPU), 185 * MS);
}

#[test]
fn many_equal_ones_are_nobodys_fault_however_much_they_lose_together() {
    let equal: Vec<_> = (1..=30).map(|key| used(key, 40 * MS, 60, 0)).collect();
    let ledger = ledger(&of_kind(Kind::Cpu), &equal);
    assert!(ledger.accounts[0].charges(ledger.now_ns).is_empty());
    assert_eq!(assign(&ledger).len(), 0);
}

#[test]
fn the_limit_between_large_and_usual_is_a_multiple_of_the_median() {
    let with = |factor: u64| {
        let mut sessions = hog();
        sessions[0].used = 10 * MS * factor;
        let ledger = ledger(&of_kind(Kind::Cpu), &sessions);
        ledger.accounts[0].charges(ledger.now_ns).len()
    };
    assert_eq!(with(STAND_OUT), 1);
    assert_eq!(with(STAND_OUT - 1), 0);
}

#[test]
fn where_sessions_hold_something_the_share_of_that_counts_and_not_the_use() {
    let sessions = [
        used(1, 0, 0, 9_000),
        used(2, 500, 40, 20),
        used(3, 500, 40, 20),
        used(4, 500, 40, 20),
    ];
    let ledger = ledger(&of_kind(Kind::Memory), &sessions);
    let charges = ledger.accounts[0].charges(ledger.now_ns);
    assert_eq!(charges.len(), 1);
    assert_close(charges[0].share, 9_000.0 / 9_060.0);
}

#[test]
fn half_a_report_or_a_guess_charges_nobody() {
    let settings = of_kind(Kind::Io);
    for (complete, evidence) in [(false, Evidence::Event), (true, Evidence::Inference)] {
        let mut ledger = ledger(&settings, &[]);
        ledger.usage(&Usage {
            evidence,
            complete,
            ..report(&hog())
        });
        assert_eq!(assign(&ledger).len(), 0);
        assert_eq!(ledger.lost_to_use_ns(SessionKey(2)), 0);
    }
}

#[test]
fn use_of_a_lock_is_not_asked_for() {
    let ledger = ledger(&of_kind(Kind::Lock), &hog());
    assert_eq!(ledger.lost_ns(CPU), 0);
}

#[test]
fn the_gain_is_the_time_to_go_times_the_blame_and_without_the_hog_nothing_is_left() {
    let settings = of_kind(Kind::Cpu);
    let ledger = ledger(&settings, &hog());
    let scored = score(&settings, &ledger, &assign(&ledger));
    assert_eq!(scored.len(), 1);
    let part = &scored[0].parts[0];
    assert_close(part.usage_s, 0.1);
    assert_close(part.blame, 0.18 * 300.0 / 390.0 / 0.185);
    assert_close(part.gain_s, 0.1 * part.blame);
    let gone = [SessionKey(1)].into_iter().collect();
    assert_eq!(assign_without(&ledger, &gone).len(), 0);
}

#[test]
fn what_requests_that_are_over_used_tells_what_is_usual_and_is_forgotten_with_time() {
    let settings = of_kind(Kind::Cpu);
    let mut ledger = ledger(&settings, &hog());
    let mut next = busy(1, 10_010);
    next.request = 2;
    ledger.tick(&tick(10_050, vec![next.clone()]));
    assert!(ledger.accounts[0].spent(SessionKey(1)).is_none());
    assert_eq!(ledger.accounts[0].peers.count(), 10);
    ledger.tick(&tick(16_000, vec![next]));
    assert_eq!(ledger.accounts[0].peers.count(), 0);
}
