//! Tokens with which machines join: `id.secret`, kept in the Secret `bootstrap-token-<id>` of kube-system.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use object_model::{meta::Meta, time::Time, value::Fields};
use serde_json::Value;

use super::{
    Denied,
    live::Live,
    tokens::{Known, TokenAuthenticator},
};
use crate::{
    clock::Clock,
    context::{Annotations, User},
};

const GROUP: &str = "system:bootstrappers";
const TYPE: &str = "bootstrap.kubernetes.io/token";

pub struct BootstrapTokens {
    live: Arc<Live>,
    clock: Arc<dyn Clock>,
}

impl BootstrapTokens {
    pub fn new(live: Arc<Live>, clock: Arc<dyn Clock>) -> Self {
        Self { live, clock }
    }
}

#[async_trait]
impl TokenAuthenticator for BootstrapTokens {
    /// A token that does not fit its Secret is told from one that has none by nobody.
    async fn token(&self, token: &str, _: &[String], _: &Annotations) -> Result<Option<Known>, Denied> {
        let Some((id, secret)) = parts(token) else { return Ok(None) };
        let mut rests_on = Vec::new();
        let key = format!("kube-system/bootstrap-token-{id}");
        let Some(entry) = self.live.known(&self.live.secrets, &key, &mut rests_on) else { return Ok(None) };
        let object = entry.object("Secret");
        let good = object.text("type") == TYPE
            && !Meta::of(&object).is_deleting()
            && same(data(&object, "token-secret").as_bytes(), secret.as_bytes())
            && data(&object, "token-id") == id
            && data(&object, "usage-bootstrap-authentication") == "true";
        let until = match data(&object, "expiration").as_str() {
            "" => None,
            text => match Time::parse(text) {
                Ok(end) if end > Time::from(self.clock.now()) => Some(system_time(end)),
                _ => return Ok(None),
            },
        };
        let (true, Some(groups)) = (good, groups(&data(&object, "auth-extra-groups"))) else { return Ok(None) };
        let user = User { name: format!("system:bootstrap:{id}"), groups, ..User::default() };
        Ok(Some(Known { until, rests_on, ..Known::plain(user) }))
    }
}

/// `abcdef.0123456789abcdef`
fn parts(token: &str) -> Option<(&str, &str)> {
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    token.split_once('.').filter(|(id, secret)| id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret))
}

/// The value of a key of a Secret, as text.
pub(super) fn data(secret: &Value, key: &str) -> String {
    let decoded = STANDARD.decode(secret.text_at(&["data", key])).unwrap_or_default();
    String::from_utf8(decoded).unwrap_or_default()
}

/// Compares in a time that does not depend on where they differ.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// The groups of a token, each once and in order; `None` if one of them is not for bootstrappers.
fn groups(extra: &str) -> Option<Vec<String>> {
    let mut groups = BTreeSet::from([GROUP.to_owned()]);
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        groups.insert(is_bootstrapper(group).then(|| group.to_owned())?);
    }
    Some(groups.into_iter().collect())
}

/// `system:bootstrappers:` and up to 255 of `a-z0-9:-`, the last of which is a letter or digit.
fn is_bootstrapper(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let last = rest.bytes().next_back();
    rest.len() <= 256 && last.is_some_and(plain) && rest.bytes().all(|b| plain(b) || b == b':' || b == b'-')
}

fn system_time(time: Time) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time.unix_seconds()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!(parts("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
        for bad in ["abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "abcdef0123456789abcdef", ""] {
            assert_eq!(parts(bad), None, "{bad}");
        }
        assert_eq!(groups("").unwrap(), [GROUP]);
        assert_eq!(
            groups("system:bootstrappers:z,system:bootstrappers:a").unwrap(),
            [GROUP, "system:bootstrappers:a", "system:bootstrappers:z"]
        );
        assert_eq!(groups("system:masters"), None);
        assert_eq!(groups("system:bootstrappers:x-"), None);
    }
}
