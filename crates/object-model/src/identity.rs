//! Who an object is: group, version, kind, resource, key.
