//! Who asks, and what is remembered while a request is on the road.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use object_model::time::Time;

use crate::{
    authentication::{AUTHENTICATED, service_accounts},
    fairness::Ticket,
};

/// An authenticated identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
}

impl User {
    /// The user that a service account acts as.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            name: service_accounts::user_name(namespace, name),
            groups: [service_accounts::groups(namespace), vec![AUTHENTICATED.to_owned()]].concat(),
            ..Self::default()
        }
    }

    /// A component of the cluster, such as `system:kube-scheduler`.
    pub fn component(name: &str) -> Self {
        Self { name: name.to_owned(), groups: vec![AUTHENTICATED.to_owned()], ..Self::default() }
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

/// What travels with a request from the filters to the store.
#[derive(Clone, Debug, Default)]
pub struct RequestContext {
    pub user: Arc<User>,
    pub user_agent: Arc<str>,
    pub warnings: Warnings,
    pub seats: TakenSeats,
    /// What handlers and admission have to say to those who read the audit log.
    pub audit: Annotations,
    /// Admission has seen the request in another form, and does not look at the changes that come of it.
    pub admitted: bool,
}

/// The seats that a request occupies. A watch gives them back when it has told its initial events, a long list when it has
/// been sent, and both after a while even if the client is slow to take it; all others keep them until they are answered.
#[derive(Clone, Default)]
pub struct TakenSeats(Arc<Mutex<Option<Ticket>>>);

impl TakenSeats {
    pub fn new(ticket: Option<Ticket>) -> Self {
        Self(Arc::new(Mutex::new(ticket)))
    }

    pub fn give_back(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Gives them back after some time, unless that has happened before.
    pub fn give_back_after(&self, time: Duration) {
        let seats = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            if let Some(seats) = seats.upgrade() {
                Self(seats).give_back();
            }
        });
    }
}

impl std::fmt::Debug for TakenSeats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TakenSeats").finish_non_exhaustive()
    }
}

/// Remarks by key for the audit log. A key is said once.
#[derive(Clone, Debug, Default)]
pub struct Annotations(Arc<Mutex<Vec<(String, String)>>>);

impl Annotations {
    pub fn add(&self, key: &str, text: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|(known, _)| known == key) {
            all.push((key.to_owned(), text.to_owned()));
        }
    }

    pub fn add_all(&self, remarks: &[(String, String)]) {
        remarks.iter().for_each(|(key, text)| self.add(key, text));
    }

    pub fn take(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Warnings for the client, told in `Warning` headers.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<api::warnings::Warnings>>);

impl Warnings {
    pub fn add(&self, warning: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(warning.into());
    }

    /// All that have been added, as they are told.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_told()
    }
}

impl RequestContext {
    /// For the changes that come of a request which admission has seen.
    pub fn admitted(&self) -> Self {
        Self { admitted: true, ..self.clone() }
    }

    /// What strategies are told of the request.
    pub fn for_strategy(&self, now: Time) -> api::kinds::Context {
        api::kinds::Context {
            user: api::kinds::Requester {
                name: self.user.name.clone(),
                uid: self.user.uid.clone(),
                groups: self.user.groups.clone(),
                extra: self.user.extra.clone(),
            },
            now: now.to_string(),
        }
    }

    /// The name under which this request owns fields: what the client says, else its program's name.
    pub fn field_manager<'a>(&'a self, given: &'a str) -> &'a str {
        if !given.is_empty() {
            return given;
        }
        let program = self.user_agent.split('/').next().unwrap_or_default();
        if program.is_empty() { "unknown" } else { program }
    }
}
