//! Every active namespace has the service account `default`.

use std::sync::Arc;

use controller_runtime::{Change, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue, refuses_new_objects};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio_util::sync::CancellationToken;

use crate::{Setting, namespace::is_active};

const ACCOUNT: &str = "service-account-controller";
const NAME: &str = "default";

struct ServiceAccounts {
    client: Client,
    namespaces: Informer<Namespace>,
    accounts: Informer<ServiceAccount>,
    own_writes: OwnWrites<String>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = ServiceAccounts {
        client: setting.client(ACCOUNT),
        namespaces: setting.informers.of(),
        accounts: setting.informers.of(),
        own_writes: own_writes.clone(),
    };
    let (on_namespace, on_account) = (queue.clone(), queue.clone());
    controller.namespaces.on_change(move |change| {
        on_namespace.add(Key::of(&**change.object()).name);
    });
    controller.accounts.on_change(move |change| {
        if let Change::Deleted(last) = change {
            on_account.add(Key::of(&**last).namespace);
        }
    });
    controller.accounts.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, 1, stop).await;
}

impl Controller for ServiceAccounts {
    type Key = String;

    fn name(&self) -> &'static str {
        "serviceaccount-controller"
    }

    async fn reconcile(&self, namespace: &String) -> Result<Next, Error> {
        let active = self.namespaces.get(&Key::new("", namespace)).is_some_and(|found| is_active(&found));
        if !active || self.accounts.get(&Key::new(namespace, NAME)).is_some() {
            return Ok(Next::WhenChanged);
        }
        let metadata =
            ObjectMeta { name: Some(NAME.into()), namespace: Some(namespace.clone()), ..ObjectMeta::default() };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        match accounts.create(&PostParams::default(), &account).await {
            Ok(made) => self.own_writes.wrote(namespace, &self.accounts, &made),
            Err(kube::Error::Api(status)) if status.is_already_exists() || refuses_new_objects(&status) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Next::WhenChanged)
    }
}
