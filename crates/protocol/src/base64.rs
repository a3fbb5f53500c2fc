//! Base64 as the two ends write it: ADK emits the URL-safe alphabet, browsers and data URLs the standard one.

use std::borrow::Cow;

use ::base64::DecodeError;
use ::base64::Engine as _;
use ::base64::alphabet::{STANDARD, URL_SAFE};
use ::base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Why a text is not base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it means")]
pub enum Base64Error {
    /// A byte outside the alphabet, or from the other alphabet than the rest of the text.
    #[error("byte 0x{byte:02x} at position {at} is not base64")]
    BadByte { at: usize, byte: u8 },
    /// A single symbol is left over: the text was cut.
    #[error("{length} symbols cannot be base64; the text was cut")]
    BadLength { length: usize },
    /// Padding in the wrong number or place.
    #[error("wrong padding at position {at}")]
    BadPadding { at: usize },
}

/// Decodes either alphabet, with or without padding; white space is refused.
pub fn decode(text: &str) -> Result<Vec<u8>, Base64Error> {
    let engine = if is_url_safe(text) {
        &URL_SAFE_ENGINE
    } else {
        &STANDARD_ENGINE
    };
    engine.decode(text).map_err(|error| match error {
        DecodeError::InvalidByte(at, b'=') => Base64Error::BadPadding { at },
        DecodeError::InvalidByte(at, byte) | DecodeError::InvalidLastSymbol(at, byte) => {
            Base64Error::BadByte { at, byte }
        }
        DecodeError::InvalidLength(length) => Base64Error::BadLength { length },
        DecodeError::InvalidPadding => Base64Error::BadPadding {
            at: text.trim_end_matches('=').len(),
        },
    })
}

/// Encodes with the standard alphabet and padding.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD_ENGINE.encode(bytes)
}

/// Returns the number of bytes that a text of this length decodes to at most, to check a limit before decoding.
pub fn decoded_len(text: &str) -> usize {
    let symbols = text.trim_end_matches('=').len();
    symbols / 4 * 3 + symbols % 4 * 3 / 4
}

/// Rewrites base64 into the standard, padded form without decoding it; text already in that form is borrowed.
///
/// The text is not checked: if it is not base64, neither is the result.
pub fn to_standard(text: &str) -> Cow<'_, str> {
    let padding = match text.len() % 4 {
        2 => "==",
        3 => "=",
        _ => "",
    };
    if is_url_safe(text) {
        let mut standard = String::with_capacity(text.len() + padding.len());
        standard.extend(text.chars().map(|symbol| match symbol {
            '-' => '+',
            '_' => '/',
            other => other,
        }));
        standard.push_str(padding);
        Cow::Owned(standard)
    } else if padding.is_empty() {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("{text}{padding}"))
    }
}

/// Padding is optional, and stray bits in the last symbol are ignored, as browsers and Python do.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD_ENGINE: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);
const URL_SAFE_ENGINE: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);

fn is_url_safe(text: &str) -> bool {
    memchr::memchr2(b'-', b'_', text.as_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use ::base64::engine::general_purpose;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decodes_both_alphabets() {
        let cases: &[(&str, &[u8])] = &[
            ("", b""),
            ("AA==", &[0]),
            ("AA", &[0]),
            ("AA=", &[0]),
            ("AB", &[0]),
            ("+/+/", &[0xfb, 0xff, 0xbf]),
            ("-_-_", &[0xfb, 0xff, 0xbf]),
            ("-_8=", &[0xfb, 0xff]),
            ("-_8", &[0xfb, 0xff]),
            ("aGVsbG8gYXJ0aWZhY3Q=", b"hello artifact"),
        ];
        for (text, bytes) in cases {
            assert_eq!(decode(text).as_deref(), Ok(*bytes), "{text}");
            assert!(decoded_len(text) >= bytes.len(), "{text}");
        }
    }

    #[test]
    fn names_what_is_wrong_and_where() {
        use Base64Error::*;
        let cases = [
            ("AA A", BadByte { at: 2, byte: b' ' }),
            ("AAAA\n", BadByte { at: 4, byte: b'\n' }),
            ("AA-+", BadByte { at: 3, byte: b'+' }),
            ("AA*A", BadByte { at: 2, byte: b'*' }),
            ("AAAAA", BadLength { length: 5 }),
            ("A=AA", BadPadding { at: 1 }),
            ("=", BadPadding { at: 0 }),
        ];
        for (text, error) in cases {
            assert_eq!(decode(text), Err(error), "{text}");
        }
    }

    #[test]
    fn standard_text_is_borrowed() {
        assert!(matches!(to_standard("+/8="), Cow::Borrowed("+/8=")));
        assert_eq!(to_standard("-_8="), "+/8=");
        assert_eq!(to_standard("-_8"), "+/8=");
        assert_eq!(to_standard("AA"), "AA==");
        assert_eq!(to_standard("AA="), "AA==");
    }

    proptest! {
        #[test]
        fn agrees_with_the_library(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let standard = general_purpose::STANDARD.encode(&bytes);
            prop_assert_eq!(&encode(&bytes), &standard);
            prop_assert_eq!(decoded_len(&standard), bytes.len());
            for text in [
                general_purpose::STANDARD_NO_PAD.encode(&bytes),
                general_purpose::URL_SAFE.encode(&bytes),
                general_purpose::URL_SAFE_NO_PAD.encode(&bytes),
                standard.clone(),
            ] {
                prop_assert_eq!(decode(&text), Ok(bytes.clone()));
                prop_assert_eq!(to_standard(&text), standard.as_str());
            }
        }

        #[test]
        fn any_text_is_decoded_or_refused(text in "[A-Za-z0-9+/=_ \u{e9}-]{0,20}") {
            match decode(&text) {
                Ok(bytes) => prop_assert!(bytes.len() <= decoded_len(&text)),
                Err(Base64Error::BadByte { at, byte }) => prop_assert_eq!(text.as_bytes()[at], byte),
                Err(Base64Error::BadPadding { at }) => prop_assert!(at <= text.len()),
                Err(Base64Error::BadLength { length }) => prop_assert!(length <= text.len()),
            }
        }
    }
}
