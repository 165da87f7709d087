//! Every table of the config with its keys: what the reader allows, and what `docs/config.md` must explain.

/// One key of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// What it takes, in words of the documentation.
    pub(crate) takes: &'static str,
    pub(crate) required: bool,
}

/// One table.
#[derive(Debug)]
pub(crate) struct Section {
    /// Its header, as a heading of the documentation and as errors name it.
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [Key],
}

impl Section {
    /// The header of a table under one of its keys.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.name == ROOT.name {
            key.to_owned()
        } else {
            format!("{}.{key}", self.name)
        }
    }

    /// How errors name it.
    pub(crate) fn shown(&self) -> String {
        if self.name == ROOT.name {
            "the top level".to_owned()
        } else {
            format!("`{}`", self.name)
        }
    }
}

/// A key that may be left out.
const fn may(name: &'static str, takes: &'static str) -> Key {
    Key {
        name,
        takes,
        required: false,
    }
}

/// A key that must be there.
const fn must(name: &'static str, takes: &'static str) -> Key {
    Key {
        name,
        takes,
        required: true,
    }
}

pub(crate) const ROOT: Section = Section {
    name: "top level",
    keys: &[
        // It must be there too, but in each file of a chain, so it is looked at before files are joined.
        may("schema", "integer"),
        must("name", "string"),
        may("extends", "string"),
        may("title", "string"),
        may("unseen", "array of strings"),
        may("match", "table"),
        may("layout", "table"),
        may("sessions", "table"),
        may("completed", "table"),
        may("resource", "array of tables"),
        may("probe", "array of tables"),
        may("walk", "array of tables"),
        may("class", "array of tables"),
        may("cancel", "table"),
        may("budget", "table"),
        may("decide", "table"),
    ],
};

pub(crate) const MATCH: Section = Section {
    name: "match",
    keys: &[
        must("programs", "array of strings"),
        may("symbols", "array of strings"),
        may("forks", "boolean"),
        may("marks", "boolean"),
        may("version", "table"),
    ],
};

pub(crate) const VERSION: Section = Section {
    name: "match.version",
    keys: &[must("file", "string"), must("known", "array of strings")],
};

pub(crate) const LAYOUT_ENTRY: Section = Section {
    name: "layout entry",
    keys: &[
        may("accessor", "string"),
        may("global", "string"),
        may("nth", "integer"),
        may("after", "string"),
        may("add", "integer"),
    ],
};

pub(crate) const SESSIONS: Section = Section {
    name: "sessions",
    keys: &[
        must("name", "string"),
        must("first", "expression"),
        must("next", "expression"),
        must("end", "expression"),
        must("limit", "integer"),
        must("id", "expression"),
        must("busy", "expression"),
        may("present", "expression"),
        may("let", "array of tables"),
        may("clock", "string"),
        may("at_probes", "string"),
        may("checks", "array of expressions"),
        may("thread", "expression"),
        may("request", "expression"),
        may("in_transaction", "expression"),
        may("explicit_locks", "expression"),
        may("started_us", "expression"),
        may("transaction_us", "expression"),
        may("ended_us", "expression"),
        may("started_epoch_s", "expression"),
        may("times", "array of expressions"),
        may("killed", "expression"),
        may("text", "text"),
        may("principal", "text"),
        may("progress", "array of tables"),
        may("note", "array of tables"),
        may("slots", "expression"),
        may("takes_slot", "expression"),
    ],
};

pub(crate) const STEP: Section = Section {
    name: "sessions.progress",
    keys: &[
        must("when", "expression"),
        must("done", "expression"),
        must("total", "expression"),
        may("from", "number"),
        may("to", "number"),
        may("estimate", "boolean"),
        may("own_process", "boolean"),
        may("let", "array of tables"),
        may("checks", "array of expressions"),
    ],
};

pub(crate) const NOTE: Section = Section {
    name: "sessions.note",
    keys: &[
        must("name", "string"),
        must("value", "expression"),
        must("least", "integer"),
        must("says", "string"),
        may("may_end", "expression"),
        may("end_above", "integer"),
        may("end_after", "duration"),
    ],
};

pub(crate) const TEXT: Section = Section {
    name: "text",
    keys: &[
        must("at", "expression"),
        may("length", "expression"),
        may("parts", "integer"),
        may("index", "expression"),
        may("names", "array of strings"),
    ],
};

pub(crate) const COMPLETED: Section = Section {
    name: "completed",
    keys: &[must("count", "expression")],
};

pub(crate) const RESOURCE: Section = Section {
    name: "resource",
    keys: &[
        must("name", "string"),
        must("kind", "string"),
        may("title", "string"),
        may("modes", "array of strings"),
    ],
};

pub(crate) const PROBE: Section = Section {
    name: "probe",
    keys: &[
        must("name", "string"),
        must("level", "string"),
        must("op", "string"),
        must("at", "array of tables"),
        may("resource", "string"),
        may("session", "expression"),
        may("instance", "expression"),
        may("value", "expression"),
        may("when", "expression"),
        may("sample", "table"),
        may("expensive", "string"),
        may("hot", "boolean"),
        may("priority", "integer"),
        may("enabled", "boolean"),
    ],
};

