//! Devices that ResourceClaims ask for, by their class.

use std::sync::Arc;

use object_model::{
    meta::Meta,
    quantity::{Format, Quantity},
    value::Fields,
};
use serde_json::Value;

use crate::{
    admission::{
        Lookup,
        pod_resources::{Amounts, add, raise},
    },
    watch_cache::WatchCache,
};

/// `gpu.deviceclass.resource.k8s.io/devices`
const PER_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// `requests.deviceclass.resource.kubernetes.io/gpu`: the class as if it were an extended resource.
const IMPLICIT: &str = "requests.deviceclass.resource.kubernetes.io/";
const FOR_EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";
/// As many devices as a claim can have, for who wants all of them.
const MOST: i64 = 32;

pub struct Devices {
    classes: Lookup,
    pods: Lookup,
    claims: Lookup,
}

impl Devices {
    pub fn new(cache: &Arc<WatchCache>) -> Self {
        Self {
            classes: Lookup::new(cache, "resource.k8s.io", "deviceclasses", "DeviceClass"),
            pods: Lookup::new(cache, "", "pods", "Pod"),
            claims: Lookup::new(cache, "resource.k8s.io", "resourceclaims", "ResourceClaim"),
        }
    }

    /// The extended resource as which pods can ask for devices of a class.
    fn extended_name(&self, class: &str) -> Option<String> {
        let class = self.classes.resource.get(class)?.object(self.classes.kind);
        let name = class.text_at(&["spec", "extendedResourceName"]);
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// Do claims use what a quota has under this name?
    pub fn tracks(&self, name: &str, is_extended: bool) -> bool {
        if name.ends_with(PER_CLASS) {
            return true;
        }
        if let Some(class) = name.strip_prefix(IMPLICIT) {
            return self.classes.resource.get(class).is_some();
        }
        let Some(resource) = name.strip_prefix("requests.").filter(|_| is_extended) else { return false };
        let mut found = false;
        self.classes.each(|class| found |= class.text_at(&["spec", "extendedResourceName"]) == resource);
        found
    }

    /// Adds what a claim asks for. What its pod is charged for already, since the claim was made for the extended resources
    /// of that pod, counts once.
    pub fn count(&self, claim: &Value, used: &mut Amounts, of_pod: impl Fn(&Value) -> Amounts) {
        let requests = claim.at(&["spec", "devices"]).map(|devices| devices.items("requests")).unwrap_or_default();
        let mut asked = Amounts::new();
        for request in requests {
            let alternatives = request.items("firstAvailable");
            if !alternatives.is_empty() {
                let mut most = Amounts::new();
                alternatives.iter().for_each(|one| raise(&mut most, &wanted(one)));
                add(&mut asked, most);
            } else if let Some(exactly) = request.field("exactly") {
                add(&mut asked, wanted(exactly));
            }
        }
        let charged = self.owner(claim).map(|pod| of_pod(&pod)).unwrap_or_default();
        for (name, amount) in &asked {
            let Some(class) = name.strip_suffix(PER_CLASS).filter(|class| !class.is_empty()) else { continue };
            let extended = self.extended_name(class).map(|name| format!("requests.{name}"));
            for name in std::iter::once(format!("{IMPLICIT}{class}")).chain(extended) {
                let mut rest = *amount;
                if let Some(known) = charged.get(&name) {
                    rest.sub(known);
                }
                if rest.sign() > 0 {
                    used.insert(name, rest);
                }
            }
        }
        used.extend(asked);
    }

    /// The pod for whose extended resources a claim was made, if the two agree on that.
    fn owner(&self, claim: &Value) -> Option<Value> {
        let meta = Meta::of(claim);
        let owner = meta.controller().filter(|owner| owner.kind == "Pod" && owner.api_version == "v1")?;
        if meta.annotation(FOR_EXTENDED) != Some("true") {
            return None;
        }
        let namespace = meta.namespace();
        let pod = self.pods.resource.get(&format!("{namespace}/{}", owner.name))?.object(self.pods.kind);
        if Meta::of(&pod).uid() != owner.uid {
            return None;
        }
        match pod.at(&["status", "extendedResourceClaimStatus"]) {
            Some(status) => (status.text("resourceClaimName") == meta.name()).then_some(pod),
            // Of several claims the first counts.
            None => {
                let age = |claim: &Value| (Meta::of(claim).creation_timestamp(), Meta::of(claim).name().to_owned());
                let own = age(claim);
                let earlier = |other: &Value| {
                    let other_meta = Meta::of(other);
                    other_meta.annotation(FOR_EXTENDED) == Some("true")
                        && other_meta.controller().is_some_and(|o| o.kind == "Pod" && o.uid == owner.uid)
                        && age(other) < own
                };
                (!self.claims.of_namespace(namespace).iter().any(earlier)).then_some(pod)
            }
        }
    }
}

/// The devices of one request.
fn wanted(request: &Value) -> Amounts {
    let count = match request.text("allocationMode") {
        "ExactCount" => request.int("count").unwrap_or_default(),
        "All" => MOST,
        _ => 0,
    };
    let name = format!("{}{PER_CLASS}", request.text("deviceClassName"));
    Amounts::from([(name, Quantity::new(count, Format::DecimalSi))])
}
