//! A plan with nothing in it but what a recording's settings say: controllers are made from plans.

use atropos_engine::settings as engine;

use super::Plan;

const EMPTY: &str = "name = 'recording'\nabout = ''\nfamily = 'hard'\nduration = '1s'\nfrom = '0s'\nslo = '1s'\ncores = 1\n\
                     answer = { action = 'NONE' }\nclasses = []\nclients = []\n";

impl Plan {
    /// For a server with these resources, and an objective in nanoseconds.
    pub(crate) fn of_recording(settings: &engine::Settings, slo_ns: u64) -> Self {
        let empty = Self::read(EMPTY).expect("its own text");
        Self {
            slo_ns,
            engine: settings.clone(),
            machine: Vec::new(),
            ..empty
        }
    }
}
