// block.cl: the scores of several rows and several probes at once, held in registers. (After dot.cl.)
//
//   rows     float[row_count][DIM]
//   probes   float[QUERY_COUNT / PROBES_PER_ITEM][DIM][PROBES_PER_ITEM]: a vector across the probes of each component
//
//                             the block's probes, component i
//                            [ p0 | p1 | ...           | p15 ]      one load
//              row r    [i]  [ s  | s  | ...           | s   ]      += row[r][i] * probes
//              row r+1  [i]  [ s  | s  | ...           | s   ]
//              ...            ROWS_PER_ITEM vectors of sums, each of PROBES_PER_ITEM
//
// Each component of a row that is loaded serves all the block's probes, and each vector of probes all its rows; nothing is summed
// across a vector. That is what a processor with few, fast cores wants: four rows of sixteen probes are eight registers of AVX2.

#if PROBES_PER_ITEM > 1

#if PROBES_PER_ITEM == 4
typedef float4 item_vector;
#elif PROBES_PER_ITEM == 8
typedef float8 item_vector;
#elif PROBES_PER_ITEM == 16
typedef float16 item_vector;
#else
#error "PROBES_PER_ITEM must be 1, 4, 8 or 16"
#endif

typedef __global const float *held_probe;
#define HOLD_PROBE(name, at) __global const float *const name = (at)

// Scores of rows `first` .. `first` + ROWS_PER_ITEM - 1. In place of rows beyond `last`, the last there is, it is read again.
void item_scores(__global const float *rows, const uint first, const uint last, held_probe probe, item_vector *scores)
{
    __global const float *row[ROWS_PER_ITEM];
    item_vector sums[ROWS_PER_ITEM];
#pragma unroll
    for (uint r = 0; r < ROWS_PER_ITEM; ++r) {
        row[r] = rows + (size_t)min(first + r, last) * DIM;
        sums[r] = (item_vector)(0.0f);
    }
    __global const item_vector *const parts = (__global const item_vector *)probe;
    for (uint i = 0; i < DIM; ++i) {
        const item_vector part = parts[i];
#pragma unroll
        for (uint r = 0; r < ROWS_PER_ITEM; ++r) {
            sums[r] += row[r][i] * part;
        }
    }
#pragma unroll
    for (uint r = 0; r < ROWS_PER_ITEM; ++r) {
        scores[r] = sums[r];
    }
}

#endif
