//! The desk where orders are put down for threads to find, and what came of them.
//!
//! The places where a thread finds its order are attached to its process alone, and only while the order waits: nobody else
//! pays for them, and the one who pays is about to be ended.

use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use atropos_common::order::{OrderKey, OrderState, OrderValue};
use aya::maps::{HashMap, Map, MapData};

use super::event::{self, Spot};
use super::site::SiteLink;
use crate::cancel::exact::{Desk, Found, Note};
use crate::target::HeldPath;

/// A place where a thread finds its order.
#[derive(Clone, Debug)]
pub struct OrderSite {
    /// Its number in `SITES`, where the meaning of the place must have been said.
    pub cookie: u16,
    /// File, as a path for us.
    pub file: HeldPath,
    /// Offset in the file.
    pub offset: u64,
    /// Offset of the semaphore, for a USDT site.
    pub semaphore_offset: Option<u64>,
}

/// The desk.
pub struct Orders {
    map: HashMap<MapData, OrderKey, OrderValue>,
    program: OwnedFd,
    sites: Vec<OrderSite>,
    links: Vec<SiteLink>,
}

impl Orders {
    pub(super) fn new(map: Map, program: OwnedFd) -> Result<Self> {
        Ok(Self {
            map: HashMap::try_from(map).context("map ORDERS")?,
            program,
            sites: Vec::new(),
            links: Vec::new(),
        })
    }

    /// The same desk with these places.
    #[must_use]
    pub fn at(self, sites: Vec<OrderSite>) -> Self {
        Self { sites, ..self }
    }

    /// Orders that lie there, found or not.
    pub fn count(&self) -> usize {
        self.map.keys().filter_map(Result::ok).count()
    }

    fn attach(&self, pid: u32) -> Result<Vec<SiteLink>> {
        self.sites
            .iter()
            .map(|site| {
                let spot = Spot {
                    cookie: site.cookie,
                    file: &site.file,
                    offset: site.offset,
                    semaphore_offset: site.semaphore_offset,
                    pid: Some(pid),
                };
                event::attach(self.program.as_fd(), &spot).map(SiteLink::from)
            })
            .collect()
    }
}

impl Desk for Orders {
    fn open(&mut self, pid: u32) -> Result<(), String> {
        self.links = self.attach(pid).map_err(|error| format!("{error:#}"))?;
        Ok(())
    }

    fn put(&mut self, note: &Note) -> Result<(), String> {
        let Note {
            pid,
            tid,
            request,
            signal,
            deadline_ns,
        } = *note;
        let value = OrderValue {
            request,
            deadline_ns,
            found_ns: 0,
            found_request: 0,
            signal,
            state: OrderState::Waiting as u32,
            unknown: 0,
            reserved: 0,
        };
        self.map
            .insert(OrderKey { pid, tid }, value, 0)
            .map_err(|error| format!("cannot write map ORDERS: {error}"))
    }

    fn look(&self, note: &Note) -> Result<Found, String> {
        let key = OrderKey {
            pid: note.pid,
            tid: note.tid,
        };
        let value = self
            .map
            .get(&key, 0)
            .map_err(|error| format!("cannot read map ORDERS: {error}"))?;
        let OrderValue {
            found_ns,
            found_request: request,
            unknown,
            ..
        } = value;
        Ok(match OrderState::from_u32(value.state) {
            Some(OrderState::Delivered) => Found::Delivered { at_ns: found_ns },
            Some(OrderState::Missed) => Found::Missed { request },
            Some(OrderState::Refused) => Found::Refused,
            Some(OrderState::Waiting) | None => Found::Waiting { unknown },
        })
    }

    fn take_back(&mut self, note: &Note) {
        let _ = self.map.remove(&OrderKey {
            pid: note.pid,
            tid: note.tid,
        });
    }

    fn close(&mut self) {
        let links = std::mem::take(&mut self.links);
        // Detaching waits for the kernel.
        std::thread::spawn(move || drop(links));
    }
}
