//! What the live client asks of a chat, and how turns reach it.

use adk_bridge_agents::live::Modality;
use adk_bridge_protocol::calls::Call;
use adk_bridge_protocol::reply::{Answer as ClientAnswer, Audience, CloseReason, Input, Reply};
use adk_bridge_protocol::wire::live::{AudioAction, Close, Modality as WireModality, ToolResult};
use uuid::Uuid;

use super::Task;
use crate::admission::TurnStart;
use crate::chat::error::ChatError;
use crate::chat::live::{
    AnswerTo, Credit, LiveAsk, LiveClient, LiveCommand, LiveInput, Outgoing, RequestOrigin,
};
use crate::chat::readers::Answer;
use crate::chat::tool_result::{Meaning, Situation, meaning};
use crate::chat::voice::{VoiceInput, VoiceSession};

impl Task {
    pub(super) async fn live_command(&mut self, command: LiveCommand) {
        match command {
            LiveCommand::Attach { client, answer } => {
                self.attach_live_client(client).await;
                let _ = answer.send(Ok(()));
            }
            LiveCommand::Ask {
                connection,
                ask,
                credit,
            } => {
                // A replaced connection is being closed.
                if self.live.attached_by(connection).is_none() {
                    return;
                }
                let refusal = match ask {
                    LiveAsk::Message(request) => {
                        let to = AnswerTo::Live { connection, credit };
                        return self
                            .post(request, RequestOrigin::live(connection), to)
                            .await;
                    }
                    LiveAsk::Refused(error) => Err(*error),
                    LiveAsk::ToolResult(result) => self.tool_result(connection, *result).await,
                    LiveAsk::Interrupt => {
                        self.interrupt().await;
                        Ok(())
                    }
                    LiveAsk::Input(input) => self.live_input(connection, input).await,
                };
                if let Err(error) = refusal {
                    self.live.send(Outgoing::Refused { error, credit });
                }
            }
        }
    }

    /// Makes a connection the live client, which begins with what it may have missed.
    async fn attach_live_client(&mut self, mut client: LiveClient) {
        self.live.close(Close::TAKEN_OVER);
        self.context.trace().request_came(client.trace());
        if let Some(voice) = &mut self.voice {
            voice.listened_to(true);
        }
        let missed = self.live.take_missed() || self.lifetime.expects_readers();
        let reader = self.engine.reader(client.options(), None).await;
        let Some(reply) = self.engine.reply() else {
            return self.live.attach(client);
        };
        let (id, ended) = (reply.message().id.clone(), reply.ended().is_some());
        if self.engine.has_open_turn() {
            self.live.attach(client);
            if let Some(answer) = self.engine.attach(reader, None) {
                self.live.begin_turn(answer, Some(&id));
            }
            self.engine.flush();
            return;
        }
        if (!ended || missed)
            && let Some(answer) = self.engine.show_once(reader)
        {
            client.send_missed(answer);
        }
        client.note_shown(id);
        self.live.attach(client);
    }

    /// Stops the running turn; an open question stays open.
    async fn interrupt(&mut self) {
        if self.engine.has_open_turn() {
            self.live.interrupt();
            self.feed(Input::Close(CloseReason::Stopped)).await;
        }
    }

    /// Sends the live client the answer to its request. `lasts`: whether it is the stream of the open turn.
    pub(super) fn deliver_live(
        &mut self,
        connection: Uuid,
        credit: Credit,
        answer: Result<Answer, ChatError>,
        lasts: bool,
    ) {
        if self.live.attached_by(connection).is_none() {
            return;
        }
        match answer {
            Ok(answer) => {
                self.holds.end_of(connection);
                let id = self.engine.message_id().filter(|_| lasts);
                self.live.answer_turn(answer, id);
            }
            Err(error) => self.live.send(Outgoing::Refused { error, credit }),
        }
    }

