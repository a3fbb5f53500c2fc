//! Content in a bucket of S3, of Google Cloud Storage, or of a server that speaks like one of them.
//!
//! The names are those of a data directory, below the prefix: `files/xx/ID`, `files/database-id`, `lost-files/xx/ID`. The
//! bucket carries the id of its database like a directory does, and another database is refused.
//!
//! A server that cannot be reached is no reason not to start: conversations without files go on, and what needs a file
//! is refused for now. Every request ends in time ([`within`]), whatever the server does.

mod answers;
mod incoming;
mod sweep;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_agents::trust;
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3Builder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, Certificate, ClientOptions, GetOptions, GetRange, ObjectStore,
    ObjectStoreExt as _, RetryConfig,
};
use tokio::sync::OnceCell;
use tokio::time::timeout;

pub(super) use incoming::IncomingObject;
pub(super) use sweep::GRACE;
pub use sweep::Swept;

use self::answers::BoundedConnector;
use super::content::{ContentStream, Removed};
use super::{FileError, OpenError};
use crate::config::{ConfigError, Files as FilesConfig, Provider};
use crate::store::{Entity, Identity, Store, StoreError};

/// Where a bucket carries the id of its database.
const MARK: &str = "database-id";

/// How long a server may take to accept a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long a request without content may take, trying again included.
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// How long a part of a file may take to arrive there: 8 MiB at 1 Mbit a second.
const PUT_TIME: Duration = Duration::from_secs(70);
/// How long a server may send nothing in the middle of content.
const PIECE_TIME: Duration = Duration::from_secs(10);
/// A request that fails is sent again: servers answer 500 and 503 now and then, and ask for it.
const RETRIES: usize = 3;
/// How many objects are deleted at once.
const REMOVED_AT_ONCE: usize = 16;
/// How many objects are looked at to see whether a database knows some of them.
const SAMPLE: usize = 1_000;

#[derive(Clone)]
pub(super) struct Bucket {
    objects: Arc<dyn ObjectStore>,
    /// As the configuration names it.
    url: Arc<str>,
    files: Path,
    lost: Path,
    store: Arc<dyn Store>,
    /// Whether the bucket is known to be this database's.
    claimed: Arc<OnceCell<()>>,
}

/// Why a request to a bucket came to nothing.
#[derive(Debug, thiserror::Error)]
enum BucketError {
    #[error("there is no such object, or no such bucket")]
    Missing,
    #[error("access is denied: {0}")]
    Denied(String),
    #[error("{0}")]
    Failed(String),
    /// The content belongs to another database.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// How a bucket is named where people read it.
fn url_of(provider: Provider, bucket: &str, prefix: &str) -> String {
    match prefix {
        "" => format!("{}://{bucket}", provider.scheme()),
        prefix => format!("{}://{bucket}/{prefix}", provider.scheme()),
    }
}

/// Looks whether a bucket answers and lets the bridge in; nothing is written. Returns its URL.
pub(super) async fn look(
    config: &FilesConfig,
    provider: Provider,
    bucket: &str,
    prefix: &str,
) -> Result<String, ConfigError> {
    let url = url_of(provider, bucket, prefix);
    let unusable = |why: String| {
        let problem = format!("{url} cannot be used: {why}");
        ConfigError::value("files.url", problem)
    };
    let objects = connected(config, provider, bucket);
    let objects = objects.map_err(|error| unusable(error.to_string()))?;
    // A listing tells whether there is a bucket; one that has no mark yet is like one that is missing.
    let mut first = objects.list(Some(&Path::from(prefix).join("files")));
    match sweep::next(&mut first).await {
        Ok(_) => Ok(url),
        Err(BucketError::Missing) => Err(unusable(
            "it does not exist, or cannot be seen; create it".to_owned(),
        )),
        Err(BucketError::Denied(why)) => Err(unusable(format!(
            "the credentials of the environment ({}) are refused: {why}",
            variables(provider)
        ))),
        Err(BucketError::Failed(why)) => Err(unusable(why)),
        Err(BucketError::Store(error)) => Err(unusable(error.to_string())),
    }
}

impl Bucket {
    /// Takes a bucket into use. One that refuses the bridge, or belongs to another database, is refused; one that cannot be
    /// reached is tried again when it is needed.
    pub(super) async fn open(
        config: &FilesConfig,
        provider: Provider,
        bucket: &str,
        prefix: &str,
        store: Arc<dyn Store>,
    ) -> Result<Self, OpenError> {
        let url: Arc<str> = url_of(provider, bucket, prefix).into();
        let objects = connected(config, provider, bucket);
        let objects = objects.map_err(|error| {
            ConfigError::value("files.url", format!("{url} cannot be used: {error}"))
        })?;
        let root = Path::from(prefix);
        let opened = Self {
            objects,
            files: root.clone().join("files"),
            lost: root.join("lost-files"),
            url: url.clone(),
            store,
            claimed: Arc::default(),
        };
        match opened.try_claim().await {
            Ok(()) => {}
            Err(BucketError::Store(error)) => return Err(error.into()),
            Err(BucketError::Missing) => {
                let problem =
                    format!("there is no bucket for {url}, or it cannot be seen; create it");
                return Err(ConfigError::value("files.url", problem).into());
            }
            Err(BucketError::Denied(why)) => {
                let problem = format!(
                    "{url} cannot be used with the credentials of the environment ({}): {why}",
                    variables(provider)
                );
                return Err(ConfigError::value("files.url", problem).into());
            }
            Err(BucketError::Failed(why)) => {
                tracing::error!(
                    "files.url: {url} cannot be reached, so that there are no files until it can be: {why}"
                );
            }
        }
        Ok(opened)
    }

