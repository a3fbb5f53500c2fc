//! How a chat handles requests that answer, submit, resume, or bring the output of a tool.

use adk_bridge_agents::agent::MemoryModel;
use adk_bridge_protocol::calls::{Outcome, RunsOn};
use adk_bridge_protocol::dialect::Reader;
use adk_bridge_protocol::id::{CallId, MessageId};
use adk_bridge_protocol::message::{Message, Role};
use adk_bridge_protocol::outbox::Audit;
use adk_bridge_protocol::reply::{Answer as ClientAnswer, Audience, Input, Reply, answers_of};
use adk_bridge_protocol::wire::live::Close;
use tokio::time::Instant;

use super::{Task, finished_reply, new_id};
use crate::chat::attachments;
use crate::chat::command::Command;
use crate::chat::engine::ReaderOptions;
use crate::chat::error::{ChatError, HandedInError};
use crate::chat::live::{AnswerTo, LiveClient, RequestOrigin};
use crate::chat::loaded::json_bytes;
use crate::chat::plan::{CutAt, Plan, plan};
use crate::chat::readers::Answer;
use crate::chat::request::ChatRequest;
use crate::chat::session_state::NewState;
use crate::chat::voice::VoiceInput;
use crate::chat::{late_answers, now, user_answers};
use crate::store::{Opening, StoreError};

/// How many messages may wait until a started tool has ended; no user who reads the answers writes so many.
pub(super) const MAX_QUEUED: usize = 32;

impl Task {
    /// Resumes the running message, or one that was running when the page loaded the others and may have ended since.
    pub(super) fn resume(&mut self, reader: Reader) -> Option<Answer> {
        let left_out = self.conversation.take_left_out(self.engine.message_id()?);
        if self.engine.has_open_turn() {
            return self.engine.attach(reader, None);
        }
        match left_out || self.lifetime.expects_readers() {
            true => self.engine.show_once(reader),
            false => None,
        }
    }

    /// Handles a request of a client. The caller performs the effects of what is fed to the reply.
    pub(super) async fn post(
        &mut self,
        mut request: Box<ChatRequest>,
        origin: RequestOrigin,
        answer: AnswerTo,
    ) {
        self.engine.turn().request_arrived();
        // Who was cut off is back.
        self.lifetime.readers_are_back();
        self.engine.note_base(&request.from.base);
        self.context.trace().request_came(&request.from.trace);
        if let Err(refusal) = self.choose_agent(request.agent.as_deref()).await {
            return self.deliver(answer, Err(refusal), false);
        }
        if let Err(refusal) = self.check_handed_in(&request) {
            return self.deliver(answer, Err(refusal), false);
        }
        let plan = self.checked_plan(&mut request).await;
        match plan.unwrap_or_else(Plan::Refuse) {
            Plan::Answer(older) => self.post_answers(&request, older, origin, answer).await,
            Plan::Submit { .. }
                if self.engine.is_unfinished() && self.queue.len() >= MAX_QUEUED =>
            {
                let refusal = ChatError::QueueFull { most: MAX_QUEUED };
                self.deliver(answer, Err(refusal), false);
            }
            Plan::Submit { .. } if self.engine.is_unfinished() || self.take_up_any() => {
                self.supersede(&request, origin, &answer).await;
                if let Some(hold) = &mut request.size.hold {
                    hold.force(request.size.bytes);
                }
                self.queue.push_back(Command::Post {
                    request,
                    origin,
                    answer,
                });
            }
            Plan::Submit { messages, cut } => {
                let begun = match self
                    .follow_and_begin(&mut request, messages, cut, origin)
                    .await
                {
                    Ok(()) => {
                        let reader = self.engine.reader(options(&request), None).await;
                        self.engine
                            .attach_to_begun(reader)
                            .ok_or(ChatError::TaskEnded)
                    }
                    Err(error) => Err(error),
                };
                match begun {
                    Ok(stream) => self.deliver(answer, Ok(stream), true),
                    Err(error) => self.not_begun(answer, error),
                }
            }
            Plan::Refuse(error) => {
                let audited = match &error {
                    ChatError::MessageNotInChat { .. } => {
                        self.audit_misplaced(&request, origin).await
                    }
                    _ => Ok(()),
                };
                let error = audited.err().map_or(error, ChatError::from);
                self.deliver(answer, Err(error), false);
            }
        }
    }

