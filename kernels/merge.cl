// merge.cl: the best TOPK entries of all of a probe's lists. One work-group a probe.
//
//   scores, indices                 [probes][entry_count]: what lanes.cl wrote; entry_count = segments * lanes * TOPK
//   merged_scores, merged_indices   [probes][TOPK] from entry first_output on, in no order
//
//              entries of probe p   [s s s s s s s s s s s s ... s]     work-item i reads entries i, i + MERGE_ITEMS, ...
//                                    |     |           |
//              merged, probe p      [s s s ... | = = ]                  above the cut, from the left; equal to it, from the right
//
// Method: the cut (the TOPK-th highest entry) is found bit by bit, from the highest, by counting how many entries reach it;
// then entries above it and as many equal to it as there is room for are copied. Time does not depend on TOPK.
//
// Scores are compared as unsigned integers in the same order, so NaN has a place too: above all others, for the host to see.

// Entries that a merge keeps, and places in a list.
#ifndef TOPK
#define TOPK 32
#endif

// Work-items a probe: all of them count in every round.
#ifndef MERGE_ITEMS
#define MERGE_ITEMS 64
#endif

// Maps the bits of a float to an unsigned integer that orders as the floats do; NaN of either sign comes highest.
uint order_key(const uint bits)
{
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return 0xFFFFFFFFu;
    }
    return (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
}

__kernel __attribute__((reqd_work_group_size(MERGE_ITEMS, 1, 1))) void merge_lists(
    __global const uint *scores,          // float bits
    __global const uint *indices,
    __global uint *merged_scores,         // float bits
    __global uint *merged_indices,
    const uint entry_count,               // entries a probe, at least TOPK
    const uint first_output)              // where this launch's output begins: one after another for each chunk of rows
{
    // One counter a bit, so that one barrier a round suffices; then one for each side of the copy.
    __local uint counts[34];
    const size_t probe = get_group_id(0);
    const uint item = get_local_id(0);
    __global const uint *const entries = scores + probe * entry_count;
    __global const uint *const entry_rows = indices + probe * entry_count;
    const size_t output = first_output + probe * TOPK;

    for (uint i = item; i < 34; i += MERGE_ITEMS) {
        counts[i] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    uint cut = 0;
    for (uint bit = 32; bit-- > 0;) {
        const uint trial = cut | (1u << bit);
        uint reached = 0;
        for (uint i = item; i < entry_count; i += MERGE_ITEMS) {
            reached += order_key(entries[i]) >= trial ? 1u : 0u;
        }
        atomic_add(&counts[bit], reached);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (counts[bit] >= TOPK) {
            cut = trial;
        }
    }

    // Fewer than TOPK entries lie above the cut and at least TOPK reach it, so both sides together fill every place.
    for (uint i = item; i < entry_count; i += MERGE_ITEMS) {
        const uint key = order_key(entries[i]);
        uint slot = TOPK;
        if (key > cut) {
            slot = atomic_inc(&counts[32]);
        }
        if (slot < TOPK) {
            merged_scores[output + slot] = entries[i];
            merged_indices[output + slot] = entry_rows[i];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint room = TOPK - min(counts[32], (uint)TOPK);
    for (uint i = item; i < entry_count; i += MERGE_ITEMS) {
        if (order_key(entries[i]) == cut) {
            const uint equal = atomic_inc(&counts[33]);
            if (equal < room) {
                const size_t slot = output + (TOPK - 1 - equal);
                merged_scores[slot] = entries[i];
                merged_indices[slot] = entry_rows[i];
            }
        }
    }
}
