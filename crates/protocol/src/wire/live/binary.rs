//! Binary frames of `/live`, the fast path for audio and pictures: an eight-byte header, then the payload.
//!
//! `[u8 kind][u8 flags][u16 turn][u32 sequence][payload]`, little-endian. Eight bytes keep 16-bit samples aligned.

use super::{MAX_AUDIO_BYTES, MAX_VIDEO_FRAME_BYTES};

/// The length of the header.
pub const HEADER_BYTES: usize = 8;

/// One binary frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "named as on the wire; PROTOCOL.md describes them"
)]
pub struct BinaryFrame<'a> {
    pub kind: Kind,
    pub flags: Flags,
    /// The turn that it belongs to; players drop late frames of a cancelled turn.
    pub turn: u16,
    pub sequence: u32,
    pub payload: &'a [u8],
}

/// The kind of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// From the client: 16-bit little-endian PCM, 16 kHz, mono.
    Microphone = 1,
    /// From the server: 16-bit little-endian PCM, 24 kHz, mono.
    Model = 2,
    /// From the client: a picture of the camera.
    Jpeg = 3,
}

/// The flags of a frame, which can be combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// Recorded before the user pressed the key.
    pub pre_roll: bool,
    /// Whether no more of the turn is to come.
    pub last_of_turn: bool,
}

/// Who sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The front end.
    Client,
    /// The bridge.
    Server,
}

/// Why a binary frame was refused; the connection stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it means")]
pub enum BinaryError {
    #[error("binary frame of {size} bytes is shorter than its header of 8")]
    TooShort { size: usize },
    #[error("unknown kind {0} of binary frame; known are 1 (microphone), 2 (model) and 3 (JPEG)")]
    UnknownKind(u8),
    #[error("unknown flags 0x{0:02x} of binary frame; known are 1 (pre-roll) and 2 (last of turn)")]
    UnknownFlags(u8),
    #[error("binary frame of kind {kind} cannot come from the {from}")]
    WrongDirection { kind: u8, from: &'static str },
    #[error("payload of {size} bytes is cut; send whole samples of two bytes")]
    CutSample { size: usize },
    #[error("payload of {size} bytes is longer than {limit}; send less at once")]
    TooLarge { size: usize, limit: usize },
}

impl BinaryError {
    /// Returns the stable name of this error on the wire.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooShort { .. } => "bad_binary",
            Self::UnknownKind(_) | Self::UnknownFlags(_) | Self::WrongDirection { .. } => {
                "unknown_frame"
            }
            Self::CutSample { .. } => "bad_audio_format",
            Self::TooLarge { .. } => "too_large",
        }
    }
}

impl<'a> BinaryFrame<'a> {
    /// Reads a frame that came from `sender`.
    pub fn parse(bytes: &'a [u8], sender: Sender) -> Result<Self, BinaryError> {
        let Some((&[kind, flags, t0, t1, s0, s1, s2, s3], payload)) =
            bytes.split_first_chunk::<HEADER_BYTES>()
        else {
            return Err(BinaryError::TooShort { size: bytes.len() });
        };
        let frame = Self {
            kind: Kind::from_byte(kind).ok_or(BinaryError::UnknownKind(kind))?,
            flags: Flags::from_byte(flags).ok_or(BinaryError::UnknownFlags(flags))?,
            turn: u16::from_le_bytes([t0, t1]),
            sequence: u32::from_le_bytes([s0, s1, s2, s3]),
            payload,
        };
        frame.check(sender)?;
        Ok(frame)
    }

    /// Appends the frame.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(HEADER_BYTES + self.payload.len());
        out.extend_from_slice(&[self.kind as u8, self.flags.to_byte()]);
        out.extend_from_slice(&self.turn.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(self.payload);
    }

    fn check(&self, sender: Sender) -> Result<(), BinaryError> {
        let (expected, from) = match self.kind {
            Kind::Microphone | Kind::Jpeg => (Sender::Client, "server"),
            Kind::Model => (Sender::Server, "client"),
        };
        if sender != expected {
            return Err(BinaryError::WrongDirection {
                kind: self.kind as u8,
                from,
            });
        }
        let size = self.payload.len();
        let limit = match self.kind {
            Kind::Microphone | Kind::Model => MAX_AUDIO_BYTES,
            Kind::Jpeg => MAX_VIDEO_FRAME_BYTES,
        };
        if size > limit {
            return Err(BinaryError::TooLarge { size, limit });
        }
        if self.kind != Kind::Jpeg && !size.is_multiple_of(2) {
            return Err(BinaryError::CutSample { size });
        }
        Ok(())
    }
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Microphone, Self::Model, Self::Jpeg]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

