//! Sealed texts: encrypted and authenticated with a key that is not in the database.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::Path;

use adk_bridge_protocol::base64;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

use crate::store::{DataDir, StoreError, make_private};

/// The name of the key in the data directory. A copy of the database without it tells nothing about what is sealed.
pub const KEY_FILE: &str = "credentials.key";
const KEY_BYTES: usize = 32;

/// Seals texts, and opens those that it has sealed.
pub struct Seal {
    key: LessSafeKey,
}

impl Seal {
    /// Reads the key, or makes one.
    pub fn open(data: &DataDir) -> Result<Self, StoreError> {
        let path = data.path().join(KEY_FILE);
        let key = match read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => make(&path),
            found => found,
        };
        let key = key.map_err(|error| StoreError::Io {
            doing: "reading credentials.key of the data directory",
            why: Box::new(error),
        })?;
        Self::new(&key)
    }

    /// With a key of its own for one purpose of a secret that the replicas of a cluster share.
    pub fn for_purpose(secret: &[u8], purpose: &str) -> Result<Self, StoreError> {
        let secret = Salt::new(HKDF_SHA256, b"adk-bridge").extract(secret);
        let purpose = [purpose.as_bytes()];
        let key = secret.expand(&purpose, &CHACHA20_POLY1305);
        let key = key.map_err(|_| StoreError::Io {
            doing: "deriving a key from cluster.key",
            why: "it is of the wrong length".into(),
        })?;
        Ok(Self {
            key: LessSafeKey::new(UnboundKey::from(key)),
        })
    }

    fn new(key: &[u8]) -> Result<Self, StoreError> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key).map_err(|_| StoreError::Io {
            doing: "reading credentials.key of the data directory",
            why: "the file is damaged; delete it, and what is open must be granted again".into(),
        })?;
        Ok(Self {
            key: LessSafeKey::new(key),
        })
    }

    /// Seals a text for a purpose. Two seals of one text differ.
    pub fn close(&self, purpose: &str, text: &[u8]) -> Result<String, StoreError> {
        let mut nonce = [0; NONCE_LEN];
        let random = getrandom::fill(&mut nonce);
        random.map_err(|error| StoreError::Io {
            doing: "sealing a credential",
            why: Box::new(error),
        })?;
        let mut sealed = text.to_vec();
        let bound = Nonce::assume_unique_for_key(nonce);
        (self.key)
            .seal_in_place_append_tag(bound, Aad::from(purpose.as_bytes()), &mut sealed)
            .map_err(|_| StoreError::Io {
                doing: "sealing a credential",
                why: "it is too long".into(),
            })?;
        Ok(url_safe(&[&nonce[..], &sealed].concat()))
    }

    /// Opens a text that was sealed for this purpose, and for no other.
    pub fn open_text(&self, purpose: &str, sealed: &str) -> Option<Vec<u8>> {
        let sealed = base64::decode(sealed).ok()?;
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let opened = (self.key).open_in_place(nonce, Aad::from(purpose.as_bytes()), &mut text);
        let length = opened.ok()?.len();
        text.truncate(length);
        Some(text)
    }
}

/// Base64 that needs no escapes in an address.
fn url_safe(bytes: &[u8]) -> String {
    let text = base64::encode(bytes);
    text.trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_")
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    make_private(path);
    let mut key = Vec::new();
    // One more than a key has: a longer file is none.
    let file = std::fs::File::open(path)?;
    file.take(KEY_BYTES as u64 + 1).read_to_end(&mut key)?;
    Ok(key)
}

/// Makes a key. It is complete before it has its name, so that a crash leaves no half of one.
fn make(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut key = vec![0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(std::io::Error::other)?;
    let fresh = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&fresh)?;
    make_private(&fresh);
    file.write_all(&key)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    Ok(key)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_and_purpose_open_a_seal() {
        let seal = Seal::new(&[7; KEY_BYTES]).unwrap();
        let sealed = seal.close("state", b"PLANTED-SECRET").unwrap();
        assert_ne!(sealed, seal.close("state", b"PLANTED-SECRET").unwrap());
        assert_eq!(seal.open_text("state", &sealed).unwrap(), b"PLANTED-SECRET");
        assert_eq!(seal.open_text("link", &sealed), None);
        let other = Seal::new(&[8; KEY_BYTES]).unwrap();
        assert_eq!(other.open_text("state", &sealed), None);
        for (place, letter) in sealed.char_indices() {
            let mut forged = sealed.clone();
            let changed = if letter == 'A' { "B" } else { "A" };
            forged.replace_range(place..=place, changed);
            assert_eq!(seal.open_text("state", &forged), None, "{forged}");
        }
        for garbage in ["", "A", "AAAA", "%", &"A".repeat(40), "日本"] {
            assert_eq!(seal.open_text("state", garbage), None, "{garbage}");
        }
    }

    #[test]
    fn bridges_with_one_secret_open_each_others_seals() {
        let secret = "a-secret-of-the-fleet";
        let seal = |secret: &str, purpose| Seal::for_purpose(secret.as_bytes(), purpose).unwrap();
        let sealed = seal(secret, "one").close("x", b"text").unwrap();
        let open = |secret, purpose| seal(secret, purpose).open_text("x", &sealed);
        assert_eq!(open(secret, "one").unwrap(), b"text");
        assert_eq!(open(secret, "another"), None);
        assert_eq!(open("another-secret", "one"), None);
        // The secret itself is not the key.
        let raw = Seal::new(&[b'k'; KEY_BYTES]).unwrap();
        let derived = seal(&"k".repeat(KEY_BYTES), "one");
        let sealed = derived.close("x", b"text").unwrap();
        assert_eq!(raw.open_text("x", &sealed), None);
    }

    #[test]
    fn the_key_stays_and_a_damaged_one_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let sealed = {
            let data = DataDir::open(&path).unwrap();
            Seal::open(&data).unwrap().close("x", b"text").unwrap()
        };
        let data = DataDir::open(&path).unwrap();
        let seal = Seal::open(&data).unwrap();
        assert_eq!(seal.open_text("x", &sealed).unwrap(), b"text");
        for damaged in [&b""[..], &[0; KEY_BYTES + 1]] {
            std::fs::write(path.join(KEY_FILE), damaged).unwrap();
            let error = Seal::open(&data).err().unwrap().to_string();
            assert!(error.contains(KEY_FILE), "{error}");
        }
    }
}
