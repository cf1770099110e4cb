//! `$(VARIABLE)` in commands, arguments, values and paths. `$$` is a dollar that begins nothing; a reference to what is not
//! there stays as it is written.

/// Replaces references by what `lookup` knows; `None` leaves a reference as it is.
pub fn expand(text: &str, mut lookup: impl FnMut(&str) -> Option<String>) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let after = &from[1..];
        rest = if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            after
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => out.extend(["$(", name, ")"]),
            }
            after
        } else {
            out.push('$');
            after
        };
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> String {
        expand(text, |name| match name {
            "A" => Some("one".into()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("$(A)".into()),
            _ => None,
        })
    }

    #[test]
    fn references_are_replaced_once() {
        assert_eq!(expanded("x-$(A)-$(A)y"), "x-one-oney");
        assert_eq!(expanded("$(NESTED)"), "$(A)");
        assert_eq!(expanded("[$(EMPTY)]"), "[]");
    }

    #[test]
    fn what_is_no_reference_stays() {
        for text in ["$(MISSING)", "$A", "$", "a$", "$(A", "${A}", "()", "$()", "ü$ü"] {
            assert_eq!(expanded(text), text);
        }
    }

    #[test]
    fn two_dollars_are_one_that_begins_nothing() {
        assert_eq!(expanded("$$(A)"), "$(A)");
        assert_eq!(expanded("$$$(A)"), "$one");
        assert_eq!(expanded("$$$$(A)"), "$$(A)");
        assert_eq!(expanded("$($(A))"), "$($(A))");
    }
}
