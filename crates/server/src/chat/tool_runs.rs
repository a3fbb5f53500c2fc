//! The running tools of a chat: their outcomes, what they ask the user, and how far they are.
//!
//! ```text
//!   tool ──▶ UserLink ──┬─ asks ──────▶ ToolEvent::Asks ──▶ Input::ToolAsks, the question is in the record
//!                       │ ◀─ answer ──  Effect::AnswerTool
//!                       └─ progress ──▶ ToolEvent::Progress
//! ```
//!
//! A tool that asks waits at its own end, for instance an MCP server at the other side of a pipe. The question itself is
//! data of the reply; here is only where its answer goes. The time in which a user is asked does not count.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use adk_bridge_agents::agent::BoxFuture;
use adk_bridge_agents::tool::{ServerTool, ToolCall, UserLink, UserQuestion};
use adk_bridge_protocol::calls::Outcome;
use adk_bridge_protocol::id::CallId;
use adk_bridge_protocol::reply::{ToolAnswer, ToolProgress, ToolQuestion};
use futures_util::FutureExt as _;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::task::new_id;
use crate::failpoint::failpoint;

/// How many questions and reports of tools may wait for the task of a chat. Reports beyond are left out, questions wait.
const MAX_QUEUED: usize = 16;
/// How often a tool can tell how far it is: a bar moves smoothly, and a chatty tool costs little.
const PROGRESS_PAUSE: Duration = Duration::from_millis(200);

/// The tools of a chat that run.
pub(super) struct ToolRuns {
    tasks: JoinSet<(CallId, Outcome)>,
    /// Boxed, since every chat in use has room for dozens.
    said: mpsc::Receiver<Box<Said>>,
    /// For new runs.
    says: mpsc::Sender<Box<Said>>,
    /// Where the answers to open questions go.
    questions: HashMap<CallId, oneshot::Sender<ToolAnswer>>,
}

/// What a tool came to, or did.
pub(super) enum ToolEvent {
    Finished(ToolFinished),
    Asks {
        call: CallId,
        question: ToolQuestion,
    },
    /// It does not wait for the answer to this question any more.
    Withdrew(CallId),
    Progress {
        call: CallId,
        progress: ToolProgress,
    },
}

/// The id of a tool call and its outcome.
pub(super) type ToolFinished = Result<(CallId, Outcome), JoinError>;

/// What a running tool says.
enum Said {
    Asks {
        call: CallId,
        question: UserQuestion,
        answer: oneshot::Sender<ToolAnswer>,
    },
    Progress {
        call: CallId,
        progress: ToolProgress,
    },
}

