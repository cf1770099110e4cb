//! Where etcd is and how to speak to it, given as values or as one URL.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use percent_encoding::percent_decode_str;

/// How to reach an etcd cluster.
///
/// As text: `etcd://[user:password@]host[:port][,host[:port]…][/prefix][?ca=FILE[&cert=FILE&key=FILE]]`. With `ca` the
/// connection is TLS, with `cert` and `key` it presents a client certificate. User, password, prefix and file names are
/// percent-decoded. The port is 2379 unless given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `host:port` of the members. All belong to one cluster; any of them serves.
    pub endpoints: Vec<String>,
    /// Put literally before every key. Where etcd's users are restricted, ours needs this range to read and write.
    pub prefix: String,
    pub tls: Option<Tls>,
    pub credentials: Option<Credentials>,
    /// How long a call waits for an etcd that is away, or has no leader, before it answers "unavailable".
    pub patience: Duration,
}

/// PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Who signed the certificates of the members.
    pub ca: PathBuf,
    /// Our certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Why an engine could not be made from its options. Never about an etcd that is away: engines wait for it.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    #[error(
        "the address of etcd is malformed: {}; write etcd://[user:password@]host:2379[,host:2379…][/prefix][?ca=FILE&cert=FILE&key=FILE]",
        .0.join("; ")
    )]
    Address(Vec<String>),
    #[error("reading {path} for the connection to etcd: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("the connection to etcd at {endpoint} cannot be set up: {reason}")]
    Endpoint { endpoint: String, reason: String },
}

impl Options {
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: String::new(),
            tls: None,
            credentials: None,
            patience: Duration::from_secs(15),
        }
    }
}

impl FromStr for Options {
    type Err = OptionsError;

    fn from_str(address: &str) -> Result<Self, OptionsError> {
        let mut problems = Vec::new();
        let rest = address.strip_prefix("etcd://").unwrap_or_else(|| {
            problems.push("it does not start with etcd://".into());
            address.split_once("://").map_or(address, |(_, rest)| rest)
        });
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path_at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_at);
        let (login, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));

        let mut options = Self::new(hosts.split(',').map(|host| endpoint(host, &mut problems)));
        options.prefix = decoded(path, "the prefix", &mut problems);
        options.credentials = login.map(|login| credentials(login, &mut problems));
        options.tls = tls(query, &mut problems);
        if problems.is_empty() { Ok(options) } else { Err(OptionsError::Address(problems)) }
    }
}

fn endpoint(host: &str, problems: &mut Vec<String>) -> String {
    // Behind the bracket of an IPv6 address, if it is one.
    let after_address = host.rfind(']').map_or(0, |bracket| bracket + 1);
    match host[after_address..].rsplit_once(':') {
        _ if host.is_empty() => problems.push("a host is empty".into()),
        Some((_, port)) if port.parse::<u16>().is_err() => {
            problems.push(format!("{port:?} in {host:?} is not a port number"));
        }
        Some(_) => return host.into(),
        None => return format!("{host}:2379"),
    }
    String::new()
}

fn credentials(login: &str, problems: &mut Vec<String>) -> Credentials {
    let (user, password) = login.split_once(':').unwrap_or_else(|| {
        problems.push(format!("the user {login:?} has no password: write user:password@"));
        (login, "")
    });
    Credentials { user: decoded(user, "the user", problems), password: decoded(password, "the password", problems) }
}

fn tls(query: &str, problems: &mut Vec<String>) -> Option<Tls> {
    let (mut ca, mut cert, mut key) = (None, None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let target = match name {
            "ca" => &mut ca,
            "cert" => &mut cert,
            "key" => &mut key,
            _ => {
                problems.push(format!("the parameter {name:?} is unknown: there are ca, cert and key"));
                continue;
            }
        };
        if value.is_empty() {
            problems.push(format!("the parameter {name:?} names no file"));
        }
        if target.replace(PathBuf::from(decoded(value, name, problems))).is_some() {
            problems.push(format!("the parameter {name:?} is given twice"));
        }
    }
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => {
            problems.push("a client certificate needs both cert and key".into());
            None
        }
    };
    if ca.is_none() && identity.is_some() {
        problems.push("TLS needs ca, the certificate authority of the members".into());
    }
    ca.map(|ca| Tls { ca, identity })
}

fn decoded(text: &str, what: &str, problems: &mut Vec<String>) -> String {
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) if !decoded.contains('\0') => decoded.into_owned(),
        _ => {
            problems.push(format!("{what} is not text once percent-decoded"));
            String::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let options: Options = "etcd://127.0.0.1:2379".parse().expect("valid");
        assert_eq!(options, Options::new(["127.0.0.1:2379"]));
        let options: Options =
            "etcd://ro%40ot:p%3Aw@a,b:12379,[::1],[::2]:80/ferry/one?ca=/etc/ca.pem&cert=c%26.pem&key=k.pem"
                .parse()
                .expect("valid");
        assert_eq!(options.endpoints, ["a:2379", "b:12379", "[::1]:2379", "[::2]:80"]);
        assert_eq!(options.prefix, "/ferry/one");
        assert_eq!(options.credentials, Some(Credentials { user: "ro@ot".into(), password: "p:w".into() }));
        let identity = Some(("c&.pem".into(), "k.pem".into()));
        assert_eq!(options.tls, Some(Tls { ca: "/etc/ca.pem".into(), identity }));
        assert!(!format!("{options:?}").contains("p:w"), "passwords are not shown");
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let refused = "http://me@a:x,,b?cert=c&color=red&cert=d".parse::<Options>().expect_err("malformed").to_string();
        for problem in [
            "start with etcd://",
            "\"x\" in \"a:x\"",
            "host is empty",
            "no password",
            "both cert and key",
            "color",
            "twice",
        ] {
            assert!(refused.contains(problem), "{problem} is missing in {refused}");
        }
        let refused = "etcd://a?cert=c&key=k".parse::<Options>().expect_err("no ca").to_string();
        assert!(refused.contains("TLS needs ca"), "{refused}");
        assert!("etcd://a/%ff".parse::<Options>().is_err());
    }
}
