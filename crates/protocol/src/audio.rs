//! PCM audio: reading a format from its media type, counting samples, and the WAV header that makes it playable.

use std::fmt;

/// The rate of model speech if its media type names none.
pub const MODEL_SAMPLE_RATE: u32 = 24_000;
/// The rate of microphone audio.
pub const MICROPHONE_SAMPLE_RATE: u32 = 16_000;
/// The rate of telephone speech, the lowest in use.
pub const MIN_SAMPLE_RATE: u32 = 8_000;
/// The highest rate that sound cards offer.
pub const MAX_SAMPLE_RATE: u32 = 192_000;
/// Speech is mono; stereo is the most that a recording holds.
pub const MAX_CHANNELS: u16 = 2;
/// The length of a WAV header without extensions.
pub const WAV_HEADER_BYTES: usize = 44;

const BYTES_PER_SAMPLE: u16 = 2;
/// A WAV file counts its bytes, without the first eight, in 32 bits.
const MAX_WAV_DATA_BYTES: usize = (u32::MAX - (WAV_HEADER_BYTES as u32 - 8)) as usize;

/// How PCM bytes are to be read: signed 16-bit little-endian samples, interleaved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcmFormat {
    sample_rate: u32,
    channels: u16,
}

/// Why audio was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it means")]
pub enum AudioError {
    #[error("media type {0:?} is not 16-bit PCM; send audio/pcm")]
    NotPcm(String),
    #[error("{parameter}={found:?} is not usable; {expected}")]
    BadParameter {
        parameter: &'static str,
        found: String,
        expected: &'static str,
    },
    #[error("{bytes} bytes do not divide into frames of {frame} bytes; the audio was cut")]
    CutSample { bytes: usize, frame: usize },
    #[error("{bytes} bytes do not fit into one WAV file; split the audio")]
    TooLong { bytes: usize },
}

impl PcmFormat {
    /// What the model speaks.
    pub const MODEL: Self = Self {
        sample_rate: MODEL_SAMPLE_RATE,
        channels: 1,
    };
    /// What microphones deliver.
    pub const MICROPHONE: Self = Self {
        sample_rate: MICROPHONE_SAMPLE_RATE,
        channels: 1,
    };

    /// Checks rate and channels.
    pub fn new(sample_rate: u32, channels: u16) -> Result<Self, AudioError> {
        if !(MIN_SAMPLE_RATE..=MAX_SAMPLE_RATE).contains(&sample_rate) {
            return Err(AudioError::BadParameter {
                parameter: "rate",
                found: sample_rate.to_string(),
                expected: "send a rate between 8000 and 192000",
            });
        }
        if !(1..=MAX_CHANNELS).contains(&channels) {
            return Err(AudioError::BadParameter {
                parameter: "channels",
                found: channels.to_string(),
                expected: "send one or two channels",
            });
        }
        Ok(Self {
            sample_rate,
            channels,
        })
    }

    /// Reads a media type such as `audio/pcm;rate=24000`; without a rate it is the model's.
    ///
    /// `audio/L16` is accepted as well, and read as little-endian: the models that use this name send it that way.
    pub fn from_media_type(media_type: &str) -> Result<Self, AudioError> {
        let mut pieces = media_type.split(';').map(str::trim);
        let essence = pieces.next().unwrap_or_default();
        if !["audio/pcm", "audio/l16"]
            .iter()
            .any(|known| essence.eq_ignore_ascii_case(known))
        {
            return Err(AudioError::NotPcm(excerpt(essence)));
        }
        let (mut rate, mut channels) = (MODEL_SAMPLE_RATE, 1);
        for piece in pieces {
            let Some((name, value)) = piece.split_once('=') else {
                continue;
            };
            let (name, value) = (name.trim(), value.trim().trim_matches('"'));
            if name.eq_ignore_ascii_case("rate") {
                rate = number(value, "rate")?;
            } else if name.eq_ignore_ascii_case("channels") {
                channels = number(value, "channels")?;
            }
        }
        Self::new(rate, channels)
    }

    /// How many samples of each channel a second has.
    pub fn sample_rate(self) -> u32 {
        self.sample_rate
    }

    /// How many channels there are.
    pub fn channels(self) -> u16 {
        self.channels
    }

    /// Returns the bytes of one sample of every channel.
    pub fn frame_bytes(self) -> usize {
        usize::from(self.channels * BYTES_PER_SAMPLE)
    }

    /// Counts the samples per channel in `bytes` bytes.
    pub fn samples(self, bytes: usize) -> Result<usize, AudioError> {
        let frame = self.frame_bytes();
        if bytes.is_multiple_of(frame) {
            Ok(bytes / frame)
        } else {
            Err(AudioError::CutSample { bytes, frame })
        }
    }
}

/// Writes the media type that the models understand.
impl fmt::Display for PcmFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "audio/pcm;rate={}", self.sample_rate)?;
        if self.channels > 1 {
            write!(f, ";channels={}", self.channels)?;
        }
        Ok(())
    }
}

