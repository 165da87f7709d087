//! Writes a recording. Inputs are collected and written as one compressed frame a second.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use flate2::Compression;
use flate2::write::DeflateEncoder;

use crate::engine::Settings;
use crate::engine::input::Input;

use super::{END, FRAME_HEADER_BYTES, HEADER_BYTES, INPUTS, MAGIC, SETTINGS, VERSION, checksum};

/// A frame is written when its inputs span this long: as much as a killed agent may lose.
const FRAME_SPAN_NS: u64 = 1_000_000_000;
/// Or when they take this much room.
const FRAME_BYTES: usize = 256 << 10;

/// Writes a recording.
#[derive(Debug)]
pub struct RecordWriter<W: Write> {
    out: W,
    /// Encoded inputs that wait for the next frame.
    raw: Vec<u8>,
    raw_count: u32,
    /// Time of the tick that began the frame.
    since_ns: Option<u64>,
    sequence: u32,
    inputs: u64,
}

impl RecordWriter<BufWriter<File>> {
    /// Into a file, readable by its owner alone: it holds user names and statements without literals.
    pub fn create(path: &Path, settings: &Settings) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        Self::new(BufWriter::new(file), settings)
    }
}

impl<W: Write> RecordWriter<W> {
    /// Writes the header and the settings.
    pub fn new(out: W, settings: &Settings) -> io::Result<Self> {
        let mut writer = Self {
            out,
            raw: Vec::new(),
            raw_count: 0,
            since_ns: None,
            sequence: 0,
            inputs: 0,
        };
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..10].copy_from_slice(&VERSION.to_le_bytes());
        let sum = crc32fast::hash(&header[..12]);
        header[12..].copy_from_slice(&sum.to_le_bytes());
        writer.out.write_all(&header)?;
        let settings = postcard::to_stdvec(settings).map_err(io::Error::other)?;
        writer.frame(SETTINGS, &settings)?;
        writer.out.flush()?;
        Ok(writer)
    }

    /// Adds an input. Writes only when a frame is full.
    pub fn push(&mut self, input: &Input) -> io::Result<()> {
        let raw = std::mem::take(&mut self.raw);
        self.raw = postcard::to_extend(input, raw).map_err(io::Error::other)?;
        self.raw_count += 1;
        self.inputs += 1;
        let due = match input {
            Input::Tick(tick) => {
                let since_ns = *self.since_ns.get_or_insert(tick.at_ns);
                tick.at_ns.saturating_sub(since_ns) >= FRAME_SPAN_NS
            }
            _ => false,
        };
        if due || self.raw.len() >= FRAME_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes what is collected.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.raw_count > 0 {
            let mut payload = Vec::with_capacity(self.raw.len() / 4 + 16);
            payload.extend_from_slice(&self.raw_count.to_le_bytes());
            payload.extend_from_slice(&(self.raw.len() as u32).to_le_bytes());
            let mut encoder = DeflateEncoder::new(payload, Compression::fast());
            encoder.write_all(&self.raw)?;
            let payload = encoder.finish()?;
            self.frame(INPUTS, &payload)?;
            self.raw.clear();
            self.raw_count = 0;
            self.since_ns = None;
        }
        self.out.flush()
    }

    /// Writes the rest and the end marker.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        let count = self.inputs.to_le_bytes();
        self.frame(END, &count)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn frame(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let mut header = [0; FRAME_HEADER_BYTES];
        header[0] = kind;
        header[1..5].copy_from_slice(&self.sequence.to_le_bytes());
        header[5..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        self.out.write_all(&header)?;
        self.out.write_all(payload)?;
        self.out
            .write_all(&checksum(&header, payload).to_le_bytes())?;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }
}