    /// Answers an approval, brings the output of a client tool, or does both.
    async fn tool_result(&mut self, connection: Uuid, given: ToolResult) -> Result<(), ChatError> {
        let calls = self.engine.reply().map(Reply::calls);
        let Some(call) = calls.and_then(|calls| {
            let named = &given.tool_call_id;
            let id = named.to_approval();
            let asks = |call: &&Call| call.approval.as_ref().is_some_and(|asked| asked.id == id);
            calls.by_id(named).or_else(|| calls.iter().rev().find(asks))
        }) else {
            return Err(ChatError::NoSuchCall);
        };
        let approval = call.approval.as_ref().map(|approval| approval.id.clone());
        let opens = call.waits_for_client();
        let call_id = call.id.clone();
        let decision = |approved, reason, payload| {
            approval.clone().map(|approval_id| ClientAnswer::Decision {
                approval_id,
                approved,
                reason,
                payload,
                part: None,
            })
        };
        let output = |output| ClientAnswer::Output {
            call_id: &call_id,
            output,
        };
        let situation = Situation::of(call, &given);
        let means = meaning(&given, situation);
        let answers: Vec<ClientAnswer<'_>> = match means {
            Meaning::Approve {
                payload,
                output: brought,
            } => decision(true, None, payload)
                .into_iter()
                .chain(brought.map(output))
                .collect(),
            Meaning::Deny {
                ref reason,
                payload,
            } => {
                let reason = reason.as_deref();
                decision(false, reason, payload).into_iter().collect()
            }
            Meaning::Output(brought) => vec![output(brought)],
            Meaning::Fail(ref reason) => vec![ClientAnswer::Failure {
                call_id: &call_id,
                error: reason.as_deref().unwrap_or("the user rejected it"),
            }],
            Meaning::Unclear(why) => return Err(why.into()),
        };
        self.check_forms(&answers)?;
        self.admit_answers(&answers)?;
        if opens {
            self.read_along(connection).await;
        }
        let mode = opens.then_some(Audience::Frame);
        if !self.feed(Input::Answers(&answers, mode)).await.is_empty() {
            return Err(ChatError::ToolResultRefused);
        }
        Ok(())
    }

    /// Makes the live client a reader of the turn that its answer is about to begin.
    async fn read_along(&mut self, connection: Uuid) {
        let Some(client) = self.live.attached() else {
            return;
        };
        let dialect = client.dialect();
        self.engine
            .turn()
            .name(RequestOrigin::live(connection), dialect);
        if client.reads_to_the_end() {
            return;
        }
        self.holds.end_of(connection);
        let is_up_to_date = !client.is_given_up();
        let reader = self.engine.reader(client.options(), None).await;
        let answer = match is_up_to_date {
            true => self.engine.attach_up_to_date(reader),
            false => self.engine.attach(reader, None),
        };
        if let Some(answer) = answer {
            self.live.answer_turn(answer, self.engine.message_id());
        }
    }

    /// Attaches the live client before an input that may begin a turn without a request: a reader must be there before
    /// the first frame.
    pub(super) async fn pre_attach(&mut self, input: &Input<'_>) -> Option<Answer> {
        let may_begin = matches!(
            input,
            Input::Tick
                | Input::ToolFinished { .. }
                | Input::ToolAsks { .. }
                | Input::QuestionWithdrawn { .. }
                | Input::Answers(_, None)
        );
        let client = self.live.attached();
        let client = client.filter(|client| !client.reads_to_the_end())?;
        let id = self.engine.message_id()?;
        if !may_begin || self.live.withholds(id) || self.engine.has_open_turn() {
            return None;
        }
        let is_up_to_date = client.has_all_of(id);
        let reader = self.engine.reader(client.options(), None).await;
        match is_up_to_date {
            true => self.engine.attach_up_to_date(reader),
            false => self.engine.attach(reader, None),
        }
    }

    /// After the input: sends the turn if one has begun, or at least the chunks that came without one.
    pub(super) fn deliver_or_drop(&mut self, answer: Answer) {
        let tells = self.engine.has_open_turn() || self.engine.has_news_for_readers();
        match self.engine.message_id().filter(|_| tells) {
            Some(id) => {
                if let Some(client) = self.live.attached() {
                    self.holds.end_of(client.connection());
                }
                self.live.begin_turn(answer, Some(id));
            }
            None => {
                drop(answer);
                self.engine.readers_mut().drop_closed();
            }
        }
    }

    /// After the effects of the input: chunks that came without a turn need an end too.
    pub(super) fn end_chunks_without_turn(&mut self) {
        let reads = self.live.attached().is_some_and(LiveClient::reads);
        if reads && self.engine.reply().is_some() && !self.engine.has_open_turn() {
            self.engine.finish_readers();
            self.live.turn_ended();
        }
    }

    /// Passes speech, pictures and the chosen modality to the agent's live connection. The first of them begins the
    /// voice session.
    async fn live_input(&mut self, connection: Uuid, input: LiveInput) -> Result<(), ChatError> {
        let client = self.live.attached_by(connection);
        let wanted = client.and_then(LiveClient::agent).map(str::to_owned);
        self.choose_agent(wanted.as_deref()).await?;
        if self.context.agent().live().is_none() {
            return unsupported(&input);
        }
        if !self.is_spoken_with() {
            self.check_room_after(&[], None)?;
            if self.live.refused_speech_just_now() {
                return Ok(());
            }
            let checked = self.context.check_budget().await;
            checked.inspect_err(|_| self.live.note_refused_speech())?;
            self.admit(TurnStart::Message)?;
        }
        let (memory, run) = (self.context.agent().memory(), self.runs.is_active());
        // It hears the first words before they are stored.
        self.keep_agent();
        self.voice
            .get_or_insert_with(|| Box::new(VoiceSession::new(memory, run)));
        let input = match input {
            LiveInput::Audio { pcm, .. } => VoiceInput::Audio(pcm),
            LiveInput::Picture { data, media_type } => VoiceInput::Picture { data, media_type },
            LiveInput::AudioControl(AudioAction::Start) => VoiceInput::KeyDown,
            LiveInput::AudioControl(AudioAction::Stop) => VoiceInput::KeyUp,
            LiveInput::Modality(WireModality::Audio) => VoiceInput::Modality(Modality::Audio),
            LiveInput::Modality(WireModality::Text) => VoiceInput::Modality(Modality::Text),
        };
        Box::pin(self.drive_voice(input)).await;
        Ok(())
    }
}

fn unsupported(input: &LiveInput) -> Result<(), ChatError> {
    let what = match input {
        LiveInput::Modality(WireModality::Text) => return Ok(()),
        LiveInput::Modality(WireModality::Audio) => "speak",
        LiveInput::Picture { .. } => "see",
        LiveInput::Audio { .. } | LiveInput::AudioControl(_) => "hear",
    };
    Err(ChatError::LiveUnsupported { what })
}
