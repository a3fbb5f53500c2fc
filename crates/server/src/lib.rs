//! Everything of the bridge that waits: what is stored, and the commands of the binary.
//!
//! | module | knows |
//! |---|---|
//! | [`store`] | what survives a restart |
//! | [`files`] | binary content beside the store |
//! | [`translate`] | the command that shows recorded events as a front end would get them |

pub mod files;
pub mod store;
pub mod translate;
