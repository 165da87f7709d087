//! A preset as the engine needs it.

use super::preset::{Preset, Rung};
use crate::engine::settings::{self, Background, Mode, Rerun, Settings, Slo};

impl Preset {
    /// What the engine has to know: this preset, with an objective, a mode and users that are never cancelled.
    pub fn settings(&self, slo: Slo, mode: Mode, protected_principals: Vec<String>) -> Settings {
        let resources = self.resources.iter().map(|resource| settings::Resource {
            name: resource.name.value.clone(),
            kind: resource.kind,
            modes: resource.modes.clone(),
        });
        let rungs = self.cancel.iter().flat_map(|cancel| &cancel.rungs);
        Settings {
            preset: self.name.value.clone(),
            resources: resources.collect(),
            classes: self
                .classes
                .iter()
                .map(|class| class.class.clone())
                .collect(),
            ladder: rungs.map(rung).collect(),
            slo,
            protected_principals,
            mode,
            tuning: self.tuning.clone(),
            rerun: Rerun {
                background: self.background(),
                ..self.rerun.clone()
            },
        }
    }
}

impl Preset {
    fn background(&self) -> Vec<Background> {
        let waits = (0..).zip(&self.classes).filter_map(|(class, of)| {
            of.background_ns
                .map(|wait_ns| Background { class, wait_ns })
        });
        waits.collect()
    }
}

/// What the engine knows of a rung.
fn rung(rung: &Rung) -> settings::Rung {
    settings::Rung {
        name: rung.name.value.clone(),
        busy: rung.busy,
        idle: rung.idle,
        deadline_ns: u64::try_from(rung.deadline.as_nanos()).unwrap_or(u64::MAX),
    }
}
