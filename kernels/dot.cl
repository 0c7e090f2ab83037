// dot.cl: the parameters that the family's kernels share, how rows and probes lie in memory, and the dot product of one row and
// one probe. It is put in front of block.cl, lists.cl, lanes.cl and scores.cl.
//
// Layouts (DIM is the components of an embedding rounded up to 16; what lies beyond the embedding is zero):
//
//   rows     float[row_count][DIM]: row-major, as on the host
//
//              component    0     1     2           DIM-1
//              row 0       [float|float|float| ... |float]
//              row 1       [float|float|float| ... |float]
//
//   probes   float[QUERY_COUNT / TILE][DIM / PROBE_WIDTH][TILE][PROBE_WIDTH]: the probes of a tile interleaved, so that
//            work-items that are neighbours in the first dimension read neighbouring addresses; with PROBE_WIDTH 4
//
//              tile 0   component 0..3   [probe 0|probe 1| ... |probe TILE-1]
//                       component 4..7   [probe 0|probe 1| ... |probe TILE-1]
//                       ...
//              tile 1   component 0..3   [probe TILE| ... ]
//
// What one work-item computes in one step is ROWS_PER_ITEM rows times PROBES_PER_ITEM probes: either 1 x 1, by dot_row below,
// whose vectors lie along the components; or more, by block.cl, whose vectors lie across probes. Both give `item_scores`, and
// the kernels use nothing else.

// Components of a row, padding included: a multiple of 16.
#ifndef DIM
#define DIM 128
#endif

// Rows that one list holds, and rows that a merge keeps of each probe.
#ifndef TOPK
#define TOPK 32
#endif

// Probes that there is room for in a launch.
#ifndef QUERY_COUNT
#define QUERY_COUNT 256
#endif

// Probes interleaved in memory; divides QUERY_COUNT. Sixteen float4s are 256 bytes: wide enough for a GPU's transactions, and
// not so wide that the components of one probe fall on the same cache sets. 1 leaves each probe in one piece, for CPUs.
// Where PROBES_PER_ITEM is more than 1, it is TILE.
#ifndef TILE
#define TILE 16
#endif

// Components of a row that one load takes: 1, 4 or 8.
#ifndef ROW_WIDTH
#define ROW_WIDTH 4
#endif

// Components of a probe that one load takes, and that lie together in memory: 1, 4 or 8. Where PROBES_PER_ITEM is more than 1, 1.
#ifndef PROBE_WIDTH
#define PROBE_WIDTH 4
#endif

// Sums that a dot product is gathered in: 1, or 4 so that no addition waits for the one before it.
#ifndef ACCUMULATORS
#define ACCUMULATORS 4
#endif

// Steps of the dot product's loop that are written out in one round: 1, 2 or 4. A step is ACCUMULATORS vectors.
#ifndef UNROLL
#define UNROLL 1
#endif

// 1: each work-item copies its probe into a private array first. On a Mali-G610 that costs three quarters of the speed (registers).
#ifndef PRIVATE_PROBE
#define PRIVATE_PROBE 0
#endif

// Rows that a work-item scores in one step: 1, 2, 4 or 8; 1 where PROBES_PER_ITEM is.
#ifndef ROWS_PER_ITEM
#define ROWS_PER_ITEM 1
#endif

// Probes that a work-item scores: 1, or 4, 8 or 16 by block.cl.
#ifndef PROBES_PER_ITEM
#define PROBES_PER_ITEM 1
#endif

#if DIM % 16 != 0
#error "DIM must be a multiple of 16"
#endif
#if QUERY_COUNT % TILE != 0
#error "TILE must divide QUERY_COUNT"
#endif
#if PROBES_PER_ITEM > 1 && (TILE != PROBES_PER_ITEM || PROBE_WIDTH != 1)
#error "a block's probes lie interleaved by single components, one block a tile"
#endif

// One probe's part of an item_vector.
#define PART(vector, p) (((__private float *)&(vector))[p])

// Where probe `probe` begins. Its parts of PROBE_WIDTH components follow each other TILE * PROBE_WIDTH apart.
size_t probe_start(const uint probe)
{
    return (size_t)(probe / TILE) * DIM * TILE + (probe % TILE) * PROBE_WIDTH;
}

#if PROBES_PER_ITEM == 1

#if ROWS_PER_ITEM != 1
#error "several rows a work-item go with several probes"
#endif

// Components that are multiplied at once: what the wider load takes. Narrow loads are put together.
#if ROW_WIDTH > PROBE_WIDTH
#define VECTOR ROW_WIDTH
#else
#define VECTOR PROBE_WIDTH
#endif

#define JOIN_1_TO_4(part, i) (float4)(part(i), part((i) + 1), part((i) + 2), part((i) + 3))
#define JOIN_1_TO_8(part, i) (float8)(JOIN_1_TO_4(part, i), JOIN_1_TO_4(part, (i) + 4))
#define JOIN_4_TO_8(part, i) (float8)(part(i), part((i) + 4))

