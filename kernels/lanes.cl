// lanes.cl: scans a chunk of rows; every work-item keeps the best TOPK of the rows it meets. (After dot.cl, block.cl, lists.cl.)
//
//   range    (probes, lane, segment): a work-item takes BLOCKS_PER_ITEM blocks of PROBES_PER_ITEM probes. The chunk is cut into
//            segments of segment_rows rows, so that few probes still make enough work-items for a wide device; the rows of a
//            segment are dealt out to the lanes, ROWS_PER_ITEM at a time (drawn: 8 lanes, 1 row)
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
// only of one that does. Several blocks of probes take turns at a few rows, which lie in a core's cache meanwhile.

// Work-items that share the rows of a segment for one probe: lane l takes rows l, l + LANES_PER_QUERY, ...
#ifndef LANES_PER_QUERY
#define LANES_PER_QUERY 8
#endif

// Blocks of probes that a work-item scores, one after the other: 1, or 4 or 16 with block.cl.
#ifndef BLOCKS_PER_ITEM
#define BLOCKS_PER_ITEM 1
#endif

#define ITEM_PROBES (BLOCKS_PER_ITEM * PROBES_PER_ITEM)

// Steps of ROWS_PER_ITEM rows that a block of probes takes before the next one does: 64 KiB of rows.
#if BLOCKS_PER_ITEM == 1
#define TURN_STEPS 0xFFFFFFFFu
#elif 16384 >= DIM * ROWS_PER_ITEM
#define TURN_STEPS (16384 / (DIM * ROWS_PER_ITEM))
#else
#define TURN_STEPS 1
#endif

// Whether any of a block's scores beats its threshold. The comparison is negated so that what is no number enters the list and is
// seen by the host.
#if PROBES_PER_ITEM == 1
#define ANY_BEATS(scores, thresholds) (!((scores) <= (thresholds)))
#else
#define ANY_BEATS(scores, thresholds) any(~((scores) <= (thresholds)))
#endif

// The lists of a block's probes.
typedef struct {
    __global float *scores;              // the first probe's
    __global uint *indices;
    size_t step;                         // entries from one probe's list to the next one's
    __global const uint *skip_offsets;   // the first probe's
    __global const uint2 *skip_ranges;
    uint live;                           // probes that there are; the others of the block are zeros, and have no lists
} block_lists;

// Takes the scores of one row: into the lists, or as far as the stage goes.
void take_row(const block_lists *lists, list_state *states, item_vector *best, item_vector found, const uint number)
{
#if STAGE == 0
    *best += found;
#else
#if STRATEGY != 1 || STAGE == 1
    if (!ANY_BEATS(found, *best)) {
        return;
    }
#endif
    for (uint p = 0; p < lists->live; ++p) {
        const float score = PART(found, p);
#if STAGE == 1
        if (!(score <= PART(*best, p))) {
            PART(*best, p) = score;
        }
#else
        __global float *const scores = lists->scores + p * lists->step;
        __global uint *const indices = lists->indices + p * lists->step;
        if (!(score <= entry_score(scores, &states[p]))) {
#if STAGE == 4
            if (is_skipped(lists->skip_ranges, lists->skip_offsets[p], lists->skip_offsets[p + 1], number)) {
                continue;
            }
#endif
            enter(scores, indices, &states[p], score, number);
            PART(*best, p) = states[p].threshold;
        }
#endif
    }
#endif
}

// Writes what short stages found, or marks the places that no row fills.
void finish_lists(const block_lists *lists, const list_state *states, item_vector best)
{
    for (uint p = 0; p < lists->live; ++p) {
#if STAGE <= 1
        lists->scores[p * lists->step] = PART(best, p);
#else
        fill_up(lists->scores + p * lists->step, lists->indices + p * lists->step, &states[p]);
#endif
    }
}

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
    const uint first_probe = get_global_id(0) * ITEM_PROBES;
    const uint lane = get_global_id(1);
    const uint segment = get_global_id(2);
    // The range is rounded up to whole work-groups.
    if (first_probe >= min(probe_count, (uint)QUERY_COUNT) || lane >= LANES_PER_QUERY) {
        return;
    }
    const size_t step = get_global_size(2) * LANES_PER_QUERY * TOPK;
    const size_t list = first_probe * step + ((size_t)segment * LANES_PER_QUERY + lane) * TOPK;
    const uint start = segment * segment_rows;
    const uint end = min(start + segment_rows, row_count);
    const uint blocks = min((probe_count - first_probe + PROBES_PER_ITEM - 1) / PROBES_PER_ITEM, (uint)BLOCKS_PER_ITEM);

    // What a score must beat, for every probe; of the stage that sums, the sums.
    item_vector best[BLOCKS_PER_ITEM];
    list_state states[ITEM_PROBES];
    for (uint p = 0; p < ITEM_PROBES; ++p) {
        states[p].held = 0;
        states[p].lowest = 0;
        states[p].threshold = LOWEST;
        // A probe that is not there never beats anything.
        PART(best[p / PROBES_PER_ITEM], p % PROBES_PER_ITEM) =
            STAGE == 0 ? 0.0f : first_probe + p < probe_count ? LOWEST : MAXFLOAT;
    }
#define BLOCK_LISTS(b) {                                                        \
        scores + list + (b) * PROBES_PER_ITEM * step,                           \
        indices + list + (b) * PROBES_PER_ITEM * step,                          \
        step,                                                                   \
        skip_offsets + first_probe + (b) * PROBES_PER_ITEM,                     \
        skip_ranges,                                                            \
        min(probe_count - first_probe - (b) * PROBES_PER_ITEM, (uint)PROBES_PER_ITEM) }

    const uint stride = LANES_PER_QUERY * ROWS_PER_ITEM;
    uint turn = start + lane * ROWS_PER_ITEM;
    while (turn < end) {
        uint row = turn;
        for (uint b = 0; b < blocks; ++b) {
            const block_lists lists = BLOCK_LISTS(b);
            HOLD_PROBE(held, probes + probe_start(first_probe + b * PROBES_PER_ITEM));
            row = turn;
            for (uint steps = 0; steps < TURN_STEPS && row < end; ++steps) {
                item_vector found[ROWS_PER_ITEM];
                item_scores(rows, row, end - 1, held, found);
                for (uint r = 0; r < ROWS_PER_ITEM && row + r < end; ++r) {
                    take_row(&lists, states + b * PROBES_PER_ITEM, &best[b], found[r], first_row + row + r);
                }
                row += stride;
            }
        }
        turn = row;
    }

    for (uint b = 0; b < blocks; ++b) {
        const block_lists lists = BLOCK_LISTS(b);
        finish_lists(&lists, states + b * PROBES_PER_ITEM, best[b]);
    }
}
