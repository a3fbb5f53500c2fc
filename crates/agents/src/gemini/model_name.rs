//! The version in the name of a model.

/// The numbers of `gemini-3.8-live`, `gemini-live-2.5-flash` or `models/gemini-3-pro`; `None` if a name has none, as
/// those of aliases and of models that are no Gemini.
pub(crate) fn version(model: &str) -> Option<(u32, u32)> {
    let name = model.rsplit('/').next().unwrap_or(model);
    let mut words = name.split('-');
    if !words.next()?.eq_ignore_ascii_case("gemini") {
        return None;
    }
    words.find_map(|word| {
        let (major, minor) = word.split_once('.').unwrap_or((word, "0"));
        // `001` and `2025` are the names of releases.
        let is_version = major.len() == 1 && major != "0";
        Some((
            major.parse().ok().filter(|_| is_version)?,
            minor.parse().ok()?,
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (name, expected) in [
            ("gemini-3.8-flash", Some((3, 8))),
            ("models/gemini-3.8-live-extended-thinking", Some((3, 8))),
            ("gemini-3.10-live", Some((3, 10))),
            ("gemini-3-pro-preview", Some((3, 0))),
            (
                "gemini-live-2.5-flash-preview-native-audio-09-2025",
                Some((2, 5)),
            ),
            ("gemini-2.0-flash-live-001", Some((2, 0))),
            ("publishers/google/models/Gemini-4-live", Some((4, 0))),
            ("gemini-flash-latest", None),
            ("gemini-live-001", None),
            ("gemini-live-12-2025", None),
            ("gemini-3.x-live", None),
            ("llama-3.1-8b", None),
            ("gemini", None),
            ("", None),
        ] {
            assert_eq!(version(name), expected, "{name}");
        }
    }
}
