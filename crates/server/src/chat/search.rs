//! Finds chats by words of their titles.

use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::time::Timestamp;

use super::{ChatError, ChatPage, Chats};
use crate::store::{ChatCursor, MAX_LISTED, MAX_TITLES};

/// How many titles one request goes through; the next page goes on.
const MAX_SEARCHED: usize = 10_000;

/// Words that a title has, in any order, in upper or lower case.
struct Words(Vec<String>);

impl Words {
    fn of(query: &str) -> Self {
        let words = query.split_whitespace();
        Self(words.map(str::to_lowercase).collect())
    }

    fn are_in(&self, title: Option<&str>) -> bool {
        let title = title.unwrap_or_default().to_lowercase();
        self.0.iter().all(|word| title.contains(word.as_str()))
    }
}

impl Chats {
    /// The chats of a user whose titles have these words, most recently changed first, after the last one of a page.
    pub async fn search(
        &self,
        user: &UserId,
        query: &str,
        last: Option<(Timestamp, &ChatId)>,
    ) -> Result<ChatPage, ChatError> {
        let words = Words::of(query);
        let store = &self.shared.store;
        let mut last = last.map(|(updated, id)| (updated, id.clone()));
        let (mut ids, mut searched) = (Vec::new(), 0);
        let next = 'searching: loop {
            if searched >= MAX_SEARCHED {
                break last;
            }
            let before = last.as_ref().map(|(updated, id)| ChatCursor {
                updated: *updated,
                id,
            });
            let titles = store.titles(user, MAX_TITLES, before).await?;
            searched += titles.len();
            let is_end = titles.len() < MAX_TITLES as usize;
            for chat in titles {
                last = Some((chat.updated, chat.id.clone()));
                if words.are_in(chat.title.as_deref()) {
                    ids.push(chat.id);
                    if ids.len() == MAX_LISTED as usize {
                        break 'searching last;
                    }
                }
            }
            if is_end {
                break None;
            }
        };
        let chats = match ids.is_empty() {
            true => Vec::new(),
            false => store.listed(user, &ids).await?,
        };
        Ok(ChatPage { chats, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_have_words_in_any_order_and_case() {
        for (query, title, found) in [
            ("kyo", Some("A trip to Kyoto"), true),
            (" KYOTO  trip ", Some("A trip to Kyoto"), true),
            ("kyoto osaka", Some("A trip to Kyoto"), false),
            ("ÄRGER", Some("ärger"), true),
            ("kyoto", None, false),
        ] {
            assert_eq!(Words::of(query).are_in(title), found, "{query}");
        }
    }
}
