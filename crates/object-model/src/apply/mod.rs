//! Server-side apply: who owns which field of an object.
