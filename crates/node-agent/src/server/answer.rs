//! What is sent back: a whole text, or pieces as they come.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::{
    Response, StatusCode,
    body::{Body, Frame, SizeHint},
    header::{CONTENT_TYPE, HeaderValue},
};
use tokio::sync::mpsc;

pub(super) type Answer = Response<Content>;

pub(super) enum Content {
    Whole(Option<Bytes>),
    Pieces(mpsc::Receiver<Bytes>),
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Whole(Some(text.into()))
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(rest) => {
                Poll::Ready(rest.take().filter(|rest| !rest.is_empty()).map(|rest| Ok(Frame::data(rest))))
            }
            Self::Pieces(pieces) => pieces.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(rest) if rest.as_ref().is_none_or(Bytes::is_empty))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(rest) => SizeHint::with_exact(rest.as_ref().map_or(0, |rest| rest.len() as u64)),
            Self::Pieces(_) => SizeHint::default(),
        }
    }
}

pub(super) fn text(code: StatusCode, text: impl Into<String>) -> Answer {
    with_type(code, "text/plain; charset=utf-8", Content::from(text.into()))
}

pub(super) fn json(value: &impl serde::Serialize) -> Answer {
    match serde_json::to_string(value) {
        Ok(value) => with_type(StatusCode::OK, "application/json", Content::from(value)),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

pub(super) fn with_type(code: StatusCode, kind: &'static str, content: Content) -> Answer {
    let mut answer = Response::new(content);
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

pub(super) fn not_found(why: impl Into<String>) -> Answer {
    text(StatusCode::NOT_FOUND, why)
}

pub(super) fn bad_request(why: impl Into<String>) -> Answer {
    text(StatusCode::BAD_REQUEST, why)
}
