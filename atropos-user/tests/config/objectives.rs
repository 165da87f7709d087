//! The objective on the command line.

use atropos::config::{DEFAULT_FLOOR_NS, parse_slo};
use atropos::engine::settings::{Slo, SloLimit};

/// The objective that a text means.
fn slo(text: &str) -> Slo {
    parse_slo(text).unwrap_or_else(|problem| panic!("{problem}"))
}

/// A relative limit's parts.
fn relative(text: &str) -> (f64, u64) {
    match slo(text).limit {
        SloLimit::Relative { above, floor_ns } => (above, floor_ns),
        limit @ SloLimit::Absolute { .. } => panic!("{limit:?}"),
    }
}

#[test]
fn an_absolute_objective_is_read_to_the_nanosecond() {
    assert_eq!(
        slo("p99=20ms"),
        Slo {
            percentile: 99.0,
            limit: SloLimit::Absolute { ns: 20_000_000 }
        }
    );
    assert_eq!(
        slo("p99.9=1.5s"),
        Slo {
            percentile: 99.9,
            limit: SloLimit::Absolute { ns: 1_500_000_000 }
        }
    );
    assert_eq!(slo("p50=250us").limit, SloLimit::Absolute { ns: 250_000 });
    assert_eq!(slo("p50=7ns").limit, SloLimit::Absolute { ns: 7 });
    assert_eq!(
        slo("p50=2m").limit,
        SloLimit::Absolute {
            ns: 120_000_000_000
        }
    );
    assert_eq!(
        slo("p50=1h").limit,
        SloLimit::Absolute {
            ns: 3_600_000_000_000
        }
    );
}

#[test]
fn a_relative_objective_has_a_floor_even_if_none_is_named() {
    assert_eq!(relative("p99=+20%"), (0.2, DEFAULT_FLOOR_NS));
    assert_eq!(relative("p99=+150%,floor=5us"), (1.5, 5_000));
}

#[test]
fn other_texts_are_refused_with_what_is_allowed() {
    let wrong = [
        "",
        "20ms",
        "p99",
        "p99=",
        "p99=20",
        "p99=0ms",
        "p100=20ms",
        "p0=20ms",
        "99=20ms",
        "p-1=20ms",
        "pnan=20ms",
        "p99=20%",
        "p99=+0%",
        "p99=+inf%",
        "p99=+20",
        "p99=20ms,floor=5ms",
        "p99=+20%,5ms",
        "p99=+20%,floor=5",
        "p99=99999999999999999999h",
        "p99=9999999999h",
        "p99=1.ms",
        "p99=.5ms",
        "p99=1.2.3ms",
        "p99=-5ms",
        "p99=20 ms",
    ];
    let answers: Vec<_> = wrong
        .iter()
        .map(|text| {
            parse_slo(text)
                .err()
                .unwrap_or_else(|| panic!("`{text}` is accepted"))
                .to_string()
        })
        .collect();
    insta::assert_snapshot!(answers.join("\n\n"));
}
