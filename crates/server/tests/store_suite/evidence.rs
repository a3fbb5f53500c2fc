//! The audit as evidence: chained, sealed, removed by age, and without what people wrote.

use adk_bridge::audit::seal::{SealKey, SealMark};
use adk_bridge::audit::verify::{Report, Verifier};
use adk_bridge::audit::{Line, Sealing, seal_all, whole_audit};
use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::outbox::AuditKind;

use super::*;

const OTHER: ChatRef<'static> = ChatRef {
    user: &UserId::literal("nul\0é\u{10FFFE}"),
    id: &ChatId::literal("tab\tand\0"),
};

fn key() -> SealKey {
    SealKey::new("the key of the audit")
}

/// Chats with chained rows of every form.
async fn with_rows(home: &impl Home) -> Arc<dyn Store> {
    let store = with_chat(home).await;
    store.create_chat(OTHER, at(1)).await.unwrap();
    let mut bare = audit(AuditKind::ToolStarted, "");
    (bare.turn_id, bare.transport, bare.dialect, bare.replica) = (None, None, None, None);
    bare.audit = Audit {
        kind: AuditKind::ToolStarted,
        call_id: None,
        tool: None,
        approval_id: None,
        reason: None,
        input_hash: None,
    };
    let mut strange = audit(AuditKind::AnswerRefused, "no\0: \u{10FFFE} 多い 🙂");
    strange.connection_id = Some("c\0".to_owned());
    let rows = [audit(AuditKind::ApprovalRequested, ""), bare, strange];
    store
        .commit(CHAT, &reply("m1", ""), &rows, at(1))
        .await
        .unwrap();
    store.append_audit(OTHER, &rows).await.unwrap();
    store.append_audit(CHAT, &rows[..1]).await.unwrap();
    store.append_audit(CHAT, &[]).await.unwrap();
    store
}

fn sealing(store: &Arc<dyn Store>) -> Sealing {
    Sealing::new(store.clone(), Some(key()))
}

async fn verified(store: &Arc<dyn Store>, mark: Option<SealMark>) -> Report {
    let keys = [key()];
    let mut verifier = Verifier::new(&keys, mark);
    let mut lines = whole_audit(store.clone(), 0, at(9));
    loop {
        let some = lines.next().await.unwrap();
        if some.is_empty() {
            return verifier.finish();
        }
        some.iter().for_each(|line| verifier.line(line));
    }
}

async fn rows_after(store: &Arc<dyn Store>, after: u64) -> Vec<u64> {
    let mut lines = whole_audit(store.clone(), after, at(9));
    let mut ids = Vec::new();
    loop {
        let some = lines.next().await.unwrap();
        if some.is_empty() {
            return ids;
        }
        ids.extend(some.iter().filter_map(|line| match line {
            Line::Row(row) => Some(row.row.id),
            _ => None,
        }));
    }
}

pub(crate) async fn is_chained_and_sealed(home: &impl Home) {
    let store = with_rows(home).await;
    let sealing = sealing(&store);
    let first = seal_all(&sealing, at(2)).await.unwrap().unwrap();
    assert_eq!((first.number, first.ids.count()), (1, 7));
    assert_eq!(seal_all(&sealing, at(3)).await.unwrap(), None);
    let report = verified(&store, Some(first.mark())).await;
    assert_eq!(report.first, None);
    assert_eq!((report.rows, report.unchained, report.signed), (7, 0, 1));

    // A deleted chat leaves its chain, and the next one of its name goes on with it.
    store.delete_chat(CHAT).await.unwrap();
    store.create_chat(CHAT, at(4)).await.unwrap();
    let more = [audit(AuditKind::ToolFailed, "again")];
    store.append_audit(CHAT, &more).await.unwrap();
    let report = verified(&store, None).await;
    assert_eq!((report.first, report.unsealed), (None, 1));
    let second = seal_all(&sealing, at(5)).await.unwrap().unwrap();
    assert_eq!(second.previous_hash, Some(first.hash.clone()));
    assert_eq!(verified(&store, Some(first.mark())).await.first, None);
    // A number is given once.
    let mut forged = second.clone();
    forged.digest = first.digest;
    forged.hash = forged.hash_in("another store");
    assert!(!store.add_seal(&forged).await.unwrap());
    assert_eq!(verified(&store, None).await.seals, 2);

    // From a row on.
    let all = rows_after(&store, 0).await;
    assert_eq!(all.len(), 8);
    assert_eq!(rows_after(&store, all[4]).await, all[5..]);
    let mut of_user = Vec::new();
    let mut after: Option<(ChatId, u64)> = None;
    loop {
        let cursor = after.as_ref().map(|(chat, id)| (chat, *id));
        let page = store.audit_of_user(CHAT.user, cursor, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.row.chat_id.clone(), last.row.id));
        of_user.extend(page.into_iter().map(|row| row.row.id));
    }
    assert_eq!(of_user.len(), 5);
    assert!(of_user.iter().all(|id| all.contains(id)));
}

