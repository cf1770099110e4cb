//! What the expressions of webhooks and policies may use, and whether they compile.

use std::sync::{Arc, LazyLock};

use expressions::{Environment, LibraryType, ObjectType, Type};

use crate::validation::Field;

/// Expressions of one object: which variables there are depends on what it declares.
pub struct Scope {
    environment: Environment,
    /// `variables` of a policy, in the order in which they are declared.
    variables: Vec<(String, Type)>,
}

static REQUEST: LazyLock<Arc<ObjectType>> = LazyLock::new(|| {
    let texts = |name: &str, fields: [&'static str; 3]| {
        Type::Object(ObjectType::new(name, fields.map(|field| (field, Type::String))))
    };
    let kind = texts("kubernetes.GroupVersionKind", ["group", "version", "kind"]);
    let resource = texts("kubernetes.GroupVersionResource", ["group", "version", "resource"]);
    let extra = Type::map(Type::String, Type::list(Type::String));
    let groups = Type::list(Type::String);
    let user = [("username", Type::String), ("uid", Type::String), ("groups", groups), ("extra", extra)];
    ObjectType::new(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", Type::String),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", Type::String),
            ("name", Type::String),
            ("namespace", Type::String),
            ("operation", Type::String),
            ("userInfo", Type::Object(ObjectType::new("kubernetes.UserInfo", user))),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    )
});

static NAMESPACE: LazyLock<Arc<ObjectType>> = LazyLock::new(|| {
    let texts = || Type::map(Type::String, Type::String);
    let condition = ObjectType::new(
        "kubernetes.NamespaceCondition",
        [
            ("status", Type::String),
            ("type", Type::String),
            ("lastTransitionTime", Type::Timestamp),
            ("message", Type::String),
            ("reason", Type::String),
        ],
    );
    let status = [("conditions", Type::list(Type::Object(condition))), ("phase", Type::String)];
    let metadata = [
        ("name", Type::String),
        ("generateName", Type::String),
        ("namespace", Type::String),
        ("labels", texts()),
        ("annotations", texts()),
        ("UID", Type::String),
        ("creationTimestamp", Type::Timestamp),
        ("deletionGracePeriodSeconds", Type::Int),
        ("deletionTimestamp", Type::Timestamp),
        ("generation", Type::Int),
        ("resourceVersion", Type::String),
        ("finalizers", Type::list(Type::String)),
    ];
    let spec = [("finalizers", Type::list(Type::String))];
    ObjectType::new(
        "kubernetes.Namespace",
        [
            ("metadata", Type::Object(ObjectType::new("kubernetes.NamespaceMetadata", metadata))),
            ("spec", Type::Object(ObjectType::new("kubernetes.NamespaceSpec", spec))),
            ("status", Type::Object(ObjectType::new("kubernetes.NamespaceStatus", status))),
        ],
    )
});

/// The variables of every expression about a request: `params` only where a policy has parameters.
pub fn environment(params: bool) -> Environment {
    let environment = Environment::kubernetes()
        .with_variable("object", Type::Dyn)
        .with_variable("oldObject", Type::Dyn)
        .with_variable("namespaceObject", Type::Object(NAMESPACE.clone()))
        .with_variable("request", Type::Object(REQUEST.clone()));
    if params { environment.with_variable("params", Type::Dyn) } else { environment }
}

/// And what asks who may do what.
pub fn with_authorizer(environment: Environment) -> Environment {
    environment
        .with_variable("authorizer", Type::Library(LibraryType::Authorizer))
        .with_variable("authorizer.requestResource", Type::Library(LibraryType::ResourceCheck))
}

impl Scope {
    pub fn new(params: bool) -> Self {
        Self { environment: environment(params), variables: Vec::new() }
    }

    /// `variables`, with those that are declared so far.
    fn environment(&self, authorizer: bool) -> Environment {
        let fields = self.variables.iter().map(|(name, kind)| (name.as_str(), kind.clone()));
        let declared = Type::Object(ObjectType::new("kubernetes.variables", fields));
        let environment = self.environment.clone().with_variable("variables", declared);
        if authorizer { with_authorizer(environment) } else { environment }
    }

    /// Compiles a variable, which those after it can use.
    pub fn declare(&mut self, name: &str, expression: &Field) {
        let compiled = compiled(&self.environment(true), expression, expression.text(), &[]);
        self.variables.push((name.to_owned(), compiled.unwrap_or(Type::Dyn)));
    }

    /// Must compile, as written, to one of these types.
    pub fn check(&self, expression: &Field, types: &[Type]) {
        compiled(&self.environment(true), expression, expression.text(), types);
    }

    /// The same without the space around it, which is how it is told.
    pub fn check_trimmed(&self, expression: &Field, types: &[Type]) {
        compiled(&self.environment(true), expression, expression.text().trim(), types);
    }

    /// Must compile to a text, and can ask for no authorization.
    pub fn check_message(&self, expression: &Field) {
        compiled(&self.environment(false), expression, expression.text(), &[Type::String]);
    }

    /// Must compile to a patch: an object for `Object`, a list of operations for `JSONPatch`.
    pub fn check_patch(&self, expression: &Field, operations: bool) {
        let environment = self.environment(true).with_mutations();
        let name = if operations { "JSONPatch" } else { "Object" };
        let patch = Type::Object(ObjectType::new(name, []));
        let wanted = if operations { Type::list(patch) } else { patch };
        compiled(&environment, expression, expression.text().trim(), &[wanted]);
    }

    /// The condition under which a webhook or policy is asked. It sees no variables.
    pub fn check_condition(&self, expression: &Field) {
        let environment = with_authorizer(self.environment.clone());
        compiled(&environment, expression, expression.text().trim(), &[Type::Bool]);
    }
}

/// The type of an expression that compiles to one of these, or to anything where none are given.
fn compiled(environment: &Environment, at: &Field, text: &str, types: &[Type]) -> Option<Type> {
    let output = match environment.compile(text) {
        Ok(program) => program.output().clone(),
        Err(errors) => {
            at.invalid_value(text, format!("compilation failed: {errors}"));
            return None;
        }
    };
    if types.is_empty() || types.contains(&output) {
        return Some(output);
    }
    let names: Vec<String> = types.iter().map(Type::declared_name).collect();
    let wanted = match names.as_slice() {
        [only] => only.clone(),
        several => format!("one of [{}]", several.join(" ")),
    };
    at.invalid_value(text, format!("must evaluate to {wanted} but got {}", output.declared_name()));
    None
}
