//! The `Status` object: how every error is told to a client.