impl Flags {
    const PRE_ROLL: u8 = 1;
    const LAST_OF_TURN: u8 = 2;

    fn from_byte(byte: u8) -> Option<Self> {
        (byte & !(Self::PRE_ROLL | Self::LAST_OF_TURN) == 0).then_some(Self {
            pre_roll: byte & Self::PRE_ROLL != 0,
            last_of_turn: byte & Self::LAST_OF_TURN != 0,
        })
    }

    fn to_byte(self) -> u8 {
        u8::from(self.pre_roll) * Self::PRE_ROLL + u8::from(self.last_of_turn) * Self::LAST_OF_TURN
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_layout_is_fixed() {
        let frame = BinaryFrame {
            kind: Kind::Model,
            flags: Flags {
                pre_roll: false,
                last_of_turn: true,
            },
            turn: 0x0102,
            sequence: 0x0304_0506,
            payload: &[7, 8],
        };
        let mut out = Vec::new();
        frame.write(&mut out);
        assert_eq!(out, [2, 2, 2, 1, 6, 5, 4, 3, 7, 8]);
        assert_eq!(BinaryFrame::parse(&out, Sender::Server), Ok(frame));
    }

    #[test]
    fn refuses_by_name() {
        use BinaryError::*;
        use Sender::*;
        let big = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &vec![0; MAX_AUDIO_BYTES + 2]].concat();
        let cases: &[(&[u8], Sender, BinaryError, &str)] = &[
            (&[], Client, TooShort { size: 0 }, "bad_binary"),
            (
                &[1, 0, 0, 0, 0, 0, 0],
                Client,
                TooShort { size: 7 },
                "bad_binary",
            ),
            (&[0; 8], Client, UnknownKind(0), "unknown_frame"),
            (
                &[9, 0, 0, 0, 0, 0, 0, 0],
                Client,
                UnknownKind(9),
                "unknown_frame",
            ),
            (
                &[1, 4, 0, 0, 0, 0, 0, 0],
                Client,
                UnknownFlags(4),
                "unknown_frame",
            ),
            (
                &[1, 0, 0, 0, 0, 0, 0, 0, 1],
                Client,
                CutSample { size: 1 },
                "bad_audio_format",
            ),
            (
                &[2, 0, 0, 0, 0, 0, 0, 0],
                Client,
                WrongDirection {
                    kind: 2,
                    from: "client",
                },
                "unknown_frame",
            ),
            (
                &[1, 0, 0, 0, 0, 0, 0, 0],
                Server,
                WrongDirection {
                    kind: 1,
                    from: "server",
                },
                "unknown_frame",
            ),
            (
                &[3, 0, 0, 0, 0, 0, 0, 0],
                Server,
                WrongDirection {
                    kind: 3,
                    from: "server",
                },
                "unknown_frame",
            ),
            (
                &big,
                Client,
                TooLarge {
                    size: MAX_AUDIO_BYTES + 2,
                    limit: MAX_AUDIO_BYTES,
                },
                "too_large",
            ),
        ];
        for (bytes, sender, error, code) in cases {
            assert_eq!(BinaryFrame::parse(bytes, *sender), Err(*error));
            assert_eq!(error.code(), *code);
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(bytes in proptest::collection::vec(any::<u8>(), 0..40), kind in 0u8..5, flags in 0u8..6) {
            let mut bytes = bytes;
            for (byte, value) in bytes.iter_mut().zip([kind, flags]) {
                *byte = value;
            }
            for sender in [Sender::Client, Sender::Server] {
                if let Ok(frame) = BinaryFrame::parse(&bytes, sender) {
                    let mut out = Vec::new();
                    frame.write(&mut out);
                    prop_assert_eq!(&out, &bytes);
                }
            }
        }

        #[test]
        fn frames_come_back(
            turn: u16,
            sequence: u32,
            pre_roll: bool,
            last_of_turn: bool,
            samples in proptest::collection::vec(any::<[u8; 2]>(), 0..20),
            kind in prop_oneof![Just(Kind::Microphone), Just(Kind::Model), Just(Kind::Jpeg)],
        ) {
            let payload = samples.concat();
            let frame = BinaryFrame { kind, flags: Flags { pre_roll, last_of_turn }, turn, sequence, payload: &payload };
            let sender = if kind == Kind::Model { Sender::Server } else { Sender::Client };
            let mut out = Vec::new();
            frame.write(&mut out);
            prop_assert_eq!(BinaryFrame::parse(&out, sender), Ok(frame));
        }
    }
}
