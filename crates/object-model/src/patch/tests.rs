use super::*;

#[test]
fn content_types_name_the_kinds() {
    for kind in PatchKind::ALL {
        assert_eq!(PatchKind::from_content_type(&format!("{}; charset=utf-8", kind.content_type())), Some(kind));
    }
    assert_eq!(PatchKind::from_content_type("application/json"), None);
    assert!(!PatchKind::accepted(true).contains(&PatchKind::Strategic));
}
