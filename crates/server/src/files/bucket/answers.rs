//! Answers of a bucket's server, bounded: all but content are read as a whole, and a server could go on forever.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::http::header;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

/// The longest answer that is not content: a page of a listing has 1,000 names, each of which may have a kilobyte.
const MAX_ANSWER_BYTES: u64 = 4 * 1024 * 1024;

/// Makes clients that read no more of an answer than they need.
#[derive(Debug)]
pub(super) struct BoundedConnector;

impl HttpConnector for BoundedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(BoundedService(client)))
    }
}

#[derive(Debug)]
struct BoundedService(HttpClient);

type Answering<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for BoundedService {
    fn call<'s, 'a>(&'s self, request: HttpRequest) -> Answering<'a>
    where
        's: 'a,
        Self: 'a,
    {
        // Content is always asked for by range, and its reader knows how much there is.
        let is_for_content = request.headers().contains_key(header::RANGE);
        Box::pin(async move {
            let answer = self.0.execute(request).await?;
            if is_for_content && answer.status().is_success() {
                return Ok(answer);
            }
            Ok(answer.map(|body| {
                HttpResponseBody::new(BoundedBody {
                    body,
                    left: MAX_ANSWER_BYTES,
                })
            }))
        })
    }
}

struct BoundedBody {
    body: HttpResponseBody,
    left: u64,
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
            return Poll::Ready(None);
        };
        let bytes = frame
            .as_ref()
            .ok()
            .and_then(Frame::data_ref)
            .map_or(0, |data| data.len() as u64);
        Poll::Ready(Some(match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                frame
            }
            None => {
                let why = format!("an answer has more than {MAX_ANSWER_BYTES} bytes");
                Err(HttpError::new_boxed(HttpErrorKind::Decode, why.into()))
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // What a server announces is not reserved before it is there.
        SizeHint::default()
    }
}
