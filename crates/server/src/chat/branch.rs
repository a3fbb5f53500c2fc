//! Which messages a chat shows when a front end sends another history: it edited, deleted, or switched a branch.
//!
//! ```text
//!   shown   u1 a1 u2 a2          request  u1 a1 u3      shown  u1 a1 u3       u2 a2 are cut
//!   shown   u1 a1 u3 a3          request  u1 a1 u2 a2 u4       u1 a1 u2 a2 u4  u3 a3 are cut, u2 a2 are back
//!   shown   u1 a1 (never read)   request  u1 u2                u1 a1 u2        nobody deleted a1
//! ```

use std::collections::{BTreeSet, HashMap, HashSet};

use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::message::Role;

/// A message of the chat, cut ones included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row<'m> {
    /// The order of the chat.
    pub(super) place: u64,
    pub(super) id: &'m MessageId,
    /// Among cut messages, only replies are known to be the assistant's.
    pub(super) role: Role,
    /// The cut that removed it, unless it is shown. Messages of one cut were a branch.
    pub(super) cut_in: Option<u64>,
    /// Whether a client has received it.
    pub(super) seen: bool,
}

impl Row<'_> {
    pub(super) fn is_shown(&self) -> bool {
        self.cut_in.is_none()
    }
}

/// A message of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedMessage<'m> {
    /// Empty if the client gives none.
    pub(super) id: &'m MessageId,
    pub(super) role: Role,
    /// The places of the rows with the same text, if several rows have this id: the message was edited.
    pub(super) same: Vec<u64>,
}

/// Where the history of a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// After the listed messages: a new message follows.
    Open,
    /// With the message at this place: it is listed, and gets a new answer.
    With(u64),
    /// Before the message at this place: it is not listed, and replaced by a new one.
    Before(u64),
}

