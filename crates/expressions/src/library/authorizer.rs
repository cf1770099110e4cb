//! Asking whether somebody may do something. Who answers is given by the caller as an [`Authorizer`].

use std::fmt;
use std::sync::Arc;

use object_model::names;

use crate::declarations::{Row, row};
use crate::evaluate::{Evaluated, failed, no_such_overload};
use crate::value::{LibraryValue, Value};

/// Who decides. Must answer at once: an expression does not wait.
pub trait Authorizer: Send + Sync {
    fn decide(&self, question: &Question<'_>) -> Decision;
}

/// May the user of the authorizer, or this service account, do this?
#[derive(Debug, PartialEq, Eq)]
pub struct Question<'q> {
    /// Namespace and name of a service account to ask for instead of the user.
    pub service_account: Option<(&'q str, &'q str)>,
    pub verb: &'q str,
    pub what: What<'q>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum What<'q> {
    Path(&'q str),
    Resource {
        group: &'q str,
        resource: &'q str,
        subresource: &'q str,
        namespace: &'q str,
        name: &'q str,
        /// Empty if none was given.
        field_selector: &'q str,
        label_selector: &'q str,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    /// What went wrong while deciding.
    pub error: Option<String>,
}

/// An authorizer, and for whom it is asked.
#[derive(Clone)]
pub struct Authority {
    authorizer: Arc<dyn Authorizer>,
    service_account: Option<Arc<(String, String)>>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({:?})", self.service_account)
    }
}

#[derive(Debug)]
pub struct PathCheck {
    authority: Authority,
    path: String,
}

#[derive(Debug)]
pub struct GroupCheck {
    authority: Authority,
    group: String,
}

#[derive(Clone, Debug)]
pub struct ResourceCheck {
    authority: Authority,
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    field_selector: String,
    label_selector: String,
}

impl Value<'_> {
    /// The variable `authorizer`.
    pub fn authorizer(authorizer: Arc<dyn Authorizer>) -> Self {
        Value::Library(LibraryValue::Authorizer(Authority { authorizer, service_account: None }))
    }

    /// The variable `authorizer.requestResource`: a check of the resource that a request is about.
    pub fn resource_check(
        authorizer: Arc<dyn Authorizer>,
        [group, resource, subresource, namespace, name]: [&str; 5],
    ) -> Self {
        let check = ResourceCheck {
            authority: Authority { authorizer, service_account: None },
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            field_selector: String::new(),
            label_selector: String::new(),
        };
        Value::Library(LibraryValue::ResourceCheck(Arc::new(check)))
    }
}

pub(crate) const ROWS: &[Row] = &[
    row("path", &["Authorizer.(string) PathCheck"], |_, args| match args {
        [Value::Library(LibraryValue::Authorizer(_)), Value::String(path)] if path.trim().is_empty() => {
            failed("path must not be empty")
        }
        [Value::Library(LibraryValue::Authorizer(authority)), Value::String(path)] => {
            let check = PathCheck { authority: authority.clone(), path: path.to_string() };
            Ok(Value::Library(LibraryValue::PathCheck(Arc::new(check))))
        }
        _ => no_such_overload(),
    }),
    row("group", &["Authorizer.(string) GroupCheck"], |_, args| match args {
        [Value::Library(LibraryValue::Authorizer(authority)), Value::String(group)] => {
            let check = GroupCheck { authority: authority.clone(), group: group.to_string() };
            Ok(Value::Library(LibraryValue::GroupCheck(Arc::new(check))))
        }
        _ => no_such_overload(),
    }),
    row("serviceAccount", &["Authorizer.(string, string) Authorizer"], |_, args| service_account(args)),
    row("resource", &["GroupCheck.(string) ResourceCheck"], |_, args| resource(args)),
    row("subresource", &["ResourceCheck.(string) ResourceCheck"], |_, args| {
        narrowed(args, |check| &mut check.subresource)
    }),
    row("namespace", &["ResourceCheck.(string) ResourceCheck"], |_, args| narrowed(args, |check| &mut check.namespace)),
    row("name", &["ResourceCheck.(string) ResourceCheck"], |_, args| narrowed(args, |check| &mut check.name)),
    row("fieldSelector", &["ResourceCheck.(string) ResourceCheck"], |_, args| {
        narrowed(args, |check| &mut check.field_selector)
    }),
    row("labelSelector", &["ResourceCheck.(string) ResourceCheck"], |_, args| {
        narrowed(args, |check| &mut check.label_selector)
    }),
    row("check", &["PathCheck.(string) Decision", "ResourceCheck.(string) Decision"], |_, args| check(args)),
    row("errored", &["Decision.() bool"], |_, args| decided(args, |decision| Value::Bool(decision.error.is_some()))),
    row("error", &["Decision.() string"], |_, args| {
        decided(args, |decision| Value::text(decision.error.as_deref().unwrap_or_default()))
    }),
    row("allowed", &["Decision.() bool"], |_, args| decided(args, |decision| Value::Bool(decision.allowed))),
    row("reason", &["Decision.() string"], |_, args| decided(args, |decision| Value::text(decision.reason.as_str()))),
];

fn service_account<'v>(args: &[Value<'v>]) -> Evaluated<'v> {
    let [Value::Library(LibraryValue::Authorizer(authority)), Value::String(namespace), Value::String(name)] = args
    else {
        return no_such_overload();
    };
    if !names::name_is_dns_subdomain(name, false).is_empty() {
        return failed("Invalid service account name");
    }
    if !names::name_is_dns_label(namespace, false).is_empty() {
        return failed("Invalid service account namespace");
    }
    let service_account = Some(Arc::new((namespace.to_string(), name.to_string())));
    let authority = Authority { authorizer: authority.authorizer.clone(), service_account };
    Ok(Value::Library(LibraryValue::Authorizer(authority)))
}

