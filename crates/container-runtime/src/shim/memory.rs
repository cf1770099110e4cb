//! What a shim has read of its executable, and does not need while it waits.

use std::{
    ffi::{c_int, c_void},
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
};

use rustix::{
    mm::{Advice, madvise},
    param::page_size,
};

/// In an entry of the page map: the page is that of the file, not a copy that was written to.
const OF_FILE: u64 = 1 << 61;

/// The pages of code and constant data. They are in the page cache, whence those come again that are needed.
///
/// A shim starts a container in some milliseconds and then waits, for days perhaps. What it has run through until then would be
/// counted as its memory for all that time, and much of it is mapped for no other reason than that the kernel maps what is
/// around a page as well.
pub(super) struct Unneeded(Vec<Range<usize>>);

impl Unneeded {
    pub(super) fn find() -> io::Result<Self> {
        let mut segments = Vec::new();
        // SAFETY: the function has the signature that is asked for, and gets what it expects.
        unsafe { libc::dl_iterate_phdr(Some(look_at_object), (&raw mut segments).cast()) };
        let pages = File::open("/proc/self/pagemap")?;
        let mut unneeded = Vec::new();
        for segment in segments {
            match segment {
                Segment::Constant(range) => unneeded.push(range),
                Segment::Relocated(range) => unneeded.append(&mut of_file(&pages, range)?),
            }
        }
        Ok(Self(unneeded))
    }

    /// Does nothing beside, as everything that is done needs pages again; for the same reason the list itself should be kept.
    pub(super) fn give_back(&self) {
        let page = page_size();
        for pages in &self.0 {
            // SAFETY: nothing was or can be written there, so the file has the same. Where this is not possible, it fails.
            let _ = unsafe { madvise((pages.start * page) as *mut c_void, pages.len() * page, Advice::LinuxDontNeed) };
        }
    }
}

/// Pages of the executable or of a library.
enum Segment {
    /// Nothing is ever written there.
    Constant(Range<usize>),
    /// The loader has written to it here and there, and has then made it read-only.
    Relocated(Range<usize>),
}

unsafe extern "C" fn look_at_object(object: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader passes a description that is valid during the call, with as many headers as it says; what is found is
    // collected by the caller, who waits.
    let (base, segments, found) = unsafe {
        let object = &*object;
        let segments = std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum));
        (object.dlpi_addr, segments, &mut *found.cast::<Vec<Segment>>())
    };
    let page = page_size();
    found.extend(segments.iter().filter_map(|segment| {
        let (start, length) = (base.wrapping_add(segment.p_vaddr) as usize, segment.p_memsz as usize);
        match segment.p_type {
            libc::PT_LOAD if segment.p_flags & libc::PF_W == 0 => {
                Some(Segment::Constant(start / page..(start + length).div_ceil(page)))
            }
            // Whole pages of it.
            libc::PT_GNU_RELRO => Some(Segment::Relocated(start / page..(start + length) / page)),
            _ => None,
        }
    }));
    0
}

/// The pages among these that have never been written to.
fn of_file(pages: &File, among: Range<usize>) -> io::Result<Vec<Range<usize>>> {
    let mut entries = vec![0; among.len() * size_of::<u64>()];
    pages.read_exact_at(&mut entries, (among.start * size_of::<u64>()) as u64)?;
    let mut found: Vec<Range<usize>> = Vec::new();
    for (page, entry) in among.zip(entries.chunks_exact(size_of::<u64>())) {
        if entry.try_into().is_ok_and(|entry| u64::from_ne_bytes(entry) & OF_FILE != 0) {
            match found.last_mut() {
                Some(last) if last.end == page => last.end += 1,
                _ => found.push(page..page + 1),
            }
        }
    }
    Ok(found)
}
