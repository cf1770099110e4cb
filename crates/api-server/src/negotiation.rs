//! Which form of an answer a client asked for by its Accept header.

use object_model::status::Status;

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
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

/// What cannot be answered in every form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A built-in object or list.
    BuiltIn,
    /// A custom object or list: it has no protobuf message, only its metadata has.
    Custom,
    /// What is answered to a question and kept nowhere, such as a review: nobody has columns for it.
    Answer,
    /// The events of a watch: YAML has no frames.
    Events { custom: bool },
}

const OFFERED: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"];
const OFFERED_TO_WATCHES: &[&str] =
    &["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

impl Content {
    /// Of the objects of a resource.
    pub fn of(custom: bool) -> Self {
        if custom { Content::Custom } else { Content::BuiltIn }
    }

    fn offers(self, encoding: Encoding, view: View) -> bool {
        match (encoding, view) {
            (_, View::Table(_)) if self == Content::Answer => false,
            (Encoding::Json, _) => true,
            (Encoding::Yaml, _) => !matches!(self, Content::Events { .. }),
            (Encoding::Protobuf, View::Object) => !matches!(self, Content::Custom | Content::Events { custom: true }),
            (Encoding::Protobuf, View::Metadata(_)) => true,
            (Encoding::Protobuf, View::Table(_)) => false,
        }
    }
}

impl Negotiated {
    /// The first acceptable form, by quality and then in the client's order. `None` of it is an error.
    pub fn read(accept: Option<&str>, content: Content) -> Result<Self, Status> {
        let Some(accept) = accept.filter(|a| !a.trim().is_empty()) else { return Ok(Self::default()) };
        clauses(accept).filter_map(Self::clause).find(|form| content.offers(form.encoding, form.view)).ok_or_else(
            || {
                let watch = matches!(content, Content::Events { .. });
                Status::not_acceptable(if watch { OFFERED_TO_WATCHES } else { OFFERED })
            },
        )
    }

    fn clause(clause: &str) -> Option<Self> {
        let mut parts = clause.split(';').map(str::trim);
        let encoding = match parts.next()? {
            "application/json" | "*/*" | "application/*" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            "application/vnd.kubernetes.protobuf" => Encoding::Protobuf,
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

/// The media types of an Accept header, the most wanted first.
pub fn preferences(accept: &str) -> impl Iterator<Item = &str> {
    clauses(accept).map(|clause| clause.split(';').next().unwrap_or_default().trim())
}

fn clauses(accept: &str) -> impl Iterator<Item = &str> {
    let mut clauses: Vec<(f32, &str)> = accept.split(',').map(|clause| (quality(clause), clause.trim())).collect();
    clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
    clauses.into_iter().filter(|(quality, _)| *quality > 0.0).map(|(_, clause)| clause)
}

fn quality(clause: &str) -> f32 {
    clause.split(';').filter_map(|p| p.trim().strip_prefix("q=")).find_map(|q| q.parse().ok()).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(accept: &str, content: Content) -> Result<Negotiated, Status> {
        Negotiated::read(Some(accept), content)
    }

    #[test]
    fn kubectl_asks_for_a_table_first() {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(read(accept, Content::BuiltIn).unwrap().view, View::Table("v1"));
    }

    #[test]
    fn protobuf_is_for_what_has_messages() {
        let protobuf = "application/vnd.kubernetes.protobuf";
        assert_eq!(read(protobuf, Content::BuiltIn).unwrap().encoding, Encoding::Protobuf);
        assert_eq!(read(protobuf, Content::Events { custom: false }).unwrap().encoding, Encoding::Protobuf);
        assert!(read(protobuf, Content::Custom).is_err());
        let either = format!("{protobuf},application/json");
        assert_eq!(read(&either, Content::Custom).unwrap(), Negotiated::default());
        let metadata = format!("{protobuf};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        assert_eq!(read(&metadata, Content::Custom).unwrap().encoding, Encoding::Protobuf);
        let table = format!("{protobuf};as=Table;g=meta.k8s.io;v=v1");
        assert!(read(&table, Content::BuiltIn).is_err());
    }

    #[test]
    fn what_nobody_writes_is_refused() {
        assert!(read("text/html", Content::BuiltIn).is_err());
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert!(read(table, Content::Answer).is_err());
        assert_eq!(read(&format!("{table},application/json"), Content::Answer).unwrap(), Negotiated::default());
        assert!(read("application/yaml", Content::Events { custom: false }).is_err());
        assert_eq!(read("text/html,*/*;q=0.1", Content::BuiltIn).unwrap(), Negotiated::default());
    }
}
