//! Large blocks of memory in large pages.
//!
//! A scan that reads hundreds of megabytes asks for a new page of 4 KiB all the time, and each has to be found; in pages of 2 MiB that is
//! 512 times rarer, and so is filling them when a gallery is loaded. Linux gives them to whoever asks (`madvise`) before the memory is first
//! written; where it does not, all works as before.
//!
//! What is no longer needed shall go back to the system. glibc keeps freed blocks for the next who ask, the larger ones too once one of their
//! size was freed: what loading a gallery worked with would stay as long as the server runs.

use std::ops::Range;

/// Bytes of a large page on x86-64, and on aarch64 with small pages of 4 KiB. Where large pages are of another size, the advice covers no
/// whole one or a few less.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Asks for large pages for the block of memory at `block`, such as [`slice::as_ptr_range`] gives. Best before it is first written.
pub fn advise_large_pages<T>(block: &Range<*const T>) {
    let start = block.start.addr().next_multiple_of(LARGE_PAGE_BYTES);
    let end = block.end.addr() / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
    if start < end {
        advise(block.start.with_addr(start).cast(), end - start);
    }
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the system takes an address")]
fn advise(start: *const u8, bytes: usize) {
    use rustix::mm::{Advice, madvise};
    // A kernel without large pages refuses, and the memory is as good as it was.
    // SAFETY: this advice changes neither what the memory holds nor who may use it; where nothing is mapped, the call fails.
    let _ = unsafe { madvise(start.cast_mut().cast(), bytes, Advice::LinuxHugepage) };
}

#[cfg(not(target_os = "linux"))]
fn advise(_start: *const u8, _bytes: usize) {}

/// Blocks of so many bytes and more are mapped one by one, and go back to the system as soon as they are freed. Scans and small requests need
/// none.
const LARGE_BLOCK_BYTES: i32 = 256 << 10;

/// Freed memory at the end of what small blocks lie in goes back to the system from so much on.
const TRIM_BYTES: i32 = 1 << 20;

/// Has large blocks go back to the system when they are freed, from now on.
pub fn return_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "a setting of the C library")]
    // SAFETY: sets two numbers under the allocator's lock; one that it does not know, it leaves as it is.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_BYTES);
    }
}

/// Gives the system back what is free between small blocks: worth it after much was freed, as when a gallery was loaded.
pub fn return_free_pages() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "a call of the C library")]
    // SAFETY: gives back only pages that no block lies in, under the allocator's locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_it_was_whatever_is_advised() {
        for bytes in [0, 100, 5 << 20] {
            let block = vec![7_u8; bytes];
            advise_large_pages(&block.as_ptr_range());
            assert!(block.iter().all(|byte| *byte == 7), "{bytes}");
        }
    }

    /// Resident bytes of this process.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        4096 * pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
    }

    /// Blocks of 1 MiB between which a small one stays: without the settings, they would be kept, since larger ones were freed before.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn what_is_freed_goes_back_to_the_system() {
        return_large_blocks();
        drop(std::hint::black_box(vec![1_u8; 24 << 20]));
        let before = resident();
        let mut kept = Vec::new();
        for size in [1 << 20, 100_000] {
            let blocks: Vec<(Vec<u8>, Vec<u8>)> =
                (0..(64 << 20) / size).map(|_| (vec![1; size], vec![1; 100])).collect();
            assert!(resident() > before + (48 << 20), "{size}");
            for (large, small) in blocks {
                drop(large);
                kept.push(small);
            }
            if size < LARGE_BLOCK_BYTES as usize {
                return_free_pages();
            }
            assert!(resident() < before + (16 << 20), "{size}");
        }
        assert!(kept.iter().all(|block| block[0] == 1));
    }

    /// What the system says of a block's memory; the flag is there even where the system gives no large pages after all.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_is_told_of_large_blocks() {
        let block = Vec::<u8>::with_capacity(64 << 20);
        let start = block.as_ptr();
        advise_large_pages(&(start..start.wrapping_add(block.capacity())));
        let inside = start.addr() + (32 << 20);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut flags = None;
        let mut here = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let ends =
                range.map(|(first, end)| (usize::from_str_radix(first, 16), usize::from_str_radix(end, 16)));
            if let Some((Ok(first), Ok(end))) = ends {
                here = (first..end).contains(&inside);
            }
            if here && line.starts_with("VmFlags:") {
                flags = Some(line.to_owned());
            }
        }
        let flags = flags.unwrap();
        assert!(flags.split(' ').any(|flag| flag == "hg"), "{flags}");
    }
}
