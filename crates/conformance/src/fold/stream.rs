//! Random legal streams, made chunk by chunk.

use adk_bridge_testkit::Random;
use serde_json::{Value, json};

use super::values::Values as _;

/// A stream that is being written, and what must be known about it to make the next chunk legal.
pub(crate) struct Stream<'a> {
    pub(crate) random: &'a mut Random,
    v7: bool,
    pub(crate) chunks: Vec<Value>,
    texts: Vec<String>,
    reasonings: Vec<String>,
    /// Call id, name and whether it is dynamic.
    calls: Vec<(String, String, bool)>,
    /// The rest of a call's input that is still to be streamed.
    inputs: Vec<(String, Vec<String>)>,
    approvals: Vec<String>,
}

pub(crate) const IDS: [&str; 5] = ["0", "1", "a", "txt-0", "__proto__"];
const TOOLS: [&str; 4] = ["weather", "get-location", "adk_request_confirmation", "x"];

impl<'a> Stream<'a> {
    pub(crate) fn new(random: &'a mut Random, v7: bool, prior: Option<&Value>) -> Self {
        let mut stream = Self {
            random,
            v7,
            chunks: vec![],
            texts: vec![],
            reasonings: vec![],
            calls: vec![],
            inputs: vec![],
            approvals: vec![],
        };
        let parts = prior
            .filter(|prior| prior["role"] == "assistant")
            .and_then(|prior| prior["parts"].as_array());
        for part in parts.into_iter().flatten() {
            if let Some(id) = part["toolCallId"].as_str() {
                let dynamic = part["type"] == "dynamic-tool";
                let name = part["toolName"].as_str().or(part["type"]
                    .as_str()
                    .and_then(|kind| kind.strip_prefix("tool-")));
                stream
                    .calls
                    .push((id.to_owned(), name.unwrap_or_default().to_owned(), dynamic));
            }
            if let Some(id) = part["approval"]["id"].as_str() {
                stream.approvals.push(id.to_owned());
            }
        }
        let open_input = parts
            .into_iter()
            .flatten()
            .rev()
            .take_while(|part| part["type"] != "step-start");
        for part in open_input.filter(|part| part["state"] == "input-streaming") {
            if let Some(id) = part["toolCallId"].as_str() {
                stream
                    .inputs
                    .push((id.to_owned(), vec!["1,".to_owned(), "\"x\"}".to_owned()]));
            }
        }
        stream
    }

    fn emit(&mut self, chunk: Value) {
        self.chunks.push(chunk);
    }

    pub(crate) fn step(&mut self) {
        match self.random.below(if self.v7 { 31 } else { 27 }) {
            0 => self.start(),
            1 => {
                self.emit(json!({"type": "start-step"}));
            }
            2 => {
                if !self.v7 {
                    self.texts.clear();
                    self.reasonings.clear();
                }
                self.emit(json!({"type": "finish-step"}));
            }
            3 | 4 => self.open_text("text"),
            5..=8 => self.continue_text("text"),
            9 => self.open_text("reasoning"),
            10 | 11 => self.continue_text("reasoning"),
            12 | 13 => self.input_start(),
            14..=16 => self.input_delta(),
            17 => self.input_available(),
            18 => self.input_error(),
            19 | 20 => self.output(),
            21 => self.approval_request(),
            22 => self.simple(),
            23 | 24 => self.data(),
            25 => {
                let metadata = self.random.metadata();
                self.emit(json!({"type": "message-metadata", "messageMetadata": metadata}));
            }
            26 => {
                let mut chunk = json!({"type": "finish", "finishReason": "stop"});
                if self.random.one_in(2) {
                    chunk["messageMetadata"] = self.random.metadata();
                }
                if self.v7 && self.random.one_in(3) {
                    chunk["finishReason"] = json!("interrupted");
                }
                self.emit(chunk);
            }
            27 => self.approval_response(),
            28 => {
                if self.random.one_in(2) {
                    self.emit(json!({"type": "start-step"}));
                }
                self.texts.clear();
                self.reasonings.clear();
                self.inputs.clear();
                self.emit(json!({"type": "reset-step"}));
                // Which calls survived is not tracked: outputs may be for calls that did not.
                self.calls.clear();
                self.approvals.clear();
            }
            29 => self.emit_described(json!({"type": "custom", "kind": "google.thing"})),
            _ => {
                let part = json!({"type": "text", "text": "more", "vendor": 1});
                self.emit(json!({"type": "steering-message", "id": "s1", "parts": [part]}));
            }
        }
    }

