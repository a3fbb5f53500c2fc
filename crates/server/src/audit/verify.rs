//! Finds the first row of an audit that was changed, is missing, or was put in, from its chains and seals alone.
//!
//! Rows come in the order of their ids, each seal after the rows that it covers. What is kept is the end of each chat's chain,
//! some hundred bytes.

use std::collections::HashMap;
use std::time::Duration;

use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::time::Timestamp;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::chain::{ChainedRow, Link};
use super::export::{End, Header, Line, VERSION};
use super::seal::{Covered, Seal, SealKey, SealMark};

/// A bridge seals every minute what is new, and at its start. This leaves room for a store that was away, and for clocks.
const SEALED_WITHIN: Duration = Duration::from_secs(10 * 60);

/// What does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Problem {
    #[error("row {row} was changed")]
    Changed { row: u64 },
    #[error("row {row} is missing")]
    Missing { row: u64 },
    #[error("row {row} was put in")]
    PutIn { row: u64 },
    #[error("row {row} is not where it was written")]
    Moved { row: u64 },
    #[error("row {row} has no hash, and is too new to have none")]
    NotChained { row: u64 },
    #[error("a row from {first} to {last} was changed, and its chain rebuilt (seal {seal})")]
    Rebuilt { first: u64, last: u64, seal: u64 },
    #[error("seal {seal}, over the rows from {first}, was changed")]
    SealChanged { seal: u64, first: u64 },
    #[error("seal {seal}, over the rows from {first}, is missing")]
    SealMissing { seal: u64, first: u64 },
    #[error("seal {seal} is not signed with the key that it names")]
    Forged { seal: u64, first: u64 },
    #[error("the newest seal, {seal}, is not signed with a key that was given")]
    Unsigned { seal: u64, first: u64 },
    #[error("there is no seal, so the key proves nothing")]
    NoSeal,
    #[error("the rows from {first} through {last} are missing: the end was cut off")]
    EndMissing { first: u64, last: u64 },
    #[error(
        "row {row} has no seal, and is too old to have none: seals are missing, or the bridge ended within its first minute; \
         then start it again, which seals all rows"
    )]
    NotSealed { row: u64 },
    #[error("seal {seal} is another one than was noted: what it covers was rebuilt")]
    OtherSeal { seal: u64, first: u64 },
    #[error(
        "seal {seal}, which was noted, is missing: the end was cut off, or this is an older copy"
    )]
    CutOff { seal: u64, first: u64 },
    #[error("seal {seal}, which was noted, was given up with old rows; compare a newer one")]
    MarkTooOld { seal: u64 },
    #[error("the file does not begin as an export does")]
    NoBeginning,
    #[error("the file has no end: it was cut off, or something was added")]
    NoEnd,
    #[error("line {line} of the file cannot be read ({why})")]
    Unreadable { line: u64, why: String },
}

impl Problem {
    /// The first row that it is about.
    fn row(&self) -> u64 {
        match self {
            Self::Changed { row }
            | Self::Missing { row }
            | Self::PutIn { row }
            | Self::Moved { row }
            | Self::NotChained { row }
            | Self::NotSealed { row } => *row,
            Self::EndMissing { first, .. }
            | Self::Rebuilt { first, .. }
            | Self::SealChanged { first, .. }
            | Self::SealMissing { first, .. }
            | Self::Forged { first, .. }
            | Self::Unsigned { first, .. }
            | Self::OtherSeal { first, .. }
            | Self::CutOff { first, .. } => *first,
            Self::NoBeginning | Self::Unreadable { .. } => 0,
            Self::NoSeal | Self::MarkTooOld { .. } | Self::NoEnd => u64::MAX,
        }
    }
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub rows: u64,
    /// How many of them are older than chains.
    pub unchained: u64,
    pub seals: u64,
    /// How many of them are signed with a key that was given.
    pub signed: u64,
    /// The newest seal, and how many rows came after it.
    pub newest: Option<(SealMark, u64)>,
    pub unsealed: u64,
    /// Rows through this one were given up because of their age.
    pub removed: u64,
    /// Rows through this one are not there, since only those after it were asked for.
    pub after: u64,
    /// The first and the last row of a seal of which earlier rows are not there: that their chain was rebuilt is not found.
    pub partly: Option<(u64, u64)>,
    /// Whether these are the rows of one user, which have no seals.
    pub user: Option<UserId>,
    pub problems: u64,
    /// The one about the first row.
    pub first: Option<Problem>,
}

