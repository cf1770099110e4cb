//! Where a container mounts its volumes and devices.

use std::collections::HashSet;

use super::volumes::VolumeKinds;
use crate::validation::{Field, paths};

pub fn volume_mounts(container: &Field, volumes: &VolumeKinds) {
    let (mounts, devices) = (container.at("volumeMounts"), container.at("volumeDevices"));
    let devices_named: HashSet<&str> = devices.each().map(|device| device.at("name").text()).collect();
    let device_paths: HashSet<&str> = devices.each().map(|device| device.at("devicePath").text()).collect();
    let mut seen = HashSet::new();
    for mount in mounts.each() {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        name.required();
        if !volumes.contains_key(name.text()) {
            name.with_text().not_found();
        }
        path.required();
        if seen.contains(&path.text()) {
            path.with_text().invalid("must be unique");
        }
        seen.insert(path.text());
        if devices_named.contains(name.text()) {
            name.with_text().invalid("must not already exist in volumeDevices");
        }
        if device_paths.contains(path.text()) {
            path.with_text().invalid("must not already exist as a path in volumeDevices");
        }
        let (sub_path, expression) = (mount.at("subPath"), mount.at("subPathExpr"));
        // Kubernetes tells these at the list.
        if !sub_path.is_empty() {
            paths::local_descending(&mounts.at("subPath").with(sub_path.value()));
        }
        if !expression.is_empty() {
            if !sub_path.is_empty() {
                expression.invalid("subPathExpr and subPath are mutually exclusive");
            }
            paths::local_descending(&mounts.at("subPathExpr").with(expression.value()));
        }
        propagation(&mounts.at("mountPropagation").with(mount.at("mountPropagation").value()), container);
        recursive_read_only(&mounts.at("recursiveReadOnly").with(mount.at("recursiveReadOnly").value()), &mount);
    }
}

fn propagation(propagation: &Field, container: &Field) {
    propagation.one_of_if_set(&["Bidirectional", "HostToContainer", "None"]);
    if propagation.is("Bidirectional") && !container.at("securityContext").at("privileged").is_true() {
        propagation.forbidden("Bidirectional mount propagation is available only to privileged containers");
    }
}

fn recursive_read_only(mode: &Field, mount: &Field) {
    if !mode.is_set() || mode.is("Disabled") {
        return;
    }
    if !mode.is_one_of(&["Enabled", "IfPossible"]) {
        return mode.not_supported(&["Disabled", "Enabled", "IfPossible"]);
    }
    if !mount.at("readOnly").is_true() {
        mode.forbidden("may only be specified when readOnly is true");
    }
    let propagation = mount.at("mountPropagation");
    if propagation.is_set() && !propagation.is("None") {
        mode.forbidden("may only be specified when mountPropagation is None or not specified");
    }
}

pub fn volume_devices(container: &Field, volumes: &VolumeKinds) {
    let (mounts, devices) = (container.at("volumeMounts"), container.at("volumeDevices"));
    let (mut names, mut seen_paths) = (HashSet::new(), HashSet::new());
    let mounted: HashSet<&str> = mounts.each().map(|mount| mount.at("name").text()).collect();
    let mount_paths: HashSet<&str> = mounts.each().map(|mount| mount.at("mountPath").text()).collect();
    for device in devices.each() {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        name.required();
        if names.contains(&name.text()) {
            name.invalid("must be unique");
        }
        match volumes.get(name.text()) {
            Some(source) if source.get("persistentVolumeClaim").or(source.get("ephemeral")).is_none() => {
                name.invalid("can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
            }
            Some(_) => {}
            None => name.with_text().not_found(),
        }
        path.required();
        if seen_paths.contains(&path.text()) {
            path.with_text().invalid("must be unique");
        }
        if paths::has_backsteps(path.text()) {
            path.invalid("can not contain backsteps ('..')");
        } else {
            seen_paths.insert(path.text());
        }
        if mounted.contains(name.text()) {
            name.with_text().invalid("must not already exist in volumeMounts");
        }
        if mount_paths.contains(path.text()) {
            path.with_text().invalid("must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name.text());
        }
    }
}
