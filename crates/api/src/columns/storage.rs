//! Volumes, claims, storage drivers and devices.

use object_model::meta::Meta;
use object_model::value::Fields;
use serde_json::Value;

use super::cells::{age, at, count, filled_or, flag, is_deleting, items, joined, name, quantity, text, text_or};
use super::network::name_of_default;
use super::{AGE, Column, Columns, NAME, docs};

pub static VOLUME: Columns = Columns::new(
    &[
        NAME,
        Column::text("Capacity", docs::VOLUME_CAPACITY),
        Column::text("Access Modes", docs::VOLUME_ACCESS_MODES),
        Column::text("Reclaim Policy", docs::VOLUME_RECLAIM_POLICY),
        Column::text("Status", docs::VOLUME_PHASE),
        Column::text("Claim", docs::VOLUME_CLAIM),
        Column::text("StorageClass", "StorageClass of the pv"),
        Column::text("VolumeAttributesClass", "VolumeAttributesClass of the pv"),
        Column::text("Reason", docs::VOLUME_REASON),
        AGE,
        Column::text("VolumeMode", docs::VOLUME_MODE).wide(),
    ],
    |volume, now| {
        let claim = at(volume, "spec.claimRef");
        let claim =
            claim.map_or_else(String::new, |claim| format!("{}/{}", claim.text("namespace"), claim.text("name")));
        vec![
            name(volume),
            quantity(volume, "spec.capacity.storage").into(),
            access_modes(volume, "spec.accessModes").into(),
            text(volume, "spec.persistentVolumeReclaimPolicy").into(),
            phase(volume).into(),
            claim.into(),
            storage_class(volume).into(),
            text_or(volume, "spec.volumeAttributesClassName", "<unset>").into(),
            text(volume, "status.reason").into(),
            age(volume, now),
            text_or(volume, "spec.volumeMode", "<unset>").into(),
        ]
    },
);

pub static CLAIM: Columns = Columns::new(
    &[
        NAME,
        Column::text("Status", docs::CLAIM_PHASE),
        Column::text("Volume", docs::CLAIM_VOLUME),
        Column::text("Capacity", docs::CLAIM_CAPACITY),
        Column::text("Access Modes", docs::CLAIM_ACCESS_MODES),
        Column::text("StorageClass", "StorageClass of the pvc"),
        Column::text("VolumeAttributesClass", "VolumeAttributesClass of the pvc"),
        AGE,
        Column::text("VolumeMode", docs::CLAIM_VOLUME_MODE).wide(),
    ],
    |claim, now| {
        let volume = text(claim, "spec.volumeName");
        let (capacity, modes) = match volume {
            "" => ("", String::new()),
            _ => (quantity(claim, "status.capacity.storage"), access_modes(claim, "status.accessModes")),
        };
        vec![
            name(claim),
            phase(claim).into(),
            volume.into(),
            capacity.into(),
            modes.into(),
            storage_class(claim).into(),
            text_or(claim, "spec.volumeAttributesClassName", "<unset>").into(),
            age(claim, now),
            text_or(claim, "spec.volumeMode", "<unset>").into(),
        ]
    },
);

fn phase(object: &Value) -> &str {
    if is_deleting(object) { "Terminating" } else { text(object, "status.phase") }
}

/// The annotation of old goes before the field.
fn storage_class(object: &Value) -> &str {
    let annotated = Meta::of(object).annotation("volume.beta.kubernetes.io/storage-class");
    annotated.unwrap_or_else(|| text(object, "spec.storageClassName"))
}