/// Checks an audit, line by line.
pub struct Verifier<'k> {
    keys: &'k [SealKey],
    mark: Option<SealMark>,
    header: Option<Header>,
    chats: HashMap<[u8; 16], ChatEnd>,
    last_row: u64,
    covered: Covered,
    /// The first row that has a hash and no seal yet, and when it was written; and the newest such time.
    unsealed: Option<(u64, Timestamp, Timestamp)>,
    /// The first row that is not there among those that no seal covers yet.
    gap: Option<u64>,
    last_seal: Option<Seal>,
    first_seal: Option<u64>,
    end: Option<End>,
    report: Report,
}

/// The last row of a chat so far.
struct ChatEnd {
    id: u64,
    hash: Option<Box<str>>,
}

impl<'k> Verifier<'k> {
    /// `mark`: a seal that was noted elsewhere.
    pub fn new(keys: &'k [SealKey], mark: Option<SealMark>) -> Self {
        Self {
            keys,
            mark,
            header: None,
            chats: HashMap::new(),
            last_row: 0,
            covered: Covered::default(),
            unsealed: None,
            gap: None,
            last_seal: None,
            first_seal: None,
            end: None,
            report: Report::default(),
        }
    }

    pub fn line(&mut self, line: &Line) {
        match (line, self.header.is_some()) {
            (Line::Audit(header), false) if header.version == VERSION => {
                self.report.removed = header.removed;
                self.report.after = header.after;
                self.report.user.clone_from(&header.user);
                self.header = Some(header.clone());
            }
            (Line::Audit(_), _) | (_, false) => self.note(Problem::NoBeginning),
            _ if self.end.is_some() => self.note(Problem::NoEnd),
            (Line::Row(row), true) => self.row(row),
            (Line::Seal(seal), true) => self.seal(seal),
            (Line::End(end), true) => self.end = Some(*end),
        }
    }

    /// A line that is none.
    pub fn unreadable(&mut self, line: u64, why: String) {
        self.note(Problem::Unreadable { line, why });
    }

    pub fn finish(mut self) -> Report {
        let counted = End {
            rows: self.report.rows,
            seals: self.report.seals,
        };
        if self.header.is_none() {
            self.note(Problem::NoBeginning);
        } else if self.end != Some(counted) {
            self.note(Problem::NoEnd);
        }
        if self.report.user.is_none() {
            self.finish_rows();
            self.finish_seals();
        }
        self.report.unsealed = self.covered.count();
        let newest = self.last_seal.as_ref();
        self.report.newest = newest.map(|seal| (seal.mark(), seal.through));
        self.report
    }

    fn finish_rows(&mut self) {
        let Some(header) = &self.header else {
            return;
        };
        let (written, at) = (header.written, header.at);
        let newest = self.last_seal.as_ref().map_or(0, |seal| seal.through);
        let reached = self.last_row.max(newest).max(self.given_up());
        // A file that was cut off says so itself.
        let is_whole = self.end.is_some();
        if is_whole && written > reached {
            self.note(Problem::EndMissing {
                first: reached + 1,
                last: written,
            });
        }
        if let Some(row) = self.gap {
            self.note(Problem::Missing { row });
        }
        if let Some((row, written, newest)) = self.unsealed {
            // What a bridge wrote before it was killed may wait for its next start; but it does not write on without sealing.
            let end = match self.last_seal {
                Some(_) => newest,
                None => at,
            };
            if end.since(written) > SEALED_WITHIN {
                self.note(Problem::NotSealed { row });
            }
        }
    }

    fn finish_seals(&mut self) {
        let newest = self.last_seal.clone();
        if let (Some(newest), Some(header)) = (&newest, &self.header) {
            let (seal, first) = (newest.number, newest.after.saturating_add(1));
            // The beginning says what the newest seal says.
            if (header.removed, header.unchained) != (newest.removed, newest.unchained) {
                self.note(Problem::SealChanged { seal, first });
            }
            if !self.keys.is_empty() && !self.keys.iter().any(|key| key.signed(newest)) {
                self.note(Problem::Unsigned { seal, first });
            }
        } else if !self.keys.is_empty() {
            self.note(Problem::NoSeal);
        }
        let Some(SealMark { number: seal, .. }) = self.mark else {
            return;
        };
        let first = newest.map_or(1, |newest| newest.through.saturating_add(1));
        if self
            .last_seal
            .as_ref()
            .is_none_or(|last| seal > last.number)
        {
            self.note(Problem::CutOff { seal, first });
        } else if self.first_seal.is_some_and(|oldest| seal < oldest) {
            self.note(Problem::MarkTooOld { seal });
        }
    }

