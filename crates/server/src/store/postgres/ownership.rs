//! Which replica owns which chat, in PostgreSQL.

use std::time::Duration;

use adk_bridge_protocol::time::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use url::Url;

use super::PostgresStore;
use super::text::{loaded, stored};
use crate::cluster::{
    Claim, Epoch, Heartbeat, Joined, Orphan, OwnedChat, Ownership, Peer, Replica,
};
use crate::store::encoded::{from_sql, to_sql};
use crate::store::patience::PATIENCE;
use crate::store::{ChatRef, Pending, StoreError};

impl Ownership for PostgresStore {
    fn join<'a>(&'a self, me: &'a Replica) -> Pending<'a, Joined> {
        Box::pin(async move {
            let rows = self.write(|| {
                sqlx::query(
                    "SELECT now_at, name, address, silent, lease
                     FROM adk_bridge.join_replica($1, $2, $3, make_interval(secs => $4))",
                )
                .bind(stored(&me.peer.name))
                .bind(me.instance.as_str())
                .bind(me.peer.address.as_str())
                .bind(me.lease.as_secs_f64())
            });
            let rows = rows.await?;
            let row = rows.first().ok_or(StoreError::Busy)?;
            Ok(match peer(row, "name")? {
                None => Joined::Member { now: now_in(row)? },
                Some(by) => Joined::NameTaken {
                    by,
                    silent: millis(row.try_get("silent")?),
                    lease: millis(row.try_get("lease")?),
                },
            })
        })
    }

    fn heartbeat<'a>(&'a self, me: &'a Replica, draining: bool) -> Pending<'a, Heartbeat> {
        Box::pin(async move {
            let beat =
                sqlx::query("SELECT now_at, name, address FROM adk_bridge.heartbeat($1, $2)")
                    .bind(me.instance.as_str())
                    .bind(draining);
            // Once: whoever asks knows since when, and asks again.
            let heartbeats = &self.shared.heartbeats;
            let rows = heartbeats.fetch_once(beat, PATIENCE).await?;
            let Some(row) = rows.first() else {
                return Ok(Heartbeat::Dead);
            };
            let peers = rows.iter().filter_map(|row| peer(row, "name").transpose());
            Ok(Heartbeat::Alive {
                now: now_in(row)?,
                peers: peers.collect::<Result<_, _>>()?,
            })
        })
    }

    fn leave<'a>(&'a self, me: &'a Replica) -> Pending<'a, ()> {
        Box::pin(async move {
            let done = self.write(|| {
                sqlx::query("SELECT adk_bridge.leave_replica($1)").bind(me.instance.as_str())
            });
            done.await.map(|_| ())
        })
    }

    fn take<'a>(&'a self, chat: ChatRef<'a>, me: &'a Replica) -> Pending<'a, Claim> {
        Box::pin(async move {
            let rows = self.write(|| {
                sqlx::query(
                    "SELECT epoch, name, address, silent FROM adk_bridge.take_chat($1, $2, $3)",
                )
                .bind(stored(chat.user.as_str()))
                .bind(stored(chat.id.as_str()))
                .bind(me.instance.as_str())
            });
            let rows = rows.await?;
            let row = rows.first().ok_or(StoreError::Busy)?;
            if let Some(owner) = peer(row, "name")? {
                return Ok(Claim::OwnedBy(owner));
            }
            let silent: Option<i64> = row.try_get("silent")?;
            Ok(Claim::Mine {
                epoch: Epoch::new(from_sql(row.try_get("epoch")?)),
                silent: silent.map(millis),
            })
        })
    }

    fn release<'a>(&'a self, chat: ChatRef<'a>, epoch: Epoch, me: &'a Replica) -> Pending<'a, ()> {
        Box::pin(async move {
            let done = self.write(|| {
                sqlx::query(
                    "DELETE FROM adk_bridge.ownership
                     WHERE user_id = $1 AND chat_id = $2 AND epoch = $3 AND owner = $4",
                )
                .bind(stored(chat.user.as_str()))
                .bind(stored(chat.id.as_str()))
                .bind(to_sql(epoch.get()))
                .bind(me.instance.as_str())
            });
            done.await.map(|_| ())
        })
    }

    fn orphans(&self, limit: u32) -> Pending<'_, Vec<Orphan>> {
        Box::pin(async move {
            let rows = self.write(|| {
                sqlx::query("SELECT user_id, chat_id FROM adk_bridge.orphans($1)")
                    .bind(i64::from(limit))
            });
            let orphan = |row: &PgRow| {
                Ok(Orphan {
                    user: loaded(row.try_get("user_id")?).into(),
                    chat_id: loaded(row.try_get("chat_id")?).into(),
                })
            };
            rows.await?.iter().map(orphan).collect()
        })
    }

    fn owned<'a>(
        &'a self,
        me: &'a Replica,
        after: Epoch,
        limit: u32,
    ) -> Pending<'a, Vec<OwnedChat>> {
        Box::pin(async move {
            let rows = self.read(|| {
                sqlx::query(
                    "SELECT user_id, chat_id, epoch FROM adk_bridge.ownership
                     WHERE owner = $1 AND epoch > $2 ORDER BY epoch LIMIT $3",
                )
                .bind(me.instance.as_str())
                .bind(to_sql(after.get()))
                .bind(i64::from(limit))
            });
            let owned = |row: &PgRow| {
                Ok(OwnedChat {
                    user: loaded(row.try_get("user_id")?).into(),
                    chat_id: loaded(row.try_get("chat_id")?).into(),
                    epoch: Epoch::new(from_sql(row.try_get("epoch")?)),
                })
            };
            rows.await?.iter().map(owned).collect()
        })
    }

    fn owner<'a>(&'a self, chat: ChatRef<'a>) -> Pending<'a, Option<Peer>> {
        Box::pin(async move {
            let rows = self.read(|| {
                sqlx::query(
                    "SELECT r.name, r.address FROM adk_bridge.ownership o
                     JOIN adk_bridge.replicas r ON r.instance = o.owner
                     WHERE o.user_id = $1 AND o.chat_id = $2 AND adk_bridge.lives(r)",
                )
                .bind(stored(chat.user.as_str()))
                .bind(stored(chat.id.as_str()))
            });
            let rows = rows.await?;
            let owner = rows.first().map(|row| peer(row, "name")).transpose()?;
            Ok(owner.flatten())
        })
    }
}

/// The replica in a row, if there is one.
fn peer(row: &PgRow, column: &str) -> Result<Option<Peer>, StoreError> {
    let name: Option<String> = row.try_get(column)?;
    let Some(name) = name else {
        return Ok(None);
    };
    let address: String = row.try_get("address")?;
    let address = Url::parse(&address).map_err(|_| StoreError::Corrupt {
        what: format!("the address {address:?} of a replica"),
    })?;
    Ok(Some(Peer {
        name: loaded(name),
        address,
    }))
}

fn now_in(row: &PgRow) -> Result<Timestamp, StoreError> {
    Ok(Timestamp::from_millis(from_sql(row.try_get("now_at")?)))
}

fn millis(millis: i64) -> Duration {
    Duration::from_millis(from_sql(millis))
}
