//! The server: sessions, locks, load, and what it tells the engine.

use std::collections::BTreeMap;

use atropos_common::histogram::bucket_of;
use atropos_engine::Engine;
use atropos_engine::input::{
    Activity, Blind, BlockKind, Blocker, Event, EventKind, Evidence, Input, InstanceKey,
    InstanceName, Lost, OrderReport, OrderResult, RequestStats, ResourceId, SessionKey,
    SessionState, Snapshot, Tick, Unseen, Wait,
};
use atropos_engine::record::{Effect, Order};
use atropos_engine::settings::Settings;

use super::answers::as_order;
use super::{EXCLUSIVE, MS, Obey, SHARED, Sense};

pub(super) const LOCKS: ResourceId = ResourceId(0);

#[derive(Clone)]
pub(super) struct Member {
    pub(super) state: SessionState,
    pub(super) listed: bool,
    pub(super) victim: Option<Victim>,
}

#[derive(Clone, Copy)]
pub(super) struct Victim {
    pub(super) instance: u64,
    pub(super) mode: u32,
    pub(super) phase_ms: u64,
    pub(super) period_ms: u64,
    /// Holds the lock for so long.
    pub(super) hold_ms: u64,
    pub(super) done_at_ms: Option<u64>,
}

#[derive(Clone, Default)]
pub(super) struct Lock {
    pub(super) granted: Vec<(u64, u32, u64)>,
    pub(super) queue: Vec<(u64, u32, u64)>,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each switches something off by itself"
)]
pub struct World {
    pub engine: Engine,
    pub inputs: Vec<Input>,
    pub effects: Vec<Effect>,
    pub now_ms: u64,
    pub sense: Sense,
    pub obey: Obey,
    pub covered: bool,
    /// Walks are made; else ticks come alone.
    pub walks: bool,
    /// The sessions can be looked at.
    pub seen: bool,
    /// Snapshots that may be believed entirely.
    pub complete: bool,
    pub evidence: Evidence,
    pub(super) members: BTreeMap<u64, Member>,
    pub(super) locks: BTreeMap<u64, Lock>,
    due: Vec<(u64, Order)>,
    /// Scripted sessions that end so long after they are granted what they wait for.
    pub(super) ends_after: BTreeMap<u64, u64>,
    pub(super) ends_at: Vec<(u64, u64)>,
    request: u64,
    completed: u64,
    latency: BTreeMap<u16, u64>,
    /// What cannot be seen.
    pub blind: Vec<Blind>,
}

impl World {
    pub fn new(settings: Settings) -> Self {
        Self {
            engine: Engine::new(settings),
            inputs: Vec::new(),
            effects: Vec::new(),
            now_ms: 1_000_000,
            sense: Sense::Walk,
            obey: Obey::After(5),
            covered: true,
            walks: true,
            seen: true,
            complete: true,
            evidence: Evidence::Walk,
            members: BTreeMap::new(),
            locks: BTreeMap::new(),
            due: Vec::new(),
            ends_after: BTreeMap::new(),
            ends_at: Vec::new(),
            request: 0,
            completed: 0,
            latency: BTreeMap::new(),
            blind: Vec::new(),
        }
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ms * MS
    }

    pub fn give(&mut self, input: Input) {
        self.engine.handle(&input, &mut self.effects);
        self.inputs.push(input);
    }

    pub(super) fn event(&mut self, session: u64, kind: EventKind) {
        let event = Event {
            at_ns: self.now_ns(),
            session: SessionKey(session),
            kind,
        };
        self.give(Input::Event(event));
    }

    /// A session begins a request.
    pub fn begin(&mut self, key: u64, class: Option<u16>, digest: &str) {
        self.request += 1;
        let state = SessionState {
            request: self.request,
            class,
            principal: "app".to_owned(),
            fingerprint: if digest.is_empty() {
                0
            } else {
                bucket_of(key << 20) as u64 * 1000 + key
            },
            digest: digest.to_owned(),
            ..SessionState::new(SessionKey(key), Activity::Busy, self.now_ns())
        };
        let victim = self.members.get(&key).and_then(|member| member.victim);
        self.members.insert(
            key,
            Member {
                state,
                listed: true,
                victim,
            },
        );
    }

