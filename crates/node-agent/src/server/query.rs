//! The query of a request.

use std::borrow::Cow;

pub(super) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    pub(super) fn of(uri: &'a http::Uri) -> Self {
        Self(form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).collect())
    }

    pub(super) fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// The first that is not empty.
    pub(super) fn get<'q>(&'q self, name: &'q str) -> Option<&'q str> {
        self.all(name).find(|value| !value.is_empty())
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| matches!(value, "1" | "true" | "True" | "TRUE" | "t"))
    }

    /// A whole number; what was given instead, otherwise.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| format!("{name} must be a number that is not negative, not {value:?}"))
    }
}