    /// Rows through this one need not be there.
    fn given_up(&self) -> u64 {
        let header = self.header.as_ref();
        header.map_or(0, |header| header.removed.max(header.after))
    }

    fn row(&mut self, chained: &ChainedRow) {
        let row = &chained.row;
        let id = row.id;
        self.report.rows += 1;
        if self.report.user.is_none() {
            if id <= self.last_row {
                self.note(Problem::Moved { row: id });
                return;
            }
            // Nothing would show that it was changed.
            if id <= self.report.after {
                self.note(Problem::PutIn { row: id });
            }
            self.look_for_gap(id);
            self.last_row = id;
            self.covered.push(chained);
            if chained.link.is_some() {
                let (first, at, newest) = self.unsealed.unwrap_or((id, row.at, row.at));
                self.unsealed = Some((first, at, newest.max(row.at)));
            }
        }
        let chat = chat_key(&row.user, &row.chat_id);
        match &chained.link {
            None => {
                let unchained = self.header.as_ref().map_or(0, |header| header.unchained);
                self.report.unchained += 1;
                if id > unchained {
                    self.note(Problem::NotChained { row: id });
                }
            }
            Some(link) => {
                // What a changed row says of the one before it proves nothing.
                let problem = match link.hash_of(row) == link.hash && link.has_reason_of(row) {
                    true => self.follows(self.chats.get(&chat), id, link),
                    false => Some(Problem::Changed { row: id }),
                };
                problem.into_iter().for_each(|problem| self.note(problem));
            }
        }
        let hash = chained.link.as_ref().map(|link| link.hash.as_str().into());
        self.chats.insert(chat, ChatEnd { id, hash });
    }

    /// A database that counts the ids that it gave leaves none out. Of rows from before chains some may have gone with their
    /// chats.
    fn look_for_gap(&mut self, id: u64) {
        let unchained = match &self.header {
            Some(header) if header.written > 0 => header.unchained,
            _ => return,
        };
        let sealed = self.last_seal.as_ref().map_or(0, |seal| seal.through);
        let known = [self.last_row, sealed, self.given_up(), unchained];
        let next = known.into_iter().fold(0, u64::max).saturating_add(1);
        if id > next {
            self.gap.get_or_insert(next);
        }
    }

    /// Whether a row follows the one before it in its chat.
    fn follows(&self, before: Option<&ChatEnd>, row: u64, link: &Link) -> Option<Problem> {
        match (link.previous, before) {
            (None, None) => None,
            (None, Some(_)) => Some(Problem::PutIn { row }),
            (Some(previous), _) if previous >= row => Some(Problem::Moved { row }),
            (Some(previous), None) => {
                (previous > self.given_up()).then_some(Problem::Missing { row: previous })
            }
            (Some(previous), Some(before)) if previous > before.id => {
                Some(Problem::Missing { row: previous })
            }
            (Some(previous), Some(before)) if previous < before.id => {
                Some(Problem::PutIn { row: before.id })
            }
            (Some(previous), Some(before)) => (link.previous_hash.as_deref()
                != before.hash.as_deref())
            .then_some(Problem::Changed { row: previous }),
        }
    }