    /// Decides what a request means. A refusal must come before anything is superseded.
    async fn checked_plan(&mut self, request: &mut ChatRequest) -> Result<Plan, ChatError> {
        if user_answers::are_in(request.last()) {
            let theirs = self.as_answer(request.last())?;
            // The other copies stay, because they may contradict it.
            request.replace_last(theirs);
        }
        request.answered = self.answered_by_user(request.older());
        let streamed = self.engine.message_id();
        let streamed = streamed.filter(|_| self.engine.has_open_turn());
        self.conversation.note_request(request, streamed);
        let (addresses, files) = (&self.context.addresses, &self.context.files);
        let base = request.from.base.in_dialect(request.dialect);
        attachments::keep_addresses(addresses, &base, &mut request.messages);
        if let Some(theirs) = request.messages.last_mut()
            && let Some(ours) = self.conversation.find(&theirs.id)
        {
            attachments::recognise(files, self.context.chat(), theirs, ours).await;
        }
        let plan = plan(request, &self.conversation, self.engine.message());
        if let Some(error) = self.unclear_answer(request) {
            return Err(error);
        }
        if let Some(reply) = self.engine.reply() {
            self.check_forms(&answers_to(reply, request.messages.iter()))?;
        }
        if let Plan::Submit { messages, .. } = &plan
            && let Some(last) = messages.last()
        {
            attachments::check_count(messages, self.context.settings.get().files_per_request)?;
            attachments::check_files(files, self.context.chat(), last).await?;
        }
        if matches!(plan, Plan::Submit { .. }) && !request.size.within_budget {
            self.context.check_budget().await?;
            request.size.within_budget = true;
        }
        // From here on the chat counts it, unless it has to wait.
        if let Some(hold) = &mut request.size.hold {
            hold.force(0);
        }
        self.admit_plan(&plan, request).await?;
        Ok(plan)
    }

    /// Refuses what a request hands in to the agent, before anything is superseded for it.
    fn check_handed_in(&self, request: &ChatRequest) -> Result<(), ChatError> {
        let state = self.new_state(request)?.bytes();
        let tools = self.new_tools(request)?;
        let tools = request.handed_in.tools.as_ref().filter(|_| tools.is_some());
        let bytes = state + tools.map_or(0, |tools| tools.text().len());
        if bytes > 0 {
            let files = &self.context.files;
            files.check_room(self.context.user(), bytes as u64)?;
        }
        Ok(())
    }

    /// What a request hands in to the agent's session. An agent without one takes nothing of it.
    fn new_state(&self, request: &ChatRequest) -> Result<NewState, HandedInError> {
        match self.context.agent().memory() {
            MemoryModel::Stateless => Ok(NewState::default()),
            MemoryModel::Session => NewState::of(&request.handed_in, &self.context.served()),
        }
    }

    /// Takes what a request hands in to the agent.
    async fn hand_in(&mut self, request: &ChatRequest) -> Result<(), ChatError> {
        self.declare_tools(request).await?;
        if self.context.agent().memory() == MemoryModel::Stateless {
            return Ok(());
        }
        let new = self.new_state(request)?;
        if !self.conversation.is_known() {
            self.runs.hand_in_first();
            if !new.is_empty() {
                // It belongs to a chat, which the first message would create.
                let (store, chat) = (&self.context.store, self.context.chat());
                store.create_chat(chat, now()).await?;
            }
        }
        self.runs.hand_in(new).await
    }

    /// The answers in a message of the user, as a copy of the message that they answer.
    fn as_answer(&self, theirs: &Message) -> Result<Message, ChatError> {
        let current = self.engine.message().into_iter();
        let known = current.chain(self.conversation.messages().iter().rev());
        let replies = || self.engine.reply().into_iter().chain(self.waiting.iter());
        let is_client = |id: &CallId| {
            let calls = replies().filter_map(|reply| reply.calls().by_id(id));
            calls
                .last()
                .is_some_and(|call| call.runs_on == RunsOn::Client)
        };
        user_answers::as_answer(theirs, known, is_client)
    }

