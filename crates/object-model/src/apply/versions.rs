//! What the field manager has to know of a kind beyond the schema at hand: its other versions, and what it sets back.

use serde_json::Value;

use super::filter::Filter;
use crate::schema::Schema;

/// The versions of a kind beside the one of the request, for managers that wrote in them.
pub trait Versions {
    /// The schema of a version that is still served, if the kind has it.
    fn schema(&self, api_version: &str) -> Option<&Schema>;

    /// The object in another version that [`Versions::schema`] knows.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String>;

    /// What writers of this version and of the subresource in question may own.
    fn filter(&self, api_version: &str) -> Option<&Filter>;
}

/// A kind with one version and no fields that are set back.
pub struct OneVersion;

impl Versions for OneVersion {
    fn schema(&self, _: &str) -> Option<&Schema> {
        None
    }

    fn convert(&self, _: &Value, api_version: &str) -> Result<Value, String> {
        Err(format!("there is no version {api_version}"))
    }

    fn filter(&self, _: &str) -> Option<&Filter> {
        None
    }
}
