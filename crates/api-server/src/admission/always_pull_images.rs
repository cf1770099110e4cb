//! AlwaysPullImages: nobody runs an image that only happens to be on the node, whoever was allowed to pull it. By flag.

use async_trait::async_trait;
use object_model::{
    field::{Errors, Path},
    status::Status,
    value::Fields,
};
use serde_json::Value;

use super::{Attributes, CONTAINERS, Operation, Plugin, Request, failure, together};

const ALWAYS: &str = "Always";

pub struct AlwaysPullImages;

#[async_trait]
impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.writes("", "pods", "")
    }

    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let Some(spec) = object.get_mut("spec").filter(|spec| has_new_image(attributes, spec)) else { return Ok(()) };
        for (list, _) in CONTAINERS {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                container["imagePullPolicy"] = ALWAYS.into();
            }
        }
        for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(image) = volume.get_mut("image") {
                image["pullPolicy"] = ALWAYS.into();
            }
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        let Some(spec) = object.field("spec").filter(|spec| has_new_image(attributes, spec)) else { return Ok(()) };
        let (root, mut errors) = (Path::root(), Errors::new());
        let path = root.child("spec");
        for (list, _) in CONTAINERS {
            let path = path.child(list);
            for (i, container) in spec.items(list).iter().enumerate() {
                expect_always(&path.index(i).child("imagePullPolicy"), container.text("imagePullPolicy"), &mut errors);
            }
        }
        let path = path.child("volumes");
        for (i, volume) in spec.items("volumes").iter().enumerate() {
            if let Some(image) = volume.field("image") {
                let path = path.index(i);
                let image_path = path.child("image");
                expect_always(&image_path.child("pullPolicy"), image.text("pullPolicy"), &mut errors);
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        let each: Vec<String> = errors.iter().map(|error| attributes.forbidden(object, error).message).collect();
        Err(failure(together(&each)))
    }
}

fn expect_always(path: &Path<'_>, policy: &str, errors: &mut Errors) {
    if policy != ALWAYS {
        errors.not_supported(path, policy, &[ALWAYS]);
    }
}

/// An update that brings no image of its own is let be.
fn has_new_image(attributes: &Attributes<'_>, spec: &Value) -> bool {
    if attributes.operation == Operation::Create {
        return true;
    }
    let images = |spec: &Value| -> Vec<String> {
        CONTAINERS.iter().flat_map(|(list, _)| spec.items(list)).map(|c| c.text("image").to_owned()).collect()
    };
    let old = attributes.old.and_then(|old| old.field("spec")).map(images).unwrap_or_default();
    images(spec).iter().any(|image| !old.contains(image))
}
