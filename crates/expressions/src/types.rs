//! Types of expressions, of declared objects, and which may stand for which.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What an expression yields.
#[derive(Clone, Debug)]
pub enum Type {
    /// Anything; told at run time.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    Optional(Arc<Type>),
    /// The type of a type; of which one, where that is known.
    Type(Option<Arc<Type>>),
    /// An object with declared fields.
    Object(Arc<ObjectType>),
    /// A type of a library, known by its name only.
    Library(LibraryType),
    /// A type that an overload or an empty literal leaves open.
    #[doc(hidden)]
    Open(u32),
    /// The type of what does not check; it fits everywhere, so that one mistake is told once.
    #[doc(hidden)]
    Error,
}

/// Types that only functions of a library make and take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LibraryType {
    Url,
    Ip,
    Cidr,
    Quantity,
    Semver,
    Format,
    Authorizer,
    PathCheck,
    GroupCheck,
    ResourceCheck,
    Decision,
}

/// An object with declared fields. Two with one name are the same.
#[derive(Debug)]
pub struct ObjectType {
    pub name: String,
    pub fields: BTreeMap<String, ObjectField>,
    /// Fields that are not declared are allowed, and can be anything.
    pub open: bool,
}

/// One field of a declared object.
#[derive(Clone, Debug)]
pub struct ObjectField {
    pub kind: Type,
    /// The most elements, characters or bytes a value can have, where the schema says so: what an estimate of the cost
    /// of an expression starts from.
    pub max_size: Option<u64>,
}

impl ObjectType {
    pub fn new<'f>(name: &str, fields: impl IntoIterator<Item = (&'f str, Type)>) -> Arc<Self> {
        let field = |(name, kind): (&str, Type)| (name.to_owned(), ObjectField { kind, max_size: None });
        Arc::new(Self { name: name.to_owned(), fields: fields.into_iter().map(field).collect(), open: false })
    }

    pub(crate) fn field(&self, name: &str) -> Option<Type> {
        match self.fields.get(name) {
            Some(field) => Some(field.kind.clone()),
            None => self.open.then_some(Type::Dyn),
        }
    }
}

impl LibraryType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Url => "kubernetes.URL",
            Self::Ip => "net.IP",
            Self::Cidr => "net.CIDR",
            Self::Quantity => "kubernetes.Quantity",
            Self::Semver => "kubernetes.Semver",
            Self::Format => "kubernetes.NamedFormat",
            Self::Authorizer => "kubernetes.authorization.Authorizer",
            Self::PathCheck => "kubernetes.authorization.PathCheck",
            Self::GroupCheck => "kubernetes.authorization.GroupCheck",
            Self::ResourceCheck => "kubernetes.authorization.ResourceCheck",
            Self::Decision => "kubernetes.authorization.Decision",
        }
    }

    /// Does Kubernetes declare it as an object, if one without fields?
    pub(crate) fn is_object(self) -> bool {
        !matches!(self, Self::Ip | Self::Cidr)
    }
}

impl Type {
    pub fn list(element: Type) -> Self {
        Type::List(Arc::new(element))
    }

    pub fn map(key: Type, value: Type) -> Self {
        Type::Map(Arc::new(key), Arc::new(value))
    }

    pub fn optional(of: Type) -> Self {
        Type::Optional(Arc::new(of))
    }

    /// The name under which Kubernetes tells what an expression must be: as messages do, but for types with two names.
    pub fn declared_name(&self) -> String {
        match self {
            Type::Null => "null_type".to_owned(),
            Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Type::Duration => "google.protobuf.Duration".to_owned(),
            Type::List(of) => format!("list({})", of.declared_name()),
            Type::Optional(of) => format!("optional_type({})", of.declared_name()),
            Type::Map(key, value) => format!("map({}, {})", key.declared_name(), value.declared_name()),
            other => other.to_string(),
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// How many types it is made of; counting stops where that is too many.
    pub(crate) fn size(&self, limit: usize) -> usize {
        if limit == 0 {
            return 1;
        }
        match self {
            Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => 1 + of.size(limit - 1),
            Type::Map(key, value) => {
                let size = 1 + key.size(limit - 1);
                size + if size < limit { value.size(limit - size) } else { 0 }
            }
            _ => 1,
        }
    }

    /// The type inside an optional, and whether it was one.
    pub(crate) fn unwrap_optional(&self) -> (Type, bool) {
        match self {
            Type::Optional(inner) => ((**inner).clone(), true),
            other => (other.clone(), false),
        }
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => a == b,
            (Type::Map(a, b), Type::Map(c, d)) => a == c && b == d,
            (Type::Type(a), Type::Type(b)) => a == b,
            (Type::Object(a), Type::Object(b)) => a.name == b.name,
            (Type::Library(a), Type::Library(b)) => a == b,
            (Type::Open(a), Type::Open(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other) && self.is_plain(),
        }
    }
}

impl Type {
    fn is_plain(&self) -> bool {
        !matches!(
            self,
            Type::List(_)
                | Type::Map(..)
                | Type::Optional(_)
                | Type::Type(_)
                | Type::Object(_)
                | Type::Library(_)
                | Type::Open(_)
        )
    }
}

/// As messages tell it.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Duration => f.write_str("duration"),
            Type::List(element) => write!(f, "list({element})"),
            Type::Map(key, value) => write!(f, "map({key}, {value})"),
            Type::Optional(of) => write!(f, "optional_type({of})"),
            Type::Type(None) => f.write_str("type"),
            Type::Type(Some(of)) => write!(f, "type({of})"),
            Type::Object(object) => f.write_str(&object.name),
            Type::Library(library) => f.write_str(library.name()),
            Type::Open(number) => write!(f, "_var{number}"),
            Type::Error => f.write_str("!error!"),
        }
    }
}

