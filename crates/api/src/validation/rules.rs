//! Rules a single field can be held to. Each says what is wrong with the field it is called on.

use object_model::names;
use serde_json::Value;

use super::Field;

pub const IMMUTABLE: &str = "field is immutable";
const NEGATIVE: &str = "must be greater than or equal to 0";
const NOT_POSITIVE: &str = "must be greater than zero";

impl Field<'_, '_> {
    /// Must not be empty. True if it is not.
    pub fn required(&self) -> bool {
        if self.is_empty() {
            self.missing("");
        }
        !self.is_empty()
    }

    /// Must be one of these; told in the order given.
    pub fn one_of(&self, supported: &[&str]) {
        if !self.is_one_of(supported) {
            self.not_supported(supported);
        }
    }

    /// Must be one of these if it is there at all.
    pub fn one_of_if_set(&self, supported: &[&str]) {
        if self.is_set() {
            self.one_of(supported);
        }
    }

    /// Must not be empty, and one of these.
    pub fn required_one_of(&self, supported: &[&str]) {
        if self.required() {
            self.one_of(supported);
        }
    }

    pub fn non_negative(&self) {
        if self.number() < 0 {
            self.invalid(NEGATIVE);
        }
    }

    pub fn positive(&self) {
        if self.number() <= 0 {
            self.invalid_value(self.number(), NOT_POSITIVE);
        }
    }

    /// Must lie between these, both included.
    pub fn in_range(&self, low: i64, high: i64) {
        let number = self.number();
        if number < low || number > high {
            self.invalid_value(number, format!("must be between {low} and {high}, inclusive"));
        }
    }

    pub fn port_number(&self) {
        self.in_range(1, 65535);
    }

    /// A port by number or by name.
    pub fn port(&self) {
        match self.value() {
            Value::String(name) => self.invalid_for(names::port_name(name)),
            _ => self.port_number(),
        }
    }

    /// A user or group id.
    pub fn id_if_set(&self) {
        if self.is_set() {
            self.in_range(0, i64::from(i32::MAX));
        }
    }

    /// A file mode, if it is there.
    pub fn file_mode(&self) {
        if self.int().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
            self.invalid("must be a number between 0 and 0777 (octal), both inclusive");
        }
    }

    pub fn dns_label(&self) {
        self.invalid_for(names::dns_label(self.text()));
    }

    pub fn dns_label_if_any(&self) {
        if !self.is_empty() {
            self.dns_label();
        }
    }

    /// Must not be empty, and a DNS label.
    pub fn required_dns_label(&self) {
        if self.required() {
            self.dns_label();
        }
    }

    pub fn dns_subdomain(&self) {
        self.invalid_for(names::dns_subdomain(self.text()));
    }

    pub fn dns_subdomain_if_any(&self) {
        if !self.is_empty() {
            self.dns_subdomain();
        }
    }

    pub fn qualified_name(&self) {
        self.invalid_for(names::qualified_name(self.text()));
    }

    pub fn qualified_name_if_set(&self) {
        if self.is_set() {
            self.qualified_name();
        }
    }

    /// A name that can stand in a URL path.
    pub fn path_segment(&self) {
        self.invalid_for(names::name_is_path_segment(self.text(), false));
    }

    /// Must not be empty, and able to stand in a URL path.
    pub fn required_path_segment(&self) {
        if self.required() {
            self.path_segment();
        }
    }

    /// A key of a ConfigMap or Secret.
    pub fn required_config_key(&self) {
        if self.required() {
            self.invalid_for(names::config_map_key(self.text()));
        }
    }

    /// A quantity that is not below zero.
    pub fn non_negative_quantity(&self) {
        if self.quantity().sign() < 0 {
            self.invalid(NEGATIVE);
        }
    }

    pub fn positive_quantity(&self) {
        if self.quantity().sign() <= 0 {
            self.invalid(NOT_POSITIVE);
        }
    }

    /// Must be what it was.
    pub fn immutable(&self, old: &Value) {
        if !super::same(self.value(), old) {
            self.invalid(IMMUTABLE);
        }
    }

    /// The field of this name must be what it was in the old object.
    pub fn immutable_at(&self, name: &str, old: &Value) {
        self.at(name).immutable(old.get(name).unwrap_or(&Value::Null));
    }
}
