//! Short names for what a controller makes of a template, so that equal ones have equal names.

/// What names consist of, without vowels and what looks like them.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A short name for a text. `collisions` says how often another text had the same.
pub fn of(text: &[u8], collisions: Option<i32>) -> String {
    let collisions = collisions.map(i32::to_le_bytes);
    // FNV-1a.
    let hash = text
        .iter()
        .chain(collisions.iter().flatten())
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let letter = |byte: u8| char::from(LETTERS.get(usize::from(byte) % LETTERS.len()).copied().unwrap_or(b'b'));
    hash.to_string().bytes().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_apart() {
        let first = of(b"{}", None);
        assert_eq!(first, of(b"{}", None));
        assert_ne!(first, of(b"{}", Some(1)));
        assert_ne!(first, of(b"[]", None));
        assert!(first.bytes().all(|byte| LETTERS.contains(&byte)));
    }
}