fn resource<'v>(args: &[Value<'v>]) -> Evaluated<'v> {
    match args {
        [Value::Library(LibraryValue::GroupCheck(_)), Value::String(resource)] if resource.trim().is_empty() => {
            failed("resource must not be empty")
        }
        [Value::Library(LibraryValue::GroupCheck(group)), Value::String(resource)] => {
            let check = ResourceCheck {
                authority: group.authority.clone(),
                group: group.group.clone(),
                resource: resource.to_string(),
                subresource: String::new(),
                namespace: String::new(),
                name: String::new(),
                field_selector: String::new(),
                label_selector: String::new(),
            };
            Ok(Value::Library(LibraryValue::ResourceCheck(Arc::new(check))))
        }
        _ => no_such_overload(),
    }
}

fn narrowed<'v>(args: &[Value<'v>], part: fn(&mut ResourceCheck) -> &mut String) -> Evaluated<'v> {
    match args {
        [Value::Library(LibraryValue::ResourceCheck(check)), Value::String(to)] => {
            let mut check = ResourceCheck::clone(check);
            *part(&mut check) = to.to_string();
            Ok(Value::Library(LibraryValue::ResourceCheck(Arc::new(check))))
        }
        _ => no_such_overload(),
    }
}

fn check<'v>(args: &[Value<'v>]) -> Evaluated<'v> {
    let [Value::Library(check), Value::String(verb)] = args else { return no_such_overload() };
    let (authority, what) = match check {
        LibraryValue::PathCheck(check) => (&check.authority, What::Path(&check.path)),
        LibraryValue::ResourceCheck(check) => {
            let what = What::Resource {
                group: &check.group,
                resource: &check.resource,
                subresource: &check.subresource,
                namespace: &check.namespace,
                name: &check.name,
                field_selector: &check.field_selector,
                label_selector: &check.label_selector,
            };
            (&check.authority, what)
        }
        _ => return no_such_overload(),
    };
    let service_account = authority.service_account.as_deref().map(|(namespace, name)| (&**namespace, &**name));
    let decision = authority.authorizer.decide(&Question { service_account, verb, what });
    Ok(Value::Library(LibraryValue::Decision(Arc::new(decision))))
}

fn decided<'v>(args: &[Value<'v>], of: fn(&Decision) -> Value<'v>) -> Evaluated<'v> {
    match args {
        [Value::Library(LibraryValue::Decision(decision))] => Ok(of(decision)),
        _ => no_such_overload(),
    }
}