#if ROW_WIDTH == 1
#define ROW_PART(i) row[i]
#elif ROW_WIDTH == 4
#define ROW_PART(i) (*(__global const float4 *)(row + (i)))
#else
#define ROW_PART(i) (*(__global const float8 *)(row + (i)))
#endif

#if PROBE_WIDTH == 1
#define PROBE_PART(i) probe[(i) * TILE]
#elif PROBE_WIDTH == 4
#define PROBE_PART(i) (*(__global const float4 *)(probe + (i) * TILE))
#else
#define PROBE_PART(i) (*(__global const float8 *)(probe + (i) * TILE))
#endif

#if ROW_WIDTH == VECTOR
#define ROW(i) ROW_PART(i)
#elif ROW_WIDTH == 4
#define ROW(i) JOIN_4_TO_8(ROW_PART, i)
#elif VECTOR == 4
#define ROW(i) JOIN_1_TO_4(ROW_PART, i)
#else
#define ROW(i) JOIN_1_TO_8(ROW_PART, i)
#endif

#if PROBE_WIDTH == VECTOR
#define PROBE_IN_MEMORY(i) PROBE_PART(i)
#elif PROBE_WIDTH == 4
#define PROBE_IN_MEMORY(i) JOIN_4_TO_8(PROBE_PART, i)
#elif VECTOR == 4
#define PROBE_IN_MEMORY(i) JOIN_1_TO_4(PROBE_PART, i)
#else
#define PROBE_IN_MEMORY(i) JOIN_1_TO_8(PROBE_PART, i)
#endif

#if VECTOR == 1
typedef float vector;
#define ZERO 0.0f
#elif VECTOR == 4
typedef float4 vector;
#define ZERO (float4)(0.0f)
#else
typedef float8 vector;
#define ZERO (float8)(0.0f)
#endif

#if PRIVATE_PROBE
// HOLD_PROBE declares what a work-item scores with; any name but `probe` will do.
typedef const vector *held_probe;
#define HOLD_PROBE(name, at)                                 \
    vector name[DIM / VECTOR];                               \
    {                                                        \
        __global const float *const probe = (at);            \
        for (uint part = 0; part < DIM / VECTOR; ++part) {   \
            name[part] = PROBE_IN_MEMORY(part * VECTOR);     \
        }                                                    \
    }
#define PROBE(i) probe[(i) / VECTOR]
#else
typedef __global const float *held_probe;
#define HOLD_PROBE(name, at) __global const float *const name = (at)
#define PROBE(i) PROBE_IN_MEMORY(i)
#endif

// Components of a step.
#define STEP (VECTOR * ACCUMULATORS)

#if ACCUMULATORS == 1
#define ADD_STEP(i) sum0 += ROW(i) * PROBE(i)
#else
#define ADD_STEP(i)                                          \
    sum0 += ROW(i) * PROBE(i);                               \
    sum1 += ROW((i) + VECTOR) * PROBE((i) + VECTOR);         \
    sum2 += ROW((i) + 2 * VECTOR) * PROBE((i) + 2 * VECTOR); \
    sum3 += ROW((i) + 3 * VECTOR) * PROBE((i) + 3 * VECTOR)
#endif

// The dot product of one row and one probe.
float dot_row(__global const float *row, held_probe probe)
{
    vector sum0 = ZERO;
#if ACCUMULATORS == 4
    vector sum1 = ZERO;
    vector sum2 = ZERO;
    vector sum3 = ZERO;
#endif
    uint i = 0;
    for (; i + UNROLL * STEP <= DIM; i += UNROLL * STEP) {
        ADD_STEP(i);
#if UNROLL >= 2
        ADD_STEP(i + STEP);
#endif
#if UNROLL == 4
        ADD_STEP(i + 2 * STEP);
        ADD_STEP(i + 3 * STEP);
#endif
    }
    // What whole rounds leave over.
    for (; i < DIM; i += VECTOR) {
        sum0 += ROW(i) * PROBE(i);
    }
#if ACCUMULATORS == 4
    sum0 = (sum0 + sum1) + (sum2 + sum3);
#endif
#if VECTOR == 1
    return sum0;
#elif VECTOR == 4
    return (sum0.x + sum0.y) + (sum0.z + sum0.w);
#else
    const float4 four = sum0.lo + sum0.hi;
    return (four.x + four.y) + (four.z + four.w);
#endif
}

// One score a probe of the work-item.
typedef float item_vector;

// Scores of rows `first` .. `first` + ROWS_PER_ITEM - 1, which is one.
void item_scores(__global const float *rows, const uint first, const uint last, held_probe probe, item_vector *scores)
{
    scores[0] = dot_row(rows + (size_t)first * DIM, probe);
}

#endif
