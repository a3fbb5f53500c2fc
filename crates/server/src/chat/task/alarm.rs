//! The alarm of a chat: deadlines, comments that keep answers alive, and the end of an idle task.

use std::time::Duration;

use adk_bridge_protocol::reply::{Input, Reply};
use tokio::time::Instant;

use super::{KEEP_ALIVE, Task};
use crate::chat::now;

/// An idle task ends after this time; its chat is in the store. What follows a turn automatically, such as a client
/// tool's output, comes sooner, and what a human writes comes later than it pays to keep the chat in memory.
pub(super) const IDLE: Duration = Duration::from_secs(2);
/// How long it is remembered for the next live connection what the last one missed.
const LIVE_IDLE: Duration = Duration::from_secs(60);

impl Task {
    fn is_idle(&self) -> bool {
        !self.runs.is_active()
            && !self.is_spoken_with()
            && self.waiting.is_empty()
            && !self.engine.is_running_tools()
            && self.engine.readers().is_empty()
            && self.live.attached().is_none()
            && self.queue.is_empty()
            && self.holds.is_empty()
            && self.engine.reply().and_then(Reply::deadline).is_none()
            && !self.loaded.waits_elsewhere()
    }

    /// When the alarm has to ring.
    pub(super) fn due(&self) -> Option<Instant> {
        let deadline = self.engine.reply().and_then(Reply::deadline);
        let waiting = self.waiting.deadline().filter(|_| !self.is_busy());
        let elsewhere = self.loaded.deadline();
        let deadline = deadline.into_iter().chain(waiting).chain(elsewhere).min();
        let tick = deadline.map(|at| Instant::now() + at.since(now()));
        let comment =
            (!self.engine.readers().is_empty()).then(|| self.lifetime.active_at + KEEP_ALIVE);
        let end = self.is_idle().then(|| self.idle_until());
        let hold = self.holds.due();
        let over = self.turn_limit();
        let rest = self.rests_at();
        let all = [
            tick,
            comment,
            end,
            hold,
            over,
            rest,
            self.lifetime.leaving(),
            self.noticed_by(),
        ];
        all.into_iter().flatten().min()
    }

    /// When a task that is about to leave need not wait for the end of a sentence any more.
    fn noticed_by(&self) -> Option<Instant> {
        self.lifetime.leaving()?;
        let by = self.voice.as_ref()?.noticed_by();
        by.filter(|by| *by > Instant::now())
    }

    /// Handles due deadlines. Returns whether the task may end.
    pub(super) async fn ring(&mut self) -> bool {
        let at = Instant::now();
        let tick = self.engine.reply().and_then(Reply::deadline);
        if tick.is_some_and(|tick| tick <= now()) {
            self.feed(Input::Tick).await;
            self.lifetime.active_at = at;
        }
        self.expire_waiting().await;
        if self.loaded.deadline().is_some_and(|at| at <= now()) {
            self.loaded.want();
        }
        self.holds.end_due(at);
        if self.turn_limit().is_some_and(|limit| limit <= at) {
            self.turn_took_too_long().await;
            self.lifetime.active_at = at;
        }
        if !self.engine.readers().is_empty() && at >= self.lifetime.active_at + KEEP_ALIVE {
            self.engine.readers_mut().keep_alive();
            self.lifetime.active_at = at;
        }
        self.is_idle() && at >= self.idle_until()
    }

    fn idle_until(&self) -> Instant {
        // Only this task knows that a page loaded the chat without its last message.
        let asked_for = self.conversation.left_out_until();
        let idle = if self.live.was_used() {
            LIVE_IDLE
        } else {
            IDLE
        };
        // And that a front end keeps posting the same.
        let repeats = self.holds.remembered_until();
        let known = asked_for
            .into_iter()
            .chain(repeats)
            .chain(self.lifetime.readers_back_until());
        known.fold(self.lifetime.active_at + idle, Instant::max)
    }
}
