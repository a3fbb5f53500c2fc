//! The endpoints of the front end of adk-stream-protocol, for `server.compat`: other paths for what the bridge does, and
//! what its requests leave out.

use std::sync::Arc;

use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::{Message, Part, Role};
use adk_bridge_protocol::time::Timestamp;
use axum::Json as JsonBody;
use axum::extract::{Request, State};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::body::Intake;
use super::chat::answer_post;
use super::error::AppError;
use super::forward;
use crate::auth::Identity;
use crate::chat::Chats;
use crate::chat::error::{ChatError, RequestError};
use crate::chat::request::{ChatRequest, MessageList};
use crate::config::Config;
use crate::files::address::Base;
use crate::forwarding::Forwarding;

/// The chat of a user whose front end names none.
const UNNAMED_CHAT: &str = "adk-stream-protocol";

/// `POST /stream`: a chat request.
pub async fn stream(
    State(chats): State<Chats>,
    State(intake): State<Intake>,
    State(config): State<Arc<Config>>,
    Identity { user, .. }: Identity,
    base: Base,
    request: Request,
) -> Result<Response, AppError> {
    let dialect = config.server.original_dialect().unwrap_or_default();
    let parse = move |body: &[u8]| parse(body, dialect);
    answer_post((&chats, &intake), &user, base, request, parse).await
}

/// What the front end is answered.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Cleared {
    #[schemars(extend("const" = "success"))]
    status: &'static str,
    message: &'static str,
}

/// `POST /clear-sessions`: deletes all chats of the user.
pub async fn clear_sessions(
    State(chats): State<Chats>,
    State(forwarding): State<Option<Arc<Forwarding>>>,
    identity: Identity,
) -> Result<JsonBody<Cleared>, AppError> {
    let user = &identity.user;
    loop {
        let page = chats.list(user, None::<(Timestamp, _)>).await?;
        for chat in &page.chats {
            let chat_id = &chat.chat.id;
            match (chats.delete(user, chat_id).await, &forwarding) {
                // Another request was faster.
                (Ok(()) | Err(ChatError::NoSuchChat), _) => {}
                (Err(ChatError::Elsewhere(_)), Some(forwarding)) => {
                    forward::delete_at_owner(forwarding, &identity, chat_id).await?;
                }
                (Err(error), _) => return Err(error.into()),
            }
        }
        if page.next.is_none() {
            break;
        }
    }
    Ok(JsonBody(Cleared {
        status: "success",
        message: "all chats of this user were deleted",
    }))
}

pub(crate) fn parse(body: &[u8], dialect: Dialect) -> Result<ChatRequest, RequestError> {
    let mut request = ChatRequest::parse(body, dialect)?;
    let is_named = !request.finds_chat;
    if !is_named {
        request.chat_id = UNNAMED_CHAT.into();
    }
    // The question may have been asked on its socket, in another chat.
    request.finds_chat = true;
    // Its ids do not change when its page is loaded again.
    complete(&mut request, MessageList::WholeOrNew);
    Ok(request)
}

/// Adds to a request what this front end means by it.
pub(super) fn complete(request: &mut ChatRequest, list: MessageList) {
    // It shows one conversation, whichever way it sends, and under which id.
    if request.list == MessageList::Recent {
        request.list = list;
    }
    for message in &mut request.messages {
        read_words(message);
    }
}

/// Turns its word for a decision in a message of the user into ours.
fn read_words(message: &mut Message) {
    if message.role != Role::User {
        return;
    }
    for part in &mut message.parts {
        if let Part::Tool(tool) = part
            && let Some(decided) = tool.output.as_ref().and_then(decided)
        {
            tool.output = Some(decided);
        }
    }
}

/// Our form of `{"approval": "approved"}`. Other fields stay: what they say has to agree.
fn decided(result: &Json) -> Option<Json> {
    let approved = match result.get("approval")?.as_str()?.as_ref() {
        "approved" => true,
        "denied" | "rejected" => false,
        _ => return None,
    };
    let is_free = |name: &&str| result.get(name).is_none();
    let name = ["approved", "confirmed"].into_iter().find(is_free)?;
    let fields = result.fields().into_iter();
    let others = fields.filter(|(field, _)| field != "approval");
    let mut decided = Json::object([(name, approved.into())]);
    for (field, value) in others {
        decided = decided.with(&field, &Json::read_raw(value).ok()?);
    }
    Some(decided)
}
