// floats.cl: scores of rows and probes in f32, tile by tile, for many probes on a device without matrix units of use here; in two
// kernels: the best scores of a sample of the rows, and all rows whose score may reach a probe's cut. (After skip.cl, found.cl.)
//
//   rows     float[row_count][DIM], probes float[probe_count][DIM]: row-major, as on the host
//
//   a group of ACROSS x DOWN work-items scores 8 DOWN rows x 8 ACROSS probes, DEPTH components at a time, which it lays into local
//   memory component by component; each work-item holds 8 x 8 sums (here of 16 x 16):
//
//                   probes  4x .. 4x + 3      64 + 4x .. 67 + 4x
//      rows  4y ..  4y + 3  [ 4 x 4 sums ]    [ 4 x 4 sums ]           (x, y: the work-item's place in its group)
//       64 + 4y .. 67 + 4y  [ 4 x 4 sums ]    [ 4 x 4 sums ]
//
//   so that neighbours in x read neighbouring float4s of the probes. While a piece is multiplied the next one is fetched into
//   registers. Beyond the last row or probe that one is fetched again: its scores are not looked at there.
//
//   groups are numbered probes first: those that run together read the same rows

#ifndef DIM
#define DIM 128
#endif

// Components in local memory at a time: 8 or 16.
#ifndef DEPTH
#define DEPTH 16
#endif

// Work-items of a group over the probes, and over the rows, an even number; each has 8 of either.
#ifndef ACROSS
#define ACROSS 16
#endif
#ifndef DOWN
#define DOWN 16
#endif

#define GROUP_ITEMS (ACROSS * DOWN)
#define ROWS (DOWN * 8)
#define PROBES (ACROSS * 8)
// Four more than needed, so that the rows of a piece do not fall on the same banks.
#define ROW_PITCH (ROWS + 4)
#define PROBE_PITCH (PROBES + 4)
// float4s of a row's piece, and how many of them a work-item fetches.
#define QUADS (DEPTH / 4)
#define ROW_FETCHES (ROWS * QUADS / GROUP_ITEMS)
#define PROBE_FETCHES (PROBES * QUADS / GROUP_ITEMS)

#if DIM % 16 != 0
#error "DIM must be a multiple of 16"
#endif

// The work-item's place in its group. Neighbours share their probes, and those next but one their rows: reads of local memory at one place by
// both are one read.
uint across(void)
{
    return get_local_id(0) / 2 % ACROSS;
}

uint down(void)
{
    return get_local_id(0) / (2 * ACROSS) * 2 + get_local_id(0) % 2;
}

// Where a work-item's share of the first piece lies.
void point_at(
    __global const float4 **const share,
    const uint fetches,
    __global const float4 *const vectors,
    const uint first,
    const uint count)
{
    #pragma unroll
    for (uint i = 0; i < fetches; ++i) {
        const uint place = get_local_id(0) + i * GROUP_ITEMS;
        share[i] = vectors + (size_t)min(first + place / QUADS, count - 1) * (DIM / 4) + place % QUADS;
    }
}

// Fetches a work-item's share of a piece, and moves on to that of the next.
void fetch(float4 *const into, __global const float4 **const share, const uint fetches)
{
    #pragma unroll
    for (uint i = 0; i < fetches; ++i) {
        into[i] = *share[i];
        share[i] += QUADS;
    }
}

void lay_down(__local float4 *const quads, const uint pitch, const float4 *const from, const uint fetches)
{
    __local float *const piece = (__local float *)quads;
    #pragma unroll
    for (uint i = 0; i < fetches; ++i) {
        const uint place = get_local_id(0) + i * GROUP_ITEMS;
        __local float *const at = piece + place % QUADS * 4 * pitch + place / QUADS;
        at[0] = from[i].x;
        at[pitch] = from[i].y;
        at[2 * pitch] = from[i].z;
        at[3 * pitch] = from[i].w;
    }
}

