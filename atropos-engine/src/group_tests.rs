//! Tests of which group is to blame, and when none is.

use super::super::input::{Evidence, ResourceId, SessionKey, SessionUsage, Usage};
use super::super::ledger::Ledger;
use super::super::record::GroupBy;
use super::super::settings::Kind;
use super::super::testkit::{MS, busy, settings, tick};
use super::{Found, find};

/// Sessions of these users (key, user, processor time used, time lost, milliseconds) in the last 100 ms.
fn look(sessions: &[(u64, &str, u64, u64)]) -> Option<Found> {
    let mut settings = settings();
    settings.resources[0].kind = Kind::Cpu;
    let mut ledger = Ledger::new(&settings.resources, settings.tuning.window_ns);
    let states = || {
        sessions
            .iter()
            .map(|(key, user, ..)| {
                let mut state = busy(*key, 9000);
                state.principal = (*user).to_owned();
                state
            })
            .collect()
    };
    ledger.tick(&tick(9900, states()));
    ledger.usage(&Usage {
        at_ns: 10_000 * MS,
        resource: ResourceId(0),
        covered_ns: 100 * MS,
        evidence: Evidence::Event,
        complete: true,
        sessions: sessions
            .iter()
            .map(|(key, _, used, lost)| SessionUsage {
                session: SessionKey(*key),
                used: used * MS,
                lost_ns: lost * MS,
                held: 0,
            })
            .collect(),
    });
    ledger.tick(&tick(10_000, states()));
    find(&settings, &ledger, &[0.5], &[])
}

/// Four sessions of `ci` that use so much each, among twelve of `web` that use 10 ms and lose 40.
fn ci(used: u64, lost: u64) -> Option<Found> {
    let mut sessions: Vec<_> = (1..=4).map(|key| (key, "ci", used, lost)).collect();
    sessions.extend((5..=16).map(|key| (key, "web", 10, 40)));
    look(&sessions)
}

#[test]
fn a_user_whose_sessions_take_most_together_is_named_with_its_members() {
    let found = ci(90, 10).expect("a group");
    assert_eq!(found.group.by, GroupBy::User);
    assert_eq!(found.group.name, "ci");
    assert_eq!(found.group.member_count, 4);
    assert!((found.group.share - 360.0 / 480.0).abs() < 1e-9);
    assert_eq!(found.members.len(), 4);
}

#[test]
fn who_takes_less_than_half_or_no_more_than_its_numbers_is_no_group_to_blame() {
    assert!(ci(29, 10).is_none());
    let equal: Vec<_> = (1..=16)
        .map(|key| {
            if key < 13 {
                (key, "web", 50, 10)
            } else {
                (key, "ci", 50, 90)
            }
        })
        .collect();
    assert!(look(&equal).is_none());
}

#[test]
fn whoever_suffers_most_of_it_itself_is_not_to_blame() {
    assert!(ci(90, 99).is_some());
    let mut sessions: Vec<_> = (1..=4).map(|key| (key, "ci", 90, 99)).collect();
    sessions.extend((5..=16).map(|key| (key, "web", 10, 5)));
    assert!(look(&sessions).is_none());
}
