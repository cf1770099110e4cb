//! What the schemas of all built-in kinds cost in memory, counted by the allocator. Alone in its process, since it
//! counts everything.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use api::{resources, schemas};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_tables_stay_small() {
    let before = LIVE.load(Ordering::Relaxed);
    let start = std::time::Instant::now();
    let (kinds, types) = (schemas::kinds().len(), schemas::table().types().len());
    let parsed = start.elapsed();
    let schemas = LIVE.load(Ordering::Relaxed) - before;
    let peak = PEAK.load(Ordering::Relaxed) - before;
    let versions = resources::all().len();
    let resources = LIVE.load(Ordering::Relaxed) - before - schemas;
    eprintln!("{kinds} kinds, {types} types: {schemas} bytes, {peak} while parsing for {parsed:?}");
    eprintln!("resources of {versions} versions: {resources} bytes");
    assert!(schemas < 1_500_000, "{schemas} bytes");
    assert!(peak < 3_000_000, "{peak} bytes while parsing");
    assert!(resources < 100_000, "{resources} bytes");
}
