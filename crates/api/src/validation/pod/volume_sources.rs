//! Where the content of a volume comes from: one source of a list that pods and persistent volumes mostly share.

use object_model::names;

use super::container::PULL_POLICIES;
use super::{Options, env, projected};
use crate::kinds::core::persistent_volume_claim;
use crate::validation::{Field, meta, paths};

/// One source: its field, what it is called when it is one too many, what it is called otherwise, and its rules.
pub struct Source {
    field: &'static str,
    as_second: &'static str,
    told_at: &'static str,
    rule: Rule,
}

enum Rule {
    /// These fields must not be empty.
    Needs(&'static [&'static str]),
    With(fn(&Field)),
    /// Knows the volume's name.
    Named(fn(&Field, &str)),
    Optioned(fn(&Field, &Options)),
}

/// A choice of sources, in the order Kubernetes looks at them.
pub struct Sources(&'static [Source]);

const fn source(field: &'static str, rule: Rule) -> Source {
    Source { field, as_second: field, told_at: field, rule }
}

pub const POD_SOURCES: Sources = Sources(&[
    source("emptyDir", Rule::With(empty_dir)),
    source("hostPath", Rule::With(host_path)),
    source("gitRepo", Rule::With(git_repo)),
    Source { told_at: "persistentDisk", ..source("gcePersistentDisk", Rule::With(|v| disk(v, "pdName"))) },
    source("awsElasticBlockStore", Rule::With(|v| disk(v, "volumeID"))),
    source("secret", Rule::With(|v| keys_to_paths(v, "secretName"))),
    source("nfs", Rule::With(nfs)),
    source("iscsi", Rule::Named(iscsi)),
    source("glusterfs", Rule::Needs(&["endpoints", "path"])),
    source("flocker", Rule::With(flocker)),
    source("persistentVolumeClaim", Rule::Needs(&["claimName"])),
    source("rbd", Rule::Needs(&["monitors", "image"])),
    source("cinder", Rule::With(|v| with_secret(v, &["volumeID"], &["name"]))),
    Source { as_second: "cephFS", ..source("cephfs", Rule::Needs(&["monitors"])) },
    source("quobyte", Rule::With(quobyte)),
    Source { as_second: "downwarAPI", ..source("downwardAPI", Rule::With(downward_api)) },
    source("fc", Rule::With(fibre_channel)),
    source("flexVolume", Rule::With(flex_volume)),
    source("configMap", Rule::With(|v| keys_to_paths(v, "name"))),
    source("azureFile", Rule::Needs(&["secretName", "shareName"])),
    source("vsphereVolume", Rule::Needs(&["volumePath"])),
    source("photonPersistentDisk", Rule::Needs(&["pdID"])),
    source("portworxVolume", Rule::Needs(&["volumeID"])),
    source("azureDisk", Rule::With(azure_disk)),
    source("storageos", Rule::With(|v| storage_os(v, &["name"]))),
    source("projected", Rule::Optioned(projected::projected)),
    source("scaleIO", Rule::Needs(&["gateway", "system", "volumeName"])),
    source("csi", Rule::With(csi)),
    source("ephemeral", Rule::With(ephemeral)),
    source("image", Rule::Optioned(image)),
]);

pub const PERSISTENT_SOURCES: Sources = Sources(&[
    source("hostPath", Rule::With(host_path)),
    Source { told_at: "persistentDisk", ..source("gcePersistentDisk", Rule::With(|v| disk(v, "pdName"))) },
    source("awsElasticBlockStore", Rule::With(|v| disk(v, "volumeID"))),
    source("glusterfs", Rule::With(persistent_glusterfs)),
    source("flocker", Rule::With(flocker)),
    source("nfs", Rule::With(nfs)),
    source("rbd", Rule::Needs(&["monitors", "image"])),
    source("quobyte", Rule::With(quobyte)),
    Source { as_second: "cephFS", ..source("cephfs", Rule::Needs(&["monitors"])) },
    source("iscsi", Rule::Named(persistent_iscsi)),
    source("cinder", Rule::With(|v| with_secret(v, &["volumeID"], &["name", "namespace"]))),
    source("fc", Rule::With(fibre_channel)),
    source("flexVolume", Rule::With(flex_volume)),
    source("azureFile", Rule::With(persistent_azure_file)),
    source("vsphereVolume", Rule::Needs(&["volumePath"])),
    source("photonPersistentDisk", Rule::Needs(&["pdID"])),
    source("portworxVolume", Rule::Needs(&["volumeID"])),
    source("azureDisk", Rule::With(azure_disk)),
    source("scaleIO", Rule::Needs(&["gateway", "system", "volumeName"])),
    source("local", Rule::With(local)),
    source("storageos", Rule::With(|v| storage_os(v, &["name", "namespace"]))),
    source("csi", Rule::With(persistent_csi)),
]);

impl Sources {
    /// Exactly one source, and a valid one. `name` is the volume's.
    pub fn validate(&self, volume: &Field, name: &str, options: &Options) {
        let mut found = false;
        for source in self.0 {
            let value = volume.at(source.field);
            if !value.is_set() {
                continue;
            }
            if found {
                volume.at(source.as_second).forbidden("may not specify more than 1 volume type");
            } else {
                found = true;
                let told = volume.at(source.told_at).with(value.value());
                match &source.rule {
                    Rule::Needs(fields) => fields.iter().for_each(|field| {
                        told.at(field).required();
                    }),
                    Rule::With(rule) => rule(&told),
                    Rule::Named(rule) => rule(&told, name),
                    Rule::Optioned(rule) => rule(&told, options),
                }
            }
            if source.field == "iscsi" && value.at("initiatorName").is_set() && self.chosen_in_pod() {
                iscsi_name_length(volume, name, &value);
            }
        }
        if !found {
            volume.missing("must specify a volume type");
        }
    }

    /// The first source that is set, which is the one that counts.
    pub fn chosen(&self, volume: &Field) -> Option<&'static str> {
        self.0.iter().map(|source| source.field).find(|field| volume.at(field).is_set())
    }

    /// The sources that are set, by field.
    pub fn fields(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|source| source.field)
    }

    fn chosen_in_pod(&self) -> bool {
        self.0.iter().any(|source| source.field == "emptyDir")
    }
}

