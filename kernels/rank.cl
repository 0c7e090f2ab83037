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

// What a group needs of local memory.
typedef struct {
    uint bins[RANK_ITEMS];
    uint chosen; // the bin of the k-th
    uint above;  // keys in higher bins
} rank_t;

// The `k`-th highest (1: the highest) of `count` keys, which are at least k. KEYS is __local or __global.
#define DEFINE_KTH_KEY(NAME, KEYS)                                                                      \
    uint NAME(KEYS const uint *const keys, const uint count, uint k, __local rank_t *const rank)        \
    {                                                                                                   \
        const uint item = get_local_id(0);                                                              \
        uint known = 0;                                                                                 \
        for (int shift = 24; shift >= 0; shift -= 8) {                                                  \
            rank->bins[item] = 0;                                                                       \
            barrier(CLK_LOCAL_MEM_FENCE);                                                               \
            for (uint i = item; i < count; i += RANK_ITEMS) {                                           \
                const uint key = keys[i];                                                               \
                if (shift == 24 || (key ^ known) >> (shift + 8) == 0) {                                 \
                    atomic_inc(&rank->bins[(key >> shift) & 255u]);                                     \
                }                                                                                       \
            }                                                                                           \
            barrier(CLK_LOCAL_MEM_FENCE);                                                               \
            /* Each bin becomes the number of keys in it and in all higher ones. */                     \
            for (uint step = 1; step < RANK_ITEMS; step *= 2) {                                         \
                const uint further = item + step < RANK_ITEMS ? rank->bins[item + step] : 0;            \
                barrier(CLK_LOCAL_MEM_FENCE);                                                           \
                rank->bins[item] += further;                                                            \
                barrier(CLK_LOCAL_MEM_FENCE);                                                           \
            }                                                                                           \
            const uint higher = item + 1 < RANK_ITEMS ? rank->bins[item + 1] : 0;                       \
            if (rank->bins[item] >= k && higher < k) {                                                  \
                rank->chosen = item;                                                                    \
                rank->above = higher;                                                                   \
            }                                                                                           \
            barrier(CLK_LOCAL_MEM_FENCE);                                                               \
            known |= rank->chosen << shift;                                                             \
            k -= rank->above;                                                                           \
            barrier(CLK_LOCAL_MEM_FENCE);                                                               \
        }                                                                                               \
        return known;                                                                                   \
    }

DEFINE_KTH_KEY(kth_key, __local)