pub(crate) const BUDGET: Section = Section {
    name: "budget",
    keys: &[
        may("calm", "percentage"),
        may("suspect", "percentage"),
        may("calibrate", "boolean"),
    ],
};

pub(crate) const DECIDE: Section = Section {
    name: "decide",
    keys: &[
        may("repeat", "string"),
        may("repeat_pause", "duration"),
        may("repeat_after", "duration"),
        may("end_groups", "boolean"),
        may("min_gain", "duration"),
        may("min_idle", "duration"),
        may("nearly_done", "percentage"),
        may("per_decision", "integer"),
        may("per_minute", "integer"),
        may("per_hour", "integer"),
        may("retry_quiet", "duration"),
        may("retry_wait", "duration"),
        may("retry_once", "boolean"),
    ],
};

pub(crate) const SAMPLE: Section = Section {
    name: "sample",
    keys: &[must("every", "duration"), must("for", "duration")],
};

pub(crate) const ALTERNATIVE: Section = Section {
    name: "at",
    keys: &[
        may("symbol", "string"),
        may("offset", "integer"),
        may("address", "integer"),
        may("build_id", "string"),
        may("usdt", "string"),
        may("library", "string"),
        may("at_return", "boolean"),
        may("unwinds", "boolean"),
        may("session", "expression"),
        may("instance", "expression"),
        may("value", "expression"),
        may("when", "expression"),
    ],
};

pub(crate) const WALK: Section = Section {
    name: "walk",
    keys: &[
        must("resource", "string"),
        must("session", "string"),
        must("waiting", "expression"),
        must("instance", "expression"),
        may("granted", "table"),
        may("let", "array of tables"),
        may("mode", "expression"),
        may("checks", "array of expressions"),
        may("futex", "array of expressions"),
        may("queued", "table"),
        may("conflict", "array of tables"),
        may("label", "table"),
        may("enabled", "boolean"),
    ],
};

/// Of `walk.granted` and `walk.queued`.
pub(crate) const LIST: Section = Section {
    name: "walk.granted",
    keys: &[
        must("item", "string"),
        must("first", "expression"),
        must("next", "expression"),
        must("end", "expression"),
        must("object", "expression"),
        must("limit", "integer"),
        must("owner", "expression"),
        may("mode", "expression"),
        may("mask", "expression"),
        may("ordered", "boolean"),
        may("checks", "array of expressions"),
        may("modes", "expression"),
    ],
};

pub(crate) const CONFLICT: Section = Section {
    name: "walk.conflict",
    keys: &[
        must("granted", "expression"),
        may("queued", "expression"),
        may("when", "expression"),
        may("modes", "array of strings"),
    ],
};

pub(crate) const LABEL: Section = Section {
    name: "walk.label",
    keys: &[
        may("text", "text"),
        may("numbers", "array of expressions"),
        may("namespace", "expression"),
        may("namespaces", "array of strings"),
        may("checks", "array of expressions"),
    ],
};

pub(crate) const CLASS: Section = Section {
    name: "class",
    keys: &[
        must("name", "string"),
        may("statements", "array of strings"),
        may("principals", "array of strings"),
        may("without_principal", "boolean"),
        may("protected", "boolean"),
        may("protected_queued", "boolean"),
        may("undo", "number"),
        may("yields", "duration"),
        may("background", "duration"),
        may("enabled", "boolean"),
    ],
};

pub(crate) const CANCEL: Section = Section {
    name: "cancel",
    keys: &[
        must("initiator", "string"),
        must("rung", "array of tables"),
        may("exact", "table"),
    ],
};

pub(crate) const EXACT: Section = Section {
    name: "cancel.exact",
    keys: &[
        must("request", "expression"),
        must("session", "expression"),
        must("at", "array of tables"),
        must("within", "duration"),
        may("when", "expression"),
        may("nudge", "string"),
    ],
};

/// An entry of `cancel.exact.at`.
pub(crate) const EXACT_PLACE: Section = Section {
    name: "cancel.exact.at",
    keys: &[
        may("symbol", "string"),
        may("offset", "integer"),
        may("address", "integer"),
        may("build_id", "string"),
        may("usdt", "string"),
        may("library", "string"),
    ],
};

pub(crate) const RUNG: Section = Section {
    name: "cancel.rung",
    keys: &[
        must("name", "string"),
        must("works", "array of strings"),
        must("deadline", "duration"),
        may("command", "string"),
        may("to", "string"),
        may("argv", "array of strings"),
        may("exact", "string"),
        may("enabled", "boolean"),
    ],
};

/// All of them.
#[cfg(test)]
pub(crate) const ALL: [&Section; 24] = [
    &ROOT,
    &MATCH,
    &VERSION,
    &LAYOUT_ENTRY,
    &SESSIONS,
    &STEP,
    &NOTE,
    &TEXT,
    &COMPLETED,
    &RESOURCE,
    &PROBE,
    &SAMPLE,
    &ALTERNATIVE,
    &WALK,
    &LIST,
    &CONFLICT,
    &LABEL,
    &CLASS,
    &CANCEL,
    &EXACT,
    &EXACT_PLACE,
    &RUNG,
    &BUDGET,
    &DECIDE,
];
