//! From the wire to canonical values.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use super::wire::{Reader, WireType};
use super::{DecodeError, Envelope, PREFIX, encode};
use crate::codec::canonical::{self, whole_number};
use crate::codec::{MAX_DEPTH, json};
use crate::quantity::{self, BadQuantity};
use crate::schema::{Member, MemberTarget, Ref, Scalar, Shape, Struct, Wire};
use crate::time::{Duration, Time, WRITABLE};

type Decoded<T> = Result<T, DecodeError>;

/// Values that a message may have beyond one per byte.
const FREE_VALUES: usize = 4096;

pub fn envelope(body: &[u8]) -> Decoded<Envelope<'_>> {
    let mut found = Envelope { api_version: "", kind: "", raw: &[] };
    let mut reader = Reader::new(body);
    while let Some((number, wire_type)) = reader.tag()? {
        match number {
            1 => {
                let mut types = Reader::new(bytes(&mut reader, wire_type, "TypeMeta")?);
                while let Some((number, wire_type)) = types.tag()? {
                    match number {
                        1 => found.api_version = utf8(bytes(&mut types, wire_type, "APIVersion")?),
                        2 => found.kind = utf8(bytes(&mut types, wire_type, "Kind")?),
                        _ => types.skip(wire_type)?,
                    }
                }
            }
            2 => found.raw = bytes(&mut reader, wire_type, "Raw")?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(found)
}

pub fn message(at: Ref<'_>, bytes: &[u8]) -> Decoded<Value> {
    let mut decoder = Decoder { budget: FREE_VALUES + bytes.len(), depth: 0 };
    let mut value = Value::Null;
    decoder.message(at, bytes, &mut value)?;
    Ok(value)
}

struct Decoder {
    /// Values that may still be made.
    budget: usize,
    depth: usize,
}

impl Decoder {
    /// A struct from its message, into what an earlier message of the same field has left.
    fn message(&mut self, at: Ref<'_>, bytes: &[u8], into: &mut Value) -> Decoded<()> {
        let Shape::Struct(s) = at.shape() else { return Err(super::NoMessage("value".to_owned()).into()) };
        let Some(Wire::Members(members)) = at.facts().map(|f| &f.wire) else {
            return Err(encode::no_message(s).into());
        };
        if members.is_empty() && !s.fields.is_empty() {
            return Err(encode::no_message(s).into());
        }
        if !into.is_object() {
            *into = Value::Object(Map::new());
        }
        let Value::Object(object) = into else { return Ok(()) };
        self.nested(|decoder| decoder.members(at, s, members, bytes, object))?;
        let before = object.len();
        canonical::complete(at, s, object);
        self.spend(object.len() - before)
    }

    fn members(
        &mut self,
        at: Ref<'_>,
        s: &Struct,
        members: &[Member],
        bytes: &[u8],
        object: &mut Map<String, Value>,
    ) -> Decoded<()> {
        let mut reader = Reader::new(bytes);
        while let Some((number, wire_type)) = reader.tag()? {
            let Ok(found) = members.binary_search_by_key(&number, |m| m.number) else {
                reader.skip(wire_type)?;
                continue;
            };
            match &members[found].target {
                MemberTarget::Field(index) => {
                    let field = &s.fields[usize::from(*index)];
                    let child = at.to(field.r#type);
                    // Go writes every zero, and few of them stay: a field gets its place only when it has a value
                    let earlier = object.get_mut(&*field.name).map(Value::take);
                    let mut value = earlier.unwrap_or_default();
                    self.field(child, &field.name, &mut reader, wire_type, &mut value)?;
                    match canonical::keeps(child, field, &mut value) {
                        true => drop(object.insert((*field.name).to_owned(), value)),
                        false => drop(object.remove(&*field.name)),
                    }
                }
                MemberTarget::Embedded(name, inner) => {
                    let bytes = self::bytes(&mut reader, wire_type, name)?;
                    self.nested(|decoder| decoder.members(at, s, inner, bytes, object))?;
                }
            }
        }
        Ok(())
    }

    /// One occurrence of a field: it replaces a scalar, and adds to anything else.
    fn field(
        &mut self,
        at: Ref<'_>,
        name: &str,
        reader: &mut Reader<'_>,
        wire_type: WireType,
        into: &mut Value,
    ) -> Decoded<()> {
        match at.shape() {
            Shape::List(_) if at.facts().is_some_and(|f| f.wire == Wire::Items) => {
                self.item(at, name, reader, wire_type, into)
            }
            Shape::List(list) => {
                let item = at.to(list.item);
                let items = list_of(into);
                if wire_type == WireType::Bytes && is_packable(item) {
                    let mut packed = Reader::new(reader.bytes()?);
                    while !packed.is_empty() {
                        self.spend(1)?;
                        items.push(self.varint_scalar(item, packed.varint()?));
                    }
                    return Ok(());
                }
                let mut value = Value::Null;
                self.item(item, name, reader, wire_type, &mut value)?;
                items.push(value);
                Ok(())
            }
            Shape::Map(map) => {
                let bytes = bytes(reader, wire_type, name)?;
                let (key, value) = self.nested(|decoder| decoder.entry(at.to(map.value), name, bytes))?;
                if !into.is_object() {
                    *into = Value::Object(Map::new());
                }
                if let Value::Object(entries) = into {
                    entries.insert(key, value);
                }
                Ok(())
            }
            _ => self.item(at, name, reader, wire_type, into),
        }
    }

    fn entry(&mut self, at: Ref<'_>, name: &str, bytes: &[u8]) -> Decoded<(String, Value)> {
        let mut reader = Reader::new(bytes);
        let (mut key, mut value) = (String::new(), None);
        while let Some((number, wire_type)) = reader.tag()? {
            match number {
                1 => key = text(self::bytes(&mut reader, wire_type, name)?),
                2 => self.item(at, name, &mut reader, wire_type, value.get_or_insert(Value::Null))?,
                _ => reader.skip(wire_type)?,
            }
        }
        Ok((key, value.unwrap_or_else(|| canonical::zero_item(at))))
    }

    fn item(
        &mut self,
        at: Ref<'_>,
        name: &str,
        reader: &mut Reader<'_>,
        wire_type: WireType,
        into: &mut Value,
    ) -> Decoded<()> {
        self.spend(1)?;
        let scalar = match at.shape() {
            Shape::Scalar(scalar) => *scalar,
            shape => {
                let bytes = bytes(reader, wire_type, name)?;
                return match shape {
                    Shape::Struct(_) => self.message(at, bytes, into),
                    Shape::List(list) => self.nested(|decoder| decoder.items(at.to(list.item), name, bytes, into)),
                    _ => self.nested(|decoder| decoder.union(at, name, bytes, into)),
                };
            }
        };
        *into = match scalar {
            Scalar::Bool | Scalar::Int32 | Scalar::Int64 => {
                expect(wire_type, WireType::Varint, name)?;
                self.varint_scalar(at, reader.varint()?)
            }
            Scalar::Float64 => {
                expect(wire_type, WireType::Fixed64, name)?;
                float(f64::from_bits(reader.fixed64()?))?
            }
            Scalar::String => text(bytes(reader, wire_type, name)?).into(),
            Scalar::Bytes => STANDARD.encode(bytes(reader, wire_type, name)?).into(),
            Scalar::Quantity => match first_text(bytes(reader, wire_type, name)?)? {
                "" => "0".into(),
                text => quantity::canonical(text)?.into_owned().into(),
            },
            Scalar::Time | Scalar::MicroTime => time(scalar, bytes(reader, wire_type, name)?)?,
            Scalar::Duration => {
                let numbers = integers::<1>(bytes(reader, wire_type, name)?)?;
                Duration::from_nanos(numbers[0] as i64).to_string().into()
            }
            Scalar::IntOrString => int_or_string(bytes(reader, wire_type, name)?)?,
        };
        Ok(())
    }

    /// A named list, from its message.
    fn items(&mut self, at: Ref<'_>, name: &str, bytes: &[u8], into: &mut Value) -> Decoded<()> {
        let mut reader = Reader::new(bytes);
        while let Some((number, wire_type)) = reader.tag()? {
            if number != 1 {
                reader.skip(wire_type)?;
                continue;
            }
            let mut value = Value::Null;
            self.item(at, name, &mut reader, wire_type, &mut value)?;
            list_of(into).push(value);
        }
        Ok(())
    }

    /// Free-form values from their JSON, and the unions in the schema of a custom resource definition.
    fn union(&mut self, at: Ref<'_>, name: &str, bytes: &[u8], into: &mut Value) -> Decoded<()> {
        let wire = at.facts().map(|f| &f.wire);
        let mut reader = Reader::new(bytes);
        if matches!(wire, Some(Wire::SchemaOrBool(_))) && !into.is_object() {
            *into = false.into();
        }
        while let Some((number, wire_type)) = reader.tag()? {
            match (wire, number) {
                (Some(Wire::SchemaOrBool(_)), 1) => {
                    expect(wire_type, WireType::Varint, name)?;
                    let allows = reader.varint()? != 0;
                    if !into.is_object() {
                        *into = allows.into();
                    }
                }
                (Some(Wire::SchemaOrBool(schema)), 2)
                | (Some(Wire::SchemaOrList(schema) | Wire::SchemaOrStrings(schema)), 1) => {
                    let bytes = self::bytes(&mut reader, wire_type, name)?;
                    // a list that is there wins over a schema, as when Go writes it
                    let mut beside = Value::Null;
                    let into = if into.is_array() { &mut beside } else { &mut *into };
                    self.message(at.to(*schema), bytes, into)?;
                }
                (Some(Wire::SchemaOrList(schema)), 2) => {
                    self.spend(1)?;
                    let bytes = self::bytes(&mut reader, wire_type, name)?;
                    let mut value = Value::Null;
                    self.message(at.to(*schema), bytes, &mut value)?;
                    list_of(into).push(value);
                }
                (Some(Wire::SchemaOrStrings(_)), 2) => {
                    self.spend(1)?;
                    list_of(into).push(text(self::bytes(&mut reader, wire_type, name)?).into());
                }
                (Some(Wire::Plain) | None, 1) => *into = raw(self::bytes(&mut reader, wire_type, name)?)?,
                _ => reader.skip(wire_type)?,
            }
        }
        Ok(())
    }

    fn varint_scalar(&self, at: Ref<'_>, number: u64) -> Value {
        match at.shape() {
            Shape::Scalar(Scalar::Bool) => (number != 0).into(),
            Shape::Scalar(Scalar::Int32) => (number as i32).into(),
            _ => (number as i64).into(),
        }
    }

    fn spend(&mut self, values: usize) -> Decoded<()> {
        self.budget = self.budget.checked_sub(values).ok_or(DecodeError::TooManyValues)?;
        Ok(())
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<T> {
        if self.depth >= MAX_DEPTH {
            return Err(DecodeError::Depth);
        }
        self.depth += 1;
        let outcome = read(self);
        self.depth -= 1;
        outcome
    }
}

fn is_packable(at: Ref<'_>) -> bool {
    matches!(at.shape(), Shape::Scalar(Scalar::Bool | Scalar::Int32 | Scalar::Int64))
}

/// The list to add to.
fn list_of(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(items) => items,
        _ => unreachable!("it was made a list"),
    }
}

fn expect(found: WireType, wanted: WireType, field: &str) -> Decoded<()> {
    match found == wanted {
        true => Ok(()),
        false => Err(DecodeError::WireType { wire_type: found as u8, field: field.to_owned() }),
    }
}

fn bytes<'a>(reader: &mut Reader<'a>, wire_type: WireType, field: &str) -> Decoded<&'a [u8]> {
    expect(wire_type, WireType::Bytes, field)?;
    reader.bytes()
}

