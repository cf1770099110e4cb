//! Options of one letter each, before everything else, as getopt(3) reads them.

use anyhow::bail;

/// What was given: letters, with the value of those that have one, and the rest.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options<'a> {
    given: Vec<(char, &'a str)>,
    pub rest: &'a [String],
}

impl<'a> Options<'a> {
    /// `known` has the letters, with a colon after each that has a value.
    pub fn parse(arguments: &'a [String], known: &str) -> anyhow::Result<Self> {
        let mut options = Self { rest: arguments, ..Self::default() };
        while let Some((first, rest)) = options.rest.split_first() {
            let Some(letters) = first.strip_prefix('-').filter(|letters| !letters.is_empty()) else { break };
            options.rest = rest;
            if letters == "-" {
                break;
            }
            options.take(letters, known)?;
        }
        Ok(options)
    }

    fn take(&mut self, mut letters: &'a str, known: &str) -> anyhow::Result<()> {
        while let Some(letter) = letters.chars().next() {
            letters = letters.get(letter.len_utf8()..).unwrap_or_default();
            match known.split_once(letter) {
                Some((_, after)) if letter != ':' && after.starts_with(':') => {
                    let value = match (letters, self.rest.split_first()) {
                        ("", Some((next, rest))) => {
                            self.rest = rest;
                            next
                        }
                        ("", None) => bail!("-{letter} needs a value"),
                        (value, _) => value,
                    };
                    self.given.push((letter, value));
                    return Ok(());
                }
                Some(_) if letter != ':' => self.given.push((letter, "")),
                _ => bail!("there is no option -{letter}"),
            }
        }
        Ok(())
    }

    pub fn has(&self, letter: char) -> bool {
        self.given.iter().any(|(given, _)| *given == letter)
    }

    /// The value that was given last.
    pub fn value(&self, letter: char) -> Option<&'a str> {
        self.given.iter().rev().find(|(given, _)| *given == letter).map(|(_, value)| *value)
    }

    pub fn number<T: std::str::FromStr>(&self, letter: char, otherwise: T) -> anyhow::Result<T> {
        match self.value(letter) {
            None => Ok(otherwise),
            Some(text) => text.parse().map_err(|_| anyhow::anyhow!("-{letter}: {text:?} is not a number that fits")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn letters_values_and_the_rest() {
        let words = |line: &str| line.split(' ').map(String::from).collect::<Vec<_>>();
        let line = words("-qO- -T 5 -S http://a -x");
        let options = Options::parse(&line, "qST:O:").expect("they are known");
        assert!(options.has('q') && options.has('S') && options.value('T').is_some());
        assert_eq!((options.value('O'), options.number('T', 0).ok()), (Some("-"), Some(5)));
        assert_eq!(options.rest, words("http://a -x"));
        assert!(Options::parse(&words("-z"), "q").is_err() && Options::parse(&words("-T"), "T:").is_err());
        assert_eq!(Options::parse(&words("-- -q"), "q").expect("it ends").rest, words("-q"));
    }
}
