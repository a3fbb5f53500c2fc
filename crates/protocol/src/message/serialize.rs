//! Writes messages as the AI SDK does: `type` first, absent fields omitted, unknown fields unchanged at the end.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{
    ApprovalField, DataPart, Extra, FilePart, Message, Part, ReasoningPart, Role,
    SourceDocumentPart, SourceUrlPart, TextPart, TextState, ToolPart, ToolState,
};

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::new(serializer)?;
        object.field("id", &self.id)?;
        object.optional("metadata", &self.metadata)?;
        object.field("role", &self.role)?;
        object.field("parts", &self.parts)?;
        object.end(&self.extra)
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(part) => part.serialize(serializer),
            Self::Reasoning(part) => part.serialize(serializer),
            Self::Tool(part) => part.serialize(serializer),
            Self::StepStart => Object::typed(serializer, "step-start")?.end(&Extra::default()),
            Self::File(part) => part.serialize(serializer),
            Self::SourceUrl(part) => part.serialize(serializer),
            Self::SourceDocument(part) => part.serialize(serializer),
            Self::Data(part) => part.serialize(serializer),
            Self::Other(fields) => Object::new(serializer)?.end(fields),
        }
    }
}

impl Serialize for TextPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::typed(serializer, "text")?;
        object.field("text", &self.text)?;
        object.optional("providerMetadata", &self.provider_metadata)?;
        object.optional("state", &self.state)?;
        object.optional("citations", &self.citations)?;
        object.end(&self.extra)
    }
}

impl Serialize for ReasoningPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::typed(serializer, "reasoning")?;
        object.optional("id", &self.id)?;
        object.field("text", &self.text)?;
        object.optional("providerMetadata", &self.provider_metadata)?;
        object.optional("state", &self.state)?;
        object.end(&self.extra)
    }
}

impl Serialize for TextState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Streaming => "streaming",
            Self::Done => "done",
        })
    }
}

impl Serialize for ToolPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object;
        if self.dynamic {
            object = Object::typed(serializer, "dynamic-tool")?;
            object.field("toolName", &self.name)?;
        } else {
            object = Object::new(serializer)?;
            object.field("type", &format_args!("tool-{}", self.name))?;
        }
        object.field("toolCallId", &self.call_id)?;
        object.field("state", &self.state)?;
        object.optional("title", &self.title)?;
        object.optional("toolMetadata", &self.tool_metadata)?;
        object.optional("input", &self.input)?;
        object.optional("inputEncoding", &self.input_encoding)?;
        object.optional("output", &self.output)?;
        object.optional("rawInput", &self.raw_input)?;
        object.optional("errorText", &self.error_text)?;
        object.optional("providerExecuted", &self.provider_executed)?;
        object.optional("preliminary", &self.preliminary)?;
        object.optional("resultProviderMetadata", &self.result_provider_metadata)?;
        object.optional("callProviderMetadata", &self.call_provider_metadata)?;
        object.optional("approval", &self.approval)?;
        object.end(&self.extra)
    }
}

impl Serialize for ToolState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for ApprovalField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::new(serializer)?;
        object.optional("id", &self.id)?;
        object.optional("approved", &self.approved)?;
        object.optional("reason", &self.reason)?;
        object.end(&self.extra)
    }
}

impl Serialize for FilePart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::typed(serializer, "file")?;
        object.field("mediaType", &self.media_type)?;
        object.optional("filename", &self.filename)?;
        object.field("url", &self.url)?;
        object.optional("providerMetadata", &self.provider_metadata)?;
        object.end(&self.extra)
    }
}

impl Serialize for SourceUrlPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::typed(serializer, "source-url")?;
        object.field("sourceId", &self.source_id)?;
        object.field("url", &self.url)?;
        object.optional("title", &self.title)?;
        object.optional("providerMetadata", &self.provider_metadata)?;
        object.end(&self.extra)
    }
}

impl Serialize for SourceDocumentPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::typed(serializer, "source-document")?;
        object.field("sourceId", &self.source_id)?;
        object.field("mediaType", &self.media_type)?;
        object.field("title", &self.title)?;
        object.optional("filename", &self.filename)?;
        object.optional("providerMetadata", &self.provider_metadata)?;
        object.end(&self.extra)
    }
}

impl Serialize for DataPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::new(serializer)?;
        object.field("type", &self.kind)?;
        object.optional("id", &self.id)?;
        object.field("data", &self.data)?;
        object.end(&self.extra)
    }
}

/// A JSON object that is being written.
struct Object<S: Serializer>(S::SerializeMap);

impl<S: Serializer> Object<S> {
    fn new(serializer: S) -> Result<Self, S::Error> {
        serializer.serialize_map(None).map(Self)
    }

    fn typed(serializer: S, kind: &str) -> Result<Self, S::Error> {
        let mut object = Self::new(serializer)?;
        object.field("type", kind)?;
        Ok(object)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), S::Error> {
        self.0.serialize_entry(name, value)
    }

    fn optional<T: Serialize>(&mut self, name: &str, value: &Option<T>) -> Result<(), S::Error> {
        match value {
            Some(value) => self.field(name, value),
            None => Ok(()),
        }
    }

    fn end(mut self, extra: &Extra) -> Result<S::Ok, S::Error> {
        for (name, value) in extra.entries() {
            self.field(&name, value)?;
        }
        self.0.end()
    }
}
