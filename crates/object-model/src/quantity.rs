//! Exact amounts of resources, with their suffixes.
