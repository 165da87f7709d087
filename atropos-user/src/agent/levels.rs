//! How closely the target is watched: as the engine wants, or more closely since somebody asked.

use crate::engine::record::Level;

/// Who asks is answered for so long: a minute, in which an incident is looked at and after which nobody is there to ask again.
const ASKED_NS: u64 = 60_000_000_000;

/// The level that the engine wants, and until when a person wants the fuller one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    /// What the engine wants.
    pub(super) engine: Level,
    asked_until_ns: Option<u64>,
}

impl Default for Levels {
    fn default() -> Self {
        Self {
            engine: Level::Calm,
            asked_until_ns: None,
        }
    }
}

impl Levels {
    /// The level in force.
    pub(super) fn now(&self) -> Level {
        match self.asked_until_ns {
            Some(_) => Level::Suspect,
            None => self.engine,
        }
    }

    /// Somebody asked: for the fuller set, or no longer for it. What is asked for now.
    pub(super) fn toggle(&mut self, now_ns: u64) -> Level {
        if self.asked_until_ns.take().is_some() {
            return Level::Calm;
        }
        self.asked_until_ns = Some(now_ns + ASKED_NS);
        Level::Suspect
    }

    /// Whether the time that was asked for has just run out.
    pub(super) fn is_over(&mut self, now_ns: u64) -> bool {
        let over = self.asked_until_ns.is_some_and(|until| now_ns >= until);
        if over {
            self.asked_until_ns = None;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_gets_the_fuller_set_for_a_minute_or_until_asked_again() {
        let mut levels = Levels::default();
        assert_eq!(levels.toggle(0), Level::Suspect);
        assert_eq!(levels.now(), Level::Suspect);
        assert!(!levels.is_over(ASKED_NS - 1));
        assert!(levels.is_over(ASKED_NS));
        assert_eq!(levels.now(), Level::Calm);
        levels.toggle(0);
        assert_eq!(levels.toggle(1), Level::Calm);
        assert_eq!(levels.now(), Level::Calm);
    }

    #[test]
    fn who_no_longer_asks_does_not_calm_what_the_engine_suspects() {
        let mut levels = Levels {
            engine: Level::Suspect,
            ..Levels::default()
        };
        levels.toggle(0);
        levels.toggle(1);
        assert_eq!(levels.now(), Level::Suspect);
    }
}