    /// One that nobody has looked at yet.
    #[cfg(test)]
    pub(super) fn unopened(objects: Arc<dyn ObjectStore>, store: Arc<dyn Store>) -> Self {
        Self {
            objects,
            files: Path::from("files"),
            lost: Path::from("lost-files"),
            url: "s3://bucket".into(),
            store,
            claimed: Arc::default(),
        }
    }

    pub(super) fn begin(&self, id: &str) -> IncomingObject {
        IncomingObject::new(self.clone(), self.place(id))
    }

    pub(super) async fn read(
        &self,
        id: &str,
        range: Range<u64>,
    ) -> Result<ContentStream, FileError> {
        let place = self.place(id);
        let left = range.end.saturating_sub(range.start);
        if left == 0 {
            return match self.size(id).await? {
                Some(_) => Ok(Box::pin(stream::empty())),
                None => Err(missing(id)),
            };
        }
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            ..GetOptions::default()
        };
        let got = self.objects.get_opts(&place, options);
        let got = match within("reading a file", ANSWER_TIME, got).await {
            Err(BucketError::Missing) => return Err(missing(id)),
            got => got?,
        };
        let pieces = got.into_stream();
        let id = id.to_owned();
        let pieces = stream::try_unfold((pieces, left), |(mut pieces, left)| async move {
            if left == 0 {
                return Ok(None);
            }
            let next = async { pieces.next().await.transpose() };
            let next = within("reading a file", PIECE_TIME, next).await;
            let mut piece: Bytes = match next.map_err(std::io::Error::other)? {
                Some(piece) => piece,
                None => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            };
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            let left = left - piece.len() as u64;
            Ok(Some((piece, (pieces, left))))
        });
        Ok(Box::pin(pieces.inspect_err(move |error| {
            tracing::warn!(%error, file = %id, "the content of a file could not be read to its end");
        })))
    }

