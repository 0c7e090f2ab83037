// bytes.cl: scores of quantised rows and probes (quantize.cl) on matrix units, in two kernels: the best scores of a sample of
// the rows, and all rows whose score may reach a probe's cut. (After skip.cl, found.cl.)
//
//   a warp (32 work-items) takes PANELS panels of 16 rows and TILES tiles of 8 probes at a time. Its registers hold the products so:
//
//              lane 4g + t      column 8j + 2t      column 8j + 2t + 1       (j: tile)
//              row g            sums[j][0]          sums[j][1]
//              row g + 8        sums[j][2]          sums[j][3]
//
//   a group has PROBE_WARPS x ROW_WARPS warps: those side by side share the rows they read, those behind one another take others
//
//              probes      | warp 0   | warp 1   | ...          PROBE_WARPS * TILES * 8 a group; dimension 1 of the range counts groups of
//              rows        | warp PW  | warp PW+1| ...          probes, dimension 0 shares out the panels
//
//   With v = s t <r, p> + <x - m, m>, |q - m| |e| at most e = norm * |e| (norm: the largest |q - m| of a group's probes), and the probe's
//   D: the real score lies within e + D of v + <q, m>. The term <q, m> is the same for all rows of a probe, and left out everywhere.
//
// On NVIDIA's matrix units (PTX defined) a product is mma.sync; elsewhere a stand-in computes the same through local memory, so that
// everything around it can be tested on any device. It is not meant to be fast.

#ifndef DIM
#define DIM 128
#endif

// Panels that a warp multiplies together: each fetch of a probe serves so many.
#ifndef PANELS
#define PANELS 2
#endif

// Tiles of 8 probes a warp.
#ifndef TILES
#define TILES 4
#endif

// Warps side by side, and behind one another.
#ifndef PROBE_WARPS
#define PROBE_WARPS 8
#endif
#ifndef ROW_WARPS
#define ROW_WARPS 1
#endif

#define STEPS ((DIM + 31) / 32)
#define WARPS (PROBE_WARPS * ROW_WARPS)
#define GROUP_ITEMS (WARPS * 32)
#define GROUP_PROBES (PROBE_WARPS * TILES * 8)

// Sums start here. As the bits of a float this is 1.5 * 2^23, and adding an integer of less than 2^22 to the bits adds it to the float:
// a subtraction makes a float of a sum, at full speed, where a conversion would take several times as long. Sums of larger
// dimensions are converted.
#define QUICK (DIM <= 256)
#if QUICK
#define NOTHING 0x4B400000
#define SUM_OF(sum) (as_float(sum) - 12582912.0f)
#else
#define NOTHING 0
#define SUM_OF(sum) ((float)(sum))
#endif

// Whether a warp's probes stay in registers: more would not fit.
#define HELD (TILES * STEPS <= 16)

// Unrolled for the compiler of the matrix units, which must see every index of a register. The stand-in's would take minutes.
#ifdef PTX
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("nounroll")
#endif

// The largest |q - m| of a group's probes, and a little more: read by every work-item, which costs less than to tell each other.
float largest_norm(__global const float4 *const probe_numbers)
{
    const uint first = get_group_id(1) * GROUP_PROBES;
    float largest = 0.0f;
    for (uint i = 0; i < GROUP_PROBES; ++i) {
        largest = fmax(largest, probe_numbers[first + i].z);
    }
    return largest;
}

// Where a warp stands: which of its group, and where in it.
typedef struct {
    uint lane;
    uint row_warp;
    uint first_tile;      // of all tiles
    __local uint *shared; // what the stand-in exchanges: 6 words a work-item
} place_t;

place_t place_of(__local uint *const shared)
{
    const uint item = get_local_id(0);
    place_t place;
    place.lane = item % 32;
    place.row_warp = item / 32 / PROBE_WARPS;
    place.first_tile = (get_group_id(1) * PROBE_WARPS + item / 32 % PROBE_WARPS) * TILES;
    place.shared = shared;
    return place;
}

