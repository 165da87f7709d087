//! Reads a recording, frame by frame, trusting nothing in it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::vec::IntoIter;

use flate2::read::DeflateDecoder;

use crate::engine::Settings;
use crate::engine::input::Input;
use crate::engine::settings::Rerun;

use super::{
    CHECKSUM_BYTES, END, FRAME_HEADER_BYTES, HEADER_BYTES, INPUTS, MAGIC, MAX_PAYLOAD_BYTES,
    MAX_RAW_BYTES, RecordError, SETTINGS, VERSION, checksum,
};

/// An intact frame.
struct Frame {
    offset: u64,
    kind: u8,
    payload: Vec<u8>,
}

/// Reads a recording: an iterator over its inputs. After an error, or the end marker, it is over.
#[derive(Debug)]
pub struct RecordReader<R: Read> {
    source: Source<R>,
    settings: Settings,
    pending: IntoIter<Input>,
    over: bool,
}

/// The bytes, with the position for errors.
#[derive(Debug)]
struct Source<R> {
    from: R,
    /// Bytes read so far.
    offset: u64,
    sequence: u32,
    inputs: u64,
}

impl RecordReader<BufReader<File>> {
    /// Opens a file and reads its settings.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let file = File::open(path).map_err(|source| RecordError::Io { offset: 0, source })?;
        Self::new(BufReader::new(file))
    }
}

impl<R: Read> RecordReader<R> {
    /// Reads header and settings.
    pub fn new(from: R) -> Result<Self, RecordError> {
        let mut source = Source {
            from,
            offset: 0,
            sequence: 0,
            inputs: 0,
        };
        source.header()?;
        let frame = source.frame()?;
        let offset = frame.offset;
        if frame.kind != SETTINGS {
            return Err(source.broken(
                offset,
                format!("is of kind {}, where the settings must be", frame.kind),
            ));
        }
        let (settings, rest) = settings(&frame.payload).map_err(|error| RecordError::Decode {
            offset,
            what: "settings".to_owned(),
            why: error.to_string(),
        })?;
        if rest > 0 {
            return Err(source.broken(offset, format!("has {rest} bytes behind the settings")));
        }
        Ok(Self {
            source,
            settings,
            pending: Vec::new().into_iter(),
            over: false,
        })
    }

    /// The settings that the engine had.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Inputs given so far.
    pub fn inputs(&self) -> u64 {
        self.source.inputs
    }

    /// The next input, or what keeps it from being read; `None` behind the end marker.
    fn advance(&mut self) -> Result<Option<Input>, RecordError> {
        loop {
            if let Some(input) = self.pending.next() {
                self.source.inputs += 1;
                return Ok(Some(input));
            }
            let frame = self.source.frame()?;
            match frame.kind {
                INPUTS => self.pending = self.source.unpack(&frame)?.into_iter(),
                END => {
                    self.source.end(&frame)?;
                    return Ok(None);
                }
                kind => {
                    return Err(self
                        .source
                        .broken(frame.offset, format!("is of unknown kind {kind}")));
                }
            }
        }
    }
}

/// Decodes settings; returns how many bytes are left. The encoding has no names, so what was added last is missing in an
/// older recording: there the defaults stand in its place.
fn settings(payload: &[u8]) -> postcard::Result<(Settings, usize)> {
    let decode = |bytes: &[u8]| {
        let (settings, rest) = postcard::take_from_bytes(bytes)?;
        Ok((settings, rest.len()))
    };
    match decode(payload) {
        Err(postcard::Error::DeserializeUnexpectedEnd) => {
            let added = postcard::to_allocvec(&Rerun::default())?;
            decode(&[payload, &added].concat())
        }
        decoded => decoded,
    }
}

impl<R: Read> Iterator for RecordReader<R> {
    type Item = Result<Input, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.advance();
        self.over = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

impl<R: Read> Source<R> {
    fn header(&mut self) -> Result<(), RecordError> {
        let header = self.bytes(HEADER_BYTES)?;
        if !header.starts_with(&MAGIC) {
            return Err(RecordError::NotARecording);
        }
        let Ok(header): Result<[u8; HEADER_BYTES], _> = header.try_into() else {
            return Err(self.truncated("inside its header"));
        };
        let [_, _, _, _, _, _, _, _, low, high, ..] = header;
        let found = u16::from_le_bytes([low, high]);
        if crc32fast::hash(&header[..12]).to_le_bytes() != header[12..] {
            return Err(RecordError::Checksum {
                offset: 0,
                what: "header",
                inputs: 0,
            });
        }
        if found != VERSION {
            return Err(RecordError::Version { found });
        }
        Ok(())
    }

