//! Which controllers can be judged by a recording, and what a recording lacks for the others.

/// How a controller is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It is the engine: it gets the recorded inputs themselves.
    Engine,
    /// It gets looks made from the inputs. What they do not show it, if that matters.
    Looks(Option<&'static str>),
    /// Not at all, and why.
    Not(&'static str),
}

const DOOR: &str = "it acts at the door, and a recording does not tell who came there and how long the queues were";

/// How the controller of this name is judged; `None` if there is none.
pub(super) fn way(name: &str) -> Option<Way> {
    Some(match name {
        "atropos" | "atropos-again" => Way::Engine,
        "root-blocker" | "pt-kill" | "pg-terminate" | "timeout-victim" | "timeout-any" => {
            Way::Looks(None)
        }
        "tidb-runaway" => Way::Looks(Some(
            "refusals are told of requests that a tick saw, by their statement: those of sessions in a wait",
        )),
        "paper" | "paper-current" | "paper-greedy" | "artifact-c" | "artifact-java" => {
            Way::Looks(Some(
                "judged on locks and pools alone: what a recording tells of processor and pages is not shown to it",
            ))
        }
        "atropos-rerun" => Way::Not(
            "it differs from `atropos` in what is run again, which a recording cannot show",
        ),
        "none" => Way::Not("it decides nothing"),
        "oracle" | "oracle-patient" => {
            Way::Not("it knows the culprit beforehand, which a recording does not tell")
        }
        "protego" | "darc" | "breakwater" | "dagor" | "seda" | "shed-cap" | "shed-length"
        | "shed-deadline" | "shed-all" => Way::Not(DOOR),
        "atropos+cap" | "atropos+length" | "atropos+deadline" | "atropos+all" => Way::Not(
            "what it adds to `atropos` acts at the door, and a recording does not tell who came there",
        ),
        "pbox" => {
            Way::Not("it delays whoever lets go, and a recording does not tell every release")
        }
        "parties" => {
            Way::Not("it moves cores between clients, and a recording does not tell their use")
        }
        "opensearch" => {
            Way::Not("it goes by use of processor and heap, which a recording does not tell")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::names;

    #[test]
    fn every_controller_is_judged_or_it_is_said_why_not() {
        for entry in names::ALL {
            assert!(way(entry.name).is_some(), "{}", entry.name);
        }
        assert_eq!(way("nobody"), None);
    }
}