    pub(super) async fn size(&self, id: &str) -> Result<Option<u64>, FileError> {
        let place = self.place(id);
        match within("looking for a file", ANSWER_TIME, self.objects.head(&place)).await {
            Ok(found) => Ok(Some(found.size)),
            Err(BucketError::Missing) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes content, also what was put aside. The first failure ends it: what is left is removed by a later sweep.
    pub(super) async fn remove(&self, ids: Vec<String>) -> Vec<Removed> {
        let mut gone = Vec::with_capacity(ids.len());
        let mut ids = ids.into_iter().peekable();
        while ids.peek().is_some() {
            let some = ids.by_ref().take(REMOVED_AT_ONCE);
            for removed in join_all(some.map(|id| self.remove_one(id))).await {
                match removed {
                    Ok(removed) => gone.push(removed),
                    Err(error) => {
                        tracing::warn!(%error, "the content of deleted files stays until the next sweep");
                        return gone;
                    }
                }
            }
        }
        gone
    }

    async fn remove_one(&self, id: String) -> Result<Removed, FileError> {
        self.claim().await?;
        let bytes = self.size(&id).await?.unwrap_or(0);
        for place in [self.place(&id), self.lost_place(&id)] {
            match within("removing a file", ANSWER_TIME, self.objects.delete(&place)).await {
                Ok(()) | Err(BucketError::Missing) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Removed { id, bytes })
    }

    /// Whether the bucket answers. It is not written to: health checks come often, and each write costs.
    pub(super) async fn probe(&self) -> Result<(), FileError> {
        self.claim().await?;
        let mark = self.files.clone().join(MARK);
        within(
            "looking for the bucket",
            ANSWER_TIME,
            self.objects.head(&mark),
        )
        .await?;
        Ok(())
    }

    /// Makes sure that the bucket is this database's, before anything in it is changed.
    async fn claim(&self) -> Result<(), FileError> {
        Ok(self.try_claim().await?)
    }

    async fn try_claim(&self) -> Result<(), BucketError> {
        let claimed = self.claimed.get_or_try_init(|| async {
            let store = self.store.identity().await?;
            let mark = self.files.clone().join(MARK);
            let found = self.text(&mark).await?;
            if found.as_deref().map(str::trim) == Some(store.id.as_str()) {
                return Ok(());
            }
            if !self.is_of(&store, found.is_some()).await? {
                return Err(BucketError::Store(StoreError::OtherFiles {
                    files: (&*self.url).into(),
                    database: store.place,
                }));
            }
            let put = self.objects.put(&mark, store.id.into());
            within("marking the bucket", ANSWER_TIME, put).await?;
            Ok(())
        });
        claimed.await.copied()
    }

    /// Whether the content belongs to this database, whose id is not in the bucket. A database that knows some of it is at
    /// least a copy of the right one.
    async fn is_of(&self, store: &Identity, is_marked: bool) -> Result<bool, BucketError> {
        let mut sample = HashSet::new();
        let mut here = self.objects.list(Some(&self.files));
        while sample.len() < SAMPLE
            && let Some(object) = sweep::next(&mut here).await?
        {
            sample.extend(sweep::id_of(&object).map(str::to_owned));
        }
        if sample.is_empty() {
            return Ok(true);
        }
        let known = self.store.file_ids().await?;
        Ok(known.iter().any(|id| sample.contains(id)) || !(is_marked || store.is_empty))
    }

    /// A short text, if it is there.
    async fn text(&self, place: &Path) -> Result<Option<String>, BucketError> {
        let read = async { self.objects.get(place).await?.bytes().await };
        match within("reading the bucket's mark", ANSWER_TIME, read).await {
            Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
            Err(BucketError::Missing) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn place(&self, id: &str) -> Path {
        place_in(&self.files, id)
    }

    fn lost_place(&self, id: &str) -> Path {
        place_in(&self.lost, id)
    }
}

fn place_in(root: &Path, id: &str) -> Path {
    let shelf = id.get(..2).unwrap_or("__");
    root.clone().join(shelf).join(id)
}

fn missing(id: &str) -> FileError {
    tracing::warn!(file = %id, "the content of a file is missing");
    StoreError::NotFound(Entity::File).into()
}

/// A client of a bucket. Credentials come from the environment, or from the metadata server of the machine.
fn connected(
    config: &FilesConfig,
    provider: Provider,
    bucket: &str,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    // The one that the rest of the program has; another one may have been chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // A slow reader slows its download down; what is too slow is decided for each piece.
    let options = ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT_TIME)
        .with_allow_http(config.allow_http);
    let trusted = trust::added().into_iter();
    let trusted = trusted.filter_map(|it| Certificate::from_der(&it).ok());
    let options = trusted.fold(options, ClientOptions::with_root_certificate);
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            base: 3.0,
        },
        max_retries: RETRIES,
        retry_timeout: ANSWER_TIME,
    };
    Ok(match provider {
        Provider::S3 => {
            let mut s3 = AmazonS3Builder::from_env()
                .with_client_options(options)
                .with_http_connector(BoundedConnector)
                .with_retry(retry)
                .with_bucket_name(bucket)
                .with_virtual_hosted_style_request(!config.path_style);
            if let Some(endpoint) = &config.endpoint {
                s3 = s3.with_endpoint(endpoint.trim_end_matches('/'));
            }
            Arc::new(s3.build()?)
        }
        Provider::Gcs => {
            let mut gcs = GoogleCloudStorageBuilder::from_env()
                .with_client_options(options)
                .with_http_connector(BoundedConnector)
                .with_retry(retry)
                .with_bucket_name(bucket);
            if let Some(endpoint) = &config.endpoint {
                gcs = gcs.with_base_url(endpoint.trim_end_matches('/'));
            }
            Arc::new(gcs.build()?)
        }
    })
}

/// Where credentials are looked for first.
fn variables(provider: Provider) -> &'static str {
    match provider {
        Provider::S3 => "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
        Provider::Gcs => "GOOGLE_APPLICATION_CREDENTIALS",
    }
}

/// Waits for a server, but not for long.
async fn within<T>(
    doing: &'static str,
    time: Duration,
    request: impl Future<Output = object_store::Result<T>>,
) -> Result<T, BucketError> {
    use object_store::Error as E;
    let Ok(answer) = timeout(time, request).await else {
        let why = format!("{doing} took longer than {} seconds", time.as_secs());
        return Err(BucketError::Failed(why));
    };
    answer.map_err(|error| match error {
        E::NotFound { .. } => BucketError::Missing,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => {
            BucketError::Denied(shortened(&error))
        }
        // The library does not know this one in the answer to a listing.
        _ if error.to_string().contains("<Code>NoSuchBucket</Code>") => BucketError::Missing,
        _ => BucketError::Failed(format!("{doing} failed: {}", shortened(&error))),
    })
}

/// An error quotes the server's answer, which may be long.
fn shortened(error: &object_store::Error) -> String {
    const MOST: usize = 500;
    let mut text = error.to_string();
    text.truncate(text.floor_char_boundary(MOST));
    text.replace(['\n', '\r'], " ")
}

impl From<BucketError> for FileError {
    fn from(error: BucketError) -> Self {
        match error {
            BucketError::Store(error) => error.into(),
            error => {
                tracing::warn!("files.url: the bucket cannot be used: {error}");
                Self::Unavailable
            }
        }
    }
}
