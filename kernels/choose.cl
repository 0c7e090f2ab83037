// choose.cl: from the scores of a sample to a cut; from the rows that reach it to the answer. One work-group a probe. (After rank.cl.)
//
//   sample maxima  ->  set_cuts     cut: what the k-th of all rows reaches for certain
//   rows found     ->  choose       1. the k-th highest lower end of their scores: rows whose upper end is below it are dropped
//                                   2. the canonical scores of the others, in f64
//                                   3. those sorted: the first k, and all that equal the k-th
//
//   answers  ulong[probe_count][1 + answer_limit]: how many, or NOT_WHOLE where something did not fit and the probe has to be scanned
//            otherwise; then as many, each the key of the score (rank.cl) in the high 32 bits and the complement of the row's number in
//            the low 32, so that they descend by score and, among equals, rows ascend
//
// The canonical score of a row: products in f64 (exact), summed in 8 lanes by component modulo 8, the lanes pairwise, rounded once.

#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#ifndef DIM
#define DIM 128
#endif

// Rows that the lists of found.cl hold.
#ifndef CAPACITY
#define CAPACITY 4096
#endif

// Rows whose canonical scores are computed, at most: a power of two.
#ifndef SURVIVORS
#define SURVIVORS 1024
#endif

#define NOT_WHOLE 0xFFFFFFFFul

// How far the score of a row may be off: by its own part, which grows with the probe's norm, and by D of the probe; for scores of
// rows in f32 (FLOATS) by the same `bound` for all.
#ifdef FLOATS
#define ERROR_OF_ROW(row, probe) bound
#define ERROR_OF_PROBE(probe) 0.0f
#else
#define ERROR_OF_ROW(row, probe) (numbers[row].z * probe_numbers[probe].z)
#define ERROR_OF_PROBE(probe) (probe_numbers[probe].y)
#endif

