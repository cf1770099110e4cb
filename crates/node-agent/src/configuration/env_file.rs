//! Variables in a file that another container has written: `NAME='value'`, as a POSIX shell reads it.

/// The value of a key; `None` if the file does not have it. The message names the line that is wrong.
pub(super) fn value_of(text: &str, key: &str) -> Result<Option<String>, String> {
    let wrong = |line: usize, why: &str| format!("invalid environment variable format at line {line}: {why}");
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    while let Some((number, line)) = lines.next() {
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or_else(|| wrong(number, "missing '='"))?;
        if name.trim_end_matches([' ', '\t']).is_empty() {
            return Err(wrong(number, "empty variable name"));
        }
        if name.ends_with([' ', '\t']) {
            return Err(wrong(number, "whitespace before '=' is not allowed"));
        }
        // To a shell, what follows the space is a command of its own.
        if value.starts_with([' ', '\t']) {
            if name == key {
                return Ok(None);
            }
            continue;
        }
        let mut rest =
            value.strip_prefix('\'').ok_or_else(|| wrong(number, "value must be enclosed in single quotes"))?;
        let (mut whole, mut at) = (String::new(), number);
        let after = loop {
            if let Some((end, after)) = rest.split_once('\'') {
                whole.push_str(end);
                break after;
            }
            whole.extend([rest, "\n"]);
            (at, rest) = lines.next().ok_or_else(|| wrong(number, "unclosed single quote"))?;
        };
        let after = after.trim_start_matches([' ', '\t']);
        if !after.is_empty() && !after.starts_with('#') {
            return Err(wrong(at, "unexpected content after closing quote"));
        }
        if name == key {
            return Ok(Some(whole).filter(|value| !value.is_empty()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_as_a_shell_reads_them() {
        let text = "# a comment\n\n  A='one'\nB='two\n  lines' # the end\nC= 'no'\nD=''\nE='a=b=$X'\n";
        let value = |key| value_of(text, key);
        assert_eq!(value("A"), Ok(Some("one".into())));
        assert_eq!(value("B"), Ok(Some("two\n  lines".into())));
        assert_eq!(value("E"), Ok(Some("a=b=$X".into())));
        for key in ["C", "D", "MISSING"] {
            assert_eq!(value(key), Ok(None), "{key}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line, why) in [
            ("A='x'\nnothing", 2, "missing '='"),
            ("='x'", 1, "empty variable name"),
            ("A ='x'", 1, "whitespace before '=' is not allowed"),
            ("A=x", 1, "value must be enclosed in single quotes"),
            ("A='x'y", 1, "unexpected content after closing quote"),
            ("\nA='x\n", 2, "unclosed single quote"),
        ] {
            let message = value_of(text, "Z").expect_err("it is refused");
            assert!(message.contains(&format!("line {line}: {why}")), "{text:?}: {message}");
        }
    }
}
