// scores.cl: the raw score of every row for every probe, for lists longer than the device keeps. (After dot.cl and block.cl.)
//
//   range    (block of PROBES_PER_ITEM probes, ROWS_PER_ITEM rows)
//   scores   float[row_count][probe_count]
//
//              row first        [probe 0|probe 1| ... |probe probe_count-1]
//              row first + 1    [probe 0|probe 1| ... |probe probe_count-1]
//              ...
//
// The host chooses. A launch takes as many rows as its scores have room for.

__kernel void score_rows(
    __global const float *rows,      // the chunk
    __global const float *probes,
    __global float *scores,
    const uint first,                // the chunk's number of the launch's first row
    const uint row_count,            // rows of this launch
    const uint probe_count)          // probes of this launch, at most QUERY_COUNT
{
    const uint first_probe = get_global_id(0) * PROBES_PER_ITEM;
    const uint row = get_global_id(1) * ROWS_PER_ITEM;
    // The range is rounded up to whole work-groups.
    if (first_probe >= min(probe_count, (uint)QUERY_COUNT) || row >= row_count) {
        return;
    }
    const uint live = min(probe_count - first_probe, (uint)PROBES_PER_ITEM);
    HOLD_PROBE(held, probes + probe_start(first_probe));
    item_vector found[ROWS_PER_ITEM];
    item_scores(rows, first + row, first + row_count - 1, held, found);
    for (uint r = 0; r < ROWS_PER_ITEM && row + r < row_count; ++r) {
        for (uint p = 0; p < live; ++p) {
            scores[(size_t)(row + r) * probe_count + first_probe + p] = PART(found[r], p);
        }
    }
}
