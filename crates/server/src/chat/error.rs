//! What chats refuse, and why; which status and code a client gets for it is decided in `transport/error.rs`.

use adk_bridge_protocol::dialect::UnknownDialect;
use adk_bridge_protocol::id::{ApprovalId, CallId, MessageId};
use adk_bridge_protocol::message::MessageError;
use adk_bridge_protocol::sdk::UnknownSdk;
use adk_bridge_protocol::wire::json::TooManyValues;

pub use super::attachments::BadUrl;
pub use super::declared_tools::DeclaredToolsError;
use super::loaded::ChatFull;
pub use super::ready::NotReady;
use super::request::{MAX_DEPTH, MAX_ID_BYTES};
pub use super::session_state::HandedInError;
use crate::admission::AdmissionError;
use crate::agent_list::NoAgent;
use crate::budget::BudgetError;
use crate::cluster::{ClaimError, Peer};
use crate::files::FileError;
use crate::spending::Exceeded;
use crate::store::{StoreError, WriteProblem};

/// A refusal of a chat. The text says what to do instead.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    // The named thing does not exist, or not as the client believes.
    #[error("there is no such chat")]
    NoSuchChat,
    #[error("there is no such call")]
    NoSuchCall,
    #[error("there is no agent {id:?}; GET /api/agents lists those that there are")]
    UnknownAgent { id: String },
    #[error("this chat belongs to the agent {own:?}; begin another chat for {wanted:?}")]
    OtherAgent { own: String, wanted: String },
    #[error(
        "the agent {id:?} of this chat is not there any more: the chat can be read, and goes on when the agent is back; \
         begin another chat to ask another agent"
    )]
    AgentGone { id: String },
    #[error(transparent)]
    NoAgent(#[from] NoAgent),
    #[error("the message {id:?} is not part of this chat; load the chat again")]
    MessageNotInChat { id: MessageId },
    #[error("no message of this chat contains the answered calls; load the chat again")]
    CallsNotInChat,
    // Credentials that a user grants.
    #[error("this question was answered before; the first answer counts")]
    QuestionAnswered,
    #[error("this question has expired; ask the agent again")]
    QuestionExpired,
    #[error("the conversation went on without an answer to this question; ask the agent again")]
    QuestionSuperseded,
    #[error("this question cannot be answered any more; ask the agent again")]
    QuestionLost,
    #[error("this question wants {wanted}; send {{\"granted\": false}} to refuse it")]
    OtherSecret { wanted: &'static str },
    /// The output of a client tool, in a request of its own.
    #[error("this output is not accepted: the call runs on the server, or already has an outcome")]
    OutputRefused,
    #[error("the result of this call has come before; the first one counts")]
    ResultTaken,
    #[error(
        "the chat is being answered and cannot go on with this result yet; send it again in a moment"
    )]
    StillAnswering,
    /// A `tool_result` frame, or a part of it.
    #[error("not everything was accepted: the call already has an outcome, or runs on the server")]
    ToolResultRefused,

    // A message that is refused.
    #[error("two messages have the id {id:?}; give each its own")]
    DuplicateMessageId { id: MessageId },
    #[error("the last message must be the user's, or the assistant's with answers")]
    LastMessageIsSystem,
    #[error("the last message is empty; send text or files in its parts")]
    EmptyMessage,
    #[error("parts[{part}].url {why}")]
    UnreadableFile { part: usize, why: BadUrl },
    #[error(
        "the last message contains answers to tool calls along with text or files; send the answers in a separate message"
    )]
    AnswersAmongWords,
    #[error(
        "the call {call:?} is not in the same message as the others; answer each message separately"
    )]
    AnswersToSeveralMessages { call: CallId },
    #[error(
        "the request adds {count} files to the chat; send at most {most} (limits.files_per_request)"
    )]
    TooManyFiles { count: usize, most: usize },
    #[error("{url:?} is not a file of this chat; upload it again")]
    UnknownFile { url: String },

    // An answer that decides nothing.
    #[error(
        "the answer to the approval {approval:?} is neither a clear yes nor a clear no, and nothing was decided: send its \
         part once, with the state \"approval-responded\" and approved true or false"
    )]
    UnclearApproval { approval: ApprovalId },
    #[error("this is not an answer to the question, which stays open: {problem}")]
    UnfitAnswer { problem: String },
    /// In a message of the user.
    #[error(
        "the answer to the question about {tool:?} is neither a clear yes nor a clear no, and nothing was decided; send \
         {{\"confirmed\": true}} or {{\"confirmed\": false}}"
    )]
    UnclearUserAnswer { tool: String },
    #[error(
        "the tool_result frame is neither a clear yes nor a clear no, and nothing was decided: send status \
         \"approved\" or \"rejected\", or the approval's id with result {{\"confirmed\": true}} or {{\"confirmed\": false}}"
    )]
    UnclearToolResult,
    #[error(
        "the fields of the tool_result frame contradict each other, and nothing was decided: send status \
         \"approved\" or \"rejected\" alone"
    )]
    ContradictoryToolResult,
    #[error("the tool_result frame has no result, and this call needs no approval")]
    MissingToolResult,

    #[error("the title is empty; write a few words")]
    EmptyTitle,
    #[error("this agent cannot {what}; send text instead")]
    LiveUnsupported { what: &'static str },

    // Limits that are reached.
    #[error("{most} messages are waiting for a tool of this chat to finish; send this one later")]
    QueueFull { most: usize },
    #[error(
        "requests without new content are held in this chat, and no more than {most} at a time; its front ends keep sending the same answers"
    )]
    TooManyHeld { most: usize },
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// What the user may spend on agents, see [`crate::spending`].
    #[error(transparent)]
    OverBudget(Box<Exceeded>),
    #[error(transparent)]
    Full(#[from] ChatFull),
    #[error(transparent)]
    HandedIn(#[from] HandedInError),
    #[error(transparent)]
    DeclaredTools(#[from] DeclaredToolsError),

    /// The request has to go to the replica that owns the chat. Nothing has happened yet.
    #[error("this chat is in use at the replica {:?}; try again in a moment", .0.name)]
    Elsewhere(Peer),
    /// This replica cannot take chats, because it could not show in time that it lives.
    #[error(transparent)]
    Unclaimed(ClaimError),
    /// The chat was taken over while it was asked.
    #[error("this chat is in use at another replica now; try again in a moment")]
    Fenced,

    // Failures of the server.
    #[error("the answer could not be stored; load the chat again")]
    AnswerNotStored,
    #[error("the chat cannot be loaded: {why}")]
    NotLoaded { why: String },
    /// The chat cannot even be loaded, because the store cannot be written for a known reason.
    #[error("{0}")]
    Unwritable(WriteProblem),
    #[error("the chat could not be stored or loaded; try again in a moment")]
    TaskEnded,
    #[error("the server is being restarted; load the chat again in a moment")]
    ShuttingDown,
    /// The live agent failed outside of any turn. The message is the agent's own, without secrets.
    #[error("{message}")]
    LiveAgentFailed { message: String },
    /// Speech cannot begin a turn.
    #[error("{0}")]
    SpokenTurnNotStored(Box<ChatError>),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    File(#[from] FileError),
}

impl ChatError {
    /// Whether its subject does not exist; a chat may be deleted at any time.
    pub(super) fn is_not_found(&self) -> bool {
        match self {
            Self::NoSuchChat | Self::NoSuchCall => true,
            Self::Store(error) | Self::File(FileError::Store(error)) => {
                matches!(error, StoreError::NotFound(_))
            }
            _ => false,
        }
    }

    /// Whether the chat may be another replica's.
    pub(super) fn has_other_owner(&self) -> bool {
        matches!(
            self,
            Self::Elsewhere(_)
                | Self::Fenced
                | Self::Unclaimed(_)
                | Self::Store(StoreError::Fenced)
        )
    }

    /// Whether a chat that cannot be loaded now may be loaded later.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Budget(_) | Self::NotLoaded { .. } | Self::Unwritable(WriteProblem::Locked)
        )
    }
}

impl From<ClaimError> for ChatError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Store(error) => error.into(),
            ClaimError::Alone => Self::Unclaimed(error),
        }
    }
}

