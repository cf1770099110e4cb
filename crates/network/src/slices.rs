//! Which Service an EndpointSlice belongs to.

use controller_runtime::Key;
use k8s_openapi::api::discovery::v1::EndpointSlice;

const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The name of the index of EndpointSlices [`by_service`]; its values are `namespace/name`.
pub(crate) const SERVICE: &str = "network-service";

pub(crate) fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    Some(Key::new(slice.metadata.namespace.clone().unwrap_or_default(), name.clone()))
}

pub(crate) fn by_service(slice: &EndpointSlice) -> Vec<String> {
    service_of(slice).iter().map(Key::to_string).collect()
}