// sums += rows of a panel's step * probes of a tile's step.
void multiply(int sums[4], const uint4 rows, const uint2 probes, const place_t place)
{
#ifdef PTX
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(rows.x), "r"(rows.y), "r"(rows.z), "r"(rows.w), "r"(probes.x), "r"(probes.y));
#else
    // Words of the rows by [warp][lane][4], of the probes by [warp][lane][2].
    const uint warp = get_local_id(0) / 32;
    __local uint *const row_words = place.shared + warp * 32 * 6;
    __local uint *const probe_words = row_words + 32 * 4;
    vstore4(rows, place.lane, row_words);
    vstore2(probes, place.lane, probe_words);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint result = 0; result < 4; ++result) {
        const uint row = place.lane / 4;
        const uint probe = place.lane % 4 * 2 + result % 2;
        int sum = 0;
        for (uint part = 0; part < 8; ++part) {
            // Four components: the first 16 lie in words 0 and 1 of a lane, the others in 2 and 3.
            const char4 a = as_char4(row_words[(row * 4 + part % 4) * 4 + part / 4 * 2 + result / 2]);
            const char4 b = as_char4(probe_words[(probe * 4 + part % 4) * 2 + part / 4]);
            sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
        }
        sums[result] += sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}

// What stands beside the rows of a lane in PANELS panels: [panel][0: row g, 1: row g + 8].
typedef struct {
    float scale[PANELS][2];
    float edge[PANELS][2]; // an end of the interval of a score of 0: <x - m, m> and so many times the error's norm
} beside_t;

// Read before the products, so that both are waited for at once.
beside_t read_beside(
    __global const float4 *restrict numbers,
    const uint first_panel,
    const uint last_panel,
    const float norm,
    const place_t place)
{
    beside_t beside;
    UNROLL
    for (uint panel = 0; panel < PANELS; ++panel) {
        UNROLL
        for (uint side = 0; side < 2; ++side) {
            const float4 of_row = numbers[min(first_panel + panel, last_panel) * 16 + side * 8 + place.lane / 4];
            beside.scale[panel][side] = of_row.x;
            beside.edge[panel][side] = fma(of_row.z, norm, of_row.y);
        }
    }
    return beside;
}

// Products of PANELS panels from `first_panel` on, each at most `last_panel`, and the warp's tiles.
void multiply_panels(
    int sums[PANELS][TILES][4],
    __global const uint4 *const codes,
    const uint first_panel,
    const uint last_panel,
    __global const uint2 *const probe_codes,
    const uint2 held[TILES][STEPS],
    const place_t place)
{
    UNROLL
    for (uint panel = 0; panel < PANELS; ++panel) {
        UNROLL
        for (uint tile = 0; tile < TILES; ++tile) {
            UNROLL
            for (uint i = 0; i < 4; ++i) {
                sums[panel][tile][i] = NOTHING;
            }
        }
    }
#if HELD
    UNROLL
#endif
    for (uint step = 0; step < STEPS; ++step) {
        uint4 rows[PANELS];
        UNROLL
        for (uint panel = 0; panel < PANELS; ++panel) {
            const size_t at = min(first_panel + panel, last_panel);
            rows[panel] = codes[(at * STEPS + step) * 32 + place.lane];
        }
        UNROLL
        for (uint tile = 0; tile < TILES; ++tile) {
#if HELD
            const uint2 probes = held[tile][step];
#else
            const uint2 probes = probe_codes[((size_t)(place.first_tile + tile) * STEPS + step) * 32 + place.lane];
#endif
            UNROLL
            for (uint panel = 0; panel < PANELS; ++panel) {
                multiply(sums[panel][tile], rows[panel], probes, place);
            }
        }
    }
}

