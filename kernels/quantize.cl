// quantize.cl: rows and probes in bytes, as bytes.cl multiplies them, with what stands beside them.
//
//   x - m = s r + e    m: the centre of the gallery's rows; r: integers of -127 to 127; s: a scale a row; e: the error
//
//   codes    char[panels][STEPS][32 lanes][16]: 16 rows a panel, 32 components a step; the 16 bytes of a lane are four words:
//
//              lane      word 0                word 1                word 2                     word 3
//              4g + t    row g                 row g + 8             row g                      row g + 8
//                        comp. 4t .. 4t + 3    comp. 4t .. 4t + 3    comp. 16 + 4t .. 19 + 4t   comp. 16 + 4t .. 19 + 4t
//
//            which is how mma.sync m16n8k32 wants the rows of a product in a warp's registers (PTX ISA, "Matrix Fragments for
//            mma.m16n8k32"): a warp reads a panel's step as one piece of 512 bytes
//
//   probe codes   char[tiles][STEPS][32 lanes][8]: 8 probes a tile, likewise:
//
//              lane      word 0                      word 1
//              4g + t    probe g, comp. 4t .. +3     probe g, comp. 16 + 4t .. +3
//
//   numbers  float4[row], with padding up to whole panels: { s, <x - m, m>, at least |e|, 0 }; of padding { 0, NaN, 0, 0 }
//   probe_numbers   float4[probe], with padding up to whole tiles: { t, D, at least |q - m|, 0 }; D bounds what a score may be off beside
//            the row's part |q - m| |e|: D = |d| reach + slack, where q - m = t p + d; of padding { 0, 0, 0, 0 }
//   reach    at least every row's |s r|, as bits of a float that is not negative: those order as integers do
//
// What rounding may do is added to |e| and |d|: with u = 2^-23 (twice the unit roundoff, for devices that round toward zero), a
// difference x - m is off by at most u |x - m|, e = fma(-s, r, x - m) by u |e| more, the sum of squares of e by (DIM + 8) u of
// itself, its root by 4 u.

#ifndef DIM
#define DIM 128
#endif

// Steps of 32 components that cover DIM.
#define STEPS ((DIM + 31) / 32)
#define ROUNDING 1.1920929e-7f
#define LEVELS 127.0f

// At least the norm whose computed square is `square`.
float norm_above(const float square)
{
    return sqrt(square) * (1.0f + (DIM + 16) * ROUNDING) + 1.0e-18f;
}

// At least the norm of the error: `square` is its computed square, `whole` that of what was quantised.
float error_above(const float square, const float whole)
{
    return norm_above(square) + 2.0f * ROUNDING * norm_above(whole);
}

int level(const float value, const float scale)
{
    return scale > 0.0f ? (int)clamp(rint(value / scale), -LEVELS, LEVELS) : 0;
}

// One work-item a row, padding included.
__kernel void quantize_rows(
    __global const float *rows,      // [row_count][DIM]
    __global const float *centre,    // [DIM]
    __global char *codes,
    __global float4 *numbers,
    __global uint *reach,
    const uint row_count,
    const uint first_row)            // of this launch, a multiple of 16
{
    const uint row = first_row + get_global_id(0);
    const uint place = row % 16;
    __global char *const panel = codes + (size_t)(row / 16) * STEPS * 512;
    const bool there = row < row_count;
    __global const float *const values = rows + (size_t)(there ? row : 0) * DIM;

    float largest = 0.0f;
    float whole = 0.0f;
    float bias = 0.0f;
    for (uint i = 0; i < DIM; ++i) {
        const float value = values[i] - centre[i];
        largest = fmax(largest, fabs(value));
        whole = fma(value, value, whole);
        bias = fma(value, centre[i], bias);
    }
    const float scale = largest / LEVELS;
    float error = 0.0f;
    float reached = 0.0f;
    for (uint i = 0; i < STEPS * 32; ++i) {
        int code = 0;
        if (there && i < DIM) {
            const float value = values[i] - centre[i];
            code = level(value, scale);
            const float off = fma(-scale, (float)code, value);
            error = fma(off, off, error);
            reached = fma(scale * (float)code, scale * (float)code, reached);
        }
        const uint lane = (place % 8) * 4 + (i % 16) / 4;
        const uint word = place / 8 + (i % 32 / 16) * 2;
        panel[(i / 32) * 512 + lane * 16 + word * 4 + i % 4] = (char)code;
    }
    if (there) {
        numbers[row] = (float4)(scale, bias, error_above(error, whole), 0.0f);
        atomic_max(reach, as_uint(norm_above(reached)));
    } else {
        numbers[row] = (float4)(0.0f, NAN, 0.0f, 0.0f);
    }
}

// Work-items a probe.
#ifndef PROBE_ITEMS
#define PROBE_ITEMS 32
#endif

// The sum of one number of each work-item.
float sum_of(__local float *const values, const uint item, const float mine)
{
    values[item] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_way = PROBE_ITEMS / 2; half_way > 0; half_way /= 2) {
        if (item < half_way) {
            values[item] += values[item + half_way];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float sum = values[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}

float max_of(__local float *const values, const uint item, const float mine)
{
    values[item] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_way = PROBE_ITEMS / 2; half_way > 0; half_way /= 2) {
        if (item < half_way) {
            values[item] = fmax(values[item], values[item + half_way]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float largest = values[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return largest;
}

// One work-group a probe, padding included.
__kernel __attribute__((reqd_work_group_size(PROBE_ITEMS, 1, 1))) void quantize_probes(
    __global const float *probes,     // [probe_count][DIM]
    __global const float *centre,     // [DIM]
    __global const uint *reach,
    __global char *codes,
    __global float4 *numbers,
    __global uint *counts,            // [probe_count]: no row is found yet,
    __global float2 *cuts,            // [probe_count]: and every row may matter
    const float slack,                // what the roundings of a score may add up to
    const uint probe_count)
{
    __local float values[PROBE_ITEMS];
    const uint probe = get_group_id(0);
    const uint item = get_local_id(0);
    const bool there = probe < probe_count;
    __global const float *const probe_values = probes + (size_t)(there ? probe : 0) * DIM;
    __global char *const tile = codes + (size_t)(probe / 8) * STEPS * 256;

    float largest = 0.0f;
    float whole = 0.0f;
    for (uint i = item; i < DIM; i += PROBE_ITEMS) {
        const float value = probe_values[i] - centre[i];
        largest = fmax(largest, fabs(value));
        whole = fma(value, value, whole);
    }
    largest = max_of(values, item, largest);
    whole = sum_of(values, item, whole);
    const float scale = there ? largest / LEVELS : 0.0f;
    float error = 0.0f;
    for (uint i = item; i < STEPS * 32; i += PROBE_ITEMS) {
        int code = 0;
        if (there && i < DIM) {
            const float value = probe_values[i] - centre[i];
            code = level(value, scale);
            const float off = fma(-scale, (float)code, value);
            error = fma(off, off, error);
        }
        const uint lane = (probe % 8) * 4 + (i % 16) / 4;
        tile[(i / 32) * 256 + lane * 8 + (i % 32 / 16) * 4 + i % 4] = (char)code;
    }
    error = sum_of(values, item, error);
    if (item == 0) {
        const float off = error_above(error, whole) * as_float(*reach) * (1.0f + 4.0f * ROUNDING) + slack;
        numbers[probe] = there ? (float4)(scale, off, norm_above(whole), 0.0f) : (float4)(0.0f);
        if (there) {
            counts[probe] = 0;
            cuts[probe] = (float2)(-INFINITY, -INFINITY);
        }
    }
}