impl ToolRuns {
    pub(super) fn new() -> Self {
        let (says, said) = mpsc::channel(MAX_QUEUED);
        Self {
            tasks: JoinSet::new(),
            said,
            says,
            questions: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Whether anything may come: a tool runs, or has left something that may still ask or report.
    pub(super) fn may_say_more(&self) -> bool {
        // Each link has a sender besides this one.
        !self.tasks.is_empty()
            || !self.questions.is_empty()
            || !self.said.is_empty()
            || self.says.strong_count() > 1
    }

    /// Lets every tool run on without hearing of it any more. What it asks is not answered.
    pub(super) fn detach(&mut self) {
        self.tasks.detach_all();
        self.questions.clear();
    }

    /// Where a tool of this call asks and tells.
    pub(super) fn link(&self, call: &CallId) -> Arc<Link> {
        Arc::new(Link {
            call: call.clone(),
            says: self.says.clone(),
            clock: Arc::default(),
            reported: Mutex::new(None),
        })
    }

    /// Runs a tool, for at most this long without the time in which it asks.
    pub(super) fn start(
        &mut self,
        tool: Arc<dyn ServerTool>,
        call: ToolCall,
        link: &Link,
        limit: Duration,
    ) {
        let (id, clock) = (call.call_id.clone(), link.clock.clone());
        self.tasks.spawn(async move {
            failpoint("before", "tool");
            // A tool may panic before it returns its future.
            let run = AssertUnwindSafe(async { tool.run(call).await }).catch_unwind();
            let outcome = match clock.within(limit, run).await {
                Some(Ok(outcome)) => outcome,
                // A call that is never settled would block its chat.
                Some(Err(_)) => Outcome::error("the tool crashed, and its outcome is unknown"),
                None => Outcome::error(format!(
                    "the tool returned no result within {} seconds",
                    limit.as_secs()
                )),
            };
            failpoint("after", "tool");
            (id, outcome)
        });
    }

    /// Settles a call that has no tool to run.
    pub(super) fn finish(&mut self, call: CallId, outcome: Outcome) {
        self.tasks.spawn(std::future::ready((call, outcome)));
    }

    /// What happens next; never, if no tool runs. Cancel-safe.
    pub(super) async fn next(&mut self) -> ToolEvent {
        let withdrew = withdrew(&mut self.questions);
        tokio::select! {
            biased;
            question = withdrew => {
                self.questions.remove(&question);
                ToolEvent::Withdrew(question)
            }
            // A question comes before the end of the tool that asked it.
            Some(said) = self.said.recv() => match *said {
                Said::Asks { call, question, answer } => {
                    let id = CallId::from(new_id("call"));
                    self.questions.insert(id.clone(), answer);
                    let UserQuestion { server, message, schema } = question;
                    ToolEvent::Asks { call, question: ToolQuestion { id, server, message, schema } }
                }
                Said::Progress { call, progress } => ToolEvent::Progress { call, progress },
            },
            Some(finished) = self.tasks.join_next() => ToolEvent::Finished(finished),
            else => std::future::pending().await,
        }
    }

    /// The next tool that finishes; `None` when none runs. Nobody is asked any more, and tools learn it.
    pub(super) async fn next_finished(&mut self) -> Option<ToolFinished> {
        self.questions.clear();
        loop {
            tokio::select! {
                biased;
                // Without its sender, a question is cancelled.
                Some(_) = self.said.recv(), if !self.tasks.is_empty() => {}
                finished = self.tasks.join_next() => return finished,
            }
        }
    }

    /// Gives a tool the answer to its question, if it still waits.
    pub(super) fn answer(&mut self, question: &CallId, answer: ToolAnswer) {
        if let Some(to) = self.questions.remove(question) {
            let _ = to.send(answer);
        }
    }

    /// The questions that tools wait for.
    pub(super) fn open_questions(&self) -> Vec<CallId> {
        self.questions.keys().cloned().collect()
    }
}

/// A question whose tool does not wait for it any more.
async fn withdrew(questions: &mut HashMap<CallId, oneshot::Sender<ToolAnswer>>) -> CallId {
    std::future::poll_fn(|context| {
        for (id, answer) in questions.iter_mut() {
            if answer.poll_closed(context).is_ready() {
                return Poll::Ready(id.clone());
            }
        }
        Poll::Pending
    })
    .await
}

/// The link of one running tool to the user of its chat.
pub(super) struct Link {
    call: CallId,
    says: mpsc::Sender<Box<Said>>,
    clock: Arc<Clock>,
    /// When it last reported.
    reported: Mutex<Option<Instant>>,
}

impl UserLink for Link {
    fn ask(&self, question: UserQuestion) -> BoxFuture<'static, ToolAnswer> {
        let (call, says) = (self.call.clone(), self.says.clone());
        let paused = self.pause();
        Box::pin(async move {
            let _paused = paused;
            let (answer, answered) = oneshot::channel();
            let asks = Said::Asks {
                call,
                question,
                answer,
            };
            // If the chat has no task any more, nobody answers.
            let _ = says.send(Box::new(asks)).await;
            answered.await.unwrap_or(ToolAnswer::Cancelled)
        })
    }

    fn pause(&self) -> Box<dyn Send> {
        Box::new(self.clock.pause())
    }

    fn report(&self, progress: ToolProgress) {
        let now = Instant::now();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_some_and(|at| now.duration_since(at) < PROGRESS_PAUSE) {
            return;
        }
        *reported = Some(now);
        let call = self.call.clone();
        let progress = Said::Progress { call, progress };
        let _ = self.says.try_send(Box::new(progress));
    }
}

/// The time that a tool has taken, without that in which it waited for the user.
#[derive(Default)]
struct Clock {
    pauses: Mutex<Pauses>,
    changed: Notify,
}

#[derive(Default)]
struct Pauses {
    /// How many are under way, and since when there is one.
    now: usize,
    since: Option<Instant>,
    /// How long all that are over have taken.
    over: Duration,
}

/// The clock stands until this is dropped.
struct Pause(Arc<Clock>);

impl Clock {
    fn pause(self: &Arc<Self>) -> Pause {
        self.change(|pauses| pauses.begin(Instant::now()));
        Pause(self.clone())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Pauses) -> T) -> T {
        let changed = change(&mut self.pauses.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
        changed
    }

    /// When the time is over; `None` while the clock stands.
    fn end(&self, began: Instant, limit: Duration) -> Option<Instant> {
        let pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.delayed(began + limit)
    }

    /// What comes of a run; nothing if its time is over before.
    async fn within<T>(&self, limit: Duration, run: impl Future<Output = T>) -> Option<T> {
        let began = Instant::now();
        let mut run = std::pin::pin!(run);
        loop {
            let end = self.end(began, limit);
            let over = async {
                match end {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                done = &mut run => return Some(done),
                () = self.changed.notified() => {}
                () = over => return None,
            }
        }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.change(|pauses| pauses.end(Instant::now()));
    }
}

impl Pauses {
    fn begin(&mut self, at: Instant) {
        self.now += 1;
        self.since.get_or_insert(at);
    }

    fn end(&mut self, at: Instant) {
        self.now -= 1;
        if self.now == 0
            && let Some(since) = self.since.take()
        {
            self.over += at.duration_since(since);
        }
    }

    /// When something is due that was due at this time without them; `None` during one.
    fn delayed(&self, due: Instant) -> Option<Instant> {
        self.since.is_none().then(|| due + self.over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_which_a_user_is_asked_does_not_count() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut pauses = Pauses::default();
        assert_eq!(pauses.delayed(at(10)), Some(at(10)));
        pauses.begin(at(2));
        pauses.begin(at(3));
        pauses.end(at(5));
        assert_eq!(pauses.delayed(at(10)), None);
        pauses.end(at(6));
        assert_eq!(pauses.delayed(at(10)), Some(at(14)));
        pauses.begin(at(8));
        pauses.end(at(9));
        assert_eq!(pauses.delayed(at(10)), Some(at(15)));
    }

    #[tokio::test]
    async fn questions_are_answered_withdrawn_or_cancelled() {
        let mut runs = ToolRuns::new();
        let link = runs.link(&"call-1".into());
        let ask = || {
            link.ask(UserQuestion {
                server: "s".to_owned(),
                message: "m".to_owned(),
                schema: adk_bridge_protocol::json_text::Json::empty(),
            })
        };
        let asking = tokio::spawn(ask());
        let ToolEvent::Asks { question, .. } = runs.next().await else {
            panic!("no question");
        };
        runs.answer(&question.id, ToolAnswer::Declined);
        assert_eq!(asking.await.unwrap(), ToolAnswer::Declined);
        let asking = tokio::spawn(ask());
        let ToolEvent::Asks { question, .. } = runs.next().await else {
            panic!("no question");
        };
        asking.abort();
        let ToolEvent::Withdrew(withdrawn) = runs.next().await else {
            panic!("not withdrawn");
        };
        assert_eq!(withdrawn, question.id);
        // When everything ends, nobody is asked.
        let asking = tokio::spawn(ask());
        runs.tasks
            .spawn(async { ("c".into(), Outcome::error(format!("{:?}", asking.await))) });
        let Some(Ok((_, Outcome::Error { text }))) = runs.next_finished().await else {
            panic!("not finished");
        };
        assert_eq!(text, "Ok(Cancelled)");
    }
}
