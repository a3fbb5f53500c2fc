//! `[files]`: where the content of files is kept.

use std::path::PathBuf;

use figment::Figment;
use figment::providers::{Env, Serialized};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Config, ConfigError, without_secrets};

/// Where uploaded, generated and recorded files are kept.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Files {
    /// A directory (`"/srv/files"`, `"file:///srv/files"`), or a bucket of S3 (`"s3://BUCKET/PREFIX"`) or of Google Cloud Storage
    /// (`"gs://BUCKET/PREFIX"`). By default the data directory. Bridges that share a database need a place that all of them
    /// reach; `adk-bridge migrate-store … --files` copies what there is. Credentials come from the environment or from the
    /// metadata server of the machine, as for Amazon's and Google's own tools: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
    /// `AWS_REGION`; `GOOGLE_APPLICATION_CREDENTIALS`. A bucket that carries the id of another database is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The bucket's server, if it is not Amazon's or Google's, such as that of MinIO: `"https://minio.example.org:9000"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Whether the bucket of S3 is named in the path of addresses. If `false`, it is part of the host, and of `endpoint`.
    pub path_style: bool,
    /// Whether `endpoint` may begin with `http://`, in a network that you trust: content and credentials are not encrypted
    /// then.
    pub allow_http: bool,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            url: None,
            endpoint: None,
            path_style: true,
            allow_http: false,
        }
    }
}

/// Where content is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilesPlace {
    DataDir,
    Directory(PathBuf),
    Bucket {
        provider: Provider,
        bucket: String,
        /// Without slashes around it; empty for the whole bucket.
        prefix: String,
    },
}

/// Whose interface a bucket has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    S3,
    Gcs,
}

impl Provider {
    pub fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
        }
    }
}

impl Files {
    /// Another place than that of the configuration. How a bucket is reached is what the environment says of it.
    pub fn elsewhere(url: &str) -> Result<Self, ConfigError> {
        let figment = Figment::from(Serialized::defaults(Config::default()));
        let figment = figment.merge(Env::prefixed("ADK_BRIDGE__").split("__"));
        let mut files: Self = (figment.extract_inner("files")).map_err(without_secrets)?;
        files.url = Some(url.to_owned());
        if !matches!(files.place()?, FilesPlace::Bucket { .. }) {
            files.endpoint = None;
        }
        ConfigError::all(files.check())?;
        Ok(files)
    }

    /// The place that `url` names.
    pub fn place(&self) -> Result<FilesPlace, ConfigError> {
        let Some(url) = self.url.as_deref() else {
            return Ok(FilesPlace::DataDir);
        };
        let bad = || {
            let problem = "write \"s3://BUCKET/PREFIX\", \"gs://BUCKET/PREFIX\", \"file:///DIRECTORY\" or the path of a \
                           directory; credentials come from the environment";
            ConfigError::value("files.url", problem)
        };
        let (provider, rest) = match url.split_once("://") {
            None if url.is_empty() => return Err(bad()),
            None => return Ok(FilesPlace::Directory(PathBuf::from(url))),
            Some(("file", _)) => {
                let path = Url::parse(url).ok().and_then(|url| url.to_file_path().ok());
                return Ok(FilesPlace::Directory(path.ok_or_else(bad)?));
            }
            Some(("s3", rest)) => (Provider::S3, rest),
            Some(("gs", rest)) => (Provider::Gcs, rest),
            Some(_) => return Err(bad()),
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        let is_segment = |segment: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !segment.trim_matches('.').is_empty() && segment.chars().all(is_plain)
        };
        if !is_segment(bucket) || !(prefix.is_empty() || prefix.split('/').all(is_segment)) {
            return Err(bad());
        }
        Ok(FilesPlace::Bucket {
            provider,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }

    pub(super) fn check(&self) -> Vec<ConfigError> {
        let place = self.place();
        let endpoint = self.endpoint.as_deref().and_then(|endpoint| {
            let problem = self.problem_of(endpoint, place.as_ref().ok())?;
            Some(ConfigError::value("files.endpoint", problem))
        });
        place.err().into_iter().chain(endpoint).collect()
    }

    /// What is wrong with the address of a bucket's server.
    fn problem_of(&self, endpoint: &str, place: Option<&FilesPlace>) -> Option<&'static str> {
        if place.is_some_and(|place| !matches!(place, FilesPlace::Bucket { .. })) {
            return Some("files.url names no bucket, so that nothing is there; leave this out");
        }
        let Ok(url) = Url::parse(endpoint) else {
            return Some(
                "write the address of the bucket's server, such as \"https://minio.example.org:9000\"",
            );
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Some("credentials do not belong here; they come from the environment");
        }
        match url.scheme() {
            "https" => None,
            "http" if self.allow_http => None,
            "http" => Some(
                "content would be sent without encryption; write https, or set files.allow_http = true in a network that \
                 you trust",
            ),
            _ => Some("write an address that begins with https://, or with http://"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_place_or_is_refused() {
        let bucket = |provider, bucket: &str, prefix: &str| FilesPlace::Bucket {
            provider,
            bucket: bucket.into(),
            prefix: prefix.into(),
        };
        let dir = |path: &str| FilesPlace::Directory(path.into());
        let cases = [
            ("s3://chats", Some(bucket(Provider::S3, "chats", ""))),
            ("s3://chats/", Some(bucket(Provider::S3, "chats", ""))),
            (
                "gs://a.b-c/x/y/",
                Some(bucket(Provider::Gcs, "a.b-c", "x/y")),
            ),
            ("file:///srv/files", Some(dir("/srv/files"))),
            ("file:///srv/a%20b", Some(dir("/srv/a b"))),
            ("/srv/files", Some(dir("/srv/files"))),
            ("files", Some(dir("files"))),
            ("", None),
            ("s3://", None),
            ("s3://key:secret@chats/x", None),
            ("s3://chats/../other", None),
            ("s3://chats/a//x", None),
            ("s3://chats/x?region=a", None),
            ("https://chats.s3.amazonaws.com", None),
            ("file://host/files", None),
        ];
        for (url, place) in cases {
            let files = Files {
                url: Some(url.into()),
                ..Files::default()
            };
            assert_eq!(files.place().ok(), place, "{url}");
        }
        assert_eq!(Files::default().place().unwrap(), FilesPlace::DataDir);
    }

    #[test]
    fn an_endpoint_is_encrypted_unless_it_need_not_be() {
        let cases = [
            ("s3://b", "https://minio.example.org:9000", false, true),
            ("s3://b", "http://127.0.0.1:9000", true, true),
            ("s3://b", "http://127.0.0.1:9000", false, false),
            ("s3://b", "https://key:secret@minio", false, false),
            ("s3://b", "minio:9000", false, false),
            ("/srv/files", "https://minio.example.org", false, false),
        ];
        for (url, endpoint, allow_http, fits) in cases {
            let files = Files {
                url: Some(url.into()),
                endpoint: Some(endpoint.into()),
                allow_http,
                ..Files::default()
            };
            let checked = files.check();
            assert_eq!(checked.is_empty(), fits, "{url} {endpoint}");
            for error in checked {
                assert!(error.to_string().starts_with("files.endpoint: "));
            }
        }
    }
}
