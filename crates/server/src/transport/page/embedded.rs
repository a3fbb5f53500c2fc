//! The files of the page and of the documents as part of the binary, in the form that tower-http serves: it chooses the
//! encoding, and tells clients that have a file already.

use std::borrow::Cow;
use std::future::{Ready, ready};
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::Request;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use rust_embed::{EmbeddedFile, RustEmbed};
use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};
use tower::ServiceExt as _;
use tower_http::services::fs::{Backend, File, Metadata, ServeDir};

/// What `web/ui` was built into, each text also compressed (`NAME.br`, `NAME.gz`). Empty where it was not built.
#[derive(RustEmbed)]
#[folder = "$CARGO_MANIFEST_DIR/../../web/ui/dist"]
#[allow_missing = true]
struct Page;

/// The same of `web/docs`.
#[derive(RustEmbed)]
#[folder = "$CARGO_MANIFEST_DIR/../../web/docs/dist"]
#[allow_missing = true]
struct Documents;

/// Something that is built before the program and is part of it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Build {
    Page,
    Documents,
}

impl Build {
    /// Whether it is part of this program.
    pub(super) fn is_there(self) -> bool {
        self.files().find(Path::new("index.html")).is_ok()
    }

    /// Answers with the file that a request names.
    pub(super) async fn serve(self, request: Request) -> Response {
        serve_from(self.files(), request).await
    }

    /// A text of it.
    pub(super) fn text(self, name: &str) -> Option<String> {
        let Embedded(get) = self.files();
        String::from_utf8(get(name)?.data.into_owned()).ok()
    }

    fn files(self) -> Embedded {
        Embedded(match self {
            Self::Page => Page::get,
            Self::Documents => Documents::get,
        })
    }
}

/// What would be answered with a part, or refused as a change: files are read, and whole.
const NOT_FOR_READERS: [header::HeaderName; 3] =
    [header::RANGE, header::IF_MATCH, header::IF_UNMODIFIED_SINCE];

async fn serve_from(files: Embedded, mut request: Request) -> Response {
    for name in NOT_FOR_READERS {
        request.headers_mut().remove(name);
    }
    let files = ServeDir::with_backend("", files)
        .precompressed_br()
        .precompressed_gzip();
    let Ok(response) = files.oneshot(request).await;
    let mut response = response.into_response();
    response.headers_mut().remove(header::ACCEPT_RANGES);
    response
}

/// Finds files by their names.
#[derive(Debug, Clone, Copy)]
struct Embedded(fn(&str) -> Option<EmbeddedFile>);

impl Backend for Embedded {
    type File = Opened;
    type Metadata = Facts;
    type OpenFuture = Ready<io::Result<Opened>>;
    type MetadataFuture = Ready<io::Result<Facts>>;

    fn open(&self, path: PathBuf) -> Self::OpenFuture {
        ready(self.find(&path))
    }

    fn metadata(&self, path: PathBuf) -> Self::MetadataFuture {
        ready(self.find(&path).map(|file| file.facts))
    }
}

impl Embedded {
    fn find(self, path: &Path) -> io::Result<Opened> {
        let name = path.strip_prefix(".").unwrap_or(path).to_string_lossy();
        let file = (self.0)(&name.replace('\\', "/")).ok_or(io::ErrorKind::NotFound)?;
        let seconds = file.metadata.last_modified().unwrap_or_default();
        // The ETag is made of the length and of this time. Two builds may have both in common, for instance where times
        // are reset to make builds reproducible: the part below a second, which nothing else shows, is of the content.
        let [a, b, c, d, ..] = file.metadata.sha256_hash();
        let nanos = u32::from_be_bytes([a, b, c, d]) % 1_000_000_000;
        Ok(Opened {
            facts: Facts {
                bytes: file.data.len() as u64,
                modified: UNIX_EPOCH + Duration::new(seconds, nanos),
            },
            content: Cursor::new(file.data),
        })
    }
}

/// A file that is being read.
#[derive(Debug)]
struct Opened {
    content: Cursor<Cow<'static, [u8]>>,
    facts: Facts,
}

#[derive(Debug, Clone, Copy)]
struct Facts {
    bytes: u64,
    modified: SystemTime,
}

impl File for Opened {
    type Metadata = Facts;
    type MetadataFuture<'a> = Ready<io::Result<Facts>>;