/// What open types turned out to be. Cheap to try on: what a failed attempt bound is unbound again.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    known: Vec<Option<Type>>,
    /// What was known before, in the order of binding.
    undo: Vec<(u32, Option<Type>)>,
}

impl Bindings {
    fn find(&self, open: u32) -> Option<&Type> {
        self.known.get(open as usize)?.as_ref()
    }

    fn bind(&mut self, open: u32, kind: Type) {
        let index = open as usize;
        if self.known.len() <= index {
            self.known.resize(index + 1, None);
        }
        self.undo.push((open, self.known[index].replace(kind)));
    }

    /// Can one stand for the other? Binds what was open only if so.
    pub fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.attempt(|bindings| bindings.fits(from, to))
    }

    pub fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.attempt(|bindings| from.len() == to.len() && from.iter().zip(to).all(|(from, to)| bindings.fits(from, to)))
    }

    fn attempt(&mut self, fits: impl FnOnce(&mut Self) -> bool) -> bool {
        self.undo.clear();
        let fits = fits(self);
        if !fits {
            while let Some((open, before)) = self.undo.pop() {
                self.known[open as usize] = before;
            }
        }
        fits
    }

    fn fits(&mut self, a: &Type, b: &Type) -> bool {
        if let Type::Open(open) = b {
            let (valid, bound) = self.substitutes(a, *open);
            if valid || bound {
                return valid;
            }
        }
        if let Type::Open(open) = a {
            return self.substitutes(b, *open).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Optional(_) | Type::Object(_) | Type::Library(_) | Type::Duration | Type::Timestamp | Type::Null
            ),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.fits(a, b),
            (Type::Map(a, b), Type::Map(c, d)) => self.fits(a, c) && self.fits(b, d),
            (Type::Type(_), Type::Type(_)) => true,
            _ => a == b,
        }
    }

    /// Whether the open type can be this one, and whether it was bound before.
    fn substitutes(&mut self, other: &Type, open: u32) -> (bool, bool) {
        if *other == Type::Open(open) {
            return (true, true);
        }
        match self.find(open).cloned() {
            Some(bound) => {
                if *other == bound {
                    return (true, true);
                }
                if !self.fits(other, &bound) {
                    return (false, true);
                }
                let general = most_general(other, &bound);
                if !self.mentions(&general, open) {
                    self.bind(open, general);
                }
                (true, true)
            }
            None if self.mentions(other, open) => (false, false),
            None => {
                self.bind(open, other.clone());
                (true, false)
            }
        }
    }

    fn mentions(&self, within: &Type, open: u32) -> bool {
        match within {
            Type::Open(number) if *number == open => true,
            Type::Open(number) => self.find(*number).is_some_and(|bound| self.mentions(bound, open)),
            Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => self.mentions(of, open),
            Type::Map(key, value) => self.mentions(key, open) || self.mentions(value, open),
            _ => false,
        }
    }

    /// With everything known filled in. What is still open is left so, or becomes `dyn`.
    pub fn resolve(&self, kind: &Type, open_is_dyn: bool) -> Type {
        match kind {
            Type::Open(number) => match self.find(*number) {
                Some(bound) => self.resolve(bound, open_is_dyn),
                None if open_is_dyn => Type::Dyn,
                None => kind.clone(),
            },
            Type::List(of) => Type::list(self.resolve(of, open_is_dyn)),
            Type::Optional(of) => Type::optional(self.resolve(of, open_is_dyn)),
            Type::Map(key, value) => Type::map(self.resolve(key, open_is_dyn), self.resolve(value, open_is_dyn)),
            Type::Type(Some(of)) => Type::Type(Some(Arc::new(self.resolve(of, open_is_dyn)))),
            other => other.clone(),
        }
    }
}

/// The more general of two types that fit each other.
pub(crate) fn most_general(a: &Type, b: &Type) -> Type {
    if equal_or_less_specific(a, b) { a.clone() } else { b.clone() }
}

fn equal_or_less_specific(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Open(_), _) => true,
        (_, Type::Dyn | Type::Open(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => equal_or_less_specific(a, b),
        (Type::Map(a, b), Type::Map(c, d)) => equal_or_less_specific(a, c) && equal_or_less_specific(b, d),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}

/// Do two elements of a literal have one type, whatever is left open?
pub(crate) fn equivalent(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Open(_), _) | (_, Type::Open(_)) => true,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => equivalent(a, b),
        (Type::Map(a, b), Type::Map(c, d)) => equivalent(a, c) && equivalent(b, d),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}
