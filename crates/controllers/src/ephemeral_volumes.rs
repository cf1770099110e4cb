//! Pods with volumes of their own: a claim is made for each, which goes with its pod.

use std::sync::Arc;

use controller_runtime::{
    Change, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    adoption::{controller_of, controller_reference},
    events::{EventType, Recorder, about},
    refuses_new_objects,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio_util::sync::CancellationToken;

use crate::{Setting, storage_protection::claim_name};

const ACCOUNT: &str = "ephemeral-volume-controller";
const COMPONENT: &str = "ephemeral_volume";
const WORKERS: usize = 2;

struct EphemeralVolumes {
    client: Client,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = EphemeralVolumes {
        client: setting.client(ACCOUNT),
        pods: setting.informers.of(),
        claims: setting.informers.of(),
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, COMPONENT),
    };
    let on_pod = queue.clone();
    controller.pods.on_change(move |change| {
        if let Change::Applied { new, .. } = change
            && new.metadata.deletion_timestamp.is_none()
            && own_volumes(new).next().is_some()
        {
            on_pod.add(Key::of(&**new));
        }
    });
    let on_claim = queue.clone();
    controller.claims.on_change(move |change| {
        if let (Change::Deleted(last), Some(owner)) = (change, controller_of(&**change.object()))
            && owner.kind == "Pod"
        {
            on_claim.add(Key::new(last.metadata.namespace.clone().unwrap_or_default(), &owner.name));
        }
    });
    controller.pods.synced_or_stopped().await;
    controller.claims.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

fn own_volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let volumes = pod.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten();
    volumes.filter(|volume| volume.ephemeral.is_some())
}

impl Controller for EphemeralVolumes {
    type Key = Key;

    fn name(&self) -> &'static str {
        ACCOUNT
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let pod = self.pods.get(key).filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let Some(pod) = pod else { return Ok(Next::WhenChanged) };
        for volume in own_volumes(&pod) {
            if let Err(problem) = self.ensure(key, &pod, volume).await {
                let message = format!("ephemeral volume {}: {problem}", volume.name);
                self.recorder.event(&about(&*pod), EventType::Warning, "FailedBinding", message);
                return Err(Error::Other(problem));
            }
        }
        Ok(Next::WhenChanged)
    }
}

impl EphemeralVolumes {
    async fn ensure(&self, key: &Key, pod: &Pod, volume: &Volume) -> Result<(), String> {
        let Some(name) = claim_name(pod, volume) else { return Ok(()) };
        if let Some(found) = self.claims.get(&Key::new(&key.namespace, &name)) {
            let owned = controller_of(&*found).is_some_and(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref());
            let problem = || format!("PVC {}/{name} was not created for pod {key} (pod is not owner)", key.namespace);
            return if owned { Ok(()) } else { Err(problem()) };
        }
        let template = volume.ephemeral.as_ref().and_then(|ephemeral| ephemeral.volume_claim_template.as_ref());
        let Some(template) = template else { return Ok(()) };
        let meta = template.metadata.clone().unwrap_or_default();
        let claim = PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: meta.labels,
                annotations: meta.annotations,
                owner_references: Some(vec![controller_reference(pod)]),
                ..ObjectMeta::default()
            },
            spec: Some(template.spec.clone()),
            status: None,
        };
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        match claims.create(&PostParams::default(), &claim).await {
            Ok(made) => self.own_writes.wrote(key, &self.claims, &made),
            Err(kube::Error::Api(status)) if refuses_new_objects(&status) => {}
            Err(error) => return Err(format!("create PVC {name}: {}", crate::words(&error))),
        }
        Ok(())
    }
}
