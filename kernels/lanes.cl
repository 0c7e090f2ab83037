// lanes.cl: scans a chunk of rows; every work-item keeps the best TOPK of the rows it meets. (After dot.cl.)
//
//   range    (probe, lane, segment): the chunk is cut into segments of segment_rows rows, so that few probes still make
//            enough work-items for a wide device; the rows of a segment are dealt out to the lanes
//
//              rows       0 1 2 ... 7 8 9 ... | segment_rows ...         |
//              lane       0 1 2 ... 7 0 1 ... | 0 1 2 ...                |
//              segment    0 0 0 ... 0 0 0 ... | 1 1 1 ...                | ...
//
//   scores, indices   [probe_count][segments][LANES_PER_QUERY][TOPK]: one list a work-item, in no order
//
//              probe 0   segment 0   lane 0 [TOPK] lane 1 [TOPK] ... lane 7 [TOPK]
//                        segment 1   lane 0 [TOPK] ...
//              probe 1   ...
//            places that no row fills hold LOWEST and NO_ROW
//
//   skip_offsets      [probe_count + 1], skip_ranges [skip_offsets[probe_count]]: probe p leaves out the rows in the half-open
//            ranges skip_ranges[skip_offsets[p]] .. skip_ranges[skip_offsets[p + 1] - 1], which ascend and are disjoint
//
// Method: threshold and min-replace. A row that does not beat the lowest score of the full list costs one comparison; one
// that does replaces the lowest, and the new lowest is looked for. Whether a probe skips a row is asked only then.
// The lists live in global memory: a row enters them rarely, and private arrays of this size would spill there anyway.

#define LOWEST (-MAXFLOAT)
#define NO_ROW 0xFFFFFFFFu

// Whether `row` lies in one of the ranges begin .. end - 1.
bool is_skipped(__global const uint2 *ranges, uint begin, uint end, const uint row)
{
    while (begin < end) {
        const uint middle = begin + (end - begin) / 2;
        const uint2 range = ranges[middle];
        if (row < range.x) {
            end = middle;
        } else if (row >= range.y) {
            begin = middle + 1;
        } else {
            return true;
        }
    }
    return false;
}

__kernel void scan_lanes(
    __global const float4 *rows,         // the chunk
    __global const float4 *probes,
    __global const uint *skip_offsets,
    __global const uint2 *skip_ranges,   // by number of the whole gallery's rows
    __global float *scores,
    __global uint *indices,              // by number of the whole gallery's rows
    const uint row_count,                // rows of the chunk
    const uint probe_count,              // probes of this launch, at most QUERY_COUNT
    const uint segment_rows,             // rows of a segment
    const uint first_row)                // the gallery's number of the chunk's first row
{
    const uint probe = get_global_id(0);
    const uint lane = get_global_id(1);
    const uint segment = get_global_id(2);
    // The range is rounded up to whole work-groups.
    if (probe >= min(probe_count, (uint)QUERY_COUNT) || lane >= LANES_PER_QUERY) {
        return;
    }
    const size_t list = ((size_t)probe * get_global_size(2) + segment) * LANES_PER_QUERY + lane;
    __global float *const list_scores = scores + list * TOPK;
    __global uint *const list_indices = indices + list * TOPK;
    __global const float4 *const probe_values = probes + probe_start(probe);
    const uint skip_begin = skip_offsets[probe];
    const uint skip_end = skip_offsets[probe + 1];
    const uint start = segment * segment_rows;
    const uint end = min(start + segment_rows, row_count);

    uint held = 0;
    uint lowest = 0;
    float threshold = LOWEST;
    for (uint row = start + lane; row < end; row += LANES_PER_QUERY) {
        const float score = dot_row(rows + (size_t)row * (DIM / 4), probe_values);
        // Negated, so that NaN enters the list and is seen by the host.
        if (!(score <= threshold)) {
            if (is_skipped(skip_ranges, skip_begin, skip_end, first_row + row)) {
                continue;
            }
            const uint slot = held < TOPK ? held++ : lowest;
            list_scores[slot] = score;
            list_indices[slot] = first_row + row;
            if (held == TOPK) {
                lowest = 0;
                threshold = list_scores[0];
                for (uint i = 1; i < TOPK; ++i) {
                    if (list_scores[i] < threshold) {
                        threshold = list_scores[i];
                        lowest = i;
                    }
                }
            }
        }
    }
    for (; held < TOPK; ++held) {
        list_scores[held] = LOWEST;
        list_indices[held] = NO_ROW;
    }
}
