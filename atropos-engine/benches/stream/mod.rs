//! A stream of inputs as a busy server makes it: requests that take and release locks, a few that wait, and a tick and a
//! snapshot each 50 ms. The same numbers give the same stream.
#![allow(dead_code, unreachable_pub, reason = "each program uses its part")]

use atropos_engine::input::{
    Activity, BlockKind, Blocker, Event, EventKind, Evidence, Input, InstanceKey, RequestStats,
    ResourceId, SessionKey, SessionState, Snapshot, Tick, Wait,
};
use atropos_engine::settings::{Class, Kind, Mode, Rerun, Resource, Rung, Slo, SloLimit, Tuning};
use atropos_engine::{Engine, Settings};

/// Time between two ticks, nanoseconds.
const TICK_NS: u64 = 50_000_000;

/// Events between two ticks: 200,000 a second, the most that the kernel half is promised to hand over.
pub const EVENTS_PER_TICK: u64 = 10_000;

/// One acquisition in so many is waited for.
const WAITS_ONE_IN: u64 = 16;

/// Locks that a request takes.
const LOCKS: usize = 2;

const LOCK: ResourceId = ResourceId(0);

/// Where a session is in its request.
#[derive(Clone, Copy, Debug, Default)]
struct Session {
    request: u64,
    since_ns: u64,
    busy: bool,
    waits: Option<(InstanceKey, u64)>,
    held: [Option<(InstanceKey, u64)>; LOCKS],
    releasing: bool,
}

/// An engine that has seen so many ticks of a stream.
pub fn warm(session_count: usize, instance_count: u64, ticks: u64) -> (Engine, Stream) {
    let mut engine = Engine::new(settings());
    let mut stream = Stream::new(session_count, instance_count);
    for _ in 0..ticks {
        feed(&mut engine, &stream.ticks(1));
    }
    (engine, stream)
}

/// Gives the inputs to an engine that has nothing to say about them.
pub fn feed(engine: &mut Engine, inputs: &[Input]) {
    let mut effects = Vec::new();
    for input in inputs {
        engine.handle(input, &mut effects);
    }
    assert!(effects.is_empty(), "the objective holds");
}

/// The server.
#[derive(Clone, Debug)]
pub struct Stream {
    sessions: Vec<Session>,
    holders: Vec<Vec<usize>>,
    instance_count: u64,
    now_ns: u64,
    number: u64,
    random: u64,
}

