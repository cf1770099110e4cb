//! Named formats, and what is wrong with a text that should have one.

use object_model::names;
use object_model::schema::validate::Format;

use super::url::check_uri;
use crate::declarations::{Row, row};
use crate::evaluate::{Evaluated, no_such_overload};
use crate::value::{LibraryValue, Value};

/// A format that expressions can name.
#[derive(Debug)]
pub struct NamedFormat {
    pub(crate) name: &'static str,
    /// How long its regular expression counts as.
    pub(crate) regex_size: u64,
    problems: fn(&str) -> Vec<String>,
}

macro_rules! formats {
    ($($name:literal, $regex_size:literal, $problems:expr;)*) => {
        static FORMATS: &[NamedFormat] =
            &[$(NamedFormat { name: $name, regex_size: $regex_size, problems: $problems }),*];

        pub(crate) const ROWS: &[Row] = &[
            row("format.named", &["(string) optional(Format)"], |_, args| match args {
                [Value::String(name)] => Ok(Value::Optional(find(name).map(|format| format.into()))),
                _ => no_such_overload(),
            }),
            row("validate", &["Format.(string) optional(list(string))"], |_, args| validate(args)),
            $(row(concat!("format.", $name), &["() Format"], |_, _| {
                find($name).map_or_else(no_such_overload, Ok)
            })),*
        ];
    };
}

formats! {
    "dns1123Label", 30, |text| names::name_is_dns_label(text, false);
    "dns1123Subdomain", 60, |text| names::name_is_dns_subdomain(text, false);
    "dns1035Label", 30, |text| names::name_is_dns1035_label(text, false);
    "qualifiedName", 60, names::qualified_name;
    "dns1123LabelPrefix", 30, |text| names::name_is_dns_label(text, true);
    "dns1123SubdomainPrefix", 60, |text| names::name_is_dns_subdomain(text, true);
    "dns1035LabelPrefix", 30, |text| names::name_is_dns1035_label(text, true);
    "labelValue", 40, names::label_value;
    "uri", 1103, |text| check_uri(text).err().into_iter().collect();
    "uuid", 88, |text| known(text, "uuid", "does not match the UUID format");
    "byte", 84, |text| known(text, "byte", "invalid base64");
    "date", 164, |text| known(text, "date", "invalid date");
    "datetime", 164, |text| known(text, "datetime", "invalid datetime");
}

fn find(name: &str) -> Option<Value<'static>> {
    let format = FORMATS.iter().find(|format| format.name == name)?;
    Some(Value::Library(LibraryValue::Format(format)))
}

/// A format of schemas.
fn known(text: &str, name: &str, otherwise: &str) -> Vec<String> {
    match Format::parse(name, None) {
        Some(format) if !format.accepts(text) => vec![otherwise.to_owned()],
        _ => Vec::new(),
    }
}

fn validate<'v>(args: &[Value<'v>]) -> Evaluated<'v> {
    let [Value::Library(LibraryValue::Format(format)), Value::String(text)] = args else {
        return no_such_overload();
    };
    let problems = (format.problems)(text);
    Ok(Value::Optional((!problems.is_empty()).then(|| Value::texts(problems).into())))
}