//   cuts     float2[probe_count]: { what a row must reach to be noted, what every row of the answer reaches for certain }
//
// The second of them is the k-th highest of the sample's lower ends, D lower: what a row reaches whose real score equals it. Far fewer
// rows reach the `guess`-th highest (guess <= k), and it is most unlikely that fewer than k of all rows do: so that is what is asked of
// rows, and afterwards `choose` sees whether it was too much. Either is at least what was certain before: rows scanned before count too.
// The lower ends are moved to local memory as keys; -INFINITY stands for no row.
__kernel __attribute__((reqd_work_group_size(RANK_ITEMS, 1, 1))) void set_cuts(
    __global const float *maxima,          // [probe_count][maximum_count]
    __global const float4 *probe_numbers,
    __global float2 *cuts,
    const uint maximum_count,              // at most CAPACITY
    const uint k,
    const uint guess)
{
    __local uint keys[CAPACITY];
    __local rank_t rank;
    __local float before; // one work-item alone reads and writes what is certain of a probe
    const uint probe = get_group_id(0);
    const uint item = get_local_id(0);
    if (item == 0) {
        before = cuts[probe].y;
    }
    for (uint i = item; i < maximum_count; i += RANK_ITEMS) {
        keys[i] = key_of(maxima[(size_t)probe * maximum_count + i]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float certain = before;
    float guessed = certain;
    if (maximum_count >= k) {
        const float off = 2.0f * ERROR_OF_PROBE(probe);
        certain = fmax(certain, value_of(kth_key(keys, maximum_count, k, 8, &rank)) - off);
        guessed = fmax(certain, value_of(kth_key(keys, maximum_count, guess, 8, &rank)) - off);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0) {
        cuts[probe] = (float2)(guessed, certain);
    }
}

// Before a scan: no row is found yet, and every row may matter.
__kernel void begin_scan(__global uint *counts, __global float2 *cuts, const uint probe_count)
{
    const uint probe = get_global_id(0);
    if (probe < probe_count) {
        counts[probe] = 0;
        cuts[probe] = (float2)(-INFINITY, -INFINITY);
    }
}

__kernel __attribute__((reqd_work_group_size(RANK_ITEMS, 1, 1))) void choose(
    __global const float *rows,            // [..][DIM]
    __global const float *probes,          // [probe_count][DIM]
    __global const float4 *numbers,
    __global const float4 *probe_numbers,
    __global uint *counts,                 // 0 again afterwards
    __global const uint2 *found,
    __global float2 *cuts,                 // afterwards what is certain by now, twice: for the next list, where this one did not do
    __global ulong *answers,
    const float bound,                     // of scores of rows in f32
    const uint k,                          // at most answer_limit
    const uint answer_limit,               // rows of an answer, at most
    const uint first_row)                  // the gallery's number of the first row here
{
    __local uint keys[CAPACITY];
    __local uint survivors[SURVIVORS];
    __local ulong scores[SURVIVORS];
    __local double sums[RANK_ITEMS];
    __local rank_t rank;
    __local uint survivor_count;
    // One work-item alone reads and writes these where they are.
    __local uint found_count;
    __local float2 cut_before;
    const uint probe = get_group_id(0);
    const uint item = get_local_id(0);
    __global ulong *const answer = answers + (size_t)probe * (1 + answer_limit);
    __global const uint2 *const of_probe = found + (size_t)probe * CAPACITY;
    if (item == 0) {
        survivor_count = 0;
        found_count = counts[probe];
        counts[probe] = 0;
        cut_before = cuts[probe];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint count = found_count;

    // 1. Rows that cannot be among the first k for certain. What did not fit is missing, but the k-th of some rows is as certain.
    const uint held = min(count, (uint)CAPACITY);
    for (uint i = item; i < held; i += RANK_ITEMS) {
        const uint2 entry = of_probe[i];
        keys[i] = key_of(as_float(entry.y) - ERROR_OF_ROW(entry.x, probe));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float cut = cut_before.y;
    if (held >= k) {
        cut = fmax(cut, value_of(kth_key(keys, held, k, 8, &rank)) - 2.0f * ERROR_OF_PROBE(probe));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0) {
        cuts[probe] = (float2)(cut, cut);
    }
    // Rows that reach what is certain must all have been noted.
    if (count > CAPACITY || cut < cut_before.x) {
        if (item == 0) {
            answer[0] = NOT_WHOLE;
        }
        return;
    }
    for (uint i = item; i < count; i += RANK_ITEMS) {
        const uint2 entry = of_probe[i];
        if (as_float(entry.y) + ERROR_OF_ROW(entry.x, probe) >= cut) {
            const uint slot = atomic_inc(&survivor_count);
            if (slot < SURVIVORS) {
                survivors[slot] = entry.x;
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint alive = survivor_count;
    if (alive > SURVIVORS) {
        if (item == 0) {
            answer[0] = NOT_WHOLE;
        }
        return;
    }

    // 2. Eight work-items a row, one a lane of the sum.
    const uint lane = item % 8;
    for (uint first = 0; first < alive; first += RANK_ITEMS / 8) {
        const uint place = first + item / 8;
        double sum = 0.0;
        if (place < alive) {
            __global const float *const row = rows + (size_t)survivors[place] * DIM;
            __global const float *const of_query = probes + (size_t)probe * DIM;
            #pragma unroll 16
            for (uint i = lane; i < DIM; i += 8) {
                sum = fma((double)row[i], (double)of_query[i], sum);
            }
        }
        sums[item] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane == 0 && place < alive) {
            __local const double *const l = sums + item;
            const double whole = ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]));
            // Adding zero turns -0 into 0.
            const uint key = key_of(convert_float_rte(whole) + 0.0f);
            scores[place] = (ulong)key << 32 | (ulong)~(first_row + survivors[place]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    // 3. Sorted, descending (a bitonic network over the next power of two); places that hold nothing are 0 and end up last.
    uint places = 2;
    while (places < alive) {
        places *= 2;
    }
    for (uint i = alive + item; i < places; i += RANK_ITEMS) {
        scores[i] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint run = 2; run <= places; run *= 2) {
        for (uint apart = run / 2; apart > 0; apart /= 2) {
            for (uint i = item; i < places / 2; i += RANK_ITEMS) {
                const uint left = i / apart * apart * 2 + i % apart;
                const ulong a = scores[left];
                const ulong b = scores[left + apart];
                if ((a < b) == ((left & run) == 0)) {
                    scores[left] = b;
                    scores[left + apart] = a;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
    const ulong least = alive > k ? scores[k - 1] >> 32 << 32 : 0;
    if (item == 0 && alive == 0) {
        answer[0] = 0;
    }
    for (uint i = item; i < alive && scores[i] >= least; i += RANK_ITEMS) {
        if (i < answer_limit) {
            answer[1 + i] = scores[i];
        }
        // The last of them says how many there are.
        if (i + 1 == alive || scores[i + 1] < least) {
            answer[0] = i < answer_limit ? i + 1 : NOT_WHOLE;
        }
    }
}
