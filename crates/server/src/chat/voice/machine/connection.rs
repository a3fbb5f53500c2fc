//! When the connection is opened, renewed, tried again and given up.

use std::time::Instant;

use adk_bridge_agents::agent::MemoryModel;
use adk_bridge_agents::error::AgentError;
use adk_bridge_agents::live::ConnectError;
use adk_bridge_agents::live::renewal::{Plan, Resumption};
use adk_bridge_protocol::outbox::Ask;
use adk_bridge_protocol::reply::RunEnd;

use super::knowledge::Knowledge;
use super::port::{Effects, Failure, Notice, VoiceEffect};
use super::state::{Dial, Link, Question, Run, State};
use super::{KEPT, VoiceMachine};

impl VoiceMachine {
    /// Makes sure that there is a connection, or that one is being opened.
    pub(super) fn want(&mut self, now: Instant, out: &mut Effects) {
        if self.state.is_closed() {
            self.renewal.wanted(now);
            self.reconnect(None, None, now, out);
        }
    }

    /// A connection has one modality and one way to detect the end of speech: a change needs another connection.
    pub(super) fn renew(&mut self, now: Instant, out: &mut Effects) {
        if self.state.is_closed() {
            return;
        }
        let wired = self.state.is_wired();
        let run = std::mem::take(&mut self.state).into_run();
        if matches!(run, Some(Run::Speaking | Run::Over(_))) {
            out.push(VoiceEffect::Interrupted);
        }
        if wired {
            out.push(VoiceEffect::Close { renewed: false });
        }
        let question = self.end_begun(run, out);
        self.renewal.wanted(now);
        self.reconnect(question, None, now, out);
    }

    pub(super) fn opened(
        &mut self,
        question: Option<Question>,
        dial: Dial,
        answers_history: bool,
        out: &mut Effects,
    ) {
        self.renewal.opened();
        let link = Link {
            knows: dial.knows,
            review_at: None,
            replays: self.memory == MemoryModel::Session && answers_history,
        };
        let Some(mut question) = question else {
            self.state = State::Listening(link);
            return self.send_input(out);
        };
        match self.memory {
            // The connection began with the question.
            MemoryModel::Stateless if dial.asks => question.sent = true,
            MemoryModel::Session if question.sent && answers_history => {
                out.push(VoiceEffect::ExpectAnswer);
            }
            // The question came while the connection was being opened, or has to be asked again.
            MemoryModel::Stateless | MemoryModel::Session => {
                question.sent = false;
                out.push(VoiceEffect::SendQuestion(question.ask.clone()));
            }
        }
        let run = Run::Asked(question);
        self.state = State::Answering { link, run };
        self.send_input(out);
    }

    pub(super) fn lost(
        &mut self,
        run: Option<Run>,
        code: u16,
        error: Option<ConnectError>,
        now: Instant,
        out: &mut Effects,
    ) {
        out.push(VoiceEffect::Close { renewed: false });
        let question = self.end_begun(run, out);
        if self.memory == MemoryModel::Session
            && let Some(Question {
                ask: ask @ Ask::Responses(_),
                ..
            }) = question
        {
            // The next connection would not know the calls, but a run does.
            self.other_run = true;
            return out.push(VoiceEffect::AskByRun(ask));
        }
        if self.leave_at.is_some() && question.is_none() {
            return; // Nobody listens: the next who comes opens another.
        }
        match error.as_ref().and_then(|error| error.code) {
            Some(code) => self.renewal.refused(Some(code), now),
            None => self.renewal.closed(code, now),
        }
        self.reconnect(question, error.map(|error| error.error), now, out);
    }

    /// Ends a run that the agent has begun to answer: its words stay, and it would not know where it stopped. A
    /// question that it has not begun to answer is left for the next connection.
    fn end_begun(&mut self, run: Option<Run>, out: &mut Effects) -> Option<Question> {
        match run? {
            Run::Asked(question) => Some(question),
            Run::Speaking | Run::Over(_) => {
                self.end_run(RunEnd::Cut, out);
                None
            }
        }
    }

