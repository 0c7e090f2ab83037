// dot.cl: the parameters that all kernels share, and the dot product. It is put in front of lanes.cl and scores.cl.
//
// Layouts (DIM is the components of an embedding rounded up to 16; what lies beyond the embedding is zero):
//
//   rows     float4[row_count][DIM / 4]: row-major, as on the host
//
//              component    0..3   4..7        DIM-4..DIM-1
//              row 0       [float4|float4| ... |float4]
//              row 1       [float4|float4| ... |float4]
//
//   probes   float4[QUERY_COUNT / TILE][DIM / 4][TILE]: the probes of a tile interleaved, so that work-items that are
//            neighbours in the first dimension read neighbouring float4s
//
//              tile 0   component 0..3   [probe 0|probe 1| ... |probe TILE-1]
//                       component 4..7   [probe 0|probe 1| ... |probe TILE-1]
//                       ...
//              tile 1   component 0..3   [probe TILE| ... ]
//
// Neither a row nor a probe is copied into private memory: held there, a probe costs three quarters of the speed (registers).

// Components of a row, padding included: a multiple of 16.
#ifndef DIM
#define DIM 128
#endif

// Rows that one list holds, and rows that a merge keeps of each probe.
#ifndef TOPK
#define TOPK 32
#endif

// Most probes of one launch.
#ifndef QUERY_COUNT
#define QUERY_COUNT 256
#endif

// Work-items that share the rows of a segment for one probe: lane l takes rows l, l + LANES_PER_QUERY, ...
#ifndef LANES_PER_QUERY
#define LANES_PER_QUERY 8
#endif

// Probes interleaved in memory; divides QUERY_COUNT. Sixteen float4s are 256 bytes: wide enough for a GPU's transactions, and
// not so wide that the components of one probe fall on the same cache sets. 1 leaves each probe in one piece, for CPUs.
#ifndef TILE
#define TILE 16
#endif

#if DIM % 16 != 0
#error "DIM must be a multiple of 16"
#endif
#if QUERY_COUNT % TILE != 0
#error "TILE must divide QUERY_COUNT"
#endif

// Where probe `probe` begins: its float4s follow each other TILE apart.
size_t probe_start(const uint probe)
{
    return (size_t)(probe / TILE) * (DIM / 4) * TILE + probe % TILE;
}

// The dot product of one row and one probe, in four accumulators so that no addition waits for the one before it.
float dot_row(__global const float4 *row, __global const float4 *probe)
{
    float4 sum0 = (float4)(0.0f);
    float4 sum1 = (float4)(0.0f);
    float4 sum2 = (float4)(0.0f);
    float4 sum3 = (float4)(0.0f);
    for (uint i = 0; i < DIM / 4; i += 4) {
        sum0 += row[i] * probe[i * TILE];
        sum1 += row[i + 1] * probe[(i + 1) * TILE];
        sum2 += row[i + 2] * probe[(i + 2) * TILE];
        sum3 += row[i + 3] * probe[(i + 3) * TILE];
    }
    const float4 sum = (sum0 + sum1) + (sum2 + sum3);
    return (sum.x + sum.y) + (sum.z + sum.w);
}