/// Returns the header of a WAV file that holds `data_bytes` bytes of PCM.
pub fn wav_header(
    data_bytes: usize,
    format: PcmFormat,
) -> Result<[u8; WAV_HEADER_BYTES], AudioError> {
    format.samples(data_bytes)?;
    let too_long = AudioError::TooLong { bytes: data_bytes };
    if data_bytes > MAX_WAV_DATA_BYTES {
        return Err(too_long);
    }
    let data = u32::try_from(data_bytes).map_err(|_| too_long)?;
    let frame = format.channels * BYTES_PER_SAMPLE;
    let fields: [&[u8]; 13] = [
        b"RIFF",
        &(data + (WAV_HEADER_BYTES as u32 - 8)).to_le_bytes(),
        b"WAVE",
        b"fmt ",
        &16u32.to_le_bytes(),
        &1u16.to_le_bytes(),
        &format.channels.to_le_bytes(),
        &format.sample_rate.to_le_bytes(),
        &(format.sample_rate * u32::from(frame)).to_le_bytes(),
        &frame.to_le_bytes(),
        &(BYTES_PER_SAMPLE * 8).to_le_bytes(),
        b"data",
        &data.to_le_bytes(),
    ];
    let mut header = [0; WAV_HEADER_BYTES];
    let mut at = 0;
    for field in fields {
        header[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    Ok(header)
}

/// Returns PCM as a WAV file.
pub fn wav(pcm: &[u8], format: PcmFormat) -> Result<Vec<u8>, AudioError> {
    let header = wav_header(pcm.len(), format)?;
    let mut file = Vec::with_capacity(header.len() + pcm.len());
    file.extend_from_slice(&header);
    file.extend_from_slice(pcm);
    Ok(file)
}

fn number<T: std::str::FromStr>(value: &str, parameter: &'static str) -> Result<T, AudioError> {
    value.parse().map_err(|_| AudioError::BadParameter {
        parameter,
        found: excerpt(value),
        expected: "send a whole number",
    })
}

/// Limits how much of a media type, which comes from outside, an error message repeats.
fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_media_types() {
        let cases = [
            ("audio/pcm;rate=24000", 24_000, 1),
            ("audio/pcm", 24_000, 1),
            ("audio/pcm;", 24_000, 1),
            ("Audio/PCM ; Rate = 16000", 16_000, 1),
            ("audio/pcm;rate=\"48000\";channels=2", 48_000, 2),
            ("audio/L16;codec=pcm;rate=24000", 24_000, 1),
            ("audio/pcm;endian=little;rate=8000", 8_000, 1),
        ];
        for (media_type, rate, channels) in cases {
            let format = PcmFormat::from_media_type(media_type).unwrap();
            assert_eq!(
                (format.sample_rate(), format.channels()),
                (rate, channels),
                "{media_type}"
            );
            assert_eq!(PcmFormat::from_media_type(&format.to_string()), Ok(format));
        }
    }

    #[test]
    fn refuses_nonsense_by_name() {
        let cases = [
            ("", "is not 16-bit PCM"),
            ("audio/mpeg", "\"audio/mpeg\" is not 16-bit PCM"),
            ("audio/pcm16k", "is not 16-bit PCM"),
            ("audio/pcm;rate=", "rate=\"\""),
            ("audio/pcm;rate=-1", "rate=\"-1\""),
            ("audio/pcm;rate=0", "rate=\"0\""),
            ("audio/pcm;rate=4294967296", "send a whole number"),
            ("audio/pcm;rate=1000000", "between 8000 and 192000"),
            ("audio/pcm;channels=0", "one or two channels"),
            ("audio/pcm;channels=6", "one or two channels"),
        ];
        for (media_type, message) in cases {
            let error = PcmFormat::from_media_type(media_type)
                .unwrap_err()
                .to_string();
            assert!(error.contains(message), "{media_type}: {error}");
        }
    }

    #[test]
    fn counts_samples() {
        assert_eq!(PcmFormat::MODEL.samples(960), Ok(480));
        assert_eq!(
            PcmFormat::MODEL.samples(3),
            Err(AudioError::CutSample { bytes: 3, frame: 2 })
        );
        assert_eq!(PcmFormat::new(48_000, 2).unwrap().samples(8), Ok(2));
    }

    #[test]
    fn the_header_is_exact() {
        let file = wav(&[1, 2, 3, 4], PcmFormat::MODEL).unwrap();
        let expected = b"RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\xc0\x5d\0\0\x80\xbb\0\0\x02\0\x10\0data\x04\0\0\0\x01\x02\x03\x04";
        assert_eq!(file, expected);
    }

    #[test]
    fn refuses_what_no_wav_can_hold() {
        let most = u32::MAX as usize - 37;
        assert!(wav_header(most, PcmFormat::MODEL).is_ok());
        assert_eq!(
            wav_header(most + 2, PcmFormat::MODEL),
            Err(AudioError::TooLong { bytes: most + 2 })
        );
        assert!(matches!(
            wav(&[0], PcmFormat::MODEL),
            Err(AudioError::CutSample { .. })
        ));
    }

    proptest! {
        #[test]
        fn any_media_type_is_read_or_refused(text in "(audio/pcm)?[;=a-z0-9 \"\u{e9}]{0,30}") {
            if let Ok(format) = PcmFormat::from_media_type(&text) {
                prop_assert_eq!(PcmFormat::new(format.sample_rate(), format.channels()), Ok(format));
            }
        }
    }
}