#if HELD
#define HOLD_PROBES(held)                                                                                            \
    uint2 held[TILES][STEPS];                                                                                        \
    UNROLL for (uint tile = 0; tile < TILES; ++tile) {                                                    \
        UNROLL for (uint step = 0; step < STEPS; ++step) {                                                \
            held[tile][step] = probe_codes[((size_t)(place.first_tile + tile) * STEPS + step) * 32 + place.lane];    \
        }                                                                                                            \
    }
#else
#define HOLD_PROBES(held) const uint2 (*held)[STEPS] = 0;
#endif

// The best lower ends of scores in a sample.
//
//   maxima   float[probe_count][groups * ROW_WARPS * 8]: of each lane's rows of the sample, the most that v - e is for certain; -INFINITY
//            where a lane met no row
//   The sample is every `stride`-th set of PANELS panels; each warp takes `rounds` of them.
__kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void sample_bytes(
    __global const uint4 *restrict codes,
    __global const float4 *restrict numbers,
    __global const uint2 *restrict probe_codes,
    __global const float4 *probe_numbers,
    __global const uint *skip_offsets,
    __global const uint2 *skip_ranges,
    __global float *maxima,
    const uint panel_count,
    const uint probe_count,
    const uint first_row,        // the gallery's number of the first row here
    const uint stride,
    const uint rounds)
{
    __local uint shared[GROUP_ITEMS * 6];
    const place_t place = place_of(shared);
    const float norm = largest_norm(probe_numbers);
    HOLD_PROBES(held)
    const uint warps = get_num_groups(0) * ROW_WARPS;
    const uint warp = get_group_id(0) * ROW_WARPS + place.row_warp;
    const uint column = place.first_tile * 8 + place.lane % 4 * 2;

    float scales[TILES][2];
    float best[TILES][2];
    for (uint tile = 0; tile < TILES; ++tile) {
        for (uint side = 0; side < 2; ++side) {
            const uint probe = column + tile * 8 + side;
            scales[tile][side] = probe_numbers[probe].x;
            best[tile][side] = -INFINITY;
        }
    }
    const bool skipping = skip_offsets[probe_count] > 0;
    for (uint round = 0; round < rounds; ++round) {
        const uint first_panel = (round * warps + warp) * stride * PANELS;
        const beside_t beside = read_beside(numbers, first_panel, panel_count - 1, -norm, place);
        int sums[PANELS][TILES][4];
        multiply_panels(sums, codes, first_panel, panel_count - 1, probe_codes, held, place);
        UNROLL
        for (uint panel = 0; panel < PANELS; ++panel) {
            UNROLL
            for (uint half_of = 0; half_of < 2; ++half_of) {
                // What lies beyond the last panel has been read as the last panel, and may count twice: a maximum does not mind.
                const uint row = min(first_panel + panel, panel_count - 1) * 16 + half_of * 8 + place.lane / 4;
                UNROLL
                for (uint tile = 0; tile < TILES; ++tile) {
                    UNROLL
                    for (uint side = 0; side < 2; ++side) {
                        const float product = beside.scale[panel][half_of] * SUM_OF(sums[panel][tile][half_of * 2 + side]);
                        const float lower = fma(product, scales[tile][side], beside.edge[panel][half_of]);
                        if (skipping && lower > best[tile][side]) {
                            const uint probe = min(column + tile * 8 + side, probe_count - 1);
                            if (is_skipped(skip_ranges, skip_offsets[probe], skip_offsets[probe + 1], first_row + row)) {
                                continue;
                            }
                        }
                        best[tile][side] = fmax(best[tile][side], lower);
                    }
                }
            }
        }
    }
    for (uint tile = 0; tile < TILES; ++tile) {
        for (uint side = 0; side < 2; ++side) {
            const uint probe = column + tile * 8 + side;
            if (probe < probe_count) {
                maxima[(size_t)probe * warps * 8 + warp * 8 + place.lane / 4] = best[tile][side];
            }
        }
    }
}