    fn start(&mut self) {
        let mut chunk = json!({"type": "start"});
        if self.random.one_in(2) {
            chunk["messageMetadata"] = self.random.metadata();
        }
        // Another id makes the client start again, and everything that was open is gone.
        if self.random.one_in(3) {
            chunk["messageId"] = json!(self.random.pick(&["m0", "m1"]));
            self.texts.clear();
            self.reasonings.clear();
            self.inputs.clear();
            self.calls.clear();
            self.approvals.clear();
        }
        self.emit(chunk);
    }

    fn open_text(&mut self, kind: &str) {
        let id = self.random.pick(&IDS);
        let open = if kind == "text" {
            &mut self.texts
        } else {
            &mut self.reasonings
        };
        open.retain(|other| *other != id);
        open.push(id.to_owned());
        self.emit_described(json!({"type": format!("{kind}-start"), "id": id}));
    }

    fn continue_text(&mut self, kind: &str) {
        let open = if kind == "text" {
            &mut self.texts
        } else {
            &mut self.reasonings
        };
        if open.is_empty() {
            return self.open_text(kind);
        }
        let at = self.random.below(open.len());
        if self.random.one_in(4) {
            let id = open.remove(at);
            let mut chunk = json!({"type": format!("{kind}-end"), "id": id});
            if self.v7 && kind == "text" && self.random.one_in(2) {
                let source = json!({"type": "source", "sourceType": "url", "id": "s", "url": "https://example.org"});
                chunk["citations"] = json!([{"source": source, "startIndex": 0, "citedText": "x"}]);
            }
            self.emit_described(chunk);
        } else {
            let id = open[at].clone();
            let delta = self.random.text();
            self.emit_described(json!({"type": format!("{kind}-delta"), "id": id, "delta": delta}));
        }
    }

    /// A known call or a new one. Names and kinds mostly stay the same.
    fn any_call(&mut self) -> (String, String, bool) {
        if !self.calls.is_empty() && self.random.one_in(3) {
            let (id, name, dynamic) = self.random.pick(&self.calls);
            let name = if self.random.one_in(8) {
                self.random.pick(&TOOLS).to_owned()
            } else {
                name
            };
            let dynamic = if self.random.one_in(8) {
                !dynamic
            } else {
                dynamic
            };
            return (id, name, dynamic);
        }
        (
            format!("call-{}", self.random.below(5)),
            self.random.pick(&TOOLS).to_owned(),
            self.random.one_in(3),
        )
    }

    fn input(&mut self, kind: &str) -> Value {
        let (id, name, dynamic) = self.any_call();
        self.calls.push((id.clone(), name.clone(), dynamic));
        let mut chunk = json!({"type": kind, "toolCallId": id, "toolName": name});
        if dynamic || self.random.one_in(4) {
            chunk["dynamic"] = json!(dynamic);
        }
        if self.random.one_in(4) {
            chunk["title"] = json!(self.random.text());
        }
        chunk
    }

    fn input_start(&mut self) {
        let mut chunk = self.input("tool-input-start");
        let mut text = if self.random.one_in(12) {
            self.random.odd_json()
        } else {
            self.random.encoded_json()
        };
        match self.random.below(12) {
            0 => {
                chunk["inputEncoding"] = json!("text");
                text = self.random.text();
            }
            1 => chunk["inputEncoding"] = json!("json"),
            _ => {}
        }
        let id = chunk["toolCallId"].as_str().unwrap_or_default().to_owned();
        self.inputs.retain(|(other, _)| *other != id);
        self.inputs.push((id, self.random.cut(&text)));
        self.emit_described(chunk);
    }

    /// One call whose input stops at any position.
    pub(crate) fn cut_input(&mut self) {
        self.input_start();
        if let Some((id, pieces)) = self.inputs.pop() {
            let text = pieces.concat();
            let end = self.random.below(text.chars().count() + 1);
            let text: String = text.chars().take(end).collect();
            for piece in self.random.cut(&text) {
                self.emit(
                    json!({"type": "tool-input-delta", "toolCallId": id, "inputTextDelta": piece}),
                );
            }
        }
    }

    fn input_delta(&mut self) {
        if self.inputs.is_empty() {
            return self.input_start();
        }
        let at = self.random.below(self.inputs.len());
        for _ in 0..self.random.below(4) + 1 {
            let (id, rest) = &mut self.inputs[at];
            if rest.is_empty() {
                return;
            }
            let chunk = json!({"type": "tool-input-delta", "toolCallId": id, "inputTextDelta": rest.remove(0)});
            self.emit(chunk);
        }
    }

