//! The OpenAPI documents, made when somebody asks for them.

use hyper::Response;

use crate::{body::Body, catalogue::Served};

#[derive(Default)]
pub struct OpenApi {}

impl OpenApi {
    /// Answers `/openapi/…`; `None` for other paths.
    pub fn answer(&self, _path: &str, _query: &str, _accept: &str, _known: &str, _: &Served) -> Option<Response<Body>> {
        None
    }
}