    pub fn edit(&mut self, key: u64, change: impl FnOnce(&mut SessionState)) {
        change(
            &mut self
                .members
                .get_mut(&key)
                .expect("a session that has begun")
                .state,
        );
    }

    /// A session goes idle inside its transaction, keeping its locks.
    pub fn idle(&mut self, key: u64, activity: Activity) {
        let now_ns = self.now_ns();
        self.edit(key, |state| {
            state.activity = activity;
            state.since_ns = now_ns;
        });
    }

    /// Once it is granted what it waits for, the session ends after so long.
    pub fn ends_after_grant(&mut self, key: u64, ms: u64) {
        self.ends_after.insert(key, ms);
    }

    /// A session's request ends and it lets go of everything.
    pub fn end(&mut self, key: u64) {
        if let Some(member) = self.members.get_mut(&key) {
            member.listed = false;
        }
        let instances: Vec<u64> = self.locks.keys().copied().collect();
        for instance in instances {
            self.unlock(key, instance);
        }
    }

    /// `count` victims with keys from `first`, each a request every `period_ms`.
    pub fn victims(&mut self, first: u64, count: u64, instance: u64, period_ms: u64) {
        self.clients(first, count, instance, SHARED, period_ms, 0);
    }

    pub fn clients(
        &mut self,
        first: u64,
        count: u64,
        instance: u64,
        mode: u32,
        period_ms: u64,
        hold_ms: u64,
    ) {
        for n in 0..count {
            self.begin(first + n, None, "");
            let victim = Victim {
                instance,
                mode,
                phase_ms: n * period_ms / count,
                period_ms,
                hold_ms,
                done_at_ms: None,
            };
            let member = self.members.get_mut(&(first + n)).expect("just begun");
            member.listed = false;
            member.victim = Some(victim);
        }
    }

    pub fn stop_victims(&mut self) {
        for member in self.members.values_mut() {
            member.victim = None;
        }
    }

    /// Every victim that waits gives up.
    pub fn give_up(&mut self) {
        let victims: Vec<u64> = self
            .members
            .iter()
            .filter(|(_, m)| m.listed && m.victim.is_some())
            .map(|(key, _)| *key)
            .collect();
        for key in victims {
            self.end(key);
        }
    }

