//! The audit as evidence: rows that are chained, seals that cover them, and what can be found out afterwards.
//!
//! ```text
//!   chat a   row 1 ◀── row 4 ◀── row 5            each row holds the hash of the one before it in its chat
//!   chat b        row 2 ◀── row 3 ◀──── row 6
//!   seals    ◀─── seal 1 ───▶◀── seal 2 ──▶       each covers all rows up to one, and holds the hash of the seal before it
//! ```
//!
//! Chains of their own cost chats nothing and need no lock between replicas; what they cannot show, such as a chat that is
//! missing whole, the seals show.

pub mod chain;
pub mod command;
mod export;
pub(crate) mod fuzzing;
pub mod seal;
mod sealing;
mod source;
pub mod verify;

pub use export::{End, Exported, Header, Line, whole_audit};
pub(crate) use sealing::fraction;
pub use sealing::{SealTask, Sealing, seal_all};
pub use source::{AuditState, AuditTrail};