    /// The next frame, whole and in its place.
    fn frame(&mut self) -> Result<Frame, RecordError> {
        let offset = self.offset;
        let header = self.bytes(FRAME_HEADER_BYTES)?;
        if header.is_empty() {
            return Err(self.truncated("without its end marker"));
        }
        let Ok(header): Result<[u8; FRAME_HEADER_BYTES], _> = header.try_into() else {
            return Err(self.truncated("inside a frame"));
        };
        let [kind, s0, s1, s2, s3, l0, l1, l2, l3] = header;
        let (found, length) = (
            u32::from_le_bytes([s0, s1, s2, s3]),
            u32::from_le_bytes([l0, l1, l2, l3]),
        );
        if length > MAX_PAYLOAD_BYTES {
            return Err(self.broken(
                offset,
                format!("claims {length} bytes (at most {MAX_PAYLOAD_BYTES})"),
            ));
        }
        let payload = self.bytes(length as usize)?;
        let sum = self.bytes(CHECKSUM_BYTES)?;
        if payload.len() != length as usize || sum.len() != CHECKSUM_BYTES {
            return Err(self.truncated("inside a frame"));
        }
        if checksum(&header, &payload).to_le_bytes() != *sum {
            return Err(RecordError::Checksum {
                offset,
                what: "frame",
                inputs: self.inputs,
            });
        }
        if found != self.sequence {
            let why = format!(
                "has number {found} where {} must be: frames are missing or doubled",
                self.sequence
            );
            return Err(self.broken(offset, why));
        }
        self.sequence = self.sequence.wrapping_add(1);
        Ok(Frame {
            offset,
            kind,
            payload,
        })
    }

    /// The inputs of a frame.
    fn unpack(&self, frame: &Frame) -> Result<Vec<Input>, RecordError> {
        let offset = frame.offset;
        let [c0, c1, c2, c3, r0, r1, r2, r3, packed @ ..] = frame.payload.as_slice() else {
            return Err(self.broken(offset, "is too short for inputs".to_owned()));
        };
        let count = u32::from_le_bytes([*c0, *c1, *c2, *c3]);
        let length = u32::from_le_bytes([*r0, *r1, *r2, *r3]);
        if length > MAX_RAW_BYTES {
            return Err(self.broken(
                offset,
                format!("claims {length} bytes of inputs (at most {MAX_RAW_BYTES})"),
            ));
        }
        let mut raw = Vec::new();
        let unpacked = DeflateDecoder::new(packed)
            .take(u64::from(length) + 1)
            .read_to_end(&mut raw);
        if let Err(error) = unpacked {
            return Err(self.broken(offset, format!("cannot be decompressed: {error}")));
        }
        if raw.len() != length as usize {
            return Err(self.broken(
                offset,
                format!("does not hold the {length} bytes of inputs that it claims"),
            ));
        }
        let (mut inputs, mut rest) = (Vec::new(), raw.as_slice());
        for index in 0..count {
            let (input, behind) =
                postcard::take_from_bytes(rest).map_err(|error| RecordError::Decode {
                    offset,
                    what: format!("input {index}"),
                    why: error.to_string(),
                })?;
            inputs.push(input);
            rest = behind;
        }
        if !rest.is_empty() {
            return Err(self.broken(
                offset,
                format!("has {} bytes behind its {count} inputs", rest.len()),
            ));
        }
        Ok(inputs)
    }

    /// Checks the end marker, and that nothing follows.
    fn end(&mut self, frame: &Frame) -> Result<(), RecordError> {
        let claimed = <[u8; 8]>::try_from(frame.payload.as_slice()).map(u64::from_le_bytes);
        if claimed.ok() != Some(self.inputs) {
            let why = format!(
                "is an end marker for another number of inputs than the {} before it",
                self.inputs
            );
            return Err(self.broken(frame.offset, why));
        }
        let offset = self.offset;
        if !self.bytes(1)?.is_empty() {
            return Err(self.broken(offset, "lies behind the end marker".to_owned()));
        }
        Ok(())
    }

    /// Up to `count` bytes; fewer only at the end of the file. Never allocates more than is there.
    fn bytes(&mut self, count: usize) -> Result<Vec<u8>, RecordError> {
        let mut bytes = Vec::new();
        match self
            .from
            .by_ref()
            .take(count as u64)
            .read_to_end(&mut bytes)
        {
            Ok(read) => {
                self.offset += read as u64;
                Ok(bytes)
            }
            Err(source) => Err(RecordError::Io {
                offset: self.offset + bytes.len() as u64,
                source,
            }),
        }
    }

    fn truncated(&self, inside: &'static str) -> RecordError {
        RecordError::Truncated {
            offset: self.offset,
            inside,
            inputs: self.inputs,
        }
    }

    fn broken(&self, offset: u64, why: String) -> RecordError {
        RecordError::Frame {
            offset,
            why,
            inputs: self.inputs,
        }
    }
}
