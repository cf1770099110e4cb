//! What a shim has read of its executable, and does not need while it waits.

use std::{
    ffi::{c_int, c_void},
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
};

use rustix::param::page_size;

/// In an entry of the page map: the page is that of the file, not a copy that was written to.
const OF_FILE: u64 = 1 << 61;

/// Gives back the pages of code and constant data. They are in the page cache, whence those come again that are needed.
///
/// A shim starts a container in some milliseconds and then waits, for days perhaps. What it has run through until then would be
/// counted as its memory for all that time, and much of it is mapped for no other reason than that the kernel maps what is
/// around a page as well.
pub(super) fn give_back() {
    let Ok(pages) = File::open("/proc/self/pagemap") else { return };
    // SAFETY: the function has the signature that is asked for, and gets what it expects.
    unsafe { libc::dl_iterate_phdr(Some(give_back_object), (&raw const pages).cast_mut().cast()) };
}

unsafe extern "C" fn give_back_object(object: *mut libc::dl_phdr_info, _: usize, pages: *mut c_void) -> c_int {
    // SAFETY: the loader passes a description that is valid during the call, with as many headers as it says; the pages are ours.
    let (base, segments, pages) = unsafe {
        let object = &*object;
        let segments = std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum));
        (object.dlpi_addr, segments, &*pages.cast::<File>())
    };
    let page = page_size();
    for segment in segments {
        let (start, length) = (base.wrapping_add(segment.p_vaddr) as usize, segment.p_memsz as usize);
        match segment.p_type {
            libc::PT_LOAD if segment.p_flags & libc::PF_W == 0 => {
                drop_pages(start / page..(start + length).div_ceil(page));
            }
            // The loader has written to it here and there, and has then made it read-only: whole pages of it.
            libc::PT_GNU_RELRO => {
                let unchanged = of_file(pages, start / page..(start + length) / page);
                unchanged.into_iter().flatten().for_each(drop_pages);
            }
            _ => {}
        }
    }
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

fn drop_pages(pages: Range<usize>) {
    let page = page_size();
    // SAFETY: nothing was or can be written there, so the file has the same. Where this is not possible, it fails.
    unsafe { libc::madvise((pages.start * page) as *mut c_void, pages.len() * page, libc::MADV_DONTNEED) };
}
