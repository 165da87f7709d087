//! The level (calm or suspect) and the overload: when each begins and ends, so that neither flaps.

use super::Engine;
use super::detector::Reading;
use super::estimator::Estimate;
use super::record::{Effect, Level, OverloadNote, OverloadState};
use super::window::seconds;

/// The level and the overload at present.
#[derive(Clone, Debug, Default)]
pub(super) struct Overload {
    suspect: bool,
    /// The latest sign of trouble.
    sign_ns: u64,
    /// Ticks that showed overload since the objective was last met.
    ticks_over: u32,
    /// The latest tick that showed overload.
    over_ns: u64,
    /// When the objective was first broken.
    pub(super) breach_ns: u64,
    /// What it was last said to be.
    state: Option<OverloadState>,
}

impl Overload {
    /// Neither suspected nor overloaded.
    pub(super) fn is_calm(&self) -> bool {
        !self.suspect && self.state.is_none()
    }

    /// There is an overload, of whatever kind.
    pub(super) fn is_on(&self) -> bool {
        self.state.is_some()
    }
}

impl Engine {
    /// Enters and leaves the suspect level.
    pub(super) fn watch_level(&mut self, reading: &Reading, out: &mut Vec<Effect>) {
        let now_ns = self.ledger.now_ns;
        let tuning = &self.settings.tuning;
        let old_ns = (reading.limit_ns as f64 * tuning.suspect_wait_share) as u64;
        let waits_long = self
            .ledger
            .foreign_waits()
            .filter(|wait| !self.ledger.is_blind(wait.resource))
            .any(|wait| now_ns.saturating_sub(wait.since_ns) > old_ns);
        if reading.breached || waits_long || !self.flying.is_empty() {
            self.overload.sign_ns = now_ns;
            if !self.overload.suspect {
                self.overload.suspect = true;
                out.push(Effect::Level(Level::Suspect));
            }
        } else {
            self.leave_suspicion(out);
        }
    }

    /// Leaves the suspect level if the latest sign of trouble is long ago.
    pub(super) fn leave_suspicion(&mut self, out: &mut Vec<Effect>) {
        let quiet_ns = self.ledger.now_ns.saturating_sub(self.overload.sign_ns);
        if self.overload.suspect && quiet_ns >= self.settings.tuning.calm_after_ns {
            self.overload.suspect = false;
            out.push(Effect::Level(Level::Calm));
        }
    }

    /// Follows the overload; true if a contended resource explains it at this tick, so that a decision is due.
    pub(super) fn watch_overload(
        &mut self,
        reading: &Reading,
        estimate: &Estimate,
        out: &mut Vec<Effect>,
    ) -> bool {
        let now_ns = self.ledger.now_ns;
        if !reading.over {
            // Requests that are shorter than a tick are in flight at some ticks and at others are not.
            if !reading.breached {
                self.overload.ticks_over = 0;
            }
            self.watch_end(out);
            return false;
        }
        let window_ns = self.settings.tuning.window_ns;
        let overload = &mut self.overload;
        if overload.ticks_over == 0 && overload.state.is_none() {
            overload.breach_ns = reading.breach_ns;
        }
        overload.ticks_over = overload.ticks_over.saturating_add(1);
        overload.over_ns = now_ns;
        if overload.ticks_over < self.settings.tuning.confirm_ticks {
            return false;
        }
        let by_resource = estimate.is_resource_overload(&self.settings);
        let lasted_ns = now_ns.saturating_sub(overload.breach_ns);
        match (by_resource, overload.state) {
            (true, Some(OverloadState::Resource)) | (false, Some(_)) => {}
            (true, _) => {
                overload.state = Some(OverloadState::Resource);
                out.push(note(
                    now_ns,
                    OverloadState::Resource,
                    resource_reason(reading, estimate),
                ));
            }
            // A blip may explain itself at the next tick: the hand-off waits for a window.
            (false, None) if lasted_ns < window_ns => {}
            (false, None) => {
                overload.state = Some(OverloadState::Regular);
                out.push(note(
                    now_ns,
                    OverloadState::Regular,
                    regular_reason(reading, estimate),
                ));
            }
        }
        by_resource
    }

    /// The overload is over when no tick has shown it for a window.
    fn watch_end(&mut self, out: &mut Vec<Effect>) {
        let (now_ns, window_ns) = (self.ledger.now_ns, self.settings.tuning.window_ns);
        if self.overload.state.is_some()
            && now_ns.saturating_sub(self.overload.over_ns) >= window_ns
        {
            self.overload.state = None;
            self.told.forget();
            let reason = format!("no overload for {:.1} s", seconds(window_ns));
            out.push(note(now_ns, OverloadState::Ended, reason));
        }
    }
}

fn note(at_ns: u64, state: OverloadState, reason: String) -> Effect {
    Effect::Overload(OverloadNote {
        at_ns,
        state,
        reason,
    })
}

fn broken(reading: &Reading) -> String {
    format!(
        "latency {:.0} ms is above {:.0} ms with {} requests in flight, {} of them waiting",
        seconds(reading.latency_ns) * 1e3,
        seconds(reading.limit_ns) * 1e3,
        reading.in_flight,
        reading.waiting,
    )
}

fn resource_reason(reading: &Reading, estimate: &Estimate) -> String {
    let most = estimate
        .resources
        .iter()
        .max_by(|a, b| a.level.total_cmp(&b.level));
    let (name, level) = most.map_or(("?", 0.0), |resource| {
        (resource.name.as_str(), resource.level)
    });
    format!(
        "{}; {:.0} % of the execution time is lost to {name}",
        broken(reading),
        level * 100.0
    )
}

fn regular_reason(reading: &Reading, estimate: &Estimate) -> String {
    let blind = || estimate.resources.iter().filter(|one| one.blind.is_some());
    let most = blind().max_by(|a, b| a.lost_s.total_cmp(&b.lost_s));
    let unseen = match most {
        Some(most) if most.lost_s > 0.0 => format!(
            "; {:.2} s were lost to {} in this window, but {}",
            most.lost_s,
            most.name,
            most.blind.as_deref().unwrap_or_default()
        ),
        Some(_) => format!("; {} resources cannot be seen", blind().count()),
        None => String::new(),
    };
    format!(
        "{}; waits for resources explain only {:.0} % of it, so nothing is cancelled{unseen}{}",
        broken(reading),
        estimate.explained * 100.0,
        most_used(estimate),
    )
}

/// Who used most of what most was lost to, where that is told.
fn most_used(estimate: &Estimate) -> String {
    let told = estimate
        .resources
        .iter()
        .filter(|resource| resource.lost_s > 0.0)
        .filter_map(|resource| Some((resource, resource.most_used.as_ref()?)));
    let most = told.max_by(|a, b| a.0.lost_s.total_cmp(&b.0.lost_s));
    most.map_or_else(String::new, |(resource, most)| {
        format!(
            "; session {} used most of {}, {:.0} %",
            most.id,
            resource.name,
            most.share * 100.0
        )
    })
}