    /// Lets so many milliseconds pass.
    pub fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ms += 1;
            self.finish_victims();
            self.start_victims();
            self.carry_out();
            if self.now_ms.is_multiple_of(50) {
                self.tick();
            }
        }
    }

    fn start_victims(&mut self) {
        let due: Vec<(u64, Victim)> = self
            .members
            .iter()
            .filter(|(_, member)| !member.listed)
            .filter_map(|(key, member)| member.victim.map(|victim| (*key, victim)))
            .filter(|(_, victim)| {
                self.now_ms % victim.period_ms == victim.phase_ms % victim.period_ms
            })
            .collect();
        for (key, victim) in due {
            self.begin(key, None, "");
            if self.lock(key, victim.instance, victim.mode) {
                let done_at_ms = self.now_ms + victim.hold_ms;
                let member = self.members.get_mut(&key).expect("just begun");
                member.victim = Some(Victim {
                    done_at_ms: Some(done_at_ms),
                    ..victim
                });
            }
        }
        self.finish_victims();
    }

    fn finish_victims(&mut self) {
        let now_ms = self.now_ms;
        let done: Vec<u64> = self
            .members
            .iter()
            .filter(|(_, m)| {
                m.listed
                    && m.victim
                        .is_some_and(|v| v.done_at_ms.is_some_and(|at| at <= now_ms))
            })
            .map(|(key, _)| *key)
            .collect();
        for key in done {
            let member = self.members.get_mut(&key).expect("listed above");
            if let Some(victim) = member.victim.as_mut() {
                victim.done_at_ms = None;
            }
            let took_ns = (now_ms * MS - member.state.since_ns).max(2 * MS);
            self.completed += 1;
            *self.latency.entry(bucket_of(took_ns) as u16).or_default() += 1;
            self.end(key);
        }
    }

    pub fn tick(&mut self) {
        if self.sense == Sense::Walk && self.walks && self.seen {
            let snapshot = self.snapshot();
            self.give(Input::Snapshot(snapshot));
        }
        let latency = std::mem::take(&mut self.latency);
        let requests = RequestStats {
            completed: Some(std::mem::take(&mut self.completed)),
            covered_ns: if self.covered { 50 * MS } else { 0 },
            latency: if self.covered {
                latency.into_iter().collect()
            } else {
                Vec::new()
            },
        };
        if !self.seen {
            let at_ns = self.now_ns();
            return self.give(Input::Unseen(Unseen { at_ns, requests }));
        }
        let sessions = self
            .members
            .values()
            .filter(|member| member.listed)
            .map(|member| member.state.clone())
            .collect();
        let tick = Tick {
            at_ns: self.now_ns(),
            requests,
            sessions,
            blind: self.blind.clone(),
        };
        let seen = self.effects.len();
        self.give(Input::Tick(tick));
        let orders: Vec<Order> = self.effects[seen..]
            .iter()
            .filter_map(as_order)
            .cloned()
            .collect();
        for order in orders {
            self.receive(order);
        }
    }

    pub fn blind(&mut self, reason: &str) {
        self.blind = vec![Blind {
            resource: LOCKS,
            reason: reason.to_owned(),
        }];
    }

    pub fn sees_again(&mut self) {
        self.blind.clear();
    }

    /// A lock behind the first resource: `key` waits for it, and nobody can tell who holds it. A view of one moment.
    pub fn waits_unseen(&mut self, key: u64) {
        let wait = Wait {
            waiter: SessionKey(key),
            instance: InstanceKey(77),
            mode: 0,
            since_ns: self.now_ns(),
            blockers: Vec::new(),
        };
        self.unseen(vec![wait]);
    }

    /// Nobody waits for a lock behind the first resource any more.
    pub fn waits_unseen_end(&mut self) {
        self.unseen(Vec::new());
    }

    fn unseen(&mut self, waits: Vec<Wait>) {
        let resource = ResourceId(LOCKS.0 + 1);
        self.blind = vec![Blind {
            resource,
            reason: "who waits is seen, who holds is not".to_owned(),
        }];
        let at_ns = self.now_ns();
        self.give(Input::Snapshot(Snapshot {
            at_ns,
            resource,
            evidence: Evidence::Walk,
            complete: true,
            waits,
            instances: Vec::new(),
        }));
    }

    pub fn lose(&mut self, count: u64) {
        let at_ns = self.now_ns();
        self.give(Input::Lost(Lost { at_ns, count }));
    }

    pub fn report(&mut self, order: &Order, result: OrderResult) {
        let report = OrderReport {
            at_ns: self.now_ns(),
            order: order.order,
            rung: order.rung,
            result,
        };
        self.give(Input::Outcome(report));
    }

    fn receive(&mut self, order: Order) {
        match self.obey {
            Obey::After(ms) | Obey::Statement(ms) => {
                self.report(&order, OrderResult::Accepted);
                self.due.push((self.now_ms + ms, order));
            }
            Obey::Refuse => self.report(&order, OrderResult::Refused("access denied".to_owned())),
            Obey::Miss => self.report(&order, OrderResult::Missed),
            Obey::Ignore => self.report(&order, OrderResult::Accepted),
            Obey::NotSent => self.report(&order, OrderResult::NotSent),
            Obey::Silent(ms) => {
                self.report(&order, OrderResult::Unknown("no answer".to_owned()));
                self.due.push((self.now_ms + ms, order));
            }
            Obey::Unsent => self.report(&order, OrderResult::Unsent("not connected".to_owned())),
        }
    }

    fn carry_out(&mut self) {
        let now_ms = self.now_ms;
        let (due, later) = std::mem::take(&mut self.due)
            .into_iter()
            .partition(|(at_ms, _)| *at_ms <= now_ms);
        self.due = later;
        let due: Vec<(u64, Order)> = due;
        for (_, order) in due {
            let key = order.task.session.0;
            match self.obey {
                Obey::Statement(_) if order.rung < 2 => self.idle(key, Activity::IdleInTransaction),
                _ => self.end(key),
            }
        }
        let (ending, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.ends_at)
            .into_iter()
            .partition(|(at_ms, _)| *at_ms <= now_ms);
        self.ends_at = later;
        for (_, key) in ending {
            self.end(key);
        }
    }
}