    pub(super) fn noticed(
        &mut self,
        notices: Vec<Notice>,
        calls_open: bool,
        now: Instant,
        out: &mut Effects,
    ) {
        let confirmed = self.state.knows().map_or(0, Knowledge::contents_confirmed);
        for notice in notices {
            match notice {
                Notice::GoAway(left) => self.renewal.warned(left, now),
                Notice::Resumable(handle) => self.renewal.resumable(handle, confirmed),
            }
        }
        self.renewal.busy(self.state.has_run() || calls_open);
        self.review(now, out);
    }

    pub(super) fn tick(&mut self, now: Instant, out: &mut Effects) {
        if self.leave_at.is_some_and(|at| at <= now) {
            if !self.state.has_run() && !self.is_deferred() {
                self.close(false, out);
                self.state = State::Off;
                self.queue.forget_pictures();
                return;
            }
            // It stays until its run is over, and then for the usual time.
            self.leave_at = Some(now + KEPT);
        }
        match &mut self.state {
            State::Backoff { until, question } if *until <= now => {
                let question = question.take();
                self.reconnect(question, None, now, out);
            }
            State::Listening(_) | State::Answering { .. } => self.review(now, out),
            _ => {}
        }
    }

    /// Renews an open connection if it is due. An agent that is speaking may finish, unless the connection ends first.
    pub(super) fn review(&mut self, now: Instant, out: &mut Effects) {
        let plan = self.renewal.plan(now);
        let speaks =
            matches!(&self.state, State::Answering { run, .. } if !matches!(run, Run::Asked(_)));
        let (State::Listening(link) | State::Answering { link, .. }) = &mut self.state else {
            return;
        };
        link.review_at = None;
        match plan {
            Plan::StayUntil(at) => link.review_at = Some(at),
            Plan::Renew { from, .. } if !speaks => {
                out.push(VoiceEffect::Close { renewed: true });
                let run = std::mem::take(&mut self.state).into_run();
                let question = self.end_begun(run, out);
                self.connect(question, from, out);
            }
            // An open connection is not given up.
            Plan::Renew { .. } | Plan::Stay | Plan::Lost => {}
        }
    }

    /// Opens a connection, now or after a pause, or gives up.
    pub(super) fn reconnect(
        &mut self,
        question: Option<Question>,
        error: Option<AgentError>,
        now: Instant,
        out: &mut Effects,
    ) {
        match self.renewal.plan(now) {
            Plan::Renew { at, .. } if at > now => {
                self.state = State::Backoff {
                    until: at,
                    question,
                }
            }
            Plan::Renew { from, .. } => self.connect(question, from, out),
            Plan::Lost | Plan::Stay | Plan::StayUntil(_) => {
                self.state = State::Off;
                self.forget(out);
                let failure = Failure::Connection(error);
                out.push(match question {
                    Some(_) => VoiceEffect::FailRun(failure),
                    None => VoiceEffect::Refuse(failure),
                });
            }
        }
    }

    pub(super) fn connect(
        &mut self,
        question: Option<Question>,
        from: Option<Resumption<usize>>,
        out: &mut Effects,
    ) {
        if self.memory == MemoryModel::Session && self.other_run {
            self.state = State::Queued { question };
            return;
        }
        let bounds = self.microphone.bounds();
        // Unanswered speech of a lost connection is sent to the next one again. If there is a question, the speech was
        // understood, and its text is sent.
        if question.is_none() {
            self.queue.say_again(self.user_audio.speech(), bounds);
        }
        self.queue.fit(bounds);
        self.state = State::Connecting {
            question,
            from,
            dial: None,
        };
        out.push(VoiceEffect::Connect);
    }

    pub(super) fn close(&self, renewed: bool, out: &mut Effects) {
        if self.state.is_wired() {
            out.push(VoiceEffect::Close { renewed });
        }
    }
}