pub(crate) async fn is_given_up_by_age(home: &impl Home) {
    let store = with_chat(home).await;
    let sealing = sealing(&store);
    let add = async |millis: u64| {
        let mut row = audit(AuditKind::ToolStarted, "old");
        row.at = at(millis);
        store.append_audit(CHAT, &[row]).await.unwrap();
    };
    for millis in [10, 20] {
        add(millis).await;
    }
    seal_all(&sealing, at(20)).await.unwrap();
    for millis in [30, 40] {
        add(millis).await;
    }
    seal_all(&sealing, at(40)).await.unwrap();
    add(50).await;
    let all = rows_after(&store, 0).await;
    // The second seal has a row that is not old enough.
    let gone = sealing.remove_older(at(40), 1_000, at(60)).await.unwrap();
    assert_eq!(gone, 2);
    assert_eq!(rows_after(&store, 0).await, all[2..]);
    let report = verified(&store, None).await;
    assert_eq!((report.first, report.rows), (None, 3));
    assert_eq!(report.removed, all[1]);
    let again = sealing.remove_older(at(40), 1_000, at(61)).await.unwrap();
    assert_eq!(again, 0);
    // All of it; what comes then is chained and gets ids that nothing had.
    let gone = sealing
        .remove_older(at(1_000), 1_000, at(62))
        .await
        .unwrap();
    assert_eq!(gone, 3);
    assert!(rows_after(&store, 0).await.is_empty());
    add(70).await;
    let left = rows_after(&store, 0).await;
    assert!(left[0] > all[4], "{left:?} {all:?}");
    seal_all(&sealing, at(70)).await.unwrap();
    let report = verified(&store, None).await;
    assert_eq!((report.first, report.rows), (None, 1));
    // No more than a few at once.
    for millis in [80, 81, 82] {
        add(millis).await;
        seal_all(&sealing, at(millis)).await.unwrap();
    }
    let gone = sealing.remove_older(at(1_000), 2, at(90)).await.unwrap();
    assert!(gone < 4, "{gone}");
    assert_eq!(verified(&store, None).await.first, None);
}

pub(crate) async fn loses_what_people_wrote(home: &impl Home) {
    let store = with_rows(home).await;
    seal_all(&sealing(&store), at(2)).await.unwrap();
    let mut erased = Vec::new();
    loop {
        erased.push(store.erase_reasons(CHAT.user, 2).await.unwrap());
        if erased.last() == Some(&0) {
            break;
        }
    }
    assert_eq!(erased, [2, 1, 0]);
    let rows = store.audit(CHAT, AuditPage::default()).await.unwrap();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.reason.is_none()));
    let rows = store.audit(OTHER, AuditPage::default()).await.unwrap();
    assert_eq!(rows.iter().filter(|row| row.reason.is_some()).count(), 2);
    assert_eq!(verified(&store, None).await.first, None);
    // It goes on.
    let more = [audit(AuditKind::ToolFailed, "new")];
    store.append_audit(CHAT, &more).await.unwrap();
    assert_eq!(verified(&store, None).await.first, None);
}

/// Two replicas with different keys are a mistake, which both notice, and which does not fill the store.
pub(crate) async fn is_sealed_with_two_keys_and_not_without_end(home: &impl Home) {
    let store = with_rows(home).await;
    let one = sealing(&store);
    let two = Sealing::new(store.clone(), Some(SealKey::new("another key")));
    let none = Sealing::new(store.clone(), None);
    let seals = async || store.audit_seals(0, 100).await.unwrap().len();
    seal_all(&one, at(1)).await.unwrap();
    // The one that has come later may replace the other, whose seals it signs once.
    for minute in 2..8 {
        seal_all(&two, at(minute)).await.unwrap();
        assert_eq!(seals().await, 2);
        assert!(!two.meets_another_key());
        seal_all(&one, at(minute)).await.unwrap();
        seal_all(&none, at(minute)).await.unwrap();
        assert!(one.meets_another_key());
    }
    assert_eq!(seals().await, 2);
    assert!(!none.meets_another_key());
    let row = [audit(AuditKind::ToolStarted, "")];
    store.append_audit(CHAT, &row).await.unwrap();
    seal_all(&one, at(9)).await.unwrap();
    seal_all(&two, at(9)).await.unwrap();
    assert!(two.meets_another_key());
    assert_eq!(seals().await, 3);
    // With the same key nothing is wrong.
    let same = sealing(&store);
    store.append_audit(CHAT, &row).await.unwrap();
    seal_all(&same, at(10)).await.unwrap();
    store.append_audit(CHAT, &row).await.unwrap();
    seal_all(&sealing(&store), at(11)).await.unwrap();
    seal_all(&same, at(12)).await.unwrap();
    assert!(!same.meets_another_key());
}