fn empty_dir(volume: &Field) {
    if volume.at("sizeLimit").quantity().sign() < 0 {
        volume.at("sizeLimit").forbidden("SizeLimit field must be a valid resource quantity");
    }
}

fn host_path(volume: &Field) {
    if volume.at("path").required() {
        paths::no_backsteps(&volume.at("path"));
        volume.at("type").one_of_if_set(&[
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ]);
    }
}

fn local(volume: &Field) {
    if volume.at("path").required() {
        paths::no_backsteps(&volume.at("path"));
    }
}

fn git_repo(volume: &Field) {
    volume.at("repository").required();
    paths::local_descending(&volume.at("directory"));
}

fn disk(volume: &Field, id: &str) {
    volume.at(id).required();
    let partition = volume.at("partition");
    if !(0..=255).contains(&partition.number()) {
        partition.invalid("must be between 1 and 255, inclusive");
    }
}

/// A Secret or ConfigMap whose keys become files.
fn keys_to_paths(volume: &Field, name: &str) {
    volume.at(name).required();
    volume.at("defaultMode").file_mode();
    for item in volume.at("items").each() {
        key_to_path(&item);
    }
}

pub fn key_to_path(item: &Field) {
    item.at("key").required();
    item.at("path").required();
    paths::local_non_reserved(&item.at("path"));
    item.at("mode").file_mode();
}

fn nfs(volume: &Field) {
    volume.at("server").required();
    let path = volume.at("path");
    path.required();
    if !path.text().starts_with('/') {
        path.with_text().invalid("must be an absolute path");
    }
}

const ISCSI_TOO_LONG: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                              iscsi.initiatorName is specified.";

fn iscsi(volume: &Field, _: &str) {
    volume.at("targetPortal").required();
    iscsi_target(volume, "must be valid format starting with iqn, eui, or naa");
    if iscsi_needs_secret(volume) {
        volume.at("secretRef").missing("");
    }
    iscsi_initiator(volume, "must be valid format starting with iqn, eui, or naa");
}

fn iscsi_name_length(volume: &Field, name: &str, iscsi: &Field) {
    if name.len() + 1 + iscsi.at("targetPortal").text().len() > 64 {
        volume.at("name").invalid_value(name, ISCSI_TOO_LONG);
    }
}

