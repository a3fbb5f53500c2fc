//! The endpoints of a real bridge, in a process of its own, reached as any client reaches them.
//!
//! | module | holds |
//! |---|---|
//! | `plain` | what every endpoint answers |
//! | `addresses` | where browsers find files: signed addresses, pages of other origins |
//! | `agents` | several agents: who answers in which chat |
//! | `bad_input` | what is refused, with which code |
//! | `compat` | the front end of adk-stream-protocol |
//! | `crowd` | limits: of connections, turns, files, wrong answers and wrong keys; and a log that nobody can forge |
//! | `described` | the description of the API: every route, every code, and a page that shows it |
//! | `budget` | budgets of users: what is refused, and what goes on |
//! | `full` | chats and users that have as much as they may have |
//! | `forms` | the forms in which requests are taken |
//! | `hostile` | four users who attack each other, over every endpoint and both sockets |
//! | `mutated` | requests gone wrong in every way that a seeded generator finds |
//! | `page_tools` | tools that pages declare in their requests |
//! | `roles` | what each role may do |
//! | `security` | keys, users, origins, hosts, and what is refused at start |
//! | `same_id` | two users with chats of the same id |
//! | `proxied` | requests that come through proxies, and upstreams in spite of them |
//! | `stock` | what stock clients and older front ends meet |
//! | `held` | posts without news: how long they are held, and how many |
//! | `late` | answers that ride along with a later message |
//! | `readers` | clients that are slow, absent, many, or leave |

#![cfg(feature = "demo")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use adk_bridge_testkit as support;

mod addresses;
mod agents;
mod bad_input;
mod budget;
mod compat;
mod crowd;
mod described;
mod forms;
mod full;
mod held;
mod hostile;
mod late;
mod mutated;
mod page_tools;
mod plain;
mod proxied;
mod readers;
mod roles;
mod same_id;
mod security;
mod stock;
