//! What types and fields mean, in the words of Kubernetes; the build script collects them. They are read when documents
//! are made and dropped afterwards.

use std::{collections::HashMap, io::Read};

use flate2::read::DeflateDecoder;

static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.json.deflate"));

/// By the name of the definition, then by field; what a definition itself means has no field.
pub struct Descriptions(HashMap<String, HashMap<String, String>>);

impl Descriptions {
    #[expect(clippy::expect_used, reason = "the file is part of the program, and its tests read it")]
    pub fn read() -> Self {
        let mut text = String::new();
        DeflateDecoder::new(COMPRESSED).read_to_string(&mut text).expect("the descriptions are compressed");
        Self(serde_json::from_str(&text).expect("the descriptions are JSON"))
    }

    /// What a definition means.
    pub fn definition(&self, name: &str) -> Option<String> {
        let own = self.0.get(name).and_then(|texts| texts.get("")).cloned();
        own.or_else(|| Some(format!("{} is a list of objects.", kind_of_list(name)?)))
    }

    /// What a field of it means.
    pub fn field(&self, name: &str, field: &str) -> Option<String> {
        if let Some(texts) = self.0.get(name) {
            return texts.get(field).cloned();
        }
        kind_of_list(name)?;
        match field {
            "items" => Some("The objects of the list.".to_owned()),
            // The same in all lists as in one whose texts are known.
            _ => self.0.get(KNOWN_LIST)?.get(field).cloned(),
        }
    }
}

const KNOWN_LIST: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList";

/// The kind, if it is the name of a list.
fn kind_of_list(name: &str) -> Option<&str> {
    name.rsplit('.').next().filter(|kind| kind.ends_with("List"))
}