    fn input_available(&mut self) {
        let mut chunk = self.input("tool-input-available");
        chunk["input"] = self.random.json(3);
        self.emit_described(chunk);
    }

    fn input_error(&mut self) {
        let mut chunk = self.input("tool-input-error");
        chunk["input"] = self.random.json(2);
        chunk["errorText"] = json!(self.random.text());
        self.emit_described(chunk);
    }

    fn output(&mut self) {
        if self.calls.is_empty() {
            return self.input_available();
        }
        let (id, _, dynamic) = self.random.pick(&self.calls);
        let mut chunk = match self.random.below(5) {
            0 => {
                json!({"type": "tool-output-error", "toolCallId": id, "errorText": self.random.text()})
            }
            1 => return self.emit(json!({"type": "tool-output-denied", "toolCallId": id})),
            _ => {
                json!({"type": "tool-output-available", "toolCallId": id, "output": self.random.json(3)})
            }
        };
        if dynamic && self.random.one_in(2) {
            chunk["dynamic"] = json!(true);
        }
        if chunk["type"] == "tool-output-available" && self.random.one_in(3) {
            chunk["preliminary"] = json!(self.random.one_in(2));
        }
        self.emit_described(chunk);
    }

    fn approval_request(&mut self) {
        if self.calls.is_empty() {
            return self.input_available();
        }
        let (id, ..) = self.random.pick(&self.calls);
        let approval = format!("approval-{}", self.random.below(4));
        self.approvals.retain(|other| *other != approval);
        self.approvals.push(approval.clone());
        let mut chunk =
            json!({"type": "tool-approval-request", "approvalId": approval, "toolCallId": id});
        for field in ["approvalDescriptor", "inputSchemaInput"] {
            if self.random.one_in(4) {
                chunk[field] = self.random.json(1);
            }
        }
        if self.random.one_in(4) {
            chunk["signature"] = json!("sig");
        }
        if self.v7 && self.random.one_in(2) {
            chunk["reason"] = json!(self.random.text());
            chunk["isAutomatic"] = json!(self.random.one_in(2));
        }
        self.emit(chunk);
    }

    fn approval_response(&mut self) {
        let Some(approval) = self.approvals.last().cloned() else {
            return self.approval_request();
        };
        let mut chunk =
            json!({"type": "tool-approval-response", "approvalId": approval, "approved": true});
        if self.random.one_in(2) {
            chunk["approved"] = json!(false);
            chunk["reason"] = json!(self.random.text());
        }
        self.emit_described(chunk);
    }

    fn simple(&mut self) {
        let kinds = if self.v7 { 5 } else { 4 };
        let chunk = match self.random.below(kinds) {
            0 => {
                json!({"type": "file", "url": "data:image/png;base64,AA==", "mediaType": "image/png"})
            }
            1 => {
                json!({"type": "source-url", "sourceId": "s", "url": "https://example.org", "title": "t"})
            }
            2 => {
                json!({"type": "source-document", "sourceId": "s", "mediaType": "text/plain", "title": "t", "filename": "f"})
            }
            3 => return self.emit(json!({"type": "abort", "reason": "stopped"})),
            _ => json!({"type": "reasoning-file", "url": "u", "mediaType": "image/png"}),
        };
        self.emit_described(chunk);
    }

    fn data(&mut self) {
        let mut chunk = json!({"type": self.random.pick(&["data-a", "data-b", "data-"]), "data": self.random.json(2)});
        if self.random.one_in(2) {
            chunk["id"] = json!(self.random.pick(&["d0", "d1"]));
        }
        if self.random.one_in(4) {
            chunk["transient"] = json!(self.random.one_in(2));
        }
        self.emit(chunk);
    }

    /// Adds fields that many chunks may have, and sometimes one that no chunk has.
    fn emit_described(&mut self, mut chunk: Value) {
        let kind = chunk["type"].as_str().unwrap_or_default().to_owned();
        if self.random.one_in(5) {
            chunk["providerMetadata"] = json!({"google": {"k": self.random.json(1)}});
        }
        if kind.starts_with("tool-") {
            if self.random.one_in(6) {
                chunk["providerExecuted"] = json!(self.random.one_in(2));
            }
            if self.random.one_in(6) && kind != "tool-approval-response" {
                chunk["toolMetadata"] = json!({"m": self.random.json(1)});
            }
        }
        if self.random.one_in(15) {
            chunk["vendorField"] = Value::Null;
        }
        self.emit(chunk);
    }
}
