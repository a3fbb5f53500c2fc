//! Parts that are not followed any further once they are there.

use serde_json::{Map, Value};

use super::{Fold, owned};
use crate::chunk::DataChunk;
use crate::message::{DataPart, Part};

impl Fold {
    /// Replaces the data of the part with the same type and id, or adds a part.
    pub(super) fn data(&mut self, chunk: &DataChunk<'_>) {
        if chunk.transient == Some(true) {
            return;
        }
        let same = self.message.parts.iter_mut().find_map(|part| match part {
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
            Some(part) => part.data = chunk.data.as_ref().clone(),
            None => {
                // The client keeps the chunk itself as the part.
                let extra = chunk
                    .transient
                    .map(|transient| ("transient".to_owned(), Value::Bool(transient)));
                self.push(Part::Data(DataPart {
                    kind: owned(&chunk.kind),
                    id: chunk.id.as_ref().map(owned),
                    data: chunk.data.as_ref().clone(),
                    extra: extra.into_iter().collect(),
                }));
            }
        }
    }
}

/// A part of a type that only v7 knows.
pub(super) fn other<const N: usize>(kind: &str, more: [(&str, Option<Value>); N]) -> Part {
    let mut map = fields([("type", Some(Value::from(kind)))]);
    map.extend(fields(more));
    Part::Other(map)
}

pub(super) fn fields<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let present = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    present.collect()
}
