// found.cl: the lists of rows that reach the cut of a probe. (After skip.cl.)
//
//   counts   [probe_count], 0 before: rows found of each probe; may exceed CAPACITY, and then the list is not whole
//   found    uint2[probe_count][CAPACITY]: { row, counted from the first of the chunk; bits of its score }

// Rows that the lists of found rows hold.
#ifndef CAPACITY
#define CAPACITY 4096
#endif

// Puts a row on a probe's list, unless the probe leaves it out.
void note(
    const uint probe,
    const uint row,
    const float score,
    __global const uint *skip_offsets,
    __global const uint2 *skip_ranges,
    const uint first_row,
    __global uint *counts,
    __global uint2 *found)
{
    if (!is_skipped(skip_ranges, skip_offsets[probe], skip_offsets[probe + 1], first_row + row)) {
        const uint slot = atomic_inc(&counts[probe]);
        if (slot < CAPACITY) {
            found[(size_t)probe * CAPACITY + slot] = (uint2)(row, as_uint(score));
        }
    }
}