// Local memory of a group: two pieces of either kind, so that one is laid down while the other may still be read.
typedef struct {
    float4 rows[2][DEPTH * ROW_PITCH / 4];
    float4 probes[2][DEPTH * PROBE_PITCH / 4];
} pieces_t;

// The sums of a work-item: sums[row][probe], each row's probes as two float4s.
void multiply_tile(
    float4 sums[8][2],
    __local pieces_t *const pieces,
    __global const float4 *const rows,
    const uint first_row,
    const uint row_count,
    __global const float4 *const probes,
    const uint first_probe,
    const uint probe_count)
{
    const uint x = across();
    const uint y = down();
    #pragma unroll
    for (uint i = 0; i < 8; ++i) {
        sums[i][0] = (float4)(0.0f);
        sums[i][1] = (float4)(0.0f);
    }
    float4 next_rows[ROW_FETCHES];
    float4 next_probes[PROBE_FETCHES];
    __global const float4 *row_share[ROW_FETCHES];
    __global const float4 *probe_share[PROBE_FETCHES];
    point_at(row_share, ROW_FETCHES, rows, first_row, row_count);
    point_at(probe_share, PROBE_FETCHES, probes, first_probe, probe_count);
    fetch(next_rows, row_share, ROW_FETCHES);
    fetch(next_probes, probe_share, PROBE_FETCHES);
    for (uint component = 0; component < DIM; component += DEPTH) {
        __local float4 *const row_piece = pieces->rows[component / DEPTH % 2];
        __local float4 *const probe_piece = pieces->probes[component / DEPTH % 2];
        lay_down(row_piece, ROW_PITCH, next_rows, ROW_FETCHES);
        lay_down(probe_piece, PROBE_PITCH, next_probes, PROBE_FETCHES);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (component + DEPTH < DIM) {
            fetch(next_rows, row_share, ROW_FETCHES);
            fetch(next_probes, probe_share, PROBE_FETCHES);
        }
        #pragma unroll
        for (uint i = 0; i < DEPTH; ++i) {
            const float4 r0 = row_piece[i * (ROW_PITCH / 4) + y];
            const float4 r1 = row_piece[i * (ROW_PITCH / 4) + y + DOWN];
            const float4 p0 = probe_piece[i * (PROBE_PITCH / 4) + x];
            const float4 p1 = probe_piece[i * (PROBE_PITCH / 4) + x + ACROSS];
            sums[0][0] += r0.x * p0; sums[0][1] += r0.x * p1;
            sums[1][0] += r0.y * p0; sums[1][1] += r0.y * p1;
            sums[2][0] += r0.z * p0; sums[2][1] += r0.z * p1;
            sums[3][0] += r0.w * p0; sums[3][1] += r0.w * p1;
            sums[4][0] += r1.x * p0; sums[4][1] += r1.x * p1;
            sums[5][0] += r1.y * p0; sums[5][1] += r1.y * p1;
            sums[6][0] += r1.z * p0; sums[6][1] += r1.z * p1;
            sums[7][0] += r1.w * p0; sums[7][1] += r1.w * p1;
        }
    }
    // The next tile lays its first pieces where the last ones of this may still be read.
    barrier(CLK_LOCAL_MEM_FENCE);
}

// The work-item's row and probe of a place in its sums.
uint row_at(const uint i)
{
    return down() * 4 + i / 4 * (DOWN * 4) + i % 4;
}

uint probe_at(const uint i)
{
    return across() * 4 + i / 4 * (ACROSS * 4) + i % 4;
}

float of_four(const float4 values, const uint i)
{
    return i == 0 ? values.x : i == 1 ? values.y : i == 2 ? values.z : values.w;
}

