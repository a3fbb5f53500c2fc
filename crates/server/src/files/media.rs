//! What a file is, by its content first and by what the sender says second.
//!
//! Only types are taken that a browser shows without running anything in them. Text that could be run, as HTML can, is
//! kept as plain text.

/// Types that content gives away: what the library calls it, what it is called on the web, and what else the same
/// container may hold if the sender says so.
const KNOWN: &[(&str, &str, &[&str])] = &[
    ("image/png", "image/png", &[]),
    ("image/jpeg", "image/jpeg", &[]),
    ("image/gif", "image/gif", &[]),
    ("image/webp", "image/webp", &[]),
    ("image/avif", "image/avif", &[]),
    ("image/heif", "image/heif", &["image/heic"]),
    ("image/bmp", "image/bmp", &[]),
    ("application/pdf", "application/pdf", &[]),
    ("audio/x-wav", "audio/wav", &[]),
    ("audio/mpeg", "audio/mpeg", &[]),
    ("audio/aac", "audio/aac", &[]),
    ("audio/x-flac", "audio/flac", &[]),
    ("audio/ogg", "audio/ogg", &["video/ogg"]),
    ("audio/opus", "audio/ogg", &[]),
    ("audio/m4a", "audio/mp4", &[]),
    ("video/mp4", "video/mp4", &["audio/mp4"]),
    ("video/x-m4v", "video/mp4", &[]),
    ("video/quicktime", "video/quicktime", &[]),
    ("video/webm", "video/webm", &["audio/webm"]),
];

/// Text that a browser shows as it is.
const TEXTS: &[&str] = &[
    "text/plain",
    "text/markdown",
    "text/csv",
    "application/json",
];

/// The type under which a file is kept, or what it is instead.
pub(crate) fn judge(declared: Option<&str>, head: &[u8]) -> Result<String, String> {
    let declared = declared.map(bare);
    let seen = infer::get(head).map(|kind| kind.mime_type());
    match seen.filter(|seen| !seen.starts_with("text/")) {
        Some(seen) => judge_binary(declared.as_deref(), seen),
        None if is_text(head) => judge_text(declared.as_deref()),
        None => Err(declared.unwrap_or_else(|| "application/octet-stream".to_owned())),
    }
}

fn judge_binary(declared: Option<&str>, seen: &str) -> Result<String, String> {
    let (_, name, also) = KNOWN
        .iter()
        .find(|(library, _, _)| *library == seen)
        .ok_or(seen)?;
    let said = declared.filter(|declared| also.contains(declared));
    Ok(said.unwrap_or(name).to_owned())
}

fn judge_text(declared: Option<&str>) -> Result<String, String> {
    match declared {
        None => Ok("text/plain".to_owned()),
        Some(declared) if TEXTS.contains(&declared) => Ok(declared.to_owned()),
        Some(declared) if declared.starts_with("text/") => Ok("text/plain".to_owned()),
        // An image that is text is a script in a picture's clothes.
        Some(declared) => Err(declared.to_owned()),
    }
}

/// A media type without its parameters.
fn bare(media_type: &str) -> String {
    let bare = media_type.split(';').next().unwrap_or_default();
    bare.trim().to_ascii_lowercase()
}

/// Whether it reads as text; the last character may be cut.
fn is_text(head: &[u8]) -> bool {
    let whole = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    whole && !head.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case = (
        Option<&'static str>,
        &'static [u8],
        Result<&'static str, &'static str>,
    );

    #[test]
    fn content_decides() {
        const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        const WEBM: &[u8] = b"\x1a\x45\xdf\xa3\x9fB\x86\x81\x01B\xf7\x81\x01B\xf2\x81\x04B\xf3\x81\x08B\x82\x84webm";
        const WAV: &[u8] = b"RIFF\x24\0\0\0WAVEfmt ";
        const GZIP: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0";
        const HTML: &[u8] = b"<!DOCTYPE html><script>alert(1)</script>";
        const SVG: &[u8] = b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>";
        let cases: &[Case] = &[
            (Some("image/png"), PNG, Ok("image/png")),
            (None, PNG, Ok("image/png")),
            // The sender does not decide.
            (Some("text/html"), PNG, Ok("image/png")),
            (Some("audio/webm; codecs=opus"), WEBM, Ok("audio/webm")),
            (Some("image/png"), WEBM, Ok("video/webm")),
            (Some("Audio/X-WAV"), WAV, Ok("audio/wav")),
            (Some("text/html"), HTML, Ok("text/plain")),
            (Some("text/plain"), HTML, Ok("text/plain")),
            (Some("text/csv;charset=utf-8"), b"a,b\n", Ok("text/csv")),
            (Some("application/json"), b"{}", Ok("application/json")),
            (None, "für cut in the mi\u{fc}".as_bytes(), Ok("text/plain")),
            (None, b"cut \xc3", Ok("text/plain")),
            (Some("image/svg+xml"), SVG, Err("image/svg+xml")),
            (Some("image/png"), b"not a picture", Err("image/png")),
            (Some("image/png"), GZIP, Err("application/gzip")),
            (Some("text/plain"), b"\0\x01\x02", Err("text/plain")),
            (None, b"\xff\xfe\x00", Err("application/octet-stream")),
        ];
        for (declared, head, judged) in cases {
            let result = judge(*declared, head);
            let result = result.as_deref().map_err(String::as_str);
            assert_eq!(&result, judged, "{declared:?} {head:?}");
        }
    }
}