// Rounds after which notes are put on the lists: so few that there is room for them, as a rule.
#define NOTED_ROUNDS 4

// All rows whose score may reach the cut of a probe: v + e >= cut.
// The score on the lists is v.
__kernel __attribute__((reqd_work_group_size(GROUP_ITEMS, 1, 1))) void collect_bytes(
    __global const uint4 *restrict codes,
    __global const float4 *restrict numbers,
    __global const uint2 *restrict probe_codes,
    __global const float4 *probe_numbers,
    __global const float2 *cuts,
    __global const uint *skip_offsets,
    __global const uint2 *skip_ranges,
    __global uint *counts,
    __global uint2 *found,
    const uint panel_count,
    const uint probe_count,
    const uint first_row)        // the gallery's number of the first row here
{
    __local uint shared[GROUP_ITEMS * 6];
    __local staged_t staged;
    const lists_t lists = { skip_offsets, skip_ranges, counts, found, first_row };
    const place_t place = place_of(shared);
    const float norm = largest_norm(probe_numbers);
    begin_notes(&staged);
    HOLD_PROBES(held)
    const uint warps = get_num_groups(0) * ROW_WARPS;
    const uint warp = get_group_id(0) * ROW_WARPS + place.row_warp;
    const uint column = place.first_tile * 8 + place.lane % 4 * 2;

    float scales[TILES][2];
    float cut[TILES][2];
    for (uint tile = 0; tile < TILES; ++tile) {
        for (uint side = 0; side < 2; ++side) {
            const uint probe = column + tile * 8 + side;
            scales[tile][side] = probe_numbers[probe].x;
            cut[tile][side] = probe < probe_count ? cuts[probe].x : INFINITY;
        }
    }
    // As many rounds for every warp, since the stand-in waits for all of a group.
    const uint rounds = (panel_count + warps * PANELS - 1) / (warps * PANELS);
    for (uint round = 0; round < rounds; ++round) {
        const uint first_panel = (round * warps + warp) * PANELS;
        const beside_t beside = read_beside(numbers, first_panel, panel_count - 1, norm, place);
        int sums[PANELS][TILES][4];
        multiply_panels(sums, codes, first_panel, panel_count - 1, probe_codes, held, place);
        UNROLL
        for (uint panel = 0; panel < PANELS; ++panel) {
            UNROLL
            for (uint half_of = 0; half_of < 2; ++half_of) {
                if (first_panel + panel >= panel_count) {
                    continue;
                }
                // One branch for all of a row's probes: hits are rare, and what is done with one is long.
                bool any = false;
                UNROLL
                for (uint tile = 0; tile < TILES; ++tile) {
                    UNROLL
                    for (uint side = 0; side < 2; ++side) {
                        const float product = beside.scale[panel][half_of] * SUM_OF(sums[panel][tile][half_of * 2 + side]);
                        any |= fma(product, scales[tile][side], beside.edge[panel][half_of]) >= cut[tile][side];
                    }
                }
                if (!any) {
                    continue;
                }
                const uint row = (first_panel + panel) * 16 + half_of * 8 + place.lane / 4;
                const float middle = numbers[row].y;
                UNROLL
                for (uint tile = 0; tile < TILES; ++tile) {
                    UNROLL
                    for (uint side = 0; side < 2; ++side) {
                        const float product = beside.scale[panel][half_of] * SUM_OF(sums[panel][tile][half_of * 2 + side]);
                        if (fma(product, scales[tile][side], beside.edge[panel][half_of]) >= cut[tile][side]) {
                            const float score = fma(product, scales[tile][side], middle);
                            note(&staged, lists, column + tile * 8 + side, row, score);
                        }
                    }
                }
            }
        }
        if (round % NOTED_ROUNDS == NOTED_ROUNDS - 1) {
            put_notes(&staged, lists);
        }
    }
    put_notes(&staged, lists);
}
