//! Binds a pod through the API.

use futures::FutureExt;
use k8s_openapi::{
    api::core::v1::{Binding, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status},
};
use kube::{Api, Client, api::PostParams};

use crate::{
    framework::{Bind, Step},
    pod::PodInfo,
};

pub struct DefaultBinder {
    pub client: Client,
}

impl Bind for DefaultBinder {
    fn bind<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> Step<'a> {
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(pod.key.name.clone()),
                namespace: Some(pod.key.namespace.clone()),
                uid: Some(pod.uid.clone()),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.key.namespace);
        async move {
            let _: Status = pods.create_subresource("binding", &pod.key.name, &PostParams::default(), &binding).await?;
            Ok(())
        }
        .boxed()
    }
}