/// The places of the messages that are shown from here on, in order. `None` if the request has no known message, or the
/// history does not change. Rows are in order.
///
/// - Messages before the first listed one stay: clients may send only the end of a long history.
/// - Listed messages are shown; those that were cut come back.
/// - Other messages are cut, except those that the client may not have, or has under another id:
///   - one that no client has had;
///   - one in whose place the client has an unknown message;
///   - the answer to such a message of the user.
///
/// Messages of the same cut as a listed message come back with it, by the same rules.
pub(super) fn shown_after(
    rows: &[Row<'_>],
    listed: &[ListedMessage<'_>],
    end: End,
) -> Option<Vec<u64>> {
    // The place after the last one that can be shown.
    let end = match end {
        End::Open => u64::MAX,
        End::With(last) => last.saturating_add(1),
        End::Before(last) => last,
    };
    let (chosen, mut unknown) = choose(rows, listed, end);
    // Where the list begins, or an earlier text of one of its messages.
    let ids = rows.iter().filter(|row| chosen.contains(&row.place));
    let ids: HashSet<&MessageId> = ids.map(|row| row.id).collect();
    let is_listed =
        |row: &&Row<'_>| chosen.contains(&row.place) || (row.is_shown() && ids.contains(row.id));
    let first = rows.iter().find(is_listed)?.place;
    let mut shown = chosen.clone();
    let mut before = PreviousMessage::Listed;
    // The branch of the last listed message: the shown one, or a cut.
    let mut branch = None;
    for row in rows {
        let place = row.place;
        if chosen.contains(&place) {
            (before, branch) = (PreviousMessage::Listed, row.cut_in);
            continue;
        }
        if place < first && row.is_shown() {
            shown.insert(place);
            continue;
        }
        if row.cut_in != branch {
            continue;
        }
        // Another text of a listed message: of two rows with the same id only one is shown.
        if ids.contains(row.id) {
            before = PreviousMessage::Cut;
            continue;
        }
        // Among cut messages, only replies have ids that are certainly unique.
        let may_be_copied = row.is_shown() || row.role == Role::Assistant;
        before = if before == PreviousMessage::Cut {
            PreviousMessage::Cut
        } else if !row.seen
            || (row.role == Role::Assistant && before == PreviousMessage::Kept(Role::User))
            || (may_be_copied
                && take_copy(&mut unknown, chosen.range(..place).next_back(), row.role))
        {
            PreviousMessage::Kept(row.role)
        } else {
            PreviousMessage::Cut
        };
        if before != PreviousMessage::Cut {
            shown.insert(place);
        }
    }
    shown.retain(|place| *place < end);
    changed(rows, shown)
}

/// The same for a request that lists the message at `place` and answers its questions. That message stays, together
/// with the message that it answers, those that follow it, and those that wait for answers of their own.
pub(super) fn shown_at_answer(
    rows: &[Row<'_>],
    listed: &[ListedMessage<'_>],
    answered: u64,
    waiting: &HashSet<&MessageId>,
) -> Option<Vec<u64>> {
    let shown = shown_after(rows, listed, End::With(answered))?;
    let mut shown: BTreeSet<u64> = shown.into_iter().collect();
    let stays =
        |row: &&Row<'_>| row.is_shown() && (row.place >= answered || waiting.contains(row.id));
    shown.extend(rows.iter().filter(stays).map(|row| row.place));
    let before = rows.iter().rev();
    let before = before.filter(|row| row.is_shown() && row.place < answered);
    let question: Vec<_> = before.take_while(|row| row.role == Role::User).collect();
    shown.extend(question.iter().map(|row| row.place));
    // But not an earlier text of a shown message.
    let others = rows.iter().filter(|row| !row.is_shown());
    for row in others.filter(|row| question.iter().any(|it| it.id == row.id)) {
        shown.remove(&row.place);
    }
    changed(rows, shown)
}

/// The same for a request that lists everything that its client shows: only listed messages stay, and those that no
/// client has had, with what they answer. `may_be_new`: a list without a known message belongs to another conversation, in
/// which nothing stays.
pub(super) fn shown_of_all(
    rows: &[Row<'_>],
    listed: &[ListedMessage<'_>],
    may_be_new: bool,
) -> Option<Vec<u64>> {
    let (mut shown, _) = choose(rows, listed, u64::MAX);
    if shown.is_empty() && may_be_new {
        return changed(rows, shown);
    }
    let mut question = Vec::new();
    for row in rows.iter().filter(|row| row.is_shown()) {
        if row.role == Role::User {
            question.push(row.place);
        }
        if !row.seen {
            shown.insert(row.place);
            shown.extend(question.iter().copied());
        }
        if row.role != Role::User {
            question.clear();
        }
    }
    changed(rows, shown)
}

/// The shown places, if they differ from the current ones.
fn changed(rows: &[Row<'_>], shown: BTreeSet<u64>) -> Option<Vec<u64>> {
    let now = rows.iter().filter(|row| row.is_shown());
    let now = now.map(|row| row.place);
    (!shown.iter().copied().eq(now)).then(|| shown.into_iter().collect())
}

/// What happened to the message before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PreviousMessage {
    /// The request has it, or begins after it.
    Listed,
    /// The request does not have it, and it stays.
    Kept(Role),
    Cut,
}

/// How many unknown messages of a role follow a place.
type UnknownCounts = HashMap<(u64, bool), usize>;

/// Finds the rows of the listed messages. An edited message has several rows with one id: the client's text selects
/// one, and if several match, or none, the message after it does.
fn choose(
    rows: &[Row<'_>],
    listed: &[ListedMessage<'_>],
    end: u64,
) -> (BTreeSet<u64>, UnknownCounts) {
    let mut by_id: HashMap<&MessageId, Vec<&Row<'_>>> = HashMap::new();
    for row in rows {
        by_id.entry(row.id).or_default().push(row);
    }
    let mut chosen = BTreeSet::new();
    let mut unknown = UnknownCounts::new();
    let mut behind: HashMap<bool, usize> = HashMap::new();
    let mut bound = end;
    // Whether the message after it is a cut one.
    let mut comes_back = false;
    for message in listed.iter().rev() {
        let Some(rows) = by_id.get(message.id).filter(|_| !message.id.is_empty()) else {
            if message.role != Role::System {
                *behind.entry(message.role == Role::User).or_default() += 1;
            }
            continue;
        };
        // The client has it twice, or in another order, which does not matter here.
        let otherwise = || rows.iter().find(|row| row.is_shown());
        let in_order = |says_the_same: bool| {
            let rows = rows.iter().rev().filter(move |row| {
                row.place < bound && (!says_the_same || message.same.contains(&row.place))
            });
            let nearest = rows.clone().next();
            match comes_back {
                true => nearest,
                false => rows.clone().find(|row| row.is_shown()).or(nearest),
            }
        };
        let Some(row) = in_order(true)
            .or_else(|| in_order(false))
            .or_else(otherwise)
        else {
            continue;
        };
        let place = row.place;
        comes_back = !row.is_shown();
        bound = bound.min(place);
        chosen.insert(place);
        by_id.insert(message.id, vec![row]);
        for (is_user, count) in behind.drain() {
            *unknown.entry((place, is_user)).or_default() += count;
        }
    }
    (chosen, unknown)
}

/// Takes one of the unknown messages after a place as the client's copy of a message of this role.
fn take_copy(unknown: &mut UnknownCounts, place: Option<&u64>, role: Role) -> bool {
    let copies = place.and_then(|place| unknown.get_mut(&(*place, role == Role::User)));
    match copies {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
