//! Two texts compared line by line: blocks that match, longest first, and what lies between them.
//!
//! Which lines are said to differ is a matter of taste where lines repeat; this follows Python's `difflib`, whose Go
//! port makes Kubernetes' messages. Lines that are frequent in a long text do not begin a match.

use std::collections::HashMap;

/// Lines of context around a difference.
const CONTEXT: usize = 3;

struct Block {
    a: usize,
    b: usize,
    size: usize,
}

/// A stretch of lines of both texts: equal, or replaced (one of them may be empty).
#[derive(Clone, Copy)]
struct Stretch {
    equal: bool,
    a: (usize, usize),
    b: (usize, usize),
}

/// A unified diff without file names; empty if the texts are equal.
pub fn unified(old: &str, new: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let mut out = String::new();
    for group in groups(stretches(&a, &b)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (from, to) = (range(first.a.0, last.a.1), range(first.b.0, last.b.1));
        out += &format!("@@ -{from} +{to} @@\n");
        for stretch in &group {
            let mut lines =
                |sign: char, lines: &[&str]| lines.iter().for_each(|line| out += &format!("{sign}{line}\n"));
            if stretch.equal {
                lines(' ', &a[stretch.a.0..stretch.a.1]);
            } else {
                lines('-', &a[stretch.a.0..stretch.a.1]);
                lines('+', &b[stretch.b.0..stretch.b.1]);
            }
        }
    }
    out
}

fn range(start: usize, end: usize) -> String {
    match end - start {
        1 => (start + 1).to_string(),
        0 => format!("{start},0"),
        length => format!("{},{length}", start + 1),
    }
}

fn stretches(a: &[&str], b: &[&str]) -> Vec<Stretch> {
    let mut blocks = Vec::new();
    matching_blocks(a, b, &positions(b), (0, a.len()), (0, b.len()), &mut blocks);
    blocks.push(Block { a: a.len(), b: b.len(), size: 0 });
    let (mut i, mut j) = (0, 0);
    let mut all: Vec<Stretch> = Vec::new();
    for block in blocks {
        if i < block.a || j < block.b {
            all.push(Stretch { equal: false, a: (i, block.a), b: (j, block.b) });
        }
        (i, j) = (block.a + block.size, block.b + block.size);
        match all.last_mut().filter(|last| last.equal && last.a.1 == block.a) {
            Some(last) => (last.a.1, last.b.1) = (i, j),
            None if block.size > 0 => all.push(Stretch { equal: true, a: (block.a, i), b: (block.b, j) }),
            None => {}
        }
    }
    all
}

/// Where each line of the new text stands, frequent ones left out.
fn positions<'t>(b: &[&'t str]) -> HashMap<&'t str, Vec<usize>> {
    let mut positions: HashMap<&str, Vec<usize>> = HashMap::new();
    for (j, line) in b.iter().enumerate() {
        positions.entry(line).or_default().push(j);
    }
    if b.len() >= 200 {
        positions.retain(|_, at| at.len() <= b.len() / 100 + 1);
    }
    positions
}

fn matching_blocks(
    a: &[&str],
    b: &[&str],
    positions: &HashMap<&str, Vec<usize>>,
    (a_low, a_high): (usize, usize),
    (b_low, b_high): (usize, usize),
    found: &mut Vec<Block>,
) {
    let block = longest_match(a, b, positions, (a_low, a_high), (b_low, b_high));
    if block.size == 0 {
        return;
    }
    let (a_end, b_end) = (block.a + block.size, block.b + block.size);
    if a_low < block.a && b_low < block.b {
        matching_blocks(a, b, positions, (a_low, block.a), (b_low, block.b), found);
    }
    found.push(block);
    if a_end < a_high && b_end < b_high {
        matching_blocks(a, b, positions, (a_end, a_high), (b_end, b_high), found);
    }
}

fn longest_match(
    a: &[&str],
    b: &[&str],
    positions: &HashMap<&str, Vec<usize>>,
    (a_low, a_high): (usize, usize),
    (b_low, b_high): (usize, usize),
) -> Block {
    let mut best = Block { a: a_low, b: b_low, size: 0 };
    // How long the match is that ends at the line before in the old text and at this one in the new text.
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (i, line) in a.iter().enumerate().take(a_high).skip(a_low) {
        let mut next = HashMap::new();
        for &j in positions.get(line).into_iter().flatten().filter(|j| (b_low..b_high).contains(*j)) {
            let length = 1 + j.checked_sub(1).and_then(|before| lengths.get(&before)).copied().unwrap_or(0);
            next.insert(j, length);
            if length > best.size {
                best = Block { a: i + 1 - length, b: j + 1 - length, size: length };
            }
        }
        lengths = next;
    }
    // Frequent lines may continue a match.
    while best.a > a_low && best.b > b_low && a[best.a - 1] == b[best.b - 1] {
        best = Block { a: best.a - 1, b: best.b - 1, size: best.size + 1 };
    }
    while best.a + best.size < a_high && best.b + best.size < b_high && a[best.a + best.size] == b[best.b + best.size] {
        best.size += 1;
    }
    best
}

/// The stretches that are shown together: differences with their context.
fn groups(mut stretches: Vec<Stretch>) -> Vec<Vec<Stretch>> {
    let tail = |s: Stretch| Stretch {
        equal: true,
        a: (s.a.0.max(s.a.1.saturating_sub(CONTEXT)), s.a.1),
        b: (s.b.0.max(s.b.1.saturating_sub(CONTEXT)), s.b.1),
    };
    let head = |s: Stretch| Stretch {
        equal: true,
        a: (s.a.0, s.a.1.min(s.a.0 + CONTEXT)),
        b: (s.b.0, s.b.1.min(s.b.0 + CONTEXT)),
    };
    if let Some(first) = stretches.first_mut().filter(|s| s.equal) {
        *first = tail(*first);
    }
    if let Some(last) = stretches.last_mut().filter(|s| s.equal) {
        *last = head(*last);
    }
    let (mut groups, mut group) = (Vec::new(), Vec::new());
    for stretch in stretches {
        if stretch.equal && stretch.a.1 - stretch.a.0 > 2 * CONTEXT {
            group.push(head(stretch));
            groups.push(std::mem::take(&mut group));
            group.push(tail(stretch));
        } else {
            group.push(stretch);
        }
    }
    groups.push(group);
    groups.retain(|group| group.iter().any(|stretch| !stretch.equal));
    groups
}
