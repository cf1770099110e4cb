//! Static tokens from a CSV file: token, user, uid and, in quotes, its groups. Read once, at the start.

use std::{collections::HashMap, fs, path::Path};

use async_trait::async_trait;

use super::{
    Denied, Error,
    tokens::{Known, TokenAuthenticator},
};
use crate::context::{Annotations, User};

pub struct TokenFile(HashMap<String, User>);

impl TokenFile {
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
        let bad = |number: usize, reason: &str| Error::Unusable {
            what: format!("token file {}", path.display()),
            reason: format!("line {number}: {reason}"),
        };
        let mut users = HashMap::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let columns = columns(line).ok_or_else(|| bad(number + 1, "a quote is not closed"))?;
            let [token, name, uid, rest @ ..] = columns.as_slice() else {
                return Err(bad(number + 1, "it must have at least 3 columns (token, user name, user uid)"));
            };
            if token.is_empty() {
                return Err(bad(number + 1, "the token is empty"));
            }
            let groups = rest.first().map(|g| g.split(',').map(str::to_owned).collect()).unwrap_or_default();
            let user = User { name: name.clone(), uid: uid.clone(), groups, extra: Vec::new() };
            users.insert(token.clone(), user);
        }
        Ok(Self(users))
    }
}

#[async_trait]
impl TokenAuthenticator for TokenFile {
    async fn token(&self, token: &str, _: &[String], _: &Annotations) -> Result<Option<Known>, Denied> {
        Ok(self.0.get(token).cloned().map(Known::plain))
    }
}

/// The columns of a line; one in quotes may have commas, and a doubled quote is one. `None` if a quote is left open.
fn columns(line: &str) -> Option<Vec<String>> {
    let (mut columns, mut column, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => column.extend(characters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => columns.push(std::mem::take(&mut column)),
            other => column.push(other),
        }
    }
    columns.push(column);
    (!quoted).then_some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let wanted = |all: &[&str]| Some(all.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>());
        assert_eq!(columns("t,u,1"), wanted(&["t", "u", "1"]));
        assert_eq!(columns(r#"t,u,1,"a,b""#), wanted(&["t", "u", "1", "a,b"]));
        assert_eq!(columns(r#"t,"say ""hi""",1"#), wanted(&["t", r#"say "hi""#, "1"]));
        assert_eq!(columns(r#"t,"u,1"#), None);
    }
}
