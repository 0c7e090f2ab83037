// scores.cl: the raw score of every row for every probe, for lists longer than the device keeps. (After dot.cl.)
//
//   range    (probe, row)
//   scores   float[row_count][probe_count]
//
//              row first        [probe 0|probe 1| ... |probe probe_count-1]
//              row first + 1    [probe 0|probe 1| ... |probe probe_count-1]
//              ...
//
// The host chooses. A launch takes as many rows as its scores have room for.

__kernel void score_rows(
    __global const float4 *rows,     // the chunk
    __global const float4 *probes,
    __global float *scores,
    const uint first,                // the chunk's number of the launch's first row
    const uint row_count,            // rows of this launch
    const uint probe_count)          // probes of this launch, at most QUERY_COUNT
{
    const uint probe = get_global_id(0);
    const uint row = get_global_id(1);
    // The range is rounded up to whole work-groups.
    if (probe >= min(probe_count, (uint)QUERY_COUNT) || row >= row_count) {
        return;
    }
    scores[(size_t)row * probe_count + probe] =
        dot_row(rows + (size_t)(first + row) * (DIM / 4), probes + probe_start(probe));
}