fn access_modes(object: &Value, path: &str) -> String {
    const MODES: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |mode: &str| items(object, path).iter().any(|item| item == mode);
    MODES.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

pub static STORAGE_CLASS: Columns = Columns::new(
    &[
        NAME,
        Column::text("Provisioner", docs::CLASS_PROVISIONER),
        Column::text("ReclaimPolicy", docs::CLASS_RECLAIM_POLICY),
        Column::text("VolumeBindingMode", docs::CLASS_BINDING_MODE),
        Column::text("AllowVolumeExpansion", docs::CLASS_EXPANSION),
        AGE,
    ],
    |class, now| {
        const DEFAULT: [&str; 2] =
            ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
        vec![
            name_of_default(class, &DEFAULT),
            text(class, "provisioner").into(),
            text_or(class, "reclaimPolicy", "Delete").into(),
            text_or(class, "volumeBindingMode", "Immediate").into(),
            flag(class, "allowVolumeExpansion").into(),
            age(class, now),
        ]
    },
);

pub static ATTRIBUTES_CLASS: Columns =
    Columns::new(&[NAME, Column::text("DriverName", docs::ATTRIBUTES_DRIVER), AGE], |object, now| {
        vec![name(object), text(object, "driverName").into(), age(object, now)]
    });

pub static ATTACHMENT: Columns = Columns::new(
    &[
        NAME,
        Column::new("Attacher", "string", "name", docs::ATTACHMENT_ATTACHER),
        Column::text("PV", docs::ATTACHMENT_VOLUME),
        Column::text("Node", docs::ATTACHMENT_NODE),
        Column::boolean("Attached", docs::ATTACHMENT_ATTACHED),
        AGE,
    ],
    |object, now| {
        vec![
            name(object),
            text(object, "spec.attacher").into(),
            text(object, "spec.source.persistentVolumeName").into(),
            text(object, "spec.nodeName").into(),
            flag(object, "status.attached").into(),
            age(object, now),
        ]
    },
);

pub static CSI_NODE: Columns = Columns::new(
    &[NAME, Column::integer("Drivers", "Drivers indicates the number of CSI drivers registered on the node"), AGE],
    |object, now| vec![name(object), count(object, "spec.drivers").into(), age(object, now)],
);

pub static CSI_DRIVER: Columns = Columns::new(
    &[
        NAME,
        Column::boolean("AttachRequired", docs::DRIVER_ATTACH),
        Column::boolean("PodInfoOnMount", docs::DRIVER_POD_INFO),
        Column::boolean("StorageCapacity", docs::DRIVER_CAPACITY),
        Column::text("TokenRequests", docs::DRIVER_TOKENS),
        Column::boolean("RequiresRepublish", docs::DRIVER_REPUBLISH),
        Column::text("Modes", docs::DRIVER_MODES),
        AGE,
    ],
    |driver, now| {
        let attach = at(driver, "spec.attachRequired").is_none() || flag(driver, "spec.attachRequired");
        let audiences = items(driver, "spec.tokenRequests").iter().map(|request| request.text("audience"));
        let tokens = match at(driver, "spec.tokenRequests") {
            None => "<unset>".to_owned(),
            Some(_) => audiences.collect::<Vec<_>>().join(","),
        };
        vec![
            name(driver),
            attach.into(),
            flag(driver, "spec.podInfoOnMount").into(),
            flag(driver, "spec.storageCapacity").into(),
            tokens.into(),
            flag(driver, "spec.requiresRepublish").into(),
            filled_or(&joined(driver, "spec.volumeLifecycleModes"), "<none>").into(),
            age(driver, now),
        ]
    },
);

pub static RESOURCE_CLAIM: Columns = Columns::new(
    &[NAME, Column::text("State", "A summary of the current state (allocated, pending, reserved, etc.)."), AGE],
    |claim, now| {
        let allocated = at(claim, "status.allocation").is_some();
        let reserved = allocated && !items(claim, "status.reservedFor").is_empty();
        let states = [
            (is_deleting(claim), "deleted"),
            (!allocated && !is_deleting(claim), "pending"),
            (allocated, "allocated"),
            (reserved, "reserved"),
        ];
        let states: Vec<&str> = states.iter().filter(|(holds, _)| *holds).map(|(_, state)| *state).collect();
        vec![name(claim), states.join(",").into(), age(claim, now)]
    },
);

pub static RESOURCE_SLICE: Columns = Columns::new(
    &[
        NAME,
        Column::text("Node", docs::DEVICE_NODE),
        Column::text("Driver", docs::DEVICE_DRIVER),
        Column::text("Pool", docs::DEVICE_POOL),
        AGE,
    ],
    |slice, now| {
        vec![
            name(slice),
            text(slice, "spec.nodeName").into(),
            text(slice, "spec.driver").into(),
            text(slice, "spec.pool.name").into(),
            age(slice, now),
        ]
    },
);
