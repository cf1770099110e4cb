//! Links of what is proxied, turned into links through the proxy.

/// Which links are meant, and where they lead.
pub struct Links {
    /// Host and port of the server behind the proxy.
    pub place: String,
    /// The host under which the client reaches this server.
    pub host: String,
    /// The path of the proxy, up to and with `proxy`.
    pub prefix: String,
}

impl Links {
    /// A link of the same server with a whole path gets the proxy's path before it; all others stay.
    pub fn changed(&self, link: &str) -> String {
        let (origin, host, path) = split(link);
        let foreign = !host.is_empty() && host != self.place && host != self.host;
        if foreign || !path.starts_with('/') {
            return link.to_owned();
        }
        let origin = if host == self.host { origin } else { "" };
        let below =
            path.strip_prefix(&*self.prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
        if below { format!("{origin}{path}") } else { format!("{origin}{}{path}", self.prefix) }
    }
}

/// A link as its scheme and host, its host alone, and the rest.
fn split(link: &str) -> (&str, &str, &str) {
    let scheme = match link.find("://") {
        Some(at) if link[..at].bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) => at + 1,
        _ => 0,
    };
    let Some(rest) = link[scheme..].strip_prefix("//") else { return ("", "", link) };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (origin, path) = link.split_at(scheme + 2 + end);
    (origin, &rest[..end], path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_that_lead_past_the_proxy_change() {
        let links =
            Links { place: "10.0.0.1:80".into(), host: "api:6443".into(), prefix: "/api/v1/pods/p/proxy".into() };
        for (link, want) in [
            ("/a?b=c#d", "/api/v1/pods/p/proxy/a?b=c#d"),
            ("http://10.0.0.1:80/a/", "/api/v1/pods/p/proxy/a/"),
            ("https://api:6443/a", "https://api:6443/api/v1/pods/p/proxy/a"),
            ("//10.0.0.1:80/a", "/api/v1/pods/p/proxy/a"),
            ("/api/v1/pods/p/proxy/a", "/api/v1/pods/p/proxy/a"),
            ("/api/v1/pods/p/proxyx", "/api/v1/pods/p/proxy/api/v1/pods/p/proxyx"),
            ("http://other/a", "http://other/a"),
            ("a/b", "a/b"),
            ("?q=http://x/", "?q=http://x/"),
            ("mailto:a@b", "mailto:a@b"),
            ("", ""),
        ] {
            assert_eq!(links.changed(link), want, "{link}");
        }
    }
}