impl Stream {
    /// So many sessions and instances.
    pub fn new(session_count: usize, instance_count: u64) -> Self {
        Self {
            sessions: vec![Session::default(); session_count],
            holders: vec![Vec::new(); instance_count as usize],
            instance_count,
            now_ns: TICK_NS,
            number: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// The next inputs: so many ticks, each with the events before it.
    pub fn ticks(&mut self, count: u64) -> Vec<Input> {
        let mut inputs = Vec::new();
        for _ in 0..count {
            inputs.extend(self.events(EVENTS_PER_TICK));
            inputs.push(Input::Snapshot(self.snapshot()));
            inputs.push(Input::Tick(self.tick()));
        }
        inputs
    }

    /// The next events alone.
    pub fn events(&mut self, count: u64) -> Vec<Input> {
        (0..count).map(|_| Input::Event(self.event())).collect()
    }

    /// Everybody leaves, and a tick sees nobody.
    pub fn end(mut self) -> Vec<Input> {
        let places = 0..self.sessions.len();
        let left = |place| Event {
            at_ns: self.now_ns,
            session: key(place),
            kind: EventKind::SessionEnd,
        };
        let mut inputs: Vec<Input> = places.map(|place| Input::Event(left(place))).collect();
        self.sessions.clear();
        inputs.push(Input::Tick(self.tick()));
        inputs
    }

    /// xorshift64*: any stream of numbers that looks random will do.
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    fn event(&mut self) -> Event {
        self.now_ns += TICK_NS / EVENTS_PER_TICK;
        let place = self.below(self.sessions.len() as u64) as usize;
        Event {
            at_ns: self.now_ns,
            session: key(place),
            kind: self.step(place),
        }
    }

    /// What a session does next.
    fn step(&mut self, place: usize) -> EventKind {
        let (resource, now_ns) = (LOCK, self.now_ns);
        let session = self.sessions[place];
        if !session.busy {
            self.number += 1;
            self.sessions[place] = Session {
                request: self.number,
                since_ns: now_ns,
                busy: true,
                ..Session::default()
            };
            return EventKind::RequestBegin;
        }
        if let Some((instance, _)) = session.waits {
            self.sessions[place].waits = None;
            return EventKind::WaitEnd { resource, instance };
        }
        let free = session.held.iter().position(Option::is_none);
        if let (false, Some(free)) = (session.releasing, free) {
            let instance = InstanceKey(1 + self.below(self.instance_count));
            if self.below(WAITS_ONE_IN) == 0 {
                self.sessions[place].waits = Some((instance, now_ns));
                return EventKind::WaitBegin { resource, instance };
            }
            self.sessions[place].held[free] = Some((instance, now_ns));
            self.holders[instance.0 as usize - 1].push(place);
            return EventKind::Acquire {
                resource,
                instance,
                mode: 0,
            };
        }
        self.sessions[place].releasing = true;
        let last = self.sessions[place]
            .held
            .iter_mut()
            .rev()
            .find_map(Option::take);
        let Some((instance, _)) = last else {
            self.sessions[place].busy = false;
            return EventKind::RequestEnd;
        };
        let holders = &mut self.holders[instance.0 as usize - 1];
        if let Some(found) = holders.iter().position(|holder| *holder == place) {
            holders.swap_remove(found);
        }
        EventKind::Release { resource, instance }
    }

    fn snapshot(&self) -> Snapshot {
        let waiting = self.sessions.iter().enumerate();
        let waits = waiting.filter_map(|(place, session)| {
            let (instance, since_ns) = session.waits?;
            let holders = self.holders[instance.0 as usize - 1].iter();
            let blockers = holders
                .filter(|holder| **holder != place)
                .map(|holder| Blocker {
                    session: key(*holder),
                    kind: BlockKind::Granted,
                    mode: 0,
                    since_ns,
                });
            Some(Wait {
                waiter: key(place),
                instance,
                mode: 0,
                since_ns,
                blockers: blockers.collect(),
            })
        });
        Snapshot {
            at_ns: self.now_ns,
            resource: LOCK,
            evidence: Evidence::Walk,
            complete: true,
            waits: waits.collect(),
            instances: Vec::new(),
        }
    }

    fn tick(&self) -> Tick {
        let busy = self
            .sessions
            .iter()
            .enumerate()
            .filter(|(_, session)| session.busy);
        Tick {
            at_ns: self.now_ns,
            requests: RequestStats {
                completed: Some(EVENTS_PER_TICK / 6),
                covered_ns: 0,
                latency: Vec::new(),
            },
            sessions: busy.map(|(place, session)| state(place, session)).collect(),
            blind: Vec::new(),
        }
    }
}

fn key(place: usize) -> SessionKey {
    // As far apart as session structures lie in a server's memory.
    SessionKey(0x7f00_0000_0000 + place as u64 * 24_320)
}

fn state(place: usize, session: &Session) -> SessionState {
    SessionState {
        id: place as u64 + 1,
        thread: place as u32 + 1,
        request: session.request,
        principal: "shop".to_owned(),
        ..SessionState::new(key(place), Activity::Busy, session.since_ns)
    }
}

/// One resource, an objective that nothing breaks.
pub fn settings() -> Settings {
    Settings {
        preset: "stream".to_owned(),
        resources: vec![Resource {
            name: "lock".to_owned(),
            kind: Kind::Lock,
            modes: vec!["S".to_owned()],
        }],
        classes: vec![Class {
            name: "write".to_owned(),
            protected: false,
            protected_queued: false,
            undo: 1.0,
        }],
        ladder: vec![Rung {
            name: "KILL".to_owned(),
            busy: true,
            idle: true,
            deadline_ns: 1_000_000_000,
        }],
        slo: Slo {
            percentile: 99.0,
            limit: SloLimit::Absolute {
                ns: 3_600_000_000_000,
            },
        },
        protected_principals: Vec::new(),
        mode: Mode::Enforce,
        tuning: Tuning::default(),
        rerun: Rerun::default(),
    }
}
