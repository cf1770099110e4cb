//! Access to `ObjectMeta` and owner references in a value.