    fn metadata(&self) -> Self::MetadataFuture<'_> {
        ready(Ok(self.facts))
    }
}

impl Metadata for Facts {
    fn is_dir(&self) -> bool {
        false
    }

    fn modified(&self) -> io::Result<SystemTime> {
        Ok(self.modified)
    }

    fn len(&self) -> u64 {
        self.bytes
    }
}

impl AsyncRead for Opened {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.content).poll_read(context, buffer)
    }
}

impl AsyncSeek for Opened {
    fn start_seek(mut self: Pin<&mut Self>, position: io::SeekFrom) -> io::Result<()> {
        Pin::new(&mut self.content).start_seek(position)
    }

    fn poll_complete(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Pin::new(&mut self.content).poll_complete(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::{Response, StatusCode};

    use super::*;

    /// A script that says in which form it was served.
    #[derive(RustEmbed)]
    #[folder = "$CARGO_MANIFEST_DIR/src/transport/page/sample"]
    struct Sample;

    async fn get(path: &str, headers: &[(header::HeaderName, &str)]) -> Response<Body> {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        serve_from(Embedded(Sample::get), request).await
    }

    async fn text(response: Response<Body>) -> String {
        let bytes = to_bytes(response.into_body(), 100).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn the_client_chooses_the_encoding() {
        for (accepted, expected) in [
            ("gzip, deflate, br", "brotli"),
            ("GZIP;q=0.5", "gzip!"),
            ("br;q=0.1, gzip", "gzip!"),
            ("br;q=0, gzip", "gzip!"),
            ("br; q=0.0", "plain"),
            ("br;q=0.001", "brotli"),
            ("brotli", "plain"),
            ("identity", "plain"),
            ("", "plain"),
        ] {
            let accepted = [(header::ACCEPT_ENCODING, accepted)];
            let response = get("/assets/app.js", &accepted).await;
            let headers = response.headers();
            assert_eq!(headers[header::VARY], "accept-encoding");
            let is_plain = !headers.contains_key(header::CONTENT_ENCODING);
            assert_eq!(is_plain, expected == "plain", "{accepted:?}");
            assert_eq!(text(response).await, expected, "{accepted:?}");
        }
    }

    #[tokio::test]
    async fn what_a_client_has_is_not_sent_again() {
        let brotli = (header::ACCEPT_ENCODING, "br");
        let mut tags = Vec::new();
        for accepted in [&[brotli.clone()][..], &[]] {
            let first = get("/assets/app.js", accepted).await;
            let tag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
            let weak = format!("\"other\", W/{tag}");
            for known in [tag.as_str(), weak.as_str(), "*"] {
                let mut sent = accepted.to_vec();
                sent.push((header::IF_NONE_MATCH, known));
                let again = get("/assets/app.js", &sent).await;
                assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
                assert_eq!(text(again).await, "");
            }
            tags.push(tag);
        }
        assert_ne!(tags[0], tags[1], "each encoding has a tag of its own");
        let sent = [(header::IF_NONE_MATCH, tags[0].as_str())];
        let plain = get("/assets/app.js", &sent).await;
        assert_eq!(plain.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn files_are_served_whole() {
        for asked in [
            [(header::RANGE, "bytes=0-1")],
            [(header::RANGE, "bytes=900-")],
            [(header::IF_MATCH, "\"other\"")],
            [(header::IF_UNMODIFIED_SINCE, "Thu, 01 Jan 1970 00:00:00 GMT")],
        ] {
            let response = get("/assets/app.js", &asked).await;
            assert_eq!(response.status(), StatusCode::OK, "{asked:?}");
            assert!(!response.headers().contains_key(header::ACCEPT_RANGES));
            assert_eq!(text(response).await, "plain");
        }
    }

    #[tokio::test]
    async fn no_path_leads_out_of_the_build() {
        for path in [
            "/assets/missing.js",
            "/assets",
            "/../embedded.rs",
            "/assets/../../embedded.rs",
            "/assets/%2e%2e/%2e%2e/embedded.rs",
            "/assets/..%2F..%2Fembedded.rs",
        ] {
            assert_eq!(
                get(path, &[]).await.status(),
                StatusCode::NOT_FOUND,
                "{path}"
            );
        }
    }
}
