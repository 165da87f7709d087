//! Every map, in one place. Names are at most 15 bytes, since the kernel cuts longer ones.

use atropos_common::histogram::BUCKETS;
use atropos_common::limits::{
    KNOWN_BLOCK, Loss, MAX_OPEN, MAX_ORDERS, MAX_PROCESSES, MAX_SESSIONS, MAX_SITES, MAX_UNITS,
    MAX_USES, MAX_WAKES, PROCESS_IDS, RING_BYTES, Since,
};
use atropos_common::namespace::PidNamespace;
use atropos_common::order::{OrderKey, OrderValue};
use atropos_common::record::{
    EventRecord, OpenKey, OpenValue, SessionKey, SessionValue, UnitKey, UnitValue, UsageKey,
    UsageValue,
};
use atropos_common::scope::Scope;
use atropos_common::site::SiteSpec;
use atropos_common::wake::{WakeKey, WakeValue};
use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::btf_maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf};
use aya_ebpf::macros::btf_map;

/// What each site means, by cookie. Written by the agent before the site is attached.
#[btf_map]
pub(crate) static SITES: Array<SiteSpec, { MAX_SITES as usize }> = Array::new();

/// Processes that count.
#[btf_map]
pub(crate) static SCOPE: HashMap<u32, Scope, { MAX_PROCESSES as usize }> = HashMap::new();

/// Of which processes it is known that they count, a byte for each process id: looking into `SCOPE` costs more than all else that a
/// passing does. The kernel half fills it by itself; whoever clears a byte, or a whole block, makes somebody look again.
#[btf_map]
pub(crate) static KNOWN: Array<
    [u8; KNOWN_BLOCK as usize],
    { PROCESS_IDS.div_ceil(KNOWN_BLOCK) as usize },
> = Array::new();

/// How the target counts its processes and threads. Written by the agent before the first site is attached.
#[btf_map]
pub(crate) static NAMESPACE: Array<PidNamespace, 1> = Array::new();

/// The request in progress of each session.
#[btf_map]
pub(crate) static SESSIONS: HashMap<SessionKey, SessionValue, { MAX_SESSIONS as usize }> =
    HashMap::new();

/// Waits and holds in progress, of sites that ask for it.
#[btf_map]
pub(crate) static OPEN: HashMap<OpenKey, OpenValue, { MAX_OPEN as usize }> = HashMap::new();

/// What each session uses of MEMORY resources.
#[btf_map]
pub(crate) static USES: HashMap<UsageKey, UsageValue, { MAX_USES as usize }> = HashMap::new();

/// Who brought each unit of a MEMORY resource in, or drove it out.
#[btf_map]
pub(crate) static UNITS: LruHashMap<UnitKey, UnitValue, { MAX_UNITS as usize }> = LruHashMap::new();

/// Orders that wait for their threads. Put down and taken back by the agent.
#[btf_map]
pub(crate) static ORDERS: HashMap<OrderKey, OrderValue, { MAX_ORDERS as usize }> = HashMap::new();

/// Who woke whom, while somebody asks for it.
#[btf_map]
pub(crate) static WAKES: LruHashMap<WakeKey, WakeValue, { MAX_WAKES as usize }> = LruHashMap::new();

/// Latencies of completed requests by bucket. This map and the two behind it hold one value for each CPU, a whole array, so that
/// the agent reads it in one call.
#[btf_map]
pub(crate) static LATENCY: PerCpuArray<[u64; BUCKETS], 1> = PerCpuArray::new();

/// How often each site was passed in scope.
#[btf_map]
pub(crate) static HITS: PerCpuArray<[u64; MAX_SITES as usize], 1> = PerCpuArray::new();

/// What could not be kept, by [`Loss`].
#[btf_map]
pub(crate) static LOST: PerCpuArray<[u64; Loss::COUNT], 1> = PerCpuArray::new();

/// Since when what is kept is whole (`CLOCK_MONOTONIC` ns), by [`Since`]: what is older was kept by probes that have been away
/// since.
#[btf_map]
pub(crate) static SINCE: Array<u64, { Since::COUNT }> = Array::new();

/// Transitions on their way to the agent.
#[btf_map]
pub(crate) static EVENTS: RingBuf<EventRecord, { RING_BYTES as usize }> = RingBuf::new();

/// Flag of a record's submission. The agent drains once a tick and sleeps on no ring; without the flag, whoever passes a
/// site while the ring is empty would pay an interrupt to itself to wake nobody.
pub(crate) const NO_WAKEUP: u64 = BPF_RB_NO_WAKEUP as u64;