/// A request that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    TooManyValues(#[from] TooManyValues),
    #[error("the body is not JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("the body is not JSON: recursion limit exceeded; nest at most {MAX_DEPTH} levels")]
    TooDeep,
    /// JSON whose names do not say clearly what is meant.
    #[error("{0}")]
    AmbiguousJson(serde_json::Error),
    #[error("{field} must be {expected}")]
    WrongType {
        field: String,
        expected: &'static str,
    },
    #[error("messages are missing; send them, or the last one as message")]
    NoMessages,
    #[error("a request needs at least one message")]
    EmptyMessages,
    #[error(
        "messages with the role \"system\" are not accepted: the agent's instructions are set on the server. Set \
         agent.instruction, or the instruction of the ADK agent, and leave them out"
    )]
    SystemMessage,
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("trigger is {trigger:?}; use \"submit-message\" or \"regenerate-message\"")]
    UnknownTrigger { trigger: String },
    #[error("the address names the agent {address:?}, and the body {body:?}; name one of them")]
    AgentsDiffer { address: String, body: String },
    #[error(transparent)]
    UnknownDialect(#[from] UnknownDialect),
    #[error(transparent)]
    UnknownSdk(#[from] UnknownSdk),
    #[error("{field} must have 1 to {MAX_ID_BYTES} bytes")]
    BadId { field: String },
}
