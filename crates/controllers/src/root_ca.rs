//! Every active namespace has the ConfigMap `kube-root-ca.crt`, by which its pods know the API server.

use std::{collections::BTreeMap, sync::Arc};

use controller_runtime::{Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue, refuses_new_objects};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio_util::sync::CancellationToken;

use crate::{Setting, namespace::is_active};

const ACCOUNT: &str = "root-ca-cert-publisher";
const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
/// What Kubernetes writes there, word for word: it is part of the API.
const DESCRIBED: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints \
    such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
    Kubernetes clusters.";

struct RootCa {
    client: Client,
    certificate: String,
    namespaces: Informer<Namespace>,
    published: Informer<ConfigMap>,
    own_writes: OwnWrites<String>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let only = Some(format!("metadata.name={NAME}"));
    let controller = RootCa {
        client: setting.client(ACCOUNT),
        certificate: setting.root_ca.clone(),
        namespaces: setting.informers.of(),
        published: setting.informers.own(&(), only, |_| {}, stop.clone()),
        own_writes: own_writes.clone(),
    };
    let (on_namespace, on_map) = (queue.clone(), queue.clone());
    controller.namespaces.on_change(move |change| on_namespace.add(Key::of(&**change.object()).name));
    controller.published.on_change(move |change| on_map.add(Key::of(&**change.object()).namespace));
    controller.published.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, 1, stop).await;
}

impl Controller for RootCa {
    type Key = String;

    fn name(&self) -> &'static str {
        "root-ca-certificate-publisher-controller"
    }

    async fn reconcile(&self, namespace: &String) -> Result<Next, Error> {
        if !self.namespaces.get(&Key::new("", namespace)).is_some_and(|found| is_active(&found)) {
            return Ok(Next::WhenChanged);
        }
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let data = BTreeMap::from([("ca.crt".to_owned(), self.certificate.clone())]);
        let known = self.published.get(&Key::new(namespace, NAME));
        let described = |map: &ConfigMap| {
            let annotations = map.metadata.annotations.iter().flatten();
            annotations.into_iter().any(|(name, text)| name == DESCRIPTION && !text.is_empty())
        };
        let answer = match known.as_deref() {
            Some(map) if map.data.as_ref() == Some(&data) && described(map) => return Ok(Next::WhenChanged),
            Some(map) => {
                let mut map = map.clone();
                map.data = Some(data);
                map.metadata.annotations.get_or_insert_default().insert(DESCRIPTION.into(), DESCRIBED.into());
                maps.replace(NAME, &PostParams::default(), &map).await
            }
            None => {
                let annotations = BTreeMap::from([(DESCRIPTION.to_owned(), DESCRIBED.to_owned())]);
                let metadata =
                    ObjectMeta { name: Some(NAME.into()), annotations: Some(annotations), ..ObjectMeta::default() };
                let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
                maps.create(&PostParams::default(), &map).await
            }
        };
        match answer {
            Ok(written) => self.own_writes.wrote(namespace, &self.published, &written),
            Err(kube::Error::Api(status)) if status.is_not_found() || refuses_new_objects(&status) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Next::WhenChanged)
    }
}
