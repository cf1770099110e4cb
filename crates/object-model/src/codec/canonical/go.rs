//! What Go would say and do: names of its types, places of fields in its messages, base64 and numbers as it has them.

use std::fmt;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD};
use serde_json::Value;

use super::DecodeError;
use crate::codec::json;
use crate::schema::{Member, MemberTarget, Ref, Scalar, Shape, Wire};

/// Where the walk is: a list of steps on the stack, written out only when somebody has to be told.
pub enum Path<'a> {
    Root,
    /// A field of a struct, by its index.
    Field {
        parent: &'a Path<'a>,
        owner: Ref<'a>,
        index: usize,
    },
    Index {
        parent: &'a Path<'a>,
        index: usize,
    },
    Key {
        parent: &'a Path<'a>,
        key: &'a str,
    },
}

impl<'a> Path<'a> {
    pub fn field(&'a self, owner: Ref<'a>, index: usize) -> Path<'a> {
        Path::Field { parent: self, owner, index }
    }

    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index { parent: self, index }
    }

    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key { parent: self, key }
    }

    fn parent(&self) -> &Path<'a> {
        match self {
            Path::Root => self,
            Path::Field { parent, .. } | Path::Index { parent, .. } | Path::Key { parent, .. } => parent,
        }
    }

    /// `struct field Container.spec.containers.name`: the innermost struct, and the names on the way to its field, with
    /// those of embedded structs and without indexes and keys.
    fn place(&self) -> String {
        let mut names = Vec::new();
        let mut innermost = None;
        let mut step = self;
        while !matches!(step, Path::Root) {
            if let Path::Field { owner, index, .. } = step
                && let Shape::Struct(s) = owner.shape()
            {
                innermost.get_or_insert_with(|| s.name.rsplit('.').next().unwrap_or_default());
                names.push(&*s.fields[*index].name);
                if let Some(Wire::Members(members)) = owner.facts().map(|f| &f.wire) {
                    embedded_names(members, *index, &mut names);
                }
            }
            step = step.parent();
        }
        names.reverse();
        match innermost {
            Some(innermost) => format!("struct field {innermost}.{}", names.join(".")),
            None => "value".to_owned(),
        }
    }
}

/// Adds the names of the embedded structs that a field is in, the innermost first.
fn embedded_names<'a>(members: &'a [Member], index: usize, names: &mut Vec<&'a str>) -> bool {
    members.iter().any(|member| match &member.target {
        MemberTarget::Field(at) => usize::from(*at) == index,
        MemberTarget::Embedded(name, inner) => {
            let found = embedded_names(inner, index, names);
            if found {
                names.push(name);
            }
            found
        }
    })
}

/// As strict decoding reports it: `spec.containers[0].name`.
impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = self.parent();
        let dot = if matches!(parent, Path::Root) { "" } else { "." };
        match self {
            Path::Root => Ok(()),
            Path::Index { index, .. } => write!(f, "{parent}[{index}]"),
            Path::Key { key, .. } => write!(f, "{parent}{dot}{key}"),
            Path::Field { owner, index, .. } => match owner.shape() {
                Shape::Struct(s) => write!(f, "{parent}{dot}{}", s.fields[*index].name),
                _ => Ok(()),
            },
        }
    }
}

pub fn type_error(value: &Value, go: String, path: &Path<'_>) -> DecodeError {
    DecodeError::Type { value: json::type_name(value).to_owned(), place: path.place(), go }
}

/// For a number that is no such number.
pub fn number_error(number: &Value, go: String, path: &Path<'_>) -> DecodeError {
    DecodeError::Type { value: format!("number {number}"), place: path.place(), go }
}

/// The name that Go prints for a type.
pub fn type_name(at: Ref<'_>) -> String {
    if let Some(name) = at.facts().and_then(|f| f.go.as_deref()) {
        return name.to_owned();
    }
    match at.shape() {
        Shape::Struct(s) => {
            let mut words = s.name.rsplit('.');
            let name = words.next().unwrap_or_default();
            format!("{}.{name}", words.next().unwrap_or_default())
        }
        Shape::List(list) => format!("[]{}", type_name(at.to(list.item))),
        Shape::Map(map) => {
            let key = at.facts().and_then(|f| f.key.as_deref()).unwrap_or("string");
            format!("map[{key}]{}", type_name(at.to(map.value)))
        }
        Shape::Any => "interface {}".to_owned(),
        Shape::Scalar(scalar) => match scalar {
            Scalar::Bool => "bool",
            Scalar::Int32 => "int32",
            Scalar::Int64 => "int64",
            Scalar::Float64 => "float64",
            Scalar::String => "string",
            Scalar::Bytes => "[]uint8",
            Scalar::Quantity => "resource.Quantity",
            Scalar::Time => "v1.Time",
            Scalar::MicroTime => "v1.MicroTime",
            Scalar::Duration => "v1.Duration",
            Scalar::IntOrString => "intstr.IntOrString",
        }
        .to_owned(),
    }
}

/// A float that Go writes without point and exponent, and that is therefore read as an integer again.
pub fn whole_number(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
}

/// Reads base64 as Go does, which takes line breaks and stray bits in the last character: none if the text is already as
/// Go writes it, the better text, or the place where Go stops reading.
pub fn canonical_base64(text: &str) -> Result<Option<String>, usize> {
    let bytes = text.as_bytes();
    let is_symbol = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    let body = bytes.iter().position(|b| !is_symbol(*b)).unwrap_or(bytes.len());
    let plain = match (bytes.len() % 4, bytes.len() - body) {
        (0, 0) => true,
        (0, 1) => bytes.ends_with(b"="),
        (0, 2) => bytes.ends_with(b"=="),
        _ => false,
    };
    if !plain {
        base64_problem(bytes, is_symbol)?;
    }
    if plain && body == bytes.len() {
        return Ok(None);
    }
    let lenient = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical);
    let joined: Vec<u8> = bytes.iter().copied().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    let decoded = GeneralPurpose::new(&base64::alphabet::STANDARD, lenient).decode(joined).map_err(|_| bytes.len())?;
    let better = STANDARD.encode(decoded);
    Ok((better != text).then_some(better))
}

/// Where Go's decoder finds corrupt input.
fn base64_problem(bytes: &[u8], is_symbol: impl Fn(u8) -> bool) -> Result<(), usize> {
    let mut symbols = bytes.iter().copied().enumerate().filter(|(_, b)| !matches!(b, b'\r' | b'\n'));
    let mut in_quantum = 0;
    while let Some((at, byte)) = symbols.next() {
        match byte {
            b'=' if in_quantum < 2 => return Err(at),
            b'=' => {
                if in_quantum == 2 {
                    match symbols.next() {
                        None => return Err(bytes.len()),
                        Some((at, byte)) if byte != b'=' => return Err(at - 1),
                        Some(_) => {}
                    }
                }
                return symbols.next().map_or(Ok(()), |(at, _)| Err(at));
            }
            _ if !is_symbol(byte) => return Err(at),
            _ => in_quantum = (in_quantum + 1) % 4,
        }
    }
    if in_quantum == 0 { Ok(()) } else { Err(bytes.len() - in_quantum) }
}
