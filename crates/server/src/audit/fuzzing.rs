//! What the fuzz targets read of audits: an export, which holds only if its rows are those that were sealed.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use adk_bridge_protocol::id::ChatId;
use adk_bridge_protocol::time::Timestamp;

use super::chain::{ChainEnd, ChainedRow, Link};
use super::command::read_line;
use super::export::{End, Header, Line, VERSION};
use super::seal::{Covered, Seal, SealContext, SealKey};
use super::verify::Verifier;
use crate::store::AuditRow;

const STORE: &str = "store-1";
/// The chats of the rows, and through which of them seals are.
const CHATS: [&str; 8] = ["a", "b", "a", "b", "a", "c", "c", "a"];
const SEALED: [u64; 2] = [4, 7];

static GENUINE: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let rows = genuine().into_iter().filter_map(|line| match line {
        Line::Row(row) => row.link,
        _ => None,
    });
    rows.map(|link| link.hash).collect()
});

/// Checks an export with the key that has signed `genuine` rows. If it holds, the rows that its seals cover are genuine.
pub fn audit_export(file: &[u8]) {
    let keys = [key()];
    let mut verifier = Verifier::new(&keys, None);
    let mut rows = Vec::new();
    for (line, number) in file.split_inclusive(|byte| *byte == b'\n').zip(1..) {
        match read_line(line) {
            Ok(line) => {
                let written = serde_json::to_vec(&line).unwrap_or_default();
                assert_eq!(read_line(&written).as_ref(), Ok(&line), "it is read again");
                verifier.line(&line);
                if let Line::Row(row) = line {
                    rows.push(row);
                }
            }
            Err(why) => verifier.unreadable(number, why),
        }
    }
    let report = verifier.finish();
    assert_eq!(report.first.is_none(), report.problems == 0);
    let (None, None, Some((_, through))) = (&report.first, &report.user, &report.newest) else {
        return;
    };
    let is_whole = |id: u64| {
        let partly = report.partly;
        id <= *through && partly.is_none_or(|(first, last)| !(first..=last).contains(&id))
    };
    for ChainedRow { row, link } in rows.iter().filter(|it| is_whole(it.row.id)) {
        let is_genuine = link
            .as_ref()
            .is_some_and(|link| GENUINE.contains(&link.hash));
        assert!(is_genuine, "row {} was never written", row.id);
    }
}

fn key() -> SealKey {
    SealKey::new("the key of the fuzz targets")
}

/// The export that a search begins with.
fn genuine() -> Vec<Line> {
    let mut lines = vec![Line::Audit(Header {
        version: VERSION,
        store: STORE.to_owned(),
        at: Timestamp::from_millis(1),
        user: None,
        after: 0,
        written: 0,
        removed: 0,
        unchained: 0,
    })];
    let mut ends: HashMap<ChatId, ChainEnd> = HashMap::new();
    let (mut before, mut covered) = (None, Covered::default());
    for (chat, id) in CHATS.iter().zip(1..) {
        let row = row(id, chat);
        let link = Link::new(ends.get(&row.chat_id), &row, || "5a17".to_owned());
        let hash = Some(link.hash.clone());
        ends.insert(row.chat_id.clone(), ChainEnd { id, hash });
        let link = Some(link);
        let row = ChainedRow { row, link };
        covered.push(&row);
        lines.push(Line::Row(row));
        if SEALED.contains(&id) {
            let context = SealContext {
                store: STORE,
                before: before.as_ref(),
                through: id,
                removed: 0,
                unchained: 0,
                at: Timestamp::from_millis(id),
                key: Some(&key()),
            };
            let seal = Seal::new(std::mem::take(&mut covered), context);
            lines.push(Line::Seal(seal.clone()));
            before = Some(seal);
        }
    }
    let (rows, seals) = (CHATS.len() as u64, SEALED.len() as u64);
    lines.push(Line::End(End { rows, seals }));
    lines
}

fn row(id: u64, chat: &str) -> AuditRow {
    AuditRow {
        id,
        at: Timestamp::from_millis(id * 1_000),
        chat_id: chat.into(),
        turn_id: None,
        connection_id: None,
        kind: "approval.denied".to_owned(),
        tool_call_id: Some("call-1".into()),
        tool_name: Some("process_payment".to_owned()),
        approval_id: None,
        user: "alice".into(),
        transport: Some("sse".to_owned()),
        dialect: None,
        reason: id.is_multiple_of(3).then(|| "because".to_owned()),
        input_hash: None,
        replica: None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_search_begins_with_what_was_sealed() {
        let lines = genuine();
        let lines = lines
            .iter()
            .map(|line| serde_json::to_string(line).unwrap() + "\n");
        let text: String = lines.collect();
        let seed = "../../fixtures/foreign/audit-export/signed.jsonl";
        let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join(seed);
        assert_eq!(std::fs::read_to_string(seed).unwrap(), text);
    }
}
