//! Paths in volumes and mounts.

use super::Field;

/// Must stay below where it is mounted: relative, and no `..`.
pub fn local_descending(path: &Field) {
    if path.text().starts_with('/') {
        path.invalid("must be a relative path");
    }
    no_backsteps(path);
}

pub fn no_backsteps(path: &Field) {
    if has_backsteps(path.text()) {
        path.invalid("must not contain '..'");
    }
}

pub fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// As [`local_descending`], and names that start with `..` are reserved.
pub fn local_non_reserved(path: &Field) {
    local_descending(path);
    if path.text().starts_with("..") && !path.text().starts_with("../") {
        path.invalid("must not start with '..'");
    }
}