/// Go takes any bytes as text, and writes what is no UTF-8 as U+FFFD.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A name of a version or kind; none that is no UTF-8 exists.
fn utf8(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

fn float(number: f64) -> Decoded<Value> {
    match whole_number(number) {
        Some(whole) => Ok(whole.into()),
        None => Number::from_f64(number).map(Value::Number).ok_or(DecodeError::Float(number)),
    }
}

/// The text in field 1, which must be one: what is no UTF-8 is no quantity.
fn first_text(bytes: &[u8]) -> Decoded<&str> {
    let mut reader = Reader::new(bytes);
    let mut found = "";
    while let Some((number, wire_type)) = reader.tag()? {
        match number {
            1 => {
                let bytes = self::bytes(&mut reader, wire_type, "String_")?;
                found = std::str::from_utf8(bytes).map_err(|_| BadQuantity::Format)?;
            }
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(found)
}

/// The numbers in fields 1 to N, 0 where one is missing.
fn integers<const N: usize>(bytes: &[u8]) -> Decoded<[u64; N]> {
    let mut reader = Reader::new(bytes);
    let mut found = [0; N];
    while let Some((number, wire_type)) = reader.tag()? {
        match found.get_mut(number as usize - 1) {
            Some(slot) => {
                expect(wire_type, WireType::Varint, "Timestamp")?;
                *slot = reader.varint()?;
            }
            None => reader.skip(wire_type)?,
        }
    }
    Ok(found)
}

fn time(scalar: Scalar, bytes: &[u8]) -> Decoded<Value> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let [seconds, nanos] = integers::<2>(bytes)?;
    let seconds = seconds as i64;
    if !WRITABLE.contains(&seconds) {
        return Err(DecodeError::Time(seconds));
    }
    let micros = if scalar == Scalar::MicroTime { (nanos as i32 / 1000).clamp(0, 999_999) as u32 } else { 0 };
    let time = Time::from_unix(seconds, micros * 1000);
    Ok(match scalar {
        _ if time.is_zero() => Value::Null,
        Scalar::MicroTime => time.micro().into(),
        _ => time.to_string().into(),
    })
}

fn int_or_string(bytes: &[u8]) -> Decoded<Value> {
    let mut reader = Reader::new(bytes);
    let (mut kind, mut number, mut string) = (0, 0, String::new());
    while let Some((field, wire_type)) = reader.tag()? {
        match field {
            1 | 2 => {
                expect(wire_type, WireType::Varint, "IntOrString")?;
                *(if field == 1 { &mut kind } else { &mut number }) = reader.varint()?;
            }
            3 => string = text(self::bytes(&mut reader, wire_type, "StrVal")?),
            _ => reader.skip(wire_type)?,
        }
    }
    match kind {
        0 => Ok((number as i32).into()),
        1 => Ok(string.into()),
        _ => Err(DecodeError::IntOrString),
    }
}

/// A free-form value; no bytes are no value.
fn raw(bytes: &[u8]) -> Decoded<Value> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    if bytes.starts_with(PREFIX) {
        return Err(DecodeError::NestedObject);
    }
    Ok(json::read(bytes)?)
}
