//! Tokens of service accounts that a node asks for: bound to a pod of its own, for an audience that the pod has use for.

use std::borrow::Cow;

use object_model::{identity::GroupResource, meta::Meta, status::Status, value::Fields};
use serde_json::Value;

use super::{Attributes, Lookup, No, NodeRestriction, no, node_of_pod};
use crate::authorization::{self, node::references};

impl NodeRestriction {
    pub(super) async fn token(&self, node: &str, request: &Attributes<'_>, asked: &Value) -> Result<(), No> {
        let bound = asked.at(&["spec", "boundObjectRef"]).unwrap_or(&Value::Null);
        let (name, uid) = (bound.text("name"), bound.text("uid"));
        if (bound.text("apiVersion"), bound.text("kind")) != ("v1", "Pod") || name.is_empty() {
            return no("node requested token not bound to a pod");
        }
        if uid.is_empty() {
            return no("node requested token with a pod binding without a uid");
        }
        let pod = self.existing_pod(request.target.namespace, name).await?;
        if uid != Meta::of(&pod).uid() {
            return no(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
                 deleted and then recreated"
            ));
        }
        if node_of_pod(&pod) != node {
            return no("node requested token bound to a pod scheduled on a different node");
        }
        self.audience(request, asked, &pod).await
    }

    /// The pod mentions the audience, or somebody has allowed it to nodes.
    async fn audience(&self, request: &Attributes<'_>, asked: &Value, pod: &Value) -> Result<(), No> {
        let audience = match asked.at(&["spec", "audiences"]).and_then(Value::as_array).map(Vec::as_slice) {
            None | Some([]) => "",
            Some([one]) => one.as_str().unwrap_or_default(),
            Some(_) => return no("node may only request 0 or 1 audiences"),
        };
        match self.has_use_for(pod, audience).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(No::Because(why)) => return no(format!("error validating audience {audience:?}: {why}")),
            Err(other) => return Err(other),
        }
        let user = &request.context.user;
        let question = authorization::Attributes {
            version: "v1",
            namespace: request.target.namespace,
            name: Cow::Borrowed(request.target.name),
            ..authorization::Attributes::of_resource(user, "request-serviceaccounts-token-audience", "", audience)
        };
        let decision = self.authorization.decide(&question).await;
        if decision.is_allowed() {
            return Ok(());
        }
        let not_found = format!("audience {audience:?} not found in pod spec volume");
        no(match decision.error {
            Some(error) => {
                format!("{not_found}, error authorizing {} to request tokens for this audience: {error}", user.name)
            }
            None => format!("{not_found}, {} is not authorized to request tokens for this audience", user.name),
        })
    }

    /// For a projected volume, or for the CSI driver of another.
    async fn has_use_for(&self, pod: &Value, audience: &str) -> Result<bool, No> {
        let mut failed = None;
        for volume in pod.field("spec").map(|spec| spec.items("volumes")).unwrap_or_default() {
            let sources = volume.object("projected").map(|p| p.items("sources")).unwrap_or_default();
            let tokens = sources.iter().filter_map(|source| source.object("serviceAccountToken"));
            if tokens.into_iter().any(|token| token.text("audience") == audience) {
                return Ok(true);
            }
            match self.driver_has_use_for(pod, volume, audience).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(false), Err)
    }

    async fn driver_has_use_for(&self, pod: &Value, volume: &Value, audience: &str) -> Result<bool, No> {
        let mut driver = volume.text_at(&["csi", "driver"]).to_owned();
        let claim = references::volume_claim(pod, volume);
        if !claim.is_empty() {
            let namespace = Meta::of(pod).namespace();
            let claim =
                found(&self.claims, &format!("{namespace}/{claim}"), "", "persistentvolumeclaim", &claim).await?;
            let name = claim.text_at(&["spec", "volumeName"]);
            let volume = found(&self.volumes, name, "", "persistentvolume", name).await?;
            driver = volume.text_at(&["spec", "csi", "driver"]).to_owned();
        }
        if driver.is_empty() {
            return Ok(false);
        }
        let driver = found(&self.drivers, &driver, "storage.k8s.io", "csidriver", &driver).await?;
        let requests = driver.field("spec").map(|spec| spec.items("tokenRequests")).unwrap_or_default();
        Ok(requests.iter().any(|request| request.text("audience") == audience))
    }
}

/// Kubernetes' index names what it does not find in the singular.
async fn found(lookup: &Lookup, key: &str, group: &str, singular: &str, name: &str) -> Result<Value, No> {
    let missing = || No::Because(Status::not_found(&GroupResource::new(group, singular), name).message);
    lookup.get(key).await?.ok_or_else(missing)
}
