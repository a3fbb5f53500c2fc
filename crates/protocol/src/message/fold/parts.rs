//! Parts that no later chunk continues.

use super::{Fold, owned};
use crate::chunk::DataChunk;
use crate::json_text::Json;
use crate::message::{DataPart, Extra, Part};

impl Fold {
    /// Replaces the data of the part with the same type and id, or adds a part.
    pub(super) fn data(&mut self, chunk: &DataChunk<'_>) {
        if chunk.transient == Some(true) {
            return;
        }
        let same = self.edited().parts.iter_mut().find_map(|part| match part {
            Part::Data(part)
                if part.kind == chunk.kind
                    && chunk.id.is_some()
                    && part.id.as_deref() == chunk.id.as_deref() =>
            {
                Some(part)
            }
            _ => None,
        });
        match same {
            Some(part) => part.data = chunk.data.clone(),
            None => {
                // The client keeps the chunk itself as the part.
                let transient = chunk.transient.map(Json::from);
                self.push(Part::Data(DataPart {
                    kind: owned(&chunk.kind),
                    id: chunk.id.as_ref().map(owned),
                    data: chunk.data.clone(),
                    extra: fields([("transient", transient)]),
                }));
            }
        }
    }
}

/// A part of a type that some versions do not know.
pub(super) fn other<const N: usize>(kind: &str, more: [(&str, Option<Json>); N]) -> Part {
    let kind = ("type", Some(Json::from(kind)));
    Part::Other(present(std::iter::once(kind).chain(more)))
}

pub(super) fn fields<const N: usize>(fields: [(&str, Option<Json>); N]) -> Extra {
    present(fields.into_iter())
}

fn present<'a>(fields: impl Iterator<Item = (&'a str, Option<Json>)>) -> Extra {
    fields
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}
