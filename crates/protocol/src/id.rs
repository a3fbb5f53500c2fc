//! Ids: text that names one kind of thing and cannot be taken for the name of another.
//!
//! ```
//! # use adk_bridge_protocol::calls::Calls;
//! # use adk_bridge_protocol::id::CallId;
//! let id = CallId::from("c1");
//! Calls::default().by_id(&id);
//! ```
//!
//! ```compile_fail
//! # use adk_bridge_protocol::calls::Calls;
//! # use adk_bridge_protocol::id::ApprovalId;
//! let id = ApprovalId::from("a1");
//! Calls::default().by_id(&id);
//! ```
//!
//! In what a client or an agent sends, an id is text; it gets one of these types as soon as it is clear what it names.

use std::borrow::{Borrow, Cow};
use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Cow<'static, str>);

        impl $name {
            /// For constants.
            pub const fn literal(text: &'static str) -> Self {
                Self(Cow::Borrowed(text))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether it names nothing: clients may leave an id out.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(Cow::Owned(text))
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(Cow::Owned(text.to_owned()))
            }
        }

        /// It hashes like its text, so maps can be searched by text.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, text: &str) -> bool {
                self.0 == text
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, text: &&str) -> bool {
                self.0 == *text
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, formatter)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, formatter)
            }
        }
    )*};
}

ids! {
    /// A user, who owns chats.
    UserId;
    /// One chat of a user: chats of two users may have the same id.
    ChatId;
    /// One message of a chat.
    MessageId;
    /// One tool call of a reply: the bridge's own id, which front ends see.
    CallId;
    /// One request for a human's decision.
    ApprovalId;
}

/// If a confirmation is a separate call, the call and the approval share an id, and each id can be turned into the
/// other.
impl CallId {
    /// The approval that has the id of this call.
    pub fn to_approval(&self) -> ApprovalId {
        ApprovalId(self.0.clone())
    }
}

impl ApprovalId {
    /// The call that has the id of this approval.
    pub fn to_call(&self) -> CallId {
        CallId(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn an_id_is_written_as_its_text() {
        let id = CallId::from("c\"1");
        assert_eq!(
            serde_json::to_string(&id).ok().as_deref(),
            Some(r#""c\"1""#)
        );
        assert_eq!(serde_json::from_str(r#""c\"1""#).ok(), Some(id.clone()));
        assert_eq!(
            (format!("{id}"), format!("{id:?}")),
            ("c\"1".to_owned(), "\"c\\\"1\"".to_owned())
        );
    }

    #[test]
    fn a_map_of_ids_can_be_asked_with_text() {
        let calls = HashMap::from([(CallId::literal("c1"), 1)]);
        assert_eq!(calls.get("c1"), Some(&1));
    }
}
