//! Mail addresses, alone or with a display name, as in Go's `mail.ParseAddress` (RFC 5322).

pub fn is_address(text: &str) -> bool {
    let mut p = Parser { rest: text };
    p.skip_space() && p.address() && p.skip_space() && p.rest.is_empty()
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    /// `user@host`, or a name and `<user@host>`.
    fn address(&mut self) -> bool {
        let start = self.rest;
        if self.spec() && self.skip_space() && self.rest.is_empty() {
            return true;
        }
        self.rest = start;
        if !self.rest.starts_with('<') && !self.phrase() {
            return false;
        }
        self.skip_space() && self.eat('<') && self.spec() && self.eat('>')
    }

    fn spec(&mut self) -> bool {
        let local = match self.rest.strip_prefix('"') {
            Some(after) => !after.starts_with('"') && self.quoted(),
            None => self.skip_space() && self.dot_atom(),
        };
        local && self.eat('@') && self.domain()
    }

    fn domain(&mut self) -> bool {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        let literal = self.rest.strip_prefix('[').and_then(|inside| inside.find(']').map(|end| (inside, end)));
        match literal {
            Some((inside, end)) => {
                let address = &inside[..end];
                self.rest = &inside[end + 1..];
                address.parse::<std::net::IpAddr>().is_ok()
                    || address.strip_prefix("IPv6:").is_some_and(|a| a.parse::<std::net::Ipv6Addr>().is_ok())
            }
            None => self.dot_atom(),
        }
    }

    /// Atoms between single dots.
    fn dot_atom(&mut self) -> bool {
        let end = self.rest.find(|c| !is_atom(c) && c != '.').unwrap_or(self.rest.len());
        let atom = &self.rest[..end];
        self.rest = &self.rest[end..];
        !atom.is_empty() && atom.split('.').all(|part| !part.is_empty())
    }

    /// Words before the bracket; dots are tolerated in them.
    fn phrase(&mut self) -> bool {
        let mut words = 0;
        loop {
            self.skip_space();
            if self.rest.starts_with('"') {
                if !self.quoted() {
                    return false;
                }
            } else {
                let end = self.rest.find(|c| !is_atom(c) && c != '.').unwrap_or(self.rest.len());
                if end == 0 {
                    return words > 0;
                }
                self.rest = &self.rest[end..];
            }
            words += 1;
        }
    }

    fn quoted(&mut self) -> bool {
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return true;
                }
                '\\' if chars.next().is_some_and(|(_, c)| is_quotable(c)) => {}
                c if c != '\\' && is_quotable(c) => {}
                _ => return false,
            }
        }
        false
    }

    fn eat(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// White space and comments; false where a comment does not end.
    fn skip_space(&mut self) -> bool {
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\t']);
            if !self.rest.starts_with('(') {
                return true;
            }
            let mut depth = 0;
            let mut escaped = false;
            let end = self.rest.char_indices().find(|(_, c)| {
                match c {
                    _ if escaped => escaped = false,
                    '\\' => escaped = true,
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    _ => {}
                }
                depth == 0
            });
            match end {
                Some((at, _)) => self.rest = &self.rest[at + 1..],
                None => return false,
            }
        }
    }
}

fn is_atom(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii()
}

fn is_quotable(c: char) -> bool {
    matches!(c, ' ' | '\t' | '!'..='~') || !c.is_ascii()
}
