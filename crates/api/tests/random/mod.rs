//! Random values of built-in types: mostly of the right shape, with nulls, zeros and sloppy spellings among them.

use api::schemas;
use object_model::codec::canonical::canonicalise;
use object_model::schema::{Ref, Scalar, Schema, Shape, Wire};
use serde_json::{Map, Value, json};

/// A type that has a message, by seed.
pub fn schema(seed: u64) -> Schema {
    let mut random = Random(seed);
    let names: Vec<&str> = schemas::table().definitions().collect();
    loop {
        let schema = schemas::definition(names[random.below(names.len())]).expect("a listed definition");
        if let Shape::Struct(s) = schema.root().shape()
            && s.fields.iter().any(|f| f.number > 0)
        {
            return schema;
        }
    }
}

/// A canonical value of a type, by seed.
pub fn canonical(schema: &Schema, seed: u64) -> Value {
    let mut value = Random(seed ^ 0x5eed).value(schema.root(), 0);
    let unknown = canonicalise(schema, &mut value).unwrap_or_else(|e| panic!("{e}: {value}"));
    assert!(unknown.is_empty(), "{unknown}");
    value
}

struct Random(u64);

impl Random {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    fn value(&mut self, at: Ref<'_>, depth: usize) -> Value {
        match at.shape() {
            Shape::Struct(s) => {
                let mut object = Map::new();
                for field in &s.fields {
                    // deep in a recursive type there is less and less
                    let chance = 2 + depth * depth / 2;
                    // apiVersion and kind are in no message
                    if field.number == 0 || depth > 9 || self.below(chance) > 0 {
                        continue;
                    }
                    let value = match self.below(12) {
                        0 => Value::Null,
                        _ => self.value(at.to(field.r#type), depth + 1),
                    };
                    object.insert((*field.name).to_owned(), value);
                }
                Value::Object(object)
            }
            Shape::List(list) => (0..self.below(4)).map(|_| self.item(at.to(list.item), depth)).collect(),
            Shape::Map(map) => {
                let entries = (0..self.below(4)).map(|_| (self.text(), self.item(at.to(map.value), depth)));
                Value::Object(entries.collect())
            }
            Shape::Any => match at.facts().map(|f| &f.wire) {
                Some(Wire::SchemaOrBool(schema)) => match self.below(3) {
                    0 => true.into(),
                    1 => false.into(),
                    _ => self.value(at.to(*schema), depth + 1),
                },
                Some(Wire::SchemaOrList(schema)) => match self.below(2) {
                    0 => self.value(at.to(*schema), depth + 1),
                    _ => (0..self.below(3)).map(|_| self.value(at.to(*schema), depth + 2)).collect(),
                },
                Some(Wire::SchemaOrStrings(schema)) => match self.below(2) {
                    0 => self.value(at.to(*schema), depth + 1),
                    _ => (0..self.below(3)).map(|_| Value::from(self.text())).collect(),
                },
                _ => json!({"a": [self.text(), null, {}], "n": self.next() as i64, "<&>": true}),
            },
            Shape::Scalar(scalar) => self.scalar(*scalar),
        }
    }

    fn item(&mut self, at: Ref<'_>, depth: usize) -> Value {
        if self.below(10) == 0 { Value::Null } else { self.value(at, depth + 1) }
    }

    fn text(&mut self) -> String {
        let words = ["", "a", "name", "Ünïcode ☃", "with \"quotes\"\n", "app.kubernetes.io/name", "\u{0}"];
        format!("{}{}", self.pick(&words), self.below(5))
    }

    fn scalar(&mut self, scalar: Scalar) -> Value {
        match scalar {
            Scalar::Bool => (self.below(2) == 0).into(),
            Scalar::Int32 => [0, 1, -1, i32::MAX, i32::MIN, self.next() as i32][self.below(6)].into(),
            Scalar::Int64 => [0, 1, -1, i64::MAX, i64::MIN, self.next() as i64][self.below(6)].into(),
            Scalar::Float64 => json!([0.0, 1.0, -0.5, 1e300, 5e-324, 3.25e10][self.below(6)]),
            Scalar::String => match self.below(4) {
                0 => "".into(),
                _ => self.text().into(),
            },
            Scalar::Bytes => self.pick(&["", "AA==", "AAEC", "YW\nJj", "/+8="]).into(),
            Scalar::Quantity => match self.below(4) {
                0 => json!(1.5),
                _ => self.pick(&["0", "1000m", "1Gi", "0.1", "12e6", " 5 ", "100n", "-3k", "1.5Ti"]).into(),
            },
            Scalar::Time => self
                .pick(&[
                    "2026-01-01T00:00:00Z",
                    "1969-12-31T23:59:59+02:00",
                    "0001-01-01T00:00:00Z",
                    "9999-12-31T23:59:59.9Z",
                ])
                .into(),
            Scalar::MicroTime => self.pick(&["2026-01-01T00:00:00.000001Z", "1969-12-31T23:59:59.999999-01:00"]).into(),
            Scalar::Duration => self.pick(&["0s", "1h0m0.5s", "-90s", "1ns", "2562047h47m16.854775807s"]).into(),
            Scalar::IntOrString => match self.below(3) {
                0 => self.text().into(),
                _ => (self.next() as i32).into(),
            },
        }
    }
}