fn persistent_iscsi(volume: &Field, name: &str) {
    let portal = volume.at("targetPortal");
    portal.required();
    if volume.at("initiatorName").is_set() && name.len() + 1 + portal.text().len() > 64 {
        volume.at("targetportal").invalid_value(portal.text(), ISCSI_TOO_LONG);
    }
    iscsi_target(volume, "must be valid format");
    if iscsi_needs_secret(volume) {
        volume.at("secretRef").missing("");
    }
    if volume.at("secretRef").is_set() {
        volume.at("secretRef").at("name").required();
    }
    iscsi_initiator(volume, "must be valid format");
}

fn iscsi_target(volume: &Field, unknown: &str) {
    let iqn = volume.at("iqn");
    if iqn.required() {
        iscsi_format(&iqn, unknown);
    }
    volume.at("lun").in_range(0, 255);
}

fn iscsi_needs_secret(volume: &Field) -> bool {
    (volume.at("chapAuthDiscovery").is_true() || volume.at("chapAuthSession").is_true())
        && !volume.at("secretRef").is_set()
}

fn iscsi_initiator(volume: &Field, unknown: &str) {
    let initiator = volume.at("initiatorName");
    if initiator.is_set() {
        iscsi_format(&volume.at("initiatorname").with(initiator.value()), unknown);
    }
}

/// `iqn.2003-01.org.example:name`, `eui.` with 16 or `naa.` with 32 letters and digits.
fn iscsi_format(name: &Field, unknown: &str) {
    let text = name.text();
    let alphanumeric = |length: usize| text.len() == 4 + length && text[4..].bytes().all(|b| b.is_ascii_alphanumeric());
    let valid = match text.get(..3) {
        Some("iqn") => is_iqn(text),
        Some("eui") => alphanumeric(16),
        Some("naa") => alphanumeric(32),
        _ => return name.invalid(unknown),
    };
    if !valid {
        name.invalid("must be valid format");
    }
}

fn is_iqn(text: &str) -> bool {
    let Some((head, tail)) = text.strip_prefix("iqn.").and_then(|rest| rest.split_once(':')) else { return false };
    let digits =
        |range: std::ops::Range<usize>| head.get(range).is_some_and(|part| part.bytes().all(|b| b.is_ascii_digit()));
    digits(0..4)
        && digits(5..7)
        && head.get(4..5) == Some("-")
        && head.get(7..8) == Some(".")
        && head.len() > 8
        && head[8..].bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
        && !tail.is_empty()
        && !tail.chars().any(|c| ",;*&$|".contains(c) || c.is_whitespace())
}

fn fibre_channel(volume: &Field) {
    let (targets, wwids, lun) = (volume.at("targetWWNs"), volume.at("wwids"), volume.at("lun"));
    if targets.is_empty() && wwids.is_empty() {
        targets.missing("must specify either targetWWNs or wwids, but not both");
    }
    if targets.is_empty() {
        return;
    }
    if !wwids.is_empty() {
        targets.invalid("targetWWNs and wwids can not be specified simultaneously");
    }
    if lun.is_set() {
        lun.in_range(0, 255);
    } else {
        lun.missing("lun is required if targetWWNs is specified");
    }
}

fn persistent_glusterfs(volume: &Field) {
    volume.at("endpoints").required();
    volume.at("path").required();
    let namespace = volume.at("endpointsNamespace");
    if namespace.is("") && namespace.is_set() {
        namespace.invalid("if the endpointnamespace is set, it must be a valid namespace name");
    } else if namespace.is_set() {
        namespace.dns_label();
    }
}

fn flocker(volume: &Field) {
    let (name, uuid) = (volume.at("datasetName"), volume.at("datasetUUID"));
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => volume.missing("one of datasetName and datasetUUID is required"),
        (false, false) => {
            volume.invalid_value("resource", "datasetName and datasetUUID can not be specified simultaneously")
        }
        _ => {}
    }
    if name.text().contains('/') {
        name.invalid("must not contain '/'");
    }
}

/// Needs these fields, and these of its secret if it has one.
fn with_secret(volume: &Field, fields: &[&str], secret_fields: &[&str]) {
    fields.iter().for_each(|field| {
        volume.at(field).required();
    });
    let secret = volume.at("secretRef");
    if secret.is_set() {
        secret_fields.iter().for_each(|field| {
            secret.at(field).required();
        });
    }
}