// The best scores in a sample: every `stride`-th set of 128 rows.
//
//   maxima   float[probe_count][groups * 16]: of each work-item's rows the highest score less `error`; -INFINITY where there is none;
//            each group takes `rounds` sets
__kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void sample_floats(
    __global const float4 *restrict rows,
    __global const float4 *restrict probes,
    __global const uint *skip_offsets,
    __global const uint2 *skip_ranges,
    __global float *maxima,
    const float error,
    const uint row_count,
    const uint probe_count,
    const uint first_row,        // the gallery's number of the first row here
    const uint stride,
    const uint rounds)
{
    __local pieces_t pieces;
    const uint probe_sets = (probe_count + PROBES - 1) / PROBES;
    const uint group = get_group_id(0) / probe_sets;
    const uint groups = get_num_groups(0) / probe_sets;
    const uint probe_start = get_group_id(0) % probe_sets * PROBES;
    float best[8];
    #pragma unroll
    for (uint column = 0; column < 8; ++column) {
        best[column] = -INFINITY;
    }
    for (uint round = 0; round < rounds; ++round) {
        const uint row_start = (round * groups + group) * stride * ROWS;
        float4 sums[8][2];
        multiply_tile(sums, &pieces, rows, row_start, row_count, probes, probe_start, probe_count);
        #pragma unroll
        for (uint column = 0; column < 8; ++column) {
            const uint probe = probe_start + probe_at(column);
            #pragma unroll
            for (uint line = 0; line < 8; ++line) {
                const uint row = row_start + row_at(line);
                const float score = of_four(sums[line][column / 4], column % 4) - error;
                if (score > best[column] && row < row_count && probe < probe_count &&
                    !is_skipped(skip_ranges, skip_offsets[probe], skip_offsets[probe + 1], first_row + row)) {
                    best[column] = score;
                }
            }
        }
    }
    #pragma unroll
    for (uint column = 0; column < 8; ++column) {
        const uint probe = probe_start + probe_at(column);
        if (probe < probe_count) {
            maxima[((size_t)probe * groups + group) * DOWN + down()] = best[column];
        }
    }
}

// All rows whose score may reach the cut of a probe: score + error >= cut. The score on the lists is as computed.
__kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void collect_floats(
    __global const float4 *restrict rows,
    __global const float4 *restrict probes,
    __global const float2 *cuts,
    __global const uint *skip_offsets,
    __global const uint2 *skip_ranges,
    __global uint *counts,
    __global uint2 *found,
    const float error,
    const uint row_count,
    const uint probe_count,
    const uint first_row)        // the gallery's number of the first row here
{
    __local staged_t staged;
    const lists_t lists = { skip_offsets, skip_ranges, counts, found, first_row };
    begin_notes(&staged);
    __local pieces_t pieces;
    const uint probe_sets = (probe_count + PROBES - 1) / PROBES;
    const uint row_start = get_group_id(0) / probe_sets * ROWS;
    const uint probe_start = get_group_id(0) % probe_sets * PROBES;
    float4 sums[8][2];
    multiply_tile(sums, &pieces, rows, row_start, row_count, probes, probe_start, probe_count);
    #pragma unroll
    for (uint column = 0; column < 8; ++column) {
        const uint probe = probe_start + probe_at(column);
        const float cut = (probe < probe_count ? cuts[probe].x : INFINITY) - error;
        // One branch for all rows: few reach the cut, and what is done with one is long. Negated, so that NaN is found as well.
        bool any = false;
        #pragma unroll
        for (uint line = 0; line < 8; ++line) {
            any |= !(of_four(sums[line][column / 4], column % 4) < cut);
        }
        if (!any || probe >= probe_count) {
            continue;
        }
        #pragma unroll
        for (uint line = 0; line < 8; ++line) {
            const float score = of_four(sums[line][column / 4], column % 4);
            const uint row = row_start + row_at(line);
            if (!(score < cut) && row < row_count) {
                note(&staged, lists, probe, row, score);
            }
        }
    }
    put_notes(&staged, lists);
}