    fn seal(&mut self, seal: &Seal) {
        self.report.seals += 1;
        let covered = std::mem::take(&mut self.covered);
        self.unsealed = None;
        // A seal says which rows there were.
        self.gap = None;
        let Some(header) = self.header.clone() else {
            return;
        };
        let (number, first) = (seal.number, seal.after.saturating_add(1));
        // Rows are those of one seal only if the one before it is there.
        let mut is_next = true;
        let is_changed = match &self.last_seal {
            None => {
                self.first_seal = Some(number);
                if number > 1 && seal.after > self.given_up() {
                    let (seal, first) = (number - 1, self.given_up() + 1);
                    self.note(Problem::SealMissing { seal, first });
                    is_next = false;
                }
                number == 1 && seal.after > 0
            }
            Some(last) if number > last.number.saturating_add(1) => {
                let (seal, first) = (last.number + 1, last.through.saturating_add(1));
                self.note(Problem::SealMissing { seal, first });
                is_next = false;
                false
            }
            Some(last) => {
                last.number.checked_add(1) != Some(number)
                    || seal.previous_hash.as_deref() != Some(&last.hash)
                    || seal.after != last.through
                    || seal.removed < last.removed
                    || seal.unchained != last.unchained
            }
        };
        if is_changed || seal.hash_in(&header.store) != seal.hash || seal.through < seal.after {
            let seal = number;
            self.note(Problem::SealChanged { seal, first });
        }
        if let Some(key) = (self.keys.iter()).find(|key| seal.key_id.as_deref() == Some(key.id())) {
            match key.signed(seal) {
                true => self.report.signed += 1,
                false => self.note(Problem::Forged {
                    seal: number,
                    first,
                }),
            }
        }
        if let Some(mark) = (self.mark.as_ref()).filter(|mark| mark.number == number)
            && mark.hash != seal.hash
        {
            let seal = number;
            self.note(Problem::OtherSeal { seal, first });
        }
        if is_next {
            let given_up = self.given_up();
            let is_whole = seal.after >= given_up;
            let (ids, digest) = covered.digest();
            match ids.first_difference(&seal.ids, given_up) {
                Some(row) if seal.ids.contains(row) => {
                    self.note(Problem::Missing { row });
                }
                Some(row) => self.note(Problem::PutIn { row }),
                None if is_whole && digest != seal.digest => self.note(Problem::Rebuilt {
                    first,
                    last: seal.through,
                    seal: number,
                }),
                None if !is_whole && seal.through > given_up => {
                    self.report.partly = Some((given_up + 1, seal.through));
                }
                None => {}
            }
        }
        self.last_seal = Some(seal.clone());
    }

    fn note(&mut self, problem: Problem) {
        self.report.problems += 1;
        let is_first = (self.report.first.as_ref()).is_none_or(|first| problem.row() < first.row());
        if is_first {
            self.report.first = Some(problem);
        }
    }
}

