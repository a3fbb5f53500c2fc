//! Driver, the one way to run a reply: feed it inputs, then drain its effects in order.
//!
//! The contract, for the server, `adk-bridge translate`, the simulation in the tests and the corpora alike:
//!
//! 1. [`Driver::feed`] takes one input; [`Driver::batch`] takes several that arrived together, such as the events of one
//!    read from the network, and [`Driver::extend`] takes more of them before anything is drained.
//! 2. Drain [`Effects`] to the end and perform each effect before the next input. Effects that follow a commit wait
//!    until it is durable. If a commit fails, drop the driver and restore the reply from the store: its memory is ahead
//!    of what is durable, and none of that has been sent.
//! 3. When [`Reply::deadline`] has passed, feed [`Input::Tick`].
//!
//! ```
//! use adk_bridge_protocol::calls::IdSource;
//! use adk_bridge_protocol::driver::Driver;
//! use adk_bridge_protocol::event::Event;
//! use adk_bridge_protocol::id::{ApprovalId, CallId};
//! use adk_bridge_protocol::outbox::Effect;
//! use adk_bridge_protocol::reply::{Context, Input, Limits, Audience, Reply, Policy, RunEnd, Runner, ToolRule};
//! use adk_bridge_protocol::time::Timestamp;
//!
//! struct Counter(u32);
//! impl IdSource for Counter {
//!     fn call(&mut self, _: Option<&str>) -> CallId {
//!         self.0 += 1;
//!         format!("call-{}", self.0).into()
//!     }
//!     fn approval(&mut self, _: Option<&str>) -> ApprovalId {
//!         self.0 += 1;
//!         format!("approval-{}", self.0).into()
//!     }
//! }
//! struct NoTools;
//! impl Policy for NoTools {
//!     fn runner(&self) -> Runner {
//!         Runner::Bridge
//!     }
//!     fn tool(&self, _: &str) -> Option<ToolRule> {
//!         None
//!     }
//!     fn limits(&self) -> Limits {
//!         Limits::default()
//!     }
//! }
//!
//! let mut driver = Driver::new(Reply::new("message-1"));
//! let mut context = Context { now: Timestamp::from_millis(0), ids: &mut Counter(0), policy: &NoTools };
//! let event = Event::parse(r#"{"content":{"role":"model","parts":[{"text":"Hello"}]}}"#).unwrap();
//! let inputs = [Input::Begin(Audience::Request), Input::Event(&event), Input::RunEnded(RunEnd::Done)];
//! let (mut commits, mut stream) = (0, Vec::new());
//! for input in inputs {
//!     let mut effects = driver.feed(input, &mut context);
//!     while let Some(effect) = effects.next() {
//!         match effect {
//!             Effect::Commit(_) => commits += 1,
//!             Effect::Frames(frames) => stream.extend_from_slice(effects.outbox().sse(frames)),
//!             Effect::Ask(_) | Effect::End => {}
//!             other => panic!("a text answer needs no {other:?}"),
//!         }
//!     }
//! }
//! assert!(commits > 0 && driver.reply().ended().is_some());
//! assert!(String::from_utf8(stream).unwrap().contains("Hello"));
//! ```

use crate::id::MessageId;
use crate::outbox::{Commit, Effect, Outbox};
use crate::reply::{Context, Input, Reply};

/// A reply and its effects that have not been performed yet.
#[derive(Debug)]
pub struct Driver {
    reply: Reply,
    outbox: Outbox,
}

/// The effects of what was fed, in order. Those that are not taken stay with the driver ([`Effects::defer`]).
#[derive(Debug)]
#[must_use = "effects are to be performed, in order, before the next input"]
pub struct Effects<'d> {
    driver: &'d mut Driver,
}

/// Inputs that arrived together, whose effects are performed together.
pub struct Batch<'d, 'g, 'c> {
    driver: &'d mut Driver,
    context: &'g mut Context<'c>,
}

impl Driver {
    /// Makes a driver of a reply.
    pub fn new(reply: Reply) -> Self {
        Self {
            reply,
            outbox: Outbox::default(),
        }
    }

    /// The reply.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// Gives the reply back.
    pub fn into_reply(self) -> Reply {
        self.reply
    }

    /// Feeds one input.
    pub fn feed(&mut self, input: Input<'_>, context: &mut Context<'_>) -> Effects<'_> {
        let mut batch = self.batch(context);
        batch.feed(input);
        batch.effects()
    }

    /// Begins to feed inputs that arrived together.
    pub fn batch<'d, 'g, 'c>(&'d mut self, context: &'g mut Context<'c>) -> Batch<'d, 'g, 'c> {
        debug_assert!(
            self.outbox.effects().next().is_none(),
            "the effects of the last input were not performed"
        );
        self.outbox.clear();
        Batch {
            driver: self,
            context,
        }
    }

    /// Feeds more inputs to the last batch, whose effects have not been performed.
    pub fn extend<'d, 'g, 'c>(&'d mut self, context: &'g mut Context<'c>) -> Batch<'d, 'g, 'c> {
        Batch {
            driver: self,
            context,
        }
    }

    /// The frames that the effects refer to.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// The effects that have not been taken yet.
    pub fn effects(&mut self) -> Effects<'_> {
        Effects { driver: self }
    }

    /// Takes the commit at the front, if there is one: the first commit of a reply is stored together with the messages
    /// that it answers.
    pub fn take_commit(&mut self) -> Option<Commit> {
        self.outbox.take_commit()
    }

    /// Frees the memory of the outbox, which an idle reply does not need.
    pub fn shrink(&mut self) {
        self.outbox = Outbox::default();
    }

    /// Sets the number of the live turn that comes next, and the message that the user's speech becomes.
    pub fn set_live_turn(&mut self, turn: u32, user_message: Option<&MessageId>) {
        self.reply.set_live_turn(turn, user_message);
    }
}

impl Effects<'_> {
    /// The next effect; `None` when all are done.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator would borrow the outbox that the effects refer to"
    )]
    pub fn next(&mut self) -> Option<Effect> {
        self.driver.outbox.next_effect()
    }

    /// The reply after everything that was fed.
    pub fn reply(&self) -> &Reply {
        &self.driver.reply
    }

    /// The frames that the effects refer to.
    pub fn outbox(&self) -> &Outbox {
        &self.driver.outbox
    }

    /// Leaves the effects to [`Driver::effects`], for a caller that must not borrow the driver while it performs them.
    pub fn defer(self) {}

    /// The effects that are still to come, in order.
    pub fn peek(&self) -> impl Iterator<Item = &Effect> {
        self.driver.outbox.effects()
    }
}

impl<'d> Batch<'d, '_, '_> {
    /// Feeds one input.
    pub fn feed(&mut self, input: Input<'_>) {
        self.driver
            .reply
            .handle(input, self.context, &mut self.driver.outbox);
    }

    /// Ends the batch, for its effects to be drained.
    pub fn effects(self) -> Effects<'d> {
        self.driver.effects()
    }
}
