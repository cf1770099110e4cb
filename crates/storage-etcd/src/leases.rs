//! Expiry: etcd deletes the keys of a lease when it ends.
//!
//! A lease per key would be heavy on etcd (a consensus round to grant each, a timer and a disk record to keep it), so
//! keys with the same time to live share one. A lease is granted for a twentieth longer (at most a minute) than asked,
//! and further keys join it for as long as it still lives at least their time. So a key never expires early, and late
//! by no more than that twentieth, plus what etcd adds: whole seconds, at least two, checked every half second, and
//! counted anew when etcd elects a new leader. Times below twenty seconds are not shared.

use std::{collections::HashMap, time::Duration};

use tokio::{sync::Mutex, time::Instant};
use tonic::Status;

use crate::{
    client::{Client, Repeat, method},
    wire,
};

/// etcd deletes the keys of a lease at once; more than this would be felt.
const MOST_KEYS: usize = 1000;

/// etcd grants no more. 285 years.
const LONGEST: Duration = Duration::from_secs(9_000_000_000);

#[derive(Default)]
pub(crate) struct Leases {
    /// The newest lease for each time in seconds.
    newest: Mutex<HashMap<i64, Lease>>,
}

struct Lease {
    id: i64,
    ends: Instant,
    keys: usize,
}

impl Leases {
    /// A lease that lives at least `ttl` from now.
    pub async fn lease(&self, client: &Client, ttl: Duration) -> Result<i64, Status> {
        let ttl = ttl.min(LONGEST);
        let seconds = lease_seconds(ttl);
        // Held while granting: whoever comes meanwhile shares the result.
        let mut newest = self.newest.lock().await;
        let now = Instant::now();
        newest.retain(|_, lease| lease.ends > now);
        if let Some(lease) = newest.get_mut(&seconds)
            && now + ttl <= lease.ends
            && lease.keys < MOST_KEYS
        {
            lease.keys += 1;
            return Ok(lease.id);
        }
        let request = wire::LeaseGrantRequest { ttl_seconds: seconds };
        // A lease granted twice is one without keys, which ends by itself.
        let granted: wire::LeaseGrantResponse = client.call(method::LEASE_GRANT, request, Repeat::Harmless).await?;
        // Counted from before the grant, so that it ends later than we believe rather than earlier.
        let ends = now + Duration::from_secs(granted.ttl_seconds.max(0).cast_unsigned());
        newest.insert(seconds, Lease { id: granted.id, ends, keys: 1 });
        Ok(granted.id)
    }

    /// Forgets all leases: etcd does not know one of them (it was revoked, or restored from a backup).
    pub async fn forget(&self) {
        self.newest.lock().await.clear();
    }
}

fn lease_seconds(ttl: Duration) -> i64 {
    const SHARED_FROM: Duration = Duration::from_secs(20);
    let extra = if ttl < SHARED_FROM { Duration::ZERO } else { (ttl / 20).min(Duration::from_secs(60)) };
    let total = (ttl + extra).min(LONGEST);
    let seconds = total.as_secs() + u64::from(total.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_outlive_what_was_asked_for_by_little() {
        let seconds = |millis| lease_seconds(Duration::from_millis(millis));
        assert_eq!([seconds(0), seconds(1), seconds(2_000), seconds(2_001)], [1, 1, 2, 3]);
        assert_eq!([seconds(19_000), seconds(20_000), seconds(3_600_000)], [19, 21, 3_660]);
        assert_eq!(lease_seconds(LONGEST), 9_000_000_000);
    }
}