/// Names a chat in little room.
fn chat_key(user: &UserId, chat: &ChatId) -> [u8; 16] {
    let mut digest = Sha256::new();
    digest.update(user.as_str().len().to_le_bytes());
    digest.update(user.as_str());
    digest.update(chat.as_str());
    let mut key = [0; 16];
    key.copy_from_slice(&digest.finalize()[..16]);
    key
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::chain::ChainEnd;
    use super::super::chain::tests::row;
    use super::super::seal::SealContext;
    use super::*;

    const STORE: &str = "store-1";
    /// Rows of three chats; the first two rows are older than chains, and the last row is not sealed yet.
    const CHATS: [&str; 13] = [
        "a", "b", "a", "b", "a", "c", "c", "a", "b", "a", "b", "c", "a",
    ];
    /// Through which rows seals are.
    const SEALED: [u64; 3] = [4, 7, 12];

    fn key() -> SealKey {
        SealKey::new("the key of the audit")
    }

    /// An audit as an export has it.
    fn audit() -> Vec<Line> {
        build(CHATS.iter().zip(1..).map(|(chat, id)| {
            let reason = (id % 3 == 0).then_some("because");
            row(id, chat, reason)
        }))
    }

    /// Rows as the bridge would have written them.
    fn build(rows: impl Iterator<Item = crate::store::AuditRow>) -> Vec<Line> {
        let mut lines = vec![Line::Audit(Header {
            version: VERSION,
            store: STORE.to_owned(),
            at: Timestamp::from_millis(1),
            user: None,
            after: 0,
            removed: 0,
            unchained: 2,
            written: 13,
        })];
        let mut ends: HashMap<ChatId, ChainEnd> = HashMap::new();
        let (mut seals, mut covered) = (Vec::<Seal>::new(), Covered::default());
        let mut count = 0;
        for row in rows {
            count += 1;
            let end = ends.get(&row.chat_id);
            let link = (row.id > 2).then(|| Link::new(end, &row, || "5a17".to_owned()));
            let end = ChainEnd {
                id: row.id,
                hash: link.as_ref().map(|link| link.hash.clone()),
            };
            ends.insert(row.chat_id.clone(), end);
            let row = ChainedRow { row, link };
            covered.push(&row);
            let id = row.row.id;
            lines.push(Line::Row(row));
            if SEALED.contains(&id) {
                let context = SealContext {
                    store: STORE,
                    before: seals.last(),
                    through: id,
                    removed: 0,
                    unchained: 2,
                    at: Timestamp::from_millis(id),
                    key: Some(&key()),
                };
                seals.push(Seal::new(std::mem::take(&mut covered), context));
                lines.extend(seals.last().cloned().map(Line::Seal));
            }
        }
        lines.push(Line::End(End {
            rows: count,
            seals: seals.len() as u64,
        }));
        lines
    }

    fn check(lines: &[Line], keys: &[SealKey], mark: Option<SealMark>) -> Report {
        let mut verifier = Verifier::new(keys, mark);
        // As a file has them.
        for line in lines {
            let text = serde_json::to_string(line).unwrap();
            verifier.line(&serde_json::from_str(&text).unwrap());
        }
        verifier.finish()
    }

    /// What is found first. The end counts what is there, as it does in a database.
    fn found(mut lines: Vec<Line>, keys: &[SealKey], mark: Option<SealMark>) -> Option<Problem> {
        let rows = lines.iter().filter(|it| matches!(it, Line::Row(_))).count() as u64;
        let seals = lines
            .iter()
            .filter(|it| matches!(it, Line::Seal(_)))
            .count() as u64;
        for line in &mut lines {
            if let Line::End(end) = line {
                *end = End { rows, seals };
            }
        }
        check(&lines, keys, mark).first
    }

    fn change(lines: &mut [Line], id: u64, change: impl FnOnce(&mut ChainedRow)) {
        let rows = lines.iter_mut().filter_map(|line| match line {
            Line::Row(row) if row.row.id == id => Some(row),
            _ => None,
        });
        rows.last().map(change).unwrap();
    }

    fn remove(lines: &mut Vec<Line>, gone: impl Fn(&ChainedRow) -> bool) {
        lines.retain(|line| !matches!(line, Line::Row(row) if gone(row)));
    }

    fn seals(lines: &mut [Line]) -> Vec<&mut Seal> {
        let lines = lines.iter_mut();
        lines
            .filter_map(|line| match line {
                Line::Seal(seal) => Some(seal),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn what_was_not_touched_holds() {
        let report = check(&audit(), &[key()], None);
        assert_eq!(report.first, None);
        assert_eq!((report.rows, report.unchained, report.unsealed), (13, 2, 1));
        assert_eq!((report.seals, report.signed, report.problems), (3, 3, 0));
        let newest = report.newest.unwrap();
        assert_eq!((newest.0.number, newest.1), (3, 12));
        let noted: SealMark = newest.0.to_string().parse().unwrap();
        assert_eq!(found(audit(), &[], Some(noted)), None);
        // Without reasons, too.
        let mut erased = audit();
        for id in [3, 6, 9, 12] {
            change(&mut erased, id, |it| {
                it.row.reason = None;
                it.link.as_mut().unwrap().reason_salt = None;
            });
        }
        assert_eq!(found(erased, &[key()], None), None);
    }

    #[test]
    fn the_first_row_that_was_touched_is_named() {
        type Touch = fn(&mut Vec<Line>);
        let cases: [(&str, Touch, Problem); 17] = [
            (
                "a value",
                |it| change(it, 5, |row| row.row.kind = "approval.approved".to_owned()),
                Problem::Changed { row: 5 },
            ),
            (
                "a value that is not sealed",
                |it| change(it, 13, |row| row.row.user = "bob".into()),
                Problem::Changed { row: 13 },
            ),
            (
                "a reason",
                |it| change(it, 6, |row| row.row.reason = Some("other".to_owned())),
                Problem::Changed { row: 6 },
            ),
            (
                "a reason put in",
                |it| change(it, 5, |row| row.row.reason = Some("other".to_owned())),
                Problem::Changed { row: 5 },
            ),
            (
                "a value and its hash",
                |it| {
                    change(it, 5, |row| {
                        row.row.transport = None;
                        let link = row.link.as_mut().unwrap();
                        link.hash = link.hash_of(&row.row);
                    });
                },
                Problem::Rebuilt {
                    first: 5,
                    last: 7,
                    seal: 2,
                },
            ),
            (
                "its hash removed",
                |it| change(it, 8, |row| row.link = None),
                Problem::NotChained { row: 8 },
            ),
            (
                "its hash removed, at the end",
                |it| change(it, 13, |row| row.link = None),
                Problem::NotChained { row: 13 },
            ),
            (
                "a row within a chat",
                |it| remove(it, |row| row.row.id == 8),
                Problem::Missing { row: 8 },
            ),
            (
                "the first row of a chat",
                |it| remove(it, |row| row.row.id == 6),
                Problem::Missing { row: 6 },
            ),
            (
                "the last row of a chat",
                |it| remove(it, |row| row.row.id == 12),
                Problem::Missing { row: 12 },
            ),
            (
                "a row from before chains",
                |it| remove(it, |row| row.row.id == 2),
                Problem::Missing { row: 2 },
            ),
            (
                "a whole chat",
                |it| remove(it, |row| row.row.chat_id.as_str() == "c"),
                Problem::Missing { row: 6 },
            ),
            (
                "two rows exchanged",
                |it| {
                    change(it, 8, |row| row.row.id = 100);
                    change(it, 10, |row| row.row.id = 8);
                    change(it, 100, |row| row.row.id = 10);
                    it[1..].sort_by_key(|line| match line {
                        Line::Row(row) => row.row.id * 2,
                        Line::Seal(seal) => seal.through * 2 + 1,
                        Line::Audit(_) => 0,
                        Line::End(_) => u64::MAX,
                    });
                },
                Problem::Moved { row: 8 },
            ),
            (
                "a row put in",
                |it| {
                    let Line::Row(mut forged) = it[10].clone() else {
                        unreachable!();
                    };
                    assert_eq!(forged.row.id, 8);
                    forged.row.kind = "approval.approved".to_owned();
                    let link = forged.link.as_mut().unwrap();
                    link.previous = Some(8);
                    link.hash = link.hash_of(&forged.row);
                    forged.row.id = 9;
                    it[11] = Line::Row(forged);
                },
                Problem::Changed { row: 8 },
            ),
            (
                "a seal changed",
                |it| seals(it)[1].at = Timestamp::from_millis(1),
                Problem::SealChanged { seal: 2, first: 5 },
            ),
            (
                "a seal removed",
                |it| it.retain(|line| !matches!(line, Line::Seal(seal) if seal.number == 2)),
                Problem::SealMissing { seal: 2, first: 5 },
            ),
            (
                "the first seal removed",
                |it| it.retain(|line| !matches!(line, Line::Seal(seal) if seal.number == 1)),
                Problem::SealMissing { seal: 1, first: 1 },
            ),
        ];
        for (name, touch, problem) in cases {
            let mut lines = audit();
            touch(&mut lines);
            assert_eq!(found(lines, &[key()], None), Some(problem), "{name}");
        }
    }

    #[test]
    fn a_chat_that_was_taken_back_before_a_seal_leaves_a_gap() {
        for first in 8..13 {
            let mut lines = audit();
            lines.retain(|line| !matches!(line, Line::Seal(seal) if seal.number == 3));
            let chat = CHATS[usize::try_from(first).unwrap() - 1];
            remove(&mut lines, |row| {
                row.row.id >= first && row.row.chat_id.as_str() == chat
            });
            let problem = Problem::Missing { row: first };
            assert_eq!(found(lines.clone(), &[], None), Some(problem), "{first}");
            // PostgreSQL leaves ids out whenever a transaction is rolled back.
            header(&mut lines).written = 0;
            assert_eq!(found(lines, &[], None), None);
        }
    }

    #[test]
    fn a_chain_that_was_rebuilt_is_found_by_its_seal() {
        let forged = CHATS.iter().zip(1..).map(|(chat, id)| {
            let mut row = row(id, chat, (id % 3 == 0).then_some("because"));
            if id == 6 {
                row.kind = "approval.approved".to_owned();
            }
            row
        });
        let forged = build(forged);
        let mut lines = audit();
        // The rows are rebuilt, the seals as they were.
        for (line, forged) in lines.iter_mut().zip(&forged) {
            if matches!(line, Line::Row(_)) {
                *line = forged.clone();
            }
        }
        let problem = Problem::Rebuilt {
            first: 5,
            last: 7,
            seal: 2,
        };
        assert_eq!(found(lines, &[], None), Some(problem));

        // The seals are rebuilt as well: only a key, or a seal that was noted, shows it.
        let noted = seals(&mut audit())[2].mark();
        let mut lines = forged;
        for seal in seals(&mut lines) {
            seal.signature = Some("00".repeat(32));
        }
        assert_eq!(found(lines.clone(), &[], None), None);
        let problem = Problem::Forged { seal: 1, first: 1 };
        assert_eq!(found(lines.clone(), &[key()], None), Some(problem));
        let problem = Problem::OtherSeal { seal: 3, first: 8 };
        assert_eq!(found(lines.clone(), &[], Some(noted)), Some(problem));
        for seal in seals(&mut lines) {
            (seal.key_id, seal.signature) = (None, None);
        }
        let problem = Problem::Unsigned { seal: 3, first: 8 };
        assert_eq!(found(lines, &[key()], None), Some(problem));
    }

    #[test]
    fn an_end_that_was_cut_off_is_found_by_a_seal_that_was_noted() {
        let noted = seals(&mut audit())[2].mark();
        let mut lines = audit();
        header(&mut lines).written = 0;
        remove(&mut lines, |row| row.row.id > 7);
        lines.retain(|line| !matches!(line, Line::Seal(seal) if seal.number == 3));
        assert_eq!(found(lines.clone(), &[key()], None), None);
        let problem = Problem::CutOff { seal: 3, first: 8 };
        assert_eq!(found(lines, &[key()], Some(noted)), Some(problem));
    }

    /// The lines of an export after a row.
    fn after(row: u64) -> Vec<Line> {
        let mut lines = audit();
        remove(&mut lines, |it| it.row.id <= row);
        lines.retain(|line| !matches!(line, Line::Seal(seal) if seal.through <= row));
        say_after(&mut lines, row);
        lines
    }

    fn say_after(lines: &mut [Line], row: u64) {
        for line in lines {
            if let Line::Audit(header) = line {
                header.after = row;
            }
        }
    }

    #[test]
    fn an_export_of_later_rows_says_what_is_not_checked() {
        for (row, partly) in [(4, None), (5, Some((6, 7))), (12, None), (13, None)] {
            assert_eq!(found(after(row), &[], None), None, "{row}");
            let report = check(&after(row), &[], None);
            assert_eq!((report.after, report.partly), (row, partly), "{row}");
        }
        // Rows that are there are checked, whatever the export says of others.
        let mut lines = audit();
        change(&mut lines, 5, |row| {
            row.row.transport = None;
            let link = row.link.as_mut().unwrap();
            link.hash = link.hash_of(&row.row);
        });
        say_after(&mut lines, 5);
        assert_eq!(
            found(lines, &[key()], None),
            Some(Problem::PutIn { row: 1 })
        );
        // Nor is a row missing or put in where a seal is there in part only.
        let mut lines = after(8);
        remove(&mut lines, |it| it.row.id == 11);
        assert_eq!(
            found(lines, &[key()], None),
            Some(Problem::Missing { row: 11 })
        );
    }

    #[test]
    fn the_largest_numbers_are_numbers() {
        let mut lines = audit();
        for seal in seals(&mut lines) {
            (seal.number, seal.after, seal.through) = (u64::MAX, u64::MAX, u64::MAX);
        }
        let mark = seals(&mut audit())[2].mark();
        assert!(found(lines.clone(), &[key()], Some(mark)).is_some());
        for seal in seals(&mut lines) {
            seal.ids = format!("1-{}", u64::MAX).parse().unwrap();
        }
        say_after(&mut lines, u64::MAX - 1);
        assert!(found(lines, &[key()], None).is_some());
    }

    #[test]
    fn a_database_that_counts_its_rows_misses_its_end() {
        let cut = |keep: u64, last_seal: u64| {
            let mut lines = audit();
            remove(&mut lines, |row| row.row.id > keep);
            lines.retain(|line| !matches!(line, Line::Seal(seal) if seal.number > last_seal));
            lines
        };
        for (keep, last_seal, first) in [(12, 3, 13), (7, 2, 8), (0, 0, 1)] {
            let last = 13;
            assert_eq!(
                found(cut(keep, last_seal), &[], None),
                Some(Problem::EndMissing { first, last }),
                "{keep}"
            );
        }
        // One that does not count cannot know.
        let mut uncounted = cut(7, 2);
        header(&mut uncounted).written = 0;
        assert_eq!(found(uncounted, &[key()], None), None);
    }

    #[test]
    fn seals_are_missed_where_there_must_be_some() {
        // Row 13 was written a moment after the others.
        let none = |at: u64| {
            let mut lines = audit();
            lines.retain(|line| !matches!(line, Line::Seal(_)));
            header(&mut lines).at = Timestamp::from_millis(at);
            lines
        };
        let minutes = |minutes: u64| minutes * 60_000;
        assert_eq!(found(none(minutes(9)), &[], None), None);
        let problem = Some(Problem::NotSealed { row: 3 });
        assert_eq!(found(none(minutes(11)), &[], None), problem);
        // The last one is gone, and its rows are there. They are not older than what follows them by more than a moment.
        let mut lines = audit();
        lines.retain(|line| !matches!(line, Line::Seal(seal) if seal.number == 3));
        header(&mut lines).at = Timestamp::from_millis(minutes(11));
        assert_eq!(found(lines, &[], None), None);
        let late = CHATS.iter().zip(1..).map(|(chat, id)| {
            let mut row = row(id, chat, None);
            if id == 13 {
                row.at = Timestamp::from_millis(minutes(11));
            }
            row
        });
        let mut lines = build(late);
        assert_eq!(found(lines.clone(), &[key()], None), None);
        lines.retain(|line| !matches!(line, Line::Seal(seal) if seal.number == 3));
        let problem = Some(Problem::NotSealed { row: 8 });
        assert_eq!(found(lines, &[key()], None), problem);
    }

    fn header(lines: &mut [Line]) -> &mut Header {
        match &mut lines[0] {
            Line::Audit(header) => header,
            _ => unreachable!(),
        }
    }

    #[test]
    fn files_that_are_no_whole_exports_are_refused() {
        let lines = audit();
        let whole = |lines: &[Line]| check(lines, &[], None).first;
        assert_eq!(whole(&lines[1..]), Some(Problem::NoBeginning));
        assert_eq!(whole(&lines[..5]), Some(Problem::NoEnd));
        let mut longer = lines.clone();
        longer.push(lines[3].clone());
        assert_eq!(whole(&longer), Some(Problem::NoEnd));
        assert_eq!(whole(&[]), Some(Problem::NoBeginning));
        let mut verifier = Verifier::new(&[], None);
        verifier.unreadable(1, "not JSON".to_owned());
        let first = verifier.finish().first;
        assert!(matches!(first, Some(Problem::Unreadable { line: 1, .. })));
    }

    #[test]
    fn rows_that_were_given_up_may_be_missing() {
        let give_up = |lines: &mut Vec<Line>, removed: u64| {
            let mut before: Option<Seal> = None;
            let mut covered = Covered::default();
            for line in lines.iter_mut() {
                match line {
                    Line::Audit(header) => header.removed = removed,
                    Line::Row(row) => covered.push(row),
                    Line::Seal(seal) => {
                        let context = SealContext {
                            store: STORE,
                            before: before.as_ref(),
                            through: seal.through,
                            removed: if seal.number == 3 { removed } else { 0 },
                            unchained: 2,
                            at: seal.at,
                            key: Some(&key()),
                        };
                        *seal = Seal::new(std::mem::take(&mut covered), context);
                        before = Some(seal.clone());
                    }
                    Line::End(_) => {}
                }
            }
        };
        let mut lines = audit();
        give_up(&mut lines, 4);
        // While they are being removed, and afterwards with their seal.
        for last in [2, 4] {
            remove(&mut lines, |row| row.row.id <= last);
            assert_eq!(found(lines.clone(), &[key()], None), None, "{last}");
        }
        lines.retain(|line| !matches!(line, Line::Seal(seal) if seal.number == 1));
        assert_eq!(found(lines.clone(), &[key()], None), None);
        // No more than that.
        let mut more = lines.clone();
        remove(&mut more, |row| row.row.id == 5);
        assert_eq!(
            found(more, &[key()], None),
            Some(Problem::Missing { row: 5 })
        );
        // Nobody can give up more without the key.
        for line in &mut lines {
            if let Line::Audit(header) = line {
                header.removed = 7;
            }
        }
        remove(&mut lines, |row| row.row.id <= 7);
        lines.retain(|line| !matches!(line, Line::Seal(seal) if seal.number == 2));
        let problem = Problem::SealChanged { seal: 3, first: 8 };
        assert_eq!(found(lines, &[key()], None), Some(problem));
    }
}
