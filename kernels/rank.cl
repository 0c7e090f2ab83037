// rank.cl: the k-th highest of many numbers, by one work-group. It is put in front of choose.cl.
//
// Numbers are unsigned keys. The k-th highest is found eight bits at a time, from the highest: the keys that agree with what is known
// so far are counted by their next eight bits (a histogram of 256 bins, one a work-item), and the bin in which the k-th
// lies gives those bits. Four rounds, whatever k.

// Work-items of a group: one a bin.
#define RANK_ITEMS 256

// A key that orders as the floats do. Not for NaN.
uint key_of(const float value)
{
    const uint bits = as_uint(value);
    return (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
}

float value_of(const uint key)
{
    return as_float((key & 0x80000000u) ? (key & 0x7FFFFFFFu) : ~key);
}

// Bins that are summed first.
#define RANK_SIDE 16

// What a group needs of local memory.
typedef struct {
    uint bins[RANK_ITEMS];
    uint sides[RANK_SIDE]; // sums of so many bins each
    uint chosen; // the bin of the k-th
    uint above;  // keys in higher bins
} rank_t;

// The `k`-th highest (1: the highest) of `count` keys, which are at least k; of its lowest `rough` bits (0, 8 or 16), zeros instead.
uint kth_key(__local const uint *const keys, const uint count, uint k, const int rough, __local rank_t *const rank)
{
    const uint item = get_local_id(0);
    uint known = 0;
    for (int shift = 24; shift >= rough; shift -= 8) {
        rank->bins[item] = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = item; i < count; i += RANK_ITEMS) {
            const uint key = keys[i];
            if (shift == 24 || (key ^ known) >> (shift + 8) == 0) {
                atomic_inc(&rank->bins[(key >> shift) & 255u]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < RANK_SIDE) {
            uint sum = 0;
            for (uint i = 0; i < RANK_SIDE; ++i) {
                sum += rank->bins[item * RANK_SIDE + i];
            }
            rank->sides[item] = sum;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        uint higher = 0;
        for (uint i = 0; i < RANK_SIDE; ++i) {
            higher += i > item / RANK_SIDE ? rank->sides[i] : 0;
            higher += i > item % RANK_SIDE ? rank->bins[item / RANK_SIDE * RANK_SIDE + i] : 0;
        }
        if (higher < k && higher + rank->bins[item] >= k) {
            rank->chosen = item;
            rank->above = higher;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        known |= rank->chosen << shift;
        k -= rank->above;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return known;
}
