//! `Event` of the core group and of `events.k8s.io`.

use serde_json::Value;

/// The names in the core group and in `events.k8s.io` of what the two call differently.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

pub fn from_core(event: &mut Value) {
    NAMES.iter().for_each(|(core, new)| rename(event, core, new));
}

pub fn to_core(event: &mut Value) {
    NAMES.iter().for_each(|(core, new)| rename(event, new, core));
}

fn rename(event: &mut Value, from: &str, to: &str) {
    if let Some(fields) = event.as_object_mut()
        && let Some(value) = fields.remove(from)
    {
        fields.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::conversion::convert;

    #[test]
    fn both_forms_say_the_same() {
        let stored = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "web.1"},
            "involvedObject": {"kind": "Pod", "name": "web"},
            "reason": "Started",
            "message": "Started container",
            "source": {"component": "kubelet", "host": "a"},
            "firstTimestamp": "2026-01-02T03:04:05Z",
            "lastTimestamp": "2026-01-02T03:04:06Z",
            "count": 2,
            "type": "Normal",
            "eventTime": null,
            "reportingComponent": "kubelet",
            "reportingInstance": "a",
        });
        let mut event = stored.clone();
        convert(&mut event, "events.k8s.io/v1");
        assert_eq!(
            event,
            json!({
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": "web.1"},
                "regarding": {"kind": "Pod", "name": "web"},
                "reason": "Started",
                "note": "Started container",
                "deprecatedSource": {"component": "kubelet", "host": "a"},
                "deprecatedFirstTimestamp": "2026-01-02T03:04:05Z",
                "deprecatedLastTimestamp": "2026-01-02T03:04:06Z",
                "deprecatedCount": 2,
                "type": "Normal",
                "eventTime": null,
                "reportingController": "kubelet",
                "reportingInstance": "a",
            })
        );
        convert(&mut event, "v1");
        assert_eq!(event, stored);
    }
}
