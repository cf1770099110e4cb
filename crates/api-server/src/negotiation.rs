//! Which form of an answer a client asked for by its Accept header.

use object_model::status::Status;

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Json,
    Yaml,
}

impl Encoding {
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
        }
    }
}

/// What is answered: the object itself, or a view of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    #[default]
    Object,
    /// `Table` of `meta.k8s.io/v1` or `v1beta1`.
    Table(&'static str),
    /// `PartialObjectMetadata`, or its list.
    Metadata(&'static str),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    pub encoding: Encoding,
    pub view: View,
}

const OFFERED: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"];

impl Negotiated {
    /// The first acceptable form, by quality and then in the client's order. `None` of it is an error.
    pub fn read(accept: Option<&str>) -> Result<Self, Status> {
        let Some(accept) = accept.filter(|a| !a.trim().is_empty()) else { return Ok(Self::default()) };
        let mut clauses: Vec<(f32, &str)> = accept.split(',').map(|clause| (quality(clause), clause.trim())).collect();
        clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
        clauses
            .iter()
            .filter(|(quality, _)| *quality > 0.0)
            .find_map(|(_, clause)| Self::clause(clause))
            .ok_or_else(|| Status::not_acceptable(OFFERED))
    }

    fn clause(clause: &str) -> Option<Self> {
        let mut parts = clause.split(';').map(str::trim);
        let encoding = match parts.next()? {
            "application/json" | "*/*" | "application/*" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            _ => return None,
        };
        let (mut target, mut group, mut version) = ("", "", "");
        for part in parts {
            match part.split_once('=') {
                Some(("as", value)) => target = value,
                Some(("g", value)) => group = value,
                Some(("v", value)) => version = value,
                // `stream=watch` and `q` say nothing about the view.
                _ => {}
            }
        }
        let version = match version {
            "v1" => "v1",
            "v1beta1" => "v1beta1",
            _ if target.is_empty() => "",
            _ => return None,
        };
        let view = match (target, group) {
            ("", _) => View::Object,
            ("Table", "meta.k8s.io") => View::Table(version),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io") => View::Metadata(version),
            _ => return None,
        };
        Some(Self { encoding, view })
    }
}

fn quality(clause: &str) -> f32 {
    clause.split(';').filter_map(|p| p.trim().strip_prefix("q=")).find_map(|q| q.parse().ok()).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_asks_for_a_table_first() {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(Negotiated::read(Some(accept)).unwrap().view, View::Table("v1"));
    }

    #[test]
    fn protobuf_falls_back_to_json_only_when_allowed() {
        let accept = "application/vnd.kubernetes.protobuf,*/*";
        assert_eq!(Negotiated::read(Some(accept)).unwrap(), Negotiated::default());
        assert!(Negotiated::read(Some("application/vnd.kubernetes.protobuf")).is_err());
        assert!(Negotiated::read(Some("text/html")).is_err());
    }
}
