//! The parts of a content: the single part of a delta is kept without an allocation.

use std::fmt;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Part;

/// Any number of parts, as a slice.
#[derive(Clone)]
pub struct Parts<'a>(PartList<'a>);

#[derive(Clone)]
enum PartList<'a> {
    One([Part<'a>; 1]),
    Many(Vec<Part<'a>>),
}

impl<'a> Parts<'a> {
    pub(super) fn one(part: Part<'a>) -> Self {
        Self(PartList::One([part]))
    }
}

impl<'a> Deref for Parts<'a> {
    type Target = [Part<'a>];

    fn deref(&self) -> &[Part<'a>] {
        match &self.0 {
            PartList::One(part) => part,
            PartList::Many(parts) => parts,
        }
    }
}

impl DerefMut for Parts<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match &mut self.0 {
            PartList::One(part) => part,
            PartList::Many(parts) => parts,
        }
    }
}

impl<'a> From<Vec<Part<'a>>> for Parts<'a> {
    fn from(parts: Vec<Part<'a>>) -> Self {
        Self(PartList::Many(parts))
    }
}

impl<'a> From<Parts<'a>> for Vec<Part<'a>> {
    fn from(parts: Parts<'a>) -> Self {
        match parts.0 {
            PartList::One(part) => part.into(),
            PartList::Many(parts) => parts,
        }
    }
}

impl<'p, 'a> IntoIterator for &'p Parts<'a> {
    type Item = &'p Part<'a>;
    type IntoIter = std::slice::Iter<'p, Part<'a>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Default for Parts<'_> {
    fn default() -> Self {
        Self(PartList::Many(Vec::new()))
    }
}

impl PartialEq for Parts<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(to)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Parts<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(PartsVisitor)
    }
}

struct PartsVisitor;

impl<'de> de::Visitor<'de> for PartsVisitor {
    type Value = Parts<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let Some(first) = from.next_element()? else {
            return Ok(Parts::default());
        };
        let Some(second) = from.next_element()? else {
            return Ok(Parts::one(first));
        };
        let mut parts = vec![first, second];
        while let Some(part) = from.next_element()? {
            parts.push(part);
        }
        Ok(parts.into())
    }
}
