//! The way of one text delta from an agent's line to the frames of a reader, with a count of its allocations.
//!
//! The bench and the test of the allocations share it, so that both speak of the same thing.

#![expect(
    unsafe_code,
    clippy::expect_used,
    reason = "an allocator that counts must implement `GlobalAlloc`; a recorded line is an event"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use adk_bridge_protocol::calls::IdSource;
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::{Dialect, Reader};
use adk_bridge_protocol::driver::Driver;
use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::id::{ApprovalId, CallId};
use adk_bridge_protocol::outbox::Effect;
use adk_bridge_protocol::reply::{
    Audience, Context, Input, Limits, Policy, Reply, Runner, ToolRule,
};
use adk_bridge_protocol::time::Timestamp;

/// A delta of an ADK server with a model of its own, as recorded.
pub(crate) const ADK: &str = r#"{"modelVersion":"scripted-1","content":{"parts":[{"text":"tok0 "}],"role":"model"},"partial":true,"invocationId":"e-90a95052-9204-48b9-99fe-4ca102fba881","author":"scripted","actions":{"stateDelta":{},"artifactDelta":{},"requestedAuthConfigs":{},"requestedToolConfirmations":{}},"nodeInfo":{"path":"scripted@1"},"id":"6525b058-afa7-49e3-8dfb-45078613b092","timestamp":1794764977.5103507}"#;

/// A delta of an ADK server with Gemini, as recorded: every event counts tokens.
pub(crate) const GEMINI: &str = r#"{"modelVersion":"gemini-2.5-flash","content":{"parts":[{"text":"tok1 "}],"role":"model"},"partial":true,"usageMetadata":{"candidatesTokenCount":2,"promptTokenCount":12,"promptTokensDetails":[{"modality":"TEXT","tokenCount":12}],"totalTokenCount":14},"invocationId":"e-ddafc794-392f-4cc2-9a3b-fc95fe74db90","author":"gem","actions":{"stateDelta":{},"artifactDelta":{},"requestedAuthConfigs":{},"requestedToolConfirmations":{}},"nodeInfo":{"path":"gem@1"},"id":"62b0e568-d091-4060-8271-763c6f20c128","timestamp":1794765335.8351853}"#;

/// The same with as much text as models send at once when they are fast, with characters that JSON escapes.
pub(crate) const LONG: &str = r#"{"modelVersion":"gemini-2.5-flash","content":{"parts":[{"text":"The quick brown fox jumps over the lazy dog, and says \"again\":\n\n1. The quick brown fox jumps over the lazy dog.\n2. Der schnelle braune Fuchs springt über den faulen Hund.\n3. 素早い茶色の狐がのろまな犬を飛び越える。\n"}],"role":"model"},"partial":true,"usageMetadata":{"candidatesTokenCount":2,"promptTokenCount":12,"promptTokensDetails":[{"modality":"TEXT","tokenCount":12}],"totalTokenCount":14},"invocationId":"e-ddafc794-392f-4cc2-9a3b-fc95fe74db90","author":"gem","actions":{"stateDelta":{},"artifactDelta":{},"requestedAuthConfigs":{},"requestedToolConfirmations":{}},"nodeInfo":{"path":"gem@1"},"id":"62b0e568-d091-4060-8271-763c6f20c128","timestamp":1794765335.8351853}"#;

/// A turn that has begun.
pub(crate) struct Turn {
    driver: Driver,
    reader: Option<Reader>,
    /// What a reader has been sent since it was last emptied.
    pub(crate) stream: Vec<u8>,
    rules: Agent,
}

impl Turn {
    /// Begins a turn; without a dialect nobody reads along, and the frames stay in the outbox.
    pub(crate) fn new(runner: Runner, dialect: Option<Dialect>) -> Self {
        let mut turn = Self {
            driver: Driver::new(Reply::new("m1")),
            reader: dialect.map(|dialect| Reader::new(dialect, Sdk::V6, true)),
            stream: Vec::new(),
            rules: Agent(runner),
        };
        turn.handle(Input::Begin(Audience::Request));
        turn
    }

    /// Takes one line of the agent. Returns the bytes that went out.
    pub(crate) fn line(&mut self, line: &str) -> usize {
        let event = Event::parse(line).expect("the line was recorded");
        self.handle(Input::Event(&event))
    }

    fn handle(&mut self, input: Input<'_>) -> usize {
        let mut given = Context {
            now: Timestamp::default(),
            ids: &mut NoIds,
            policy: &self.rules,
        };
        let mut effects = self.driver.feed(input, &mut given);
        let mut bytes = 0;
        while let Some(effect) = effects.next() {
            if let Effect::Frames(range) = effect {
                let (reply, outbox) = (effects.reply(), effects.outbox());
                bytes += outbox.sse(range.clone()).len();
                if let Some(reader) = &mut self.reader {
                    reader.frames(reply, outbox, range, &mut self.stream);
                }
            }
        }
        bytes
    }
}

/// How many allocations, growing ones included, `work` makes on this thread.
pub(crate) fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

struct NoIds;

impl IdSource for NoIds {
    fn call(&mut self, _given: Option<&str>) -> CallId {
        unreachable!("a text delta calls no tool")
    }

    fn approval(&mut self, _given: Option<&str>) -> ApprovalId {
        unreachable!("a text delta asks nobody")
    }
}

struct Agent(Runner);

impl Policy for Agent {
    fn runner(&self) -> Runner {
        self.0
    }

    fn tool(&self, _name: &str) -> Option<ToolRule> {
        None
    }

    fn limits(&self) -> Limits {
        Limits {
            max_answer_bytes: usize::MAX,
            ..Limits::default()
        }
    }
}

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting for each thread separately.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is handed to the system's allocator as it came; the counter is a plain thread-local without a
// destructor, so that touching it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        unsafe { System.dealloc(memory, layout) }
    }
}

fn count() {
    COUNT.set(COUNT.get() + 1);
}