    /// The same for older messages, of which only clear answers count.
    fn answered_by_user(&self, older: &[Message]) -> Vec<Message> {
        let older = older.iter().filter(|theirs| user_answers::are_in(theirs));
        older.flat_map(|theirs| self.as_answer(theirs)).collect()
    }

    /// Delivers the answer to a request. `lasts`: whether it is the stream of the open turn.
    pub(super) fn deliver(&mut self, to: AnswerTo, answer: Result<Answer, ChatError>, lasts: bool) {
        match to {
            AnswerTo::Request(sender) => drop(sender.send(answer)),
            AnswerTo::Live { connection, credit } => {
                self.deliver_live(connection, credit, answer, lasts);
            }
        }
    }

    /// Whether an answer to this request needs no stream: its connection reads the open turn already.
    fn reads_already(&self, to: &AnswerTo) -> bool {
        match to {
            AnswerTo::Request(_) => false,
            AnswerTo::Live { connection, .. } => {
                let client = self.live.attached_by(*connection);
                client.is_some_and(LiveClient::reads_on)
            }
        }
    }

    /// Reports that a message could not be added to the chat.
    fn not_begun(&mut self, to: AnswerTo, error: ChatError) {
        match to {
            // The chat was deleted meanwhile.
            AnswerTo::Live { connection, .. } if error.is_not_found() => {
                if self.live.attached_by(connection).is_some() {
                    self.live.close(Close::NOT_FOUND);
                }
            }
            to => self.deliver(to, Err(error), false),
        }
    }

    /// Takes the answers in a request to the current reply, or to an older one, and attaches its client to what
    /// follows.
    async fn post_answers(
        &mut self,
        request: &ChatRequest,
        older: Option<Message>,
        origin: RequestOrigin,
        to: AnswerTo,
    ) {
        self.engine.turn().name(origin, request.dialect);
        let reader = self.engine.reader(options(request), older.as_ref()).await;
        let theirs = request.last();
        let is_current = self.engine.message_id() == Some(&theirs.id);
        if let Some(older) = older.filter(|_| !is_current) {
            // It has ended; the client is shown how.
            let refused = late_answers::refusals(theirs, &older, request.dialect);
            if let Err(error) = self.engine.append_audit(&refused).await {
                return self.deliver(to, Err(error.into()), false);
            }
            return self.answer_ended(reader, &finished_reply(older), theirs, to);
        }
        let answers = answers_of(theirs);
        if let Err(error) = self.follow_answers(request, &answers).await {
            return self.deliver(to, Err(error.into()), false);
        }
        if self
            .engine
            .reply()
            .is_some_and(|reply| reply.ended().is_some())
        {
            self.feed(Input::Answers(&answers, None)).await;
            let Some(reply) = self.engine.replace(None) else {
                return self.deliver(to, Err(ChatError::AnswerNotStored), false);
            };
            self.answer_ended(reader, &reply, theirs, to);
            self.engine.replace(Some(reply));
            return;
        }
        let reply = self.engine.reply();
        let is_news = reply.is_some_and(|reply| reply.waits_for(&answers));
        if is_news && let Err(error) = self.hand_in(request).await {
            return self.deliver(to, Err(error), false);
        }
        if !self.reads_already(&to) {
            let reading = self.engine.readers().count();
            if !is_news && let Err(error) = self.holds.check_room(reading) {
                return self.deliver(to, Err(error), false);
            }
            if let Some(stream) = self.engine.attach(reader, Some(theirs)) {
                self.deliver(to, Ok(stream), true);
            }
        }
        self.loaded.note_change();
        self.engine
            .feed(Input::Answers(&answers, Some(origin.mode)));
    }

