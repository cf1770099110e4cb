//! The functions, one file per library. Each file has a table `ROWS`: name, signatures, code.

use crate::Library;
use crate::declarations::Row;

pub mod authorizer;
pub(crate) mod conversion;
pub mod format;
pub(crate) mod lists;
pub mod network;
pub(crate) mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
pub mod semver;
pub(crate) mod standard;
pub(crate) mod strings;
pub(crate) mod time;
pub mod url;

/// Every library with its tables.
pub(crate) static ALL: &[(Library, &[&[Row]])] = &[
    (Library::Standard, &[standard::ROWS, conversion::ROWS, time::ROWS]),
    (Library::Optionals, &[optional::ROWS]),
    (Library::Strings, &[strings::ROWS, strings::FORMAT]),
    (Library::Lists, &[lists::KUBERNETES, lists::ROWS]),
    (Library::Sets, &[lists::SETS]),
    (Library::TwoVariables, &[lists::INSERT]),
    (Library::Regex, &[regex::ROWS]),
    (Library::Urls, &[url::ROWS]),
    (Library::Network, &[network::ROWS]),
    (Library::Quantity, &[quantity::ROWS]),
    (Library::Semver, &[semver::ROWS]),
    (Library::Format, &[format::ROWS]),
    (Library::Authorizer, &[authorizer::ROWS]),
    (Library::JsonPatch, &[strings::JSON_PATCH]),
];
