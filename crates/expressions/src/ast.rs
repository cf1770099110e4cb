//! An expression as written, with macros already expanded.

/// Deeper trees are refused, so that walking one never exhausts the stack.
pub(crate) const MAX_DEPTH: u16 = 250;
/// Larger trees are refused: `optMap` copies its target, so a short text can mean a huge tree.
pub(crate) const MAX_NODES: u32 = 100_000;

/// Names of operators, as messages tell them.
pub(crate) mod operator {
    pub const AND: &str = "_&&_";
    pub const OR: &str = "_||_";
    pub const NOT: &str = "!_";
    pub const CONDITIONAL: &str = "_?_:_";
    pub const EQUALS: &str = "_==_";
    pub const NOT_EQUALS: &str = "_!=_";
    pub const LESS: &str = "_<_";
    pub const LESS_EQUALS: &str = "_<=_";
    pub const GREATER: &str = "_>_";
    pub const GREATER_EQUALS: &str = "_>=_";
    pub const IN: &str = "@in";
    pub const ADD: &str = "_+_";
    pub const SUBTRACT: &str = "_-_";
    pub const MULTIPLY: &str = "_*_";
    pub const DIVIDE: &str = "_/_";
    pub const MODULO: &str = "_%_";
    pub const NEGATE: &str = "-_";
    pub const INDEX: &str = "_[_]";
    pub const OPT_INDEX: &str = "_[?_]";
    pub const OPT_SELECT: &str = "_?._";
    pub const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
    pub const MAP_INSERT: &str = "cel.@mapInsert";
    pub const SORT_BY: &str = "@sortByAssociatedKeys";
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    /// Unique within the expression, and below [`MAX_NODES`].
    pub id: u32,
    /// Where problems of this node are shown, in bytes.
    pub at: usize,
    pub depth: u16,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// What could not be parsed; the problem is told already.
    Broken,
    Literal(Literal),
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        test: bool,
    },
    Call {
        target: Option<Box<Expr>>,
        function: String,
        args: Vec<Expr>,
    },
    List {
        elements: Vec<Element>,
    },
    Map {
        entries: Vec<Entry>,
    },
    Struct {
        name: String,
        fields: Vec<Field>,
    },
    Fold(Box<Fold>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(crate) struct Element {
    pub value: Expr,
    pub optional: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: Expr,
    pub value: Expr,
    pub optional: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub name: String,
    /// The place of the colon.
    pub at: usize,
    pub value: Expr,
    pub optional: bool,
}

/// What all macros over lists and maps become: an accumulator is stepped over the range.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub range: Expr,
    pub variable: String,
    /// With it, the first variable is the index or key, and this one the element or value.
    pub second: Option<String>,
    pub accumulator: String,
    pub initial: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

impl Kind {
    /// How deep the parts are.
    pub fn depth_of_parts(&self) -> u16 {
        let deepest = |parts: &mut dyn Iterator<Item = &Expr>| parts.map(|part| part.depth).max().unwrap_or(0);
        match self {
            Kind::Broken | Kind::Literal(_) | Kind::Ident(_) => 0,
            Kind::Select { operand, .. } => operand.depth,
            Kind::Call { target, args, .. } => deepest(&mut args.iter().chain(target.as_deref())),
            Kind::List { elements } => deepest(&mut elements.iter().map(|element| &element.value)),
            Kind::Map { entries } => deepest(&mut entries.iter().flat_map(|entry| [&entry.key, &entry.value])),
            Kind::Struct { fields, .. } => deepest(&mut fields.iter().map(|field| &field.value)),
            Kind::Fold(fold) => {
                deepest(&mut [&fold.range, &fold.initial, &fold.condition, &fold.step, &fold.result].into_iter())
            }
        }
    }
}

impl Expr {
    /// `a.b.c` as one name, where it is nothing but names.
    pub fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select { operand, field, test: false } => Some(format!("{}.{field}", operand.qualified_name()?)),
            _ => None,
        }
    }

    /// Every expression right below this one.
    pub fn parts(&self) -> Vec<&Expr> {
        match &self.kind {
            Kind::Broken | Kind::Literal(_) | Kind::Ident(_) => Vec::new(),
            Kind::Select { operand, .. } => vec![operand],
            Kind::Call { target, args, .. } => target.as_deref().into_iter().chain(args).collect(),
            Kind::List { elements } => elements.iter().map(|element| &element.value).collect(),
            Kind::Map { entries } => entries.iter().flat_map(|entry| [&entry.key, &entry.value]).collect(),
            Kind::Struct { fields, .. } => fields.iter().map(|field| &field.value).collect(),
            Kind::Fold(fold) => vec![&fold.range, &fold.initial, &fold.condition, &fold.step, &fold.result],
        }
    }
}
