//! Where the audit is read from: a store, or a database that nobody serves.

use super::chain::ChainedRow;
use super::seal::Seal;
use crate::store::Pending;

/// The audit of all users, for whoever may read it whole.
pub trait AuditTrail: Send + Sync {
    fn audit_state(&self) -> Pending<'_, AuditState>;

    /// The id of the last row: no row with a smaller one is still to come.
    fn audit_end(&self) -> Pending<'_, u64>;

    /// The rows after one, in the order of their ids; at most `limit`.
    fn audit_rows(&self, after: u64, limit: u32) -> Pending<'_, Vec<ChainedRow>>;

    /// The seals after the one with a number; at most `limit`.
    fn audit_seals(&self, after: u64, limit: u32) -> Pending<'_, Vec<Seal>>;
}

/// What is known of an audit as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditState {
    /// The id of the store.
    pub store: String,
    /// The newest seal.
    pub seal: Option<Seal>,
    /// The last row without a hash. It is looked for only while there is no seal.
    pub unchained: u64,
    /// Rows through this one were written, as the database counts them; 0 if it does not.
    pub written: u64,
}

impl AuditState {
    /// Rows through this one may be removed.
    pub fn removed(&self) -> u64 {
        self.seal.as_ref().map_or(0, |seal| seal.removed)
    }

    /// Rows through this one may be older than chains.
    pub fn unchained(&self) -> u64 {
        self.seal.as_ref().map_or(self.unchained, |it| it.unchained)
    }
}
