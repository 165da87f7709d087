//! When a walk that fails stops being evidence.

use super::WalkError;

/// Views in a row that must fail before the resource is called blind. A view is torn when the target changes what is being
/// read; the chance of that many in a row on a right layout is nil, since a stalled lock does not change.
const FAILURES_TO_BLIND: u32 = 5;

/// Keeps count of a walk's passes and failures.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    failed_in_a_row: u32,
    last: Option<WalkError>,
}

impl Trust {
    /// A view passed every check.
    pub fn passed(&mut self) {
        self.failed_in_a_row = 0;
    }

    /// A view failed a check, even after it was taken again.
    pub fn failed(&mut self, error: WalkError) {
        self.failed_in_a_row += 1;
        self.last = Some(error);
    }

    /// Why the walk is no evidence at present, if so.
    pub fn blind(&self) -> Option<String> {
        let last = self.last.as_ref()?;
        (self.failed_in_a_row >= FAILURES_TO_BLIND).then(|| {
            format!(
                "{} views in a row failed a check; the last: {last}",
                self.failed_in_a_row
            )
        })
    }

    /// The last failure.
    pub fn last(&self) -> Option<&WalkError> {
        self.last.as_ref()
    }
}