fn quobyte(volume: &Field) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = volume.at("registry");
    if registry.is_empty() {
        registry.missing(PAIRS);
    } else if volume.at("tenant").text().len() >= 65 {
        volume.at("tenant").missing("must be a UUID and may not exceed a length of 64 characters");
    } else {
        for pair in registry.text().split(',') {
            let is_pair = match pair.rsplit_once(':') {
                Some((host, _)) => !host.contains(':') || (host.starts_with('[') && host.ends_with(']')),
                None => false,
            };
            if !is_pair {
                registry.invalid(PAIRS);
            }
        }
    }
    volume.at("volume").required();
}

fn downward_api(volume: &Field) {
    volume.at("defaultMode").file_mode();
    for item in volume.at("items").each() {
        downward_api_file(&volume.with(item.value()));
    }
}

/// A file with a field of the pod or a resource of a container in it.
pub fn downward_api_file(file: &Field) {
    file.at("path").required();
    paths::local_non_reserved(&file.at("path"));
    let (field, resource) = (file.at("fieldRef"), file.at("resourceFieldRef"));
    if field.is_set() {
        env::field_ref(&field, env::FILE_FIELDS);
        if resource.is_set() {
            file.invalid_value("resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
        }
    } else if resource.is_set() {
        env::resource_field_ref(&resource, true);
    } else {
        file.missing("one of fieldRef and resourceFieldRef is required");
    }
    file.at("mode").file_mode();
}

fn flex_volume(volume: &Field) {
    volume.at("driver").required();
    let options = volume.at("options");
    for (key, entry) in options.entries() {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let normalized = format!(".{}", namespace.to_lowercase());
        if normalized.ends_with(".kubernetes.io") || normalized.ends_with(".k8s.io") {
            entry.invalid_value(key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn persistent_azure_file(volume: &Field) {
    volume.at("secretName").required();
    volume.at("shareName").required();
    if volume.at("secretNamespace").is_set() {
        volume.at("secretNamespace").required();
    }
}

fn azure_disk(volume: &Field) {
    let (uri, kind) = (volume.at("diskURI"), volume.at("kind"));
    volume.at("diskName").required();
    uri.required();
    volume.at("cachingMode").one_of_if_set(&["None", "ReadOnly", "ReadWrite"]);
    kind.one_of_if_set(&["Dedicated", "Managed", "Shared"]);
    if kind.is("Managed") && !uri.text().starts_with("/subscriptions/") {
        uri.not_supported(&[
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ]);
    }
    if kind.is_set() && !kind.is("Managed") && !uri.text().starts_with("https://") {
        uri.not_supported(&["https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"]);
    }
}

fn storage_os(volume: &Field, secret_fields: &[&str]) {
    volume.at("volumeName").required_dns_label();
    volume.at("volumeNamespace").dns_label_if_any();
    with_secret(volume, &[], secret_fields);
}

/// The name of a CSI driver: a DNS subdomain in any case, at most 63 long.
pub fn csi_driver_name(name: &Field) {
    if name.required() {
        if name.text().len() > 63 {
            name.too_long(63);
        }
        name.invalid_for(names::dns_subdomain(&name.text().to_lowercase()));
    }
}

fn csi(volume: &Field) {
    csi_driver_name(&volume.at("driver"));
    let secret = volume.at("nodePublishSecretRef");
    if secret.is_set() && secret.at("name").required() {
        for message in names::dns_subdomain(secret.at("name").text()) {
            volume.at("name").invalid_value(secret.at("name").text(), message);
        }
    }
}

fn persistent_csi(volume: &Field) {
    csi_driver_name(&volume.at("driver"));
    volume.at("volumeHandle").required();
    for reference in
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
    {
        let secret = volume.at(reference);
        if secret.is_set() {
            if secret.at("name").required() {
                secret.at("name").dns_subdomain();
            }
            secret.at("namespace").required_dns_label();
        }
    }
}

fn ephemeral(volume: &Field) {
    let template = volume.at("volumeClaimTemplate");
    if template.is_set() {
        meta::template_meta(&template.at("metadata"));
        persistent_volume_claim::spec(&template.at("spec"), &Default::default());
    } else {
        template.missing("");
    }
}

fn image(volume: &Field, options: &Options) {
    if options.is_pod {
        volume.at("reference").required();
    }
    volume.at("pullPolicy").required_one_of(PULL_POLICIES);
}
