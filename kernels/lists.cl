// lists.cl: a list of the best rows of one probe that one work-item has met, in global memory. (After dot.cl.)
//
//   scores    float[TOPK]   [ s | s | s | ...         ]     `held` places are filled, from the left
//   indices   uint[TOPK]    [ r | r | r | ...         ]
//
// How a row enters is a parameter; all ways keep the same rows:
//
//   sorted insertion    scores descend; what is lower than the new one moves one place to the right
//   min-replace         in no order; the new row takes the place of the lowest, and the new lowest is looked for
//
// The lists lie in global memory: a row enters them rarely, and private arrays of this size would spill there anyway.

// 0: sorted insertion. 1: min-replace, whose lowest score is read from the list for every row. 2: threshold and min-replace: the
// lowest score is kept in a register.
#ifndef STRATEGY
#define STRATEGY 2
#endif

// How far a measurement goes. 0: dot products, summed. 1: the best score. 2: lists of scores. 3: lists of scores and rows.
// 4: all that serving wants.
#ifndef STAGE
#define STAGE 4
#endif

#define LOWEST (-MAXFLOAT)
#define NO_ROW 0xFFFFFFFFu

// What a work-item knows of one of its lists.
typedef struct {
    uint held;       // places filled
    uint lowest;     // the place of the lowest score, once all are
    float threshold; // that score; before, LOWEST
} list_state;

void write_place(__global float *scores, __global uint *indices, const uint place, const float score, const uint row)
{
    scores[place] = score;
#if STAGE >= 3
    indices[place] = row;
#endif
}

// Enters a row that beats the list's lowest, or finds room.
void enter(__global float *scores, __global uint *indices, list_state *state, float score, const uint row)
{
    // No number: highest of all, and not for others to push out, so that the host sees it.
    if (score != score) {
        score = INFINITY;
    }
#if STRATEGY == 0
    uint place = state->held < TOPK ? state->held++ : TOPK - 1;
    for (; place > 0 && scores[place - 1] < score; --place) {
        scores[place] = scores[place - 1];
#if STAGE >= 3
        indices[place] = indices[place - 1];
#endif
    }
    write_place(scores, indices, place, score, row);
    if (state->held == TOPK) {
        state->lowest = TOPK - 1;
        state->threshold = scores[TOPK - 1];
    }
#else
    const uint place = state->held < TOPK ? state->held++ : state->lowest;
    write_place(scores, indices, place, score, row);
    if (state->held == TOPK) {
        uint lowest = 0;
        float threshold = scores[0];
        for (uint i = 1; i < TOPK; ++i) {
            if (scores[i] < threshold) {
                threshold = scores[i];
                lowest = i;
            }
        }
        state->lowest = lowest;
        state->threshold = threshold;
    }
#endif
}

// The score that a row must beat to enter.
float entry_score(__global const float *scores, const list_state *state)
{
#if STRATEGY == 1
    return state->held < TOPK ? LOWEST : scores[state->lowest];
#else
    return state->threshold;
#endif
}

// Marks the places that no row fills.
void fill_up(__global float *scores, __global uint *indices, const list_state *state)
{
    for (uint place = state->held; place < TOPK; ++place) {
        write_place(scores, indices, place, LOWEST, NO_ROW);
    }
}

