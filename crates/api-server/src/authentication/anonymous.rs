//! Requests without credentials: everybody's, those to certain paths, or none.

use std::sync::Arc;

use super::{ANONYMOUS, Error, UNAUTHENTICATED};
use crate::context::User;

/// What an AuthenticationConfiguration says of anonymous requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configured {
    pub enabled: bool,
    /// Only these paths, if there are any.
    pub paths: Vec<String>,
}

pub struct Anonymous {
    user: Option<Arc<User>>,
    paths: Vec<String>,
}

impl Anonymous {
    /// From the configuration or from the flag, which exclude each other.
    pub fn new(configured: Option<Configured>, flag: Option<bool>) -> Result<Self, Error> {
        let Configured { enabled, paths } = match (configured, flag) {
            (Some(_), Some(_)) => {
                return Err(Error::Unusable {
                    what: "--anonymous-auth".into(),
                    reason: "the authentication configuration has the field anonymous already; leave one of them out"
                        .into(),
                });
            }
            (Some(configured), None) => configured,
            (None, flag) => Configured { enabled: flag.unwrap_or(true), paths: Vec::new() },
        };
        let user = User { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..User::default() };
        Ok(Self { user: enabled.then(|| Arc::new(user)), paths })
    }

    /// The anonymous user, if it may come to this path.
    pub fn user(&self, path: &str) -> Option<Arc<User>> {
        if self.paths.is_empty() || self.paths.iter().any(|allowed| allowed == path) { self.user.clone() } else { None }
    }
}
