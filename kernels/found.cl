// found.cl: the lists of rows that reach the cut of a probe. (After skip.cl.)
//
//   counts   [probe_count], 0 before: rows found of each probe; may exceed CAPACITY, and then the list is not whole
//   found    uint2[probe_count][CAPACITY]: { row, counted from the first of the chunk; bits of its score }

// Rows that the lists of found rows hold.
#ifndef CAPACITY
#define CAPACITY 4096
#endif

// Rows that a group holds in local memory before it puts them on the lists: a work-item that finds one waits for a place there, which is
// near, and the places in global memory are taken by all work-items at once later.
#ifndef STAGED
#define STAGED 1024
#endif

typedef struct {
    uint count;
    uint probes[STAGED];
    uint rows[STAGED];
    float scores[STAGED];
} staged_t;

// Where the lists are, and what is left out of them.
typedef struct {
    __global const uint *skip_offsets;
    __global const uint2 *skip_ranges;
    __global uint *counts;
    __global uint2 *found;
    uint first_row; // the gallery's number of the chunk's first row
} lists_t;

// Puts a row on a probe's list, unless the probe leaves it out.
void put(const lists_t lists, const uint probe, const uint row, const float score)
{
    const uint begin = lists.skip_offsets[probe];
    const uint end = lists.skip_offsets[probe + 1];
    if (!is_skipped(lists.skip_ranges, begin, end, lists.first_row + row)) {
        const uint slot = atomic_inc(&lists.counts[probe]);
        if (slot < CAPACITY) {
            lists.found[(size_t)probe * CAPACITY + slot] = (uint2)(row, as_uint(score));
        }
    }
}

// Before the first row is noted; for all work-items of a group.
void begin_notes(__local staged_t *const staged)
{
    if (get_local_id(0) == 0) {
        staged->count = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

// Notes a row that reaches the cut of a probe.
void note(__local staged_t *const staged, const lists_t lists, const uint probe, const uint row, const float score)
{
    const uint slot = atomic_inc(&staged->count);
    if (slot < STAGED) {
        staged->probes[slot] = probe;
        staged->rows[slot] = row;
        staged->scores[slot] = score;
    } else {
        put(lists, probe, row, score);
    }
}

// Puts what was noted on the lists; for all work-items of a group.
void put_notes(__local staged_t *const staged, const lists_t lists)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint count = min(staged->count, (uint)STAGED);
    for (uint i = get_local_id(0); i < count; i += get_local_size(0)) {
        put(lists, staged->probes[i], staged->rows[i], staged->scores[i]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        staged->count = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
