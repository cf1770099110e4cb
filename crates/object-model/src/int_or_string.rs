//! A number or a piece of text, as ports and percentages are given.
