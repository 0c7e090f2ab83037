// lanes.cl: scans a chunk of rows; every work-item keeps the best TOPK of the rows it meets. (After dot.cl, block.cl, lists.cl.)
//
//   range    (block of PROBES_PER_ITEM probes, lane, segment): the chunk is cut into segments of segment_rows rows, so that few
//            probes still make enough work-items for a wide device; the rows of a segment are dealt out to the lanes,
//            ROWS_PER_ITEM at a time (drawn: 8 lanes, 1 row)
//
//              rows       0 1 2 ... 7 8 9 ... | segment_rows ...         |
//              lane       0 1 2 ... 7 0 1 ... | 0 1 2 ...                |
//              segment    0 0 0 ... 0 0 0 ... | 1 1 1 ...                | ...
//
//   scores, indices   [probe_count][segments][LANES_PER_QUERY][TOPK]: a list for each probe of a work-item, in no order
//
//              probe 0   segment 0   lane 0 [TOPK] lane 1 [TOPK] ... lane 7 [TOPK]
//                        segment 1   lane 0 [TOPK] ...
//              probe 1   ...
//            places that no row fills hold LOWEST and NO_ROW
//
//   skip_offsets      [probe_count + 1], skip_ranges [skip_offsets[probe_count]]: probe p leaves out the rows in the half-open
//            ranges skip_ranges[skip_offsets[p]] .. skip_ranges[skip_offsets[p + 1] - 1], which ascend and are disjoint
//
// Method: a row that does not beat the lowest score of the full list costs one comparison. Whether a probe skips a row is asked
// only of one that does.

// Work-items that share the rows of a segment for one probe: lane l takes rows l, l + LANES_PER_QUERY, ...
#ifndef LANES_PER_QUERY
#define LANES_PER_QUERY 8
#endif

// Whether a probe's score beats its threshold, for all probes of a work-item at once; and one probe's of them. The comparison is
// negated so that what is no number enters the list and is seen by the host.
#if PROBES_PER_ITEM == 1
#define ANY_BEATS(scores, thresholds) (!((scores) <= (thresholds)))
#else
#define ANY_BEATS(scores, thresholds) any(~((scores) <= (thresholds)))
#endif

__kernel void scan_lanes(
    __global const float *rows,          // the chunk
    __global const float *probes,
    __global const uint *skip_offsets,
    __global const uint2 *skip_ranges,   // by number of the whole gallery's rows
    __global float *scores,
    __global uint *indices,              // by number of the whole gallery's rows
    const uint row_count,                // rows of the chunk, at least 1
    const uint probe_count,              // probes of this launch, at most QUERY_COUNT
    const uint segment_rows,             // rows of a segment
    const uint first_row)                // the gallery's number of the chunk's first row
{
    const uint first_probe = get_global_id(0) * PROBES_PER_ITEM;
    const uint lane = get_global_id(1);
    const uint segment = get_global_id(2);
    // The range is rounded up to whole work-groups.
    if (first_probe >= min(probe_count, (uint)QUERY_COUNT) || lane >= LANES_PER_QUERY) {
        return;
    }
    // Probes of the block that there are: the others are zeros, and have no lists.
    const uint live = min(probe_count - first_probe, (uint)PROBES_PER_ITEM);
    // The lists of neighbouring probes are so many entries apart.
    const size_t list_step = get_global_size(2) * LANES_PER_QUERY * TOPK;
    const size_t list = first_probe * list_step + ((size_t)segment * LANES_PER_QUERY + lane) * TOPK;
    const uint start = segment * segment_rows;
    const uint end = min(start + segment_rows, row_count);
    HOLD_PROBE(probe, probes + probe_start(first_probe));

#if STAGE == 0
    item_vector checksum = 0.0f;
#else
    // What a score must beat, for every probe of the work-item.
    item_vector thresholds = LOWEST;
    for (uint p = live; p < PROBES_PER_ITEM; ++p) {
        PART(thresholds, p) = MAXFLOAT;
    }
#endif
#if STAGE >= 2
    list_state states[PROBES_PER_ITEM];
    for (uint p = 0; p < PROBES_PER_ITEM; ++p) {
        states[p].held = 0;
        states[p].lowest = 0;
        states[p].threshold = LOWEST;
    }
#endif

    for (uint row = start + lane * ROWS_PER_ITEM; row < end; row += LANES_PER_QUERY * ROWS_PER_ITEM) {
        item_vector found[ROWS_PER_ITEM];
        item_scores(rows, row, end - 1, probe, found);
        for (uint r = 0; r < ROWS_PER_ITEM && row + r < end; ++r) {
#if STAGE == 0
            checksum += found[r];
#else
#if STRATEGY != 1 || STAGE == 1
            if (!ANY_BEATS(found[r], thresholds)) {
                continue;
            }
#endif
            for (uint p = 0; p < live; ++p) {
                const float score = PART(found[r], p);
                __global float *const list_scores = scores + list + p * list_step;
                __global uint *const list_indices = indices + list + p * list_step;
#if STAGE == 1
                if (!(score <= PART(thresholds, p))) {
                    PART(thresholds, p) = score;
                }
#else
                if (!(score <= entry_score(list_scores, &states[p]))) {
                    const uint number = first_row + row + r;
#if STAGE == 4
                    const uint probe_number = first_probe + p;
                    if (is_skipped(skip_ranges, skip_offsets[probe_number], skip_offsets[probe_number + 1], number)) {
                        continue;
                    }
#endif
                    enter(list_scores, list_indices, &states[p], score, number);
                    PART(thresholds, p) = states[p].threshold;
                }
#endif
            }
#endif
        }
    }

    for (uint p = 0; p < live; ++p) {
        __global float *const list_scores = scores + list + p * list_step;
        __global uint *const list_indices = indices + list + p * list_step;
#if STAGE == 0
        list_scores[0] = PART(checksum, p);
#elif STAGE == 1
        list_scores[0] = PART(thresholds, p);
#else
        fill_up(list_scores, list_indices, &states[p]);
#endif
    }
}