    /// Applies the history of a request with answers before the model is asked again. An agent with a session knows the
    /// old history, and only the session that asked takes the answer, so it follows with the next message.
    async fn follow_answers(
        &mut self,
        request: &ChatRequest,
        answers: &[ClientAnswer<'_>],
    ) -> Result<(), StoreError> {
        let waits = |reply: &&Reply| reply.waits_for(answers);
        let Some(reply) = self.engine.reply().filter(waits) else {
            return Ok(());
        };
        let is_spoken = self.voice.as_ref().is_some_and(|voice| voice.has_run());
        if self.context.agent().memory() == MemoryModel::Session || is_spoken {
            return Ok(());
        }
        let waiting = self.waiting.iter().map(|it| &it.message().id);
        let (current, waiting) = (reply.message(), waiting.collect());
        let cut = self
            .conversation
            .follow_answers(&self.context, current, request, &waiting)
            .await?;
        let Some(cut) = cut else {
            return Ok(());
        };
        let (store, chat) = (&self.context.store, self.context.chat());
        let shown = CutAt::for_store(Some(&cut));
        store.append(chat, &[], shown, now()).await?;
        self.conversation.keep_left(&cut, &current.id);
        self.handle_voice_input(VoiceInput::HistoryCut).await;
        Ok(())
    }

    /// Begins a reply to new messages, after the history of the request.
    async fn follow_and_begin(
        &mut self,
        request: &mut ChatRequest,
        messages: Vec<Message>,
        cut: Option<CutAt>,
        origin: RequestOrigin,
    ) -> Result<(), ChatError> {
        if let Some(voice) = &mut self.voice {
            voice.note_written();
        }
        let current = self.engine.message();
        let (messages, cut) = self
            .conversation
            .follow(&self.context, current, request, messages, cut)
            .await?;
        attachments::check_count(&messages, self.context.settings.get().files_per_request)?;
        self.check_room_after(&messages, cut.as_ref())?;
        if cut.is_some() {
            self.handle_voice_input(VoiceInput::HistoryCut).await;
        }
        self.engine.turn().name(origin, request.dialect);
        self.audit_late_answers(request).await?;
        self.hand_in(request).await?;
        // The messages are no longer needed and may be long; the chat has its own copy of the new ones.
        request.messages.clear();
        self.begin(origin.mode, messages, cut.as_ref(), false).await
    }

    /// The refusal of a request whose answer to an open question is neither a clear yes nor a clear no.
    fn unclear_answer(&self, request: &ChatRequest) -> Option<ChatError> {
        let replies = self.engine.reply().into_iter().chain(self.waiting.iter());
        // An approval's id is unique in the chat, so any message of the request may answer it.
        let answers: Vec<ClientAnswer<'_>> = request.messages.iter().flat_map(answers_of).collect();
        let question = replies.flat_map(|reply| reply.unclear(&answers)).next()?;
        Some(ChatError::UnclearApproval {
            approval: question.to_owned(),
        })
    }

    /// Refuses answers that do not fit the form of a tool's question, which stays open.
    pub(super) fn check_forms(&self, answers: &[ClientAnswer<'_>]) -> Result<(), ChatError> {
        let misfit = self.engine.reply().and_then(|reply| reply.misfit(answers));
        misfit.map_or(Ok(()), |problem| Err(ChatError::UnfitAnswer { problem }))
    }

    /// Ends the current reply for a newer message. Answers to open questions in that message count.
    async fn supersede(&mut self, request: &ChatRequest, origin: RequestOrigin, to: &AnswerTo) {
        let Some(reply) = self.engine.reply() else {
            return;
        };
        let answers = answers_to(reply, request.older_answers());
        // Its later results, such as the outcome of an approved tool, are not what the client waits for.
        if matches!(to, AnswerTo::Live { .. }) {
            self.live.withhold(&reply.message().id);
        }
        if reply.waits_for(&answers) {
            self.engine.turn().name(origin, request.dialect);
        }
        self.feed(Input::Supersede(&answers)).await;
    }

    /// Answers a post to an ended reply, which cannot bring anything new.
    fn answer_ended(&mut self, reader: Reader, reply: &Reply, theirs: &Message, to: AnswerTo) {
        let connection = to.connection();
        let room = self.holds.check_room(0);
        if let Err(error) = room.and_then(|()| self.holds.check_connection(connection)) {
            return self.deliver(to, Err(error), false);
        }
        let mut readers = self.context.new_readers();
        let stream = readers.attach(reader, reply, Some(theirs));
        self.deliver(to, Ok(stream), false);
        self.holds.hold(readers, connection, Instant::now());
    }

    /// Adds refused answers to older messages, which came with a new message, to the audit.
    async fn audit_late_answers(&mut self, request: &ChatRequest) -> Result<(), StoreError> {
        if !self.conversation.is_known() {
            return Ok(());
        }
        let current = self.engine.message();
        let stored = |id: &MessageId| {
            let current = current.filter(|current| current.id == *id);
            self.conversation.find(id).or(current)
        };
        let refused = late_answers::in_older_messages(request.older(), stored, request.dialect);
        self.audit_once(refused).await
    }

    /// Adds decisions in a message that this chat does not have to the audit.
    async fn audit_misplaced(
        &mut self,
        request: &ChatRequest,
        origin: RequestOrigin,
    ) -> Result<(), StoreError> {
        let current = self.engine.message().into_iter();
        let stored = current.chain(self.conversation.messages());
        let refused = late_answers::misplaced(request.last(), stored);
        if !refused.is_empty() && !self.engine.has_open_turn() {
            self.engine.turn().name(origin, request.dialect);
        }
        self.audit_once(refused).await
    }

    /// Adds refused answers to the audit. Clients repeat everything with every request; one row is enough.
    async fn audit_once(&mut self, refused: Vec<Audit>) -> Result<(), StoreError> {
        let mut news = Vec::new();
        for audit in refused {
            let (store, chat) = (&self.context.store, self.context.chat());
            if !store.has_refused(chat, &audit).await? {
                news.push(audit);
            }
        }
        self.engine.append_audit(&news).await
    }

    /// Adds new messages to the conversation and begins a reply to them. Its effects are performed later, so that a
    /// reader can be attached first. `spoken`: whether the messages were spoken, and not sent by a client.
    pub(super) async fn begin(
        &mut self,
        mode: Audience,
        mut messages: Vec<Message>,
        cut: Option<&CutAt>,
        spoken: bool,
    ) -> Result<(), ChatError> {
        let (store, chat) = (&self.context.store, self.context.chat());
        if !self.conversation.is_known() && messages.iter().any(attachments::has_files) {
            // Files need an existing chat; one without files is created with its first message.
            store.create_chat(chat, now()).await?;
        }
        attachments::keep_messages(&self.context, &mut messages).await?;
        let id = MessageId::from(new_id("msg"));
        let agent = self.context.served();
        let opening = Opening {
            messages: &messages,
            cut: CutAt::for_store(cut),
            heard: spoken,
            agent: Some(agent.id()),
        };
        let bytes = messages.iter().map(json_bytes).sum();
        let is_one = messages.len() == 1 && cut.is_none();
        let before = self.engine.begin(&id, Input::Begin(mode), opening).await?;
        self.keep_agent();
        self.note_begun(bytes, is_one);
        let before = before.map(Reply::into_message);
        self.conversation
            .begin_reply(&id, before, cut, messages, spoken);
        Ok(())
    }

    pub(super) async fn tool_output(
        &mut self,
        call_id: &CallId,
        outcome: Outcome,
    ) -> Result<(), ChatError> {
        let calls = self.engine.reply().map(Reply::calls);
        if calls.is_none_or(|calls| calls.by_id(call_id).is_none()) {
            return Err(ChatError::NoSuchCall);
        }
        let answer = match &outcome {
            Outcome::Output { value, .. } => ClientAnswer::Output {
                call_id,
                output: value,
            },
            Outcome::Error { text } => ClientAnswer::Failure {
                call_id,
                error: text,
            },
        };
        self.check_forms(std::slice::from_ref(&answer))?;
        self.admit_answers(std::slice::from_ref(&answer))?;
        let refusals = self.feed(Input::Answers(&[answer], None)).await;
        self.context.still_owned()?;
        if self.engine.is_abandoned() {
            return Err(ChatError::TaskEnded);
        }
        if !refusals.is_empty() {
            return Err(ChatError::OutputRefused);
        }
        Ok(())
    }
}

fn options(request: &ChatRequest) -> ReaderOptions<'_> {
    ReaderOptions {
        dialect: request.dialect,
        sdk: request.sdk,
        base: &request.from.base,
    }
}

/// The answers to a reply in the copies of its message that a client sends.
pub(super) fn answers_to<'r>(
    reply: &Reply,
    messages: impl Iterator<Item = &'r Message>,
) -> Vec<ClientAnswer<'r>> {
    messages
        .filter(|copy| copy.role == Role::Assistant && copy.id == reply.message().id)
        .flat_map(answers_of)
        .collect()
}
