//! Changes to objects: JSON patch, merge patch, strategic merge patch, and the diffs that make them.
