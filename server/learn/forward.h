/* What forward.c offers. */

#ifndef COINOP_FORWARD_H
#define COINOP_FORWARD_H

#include <stdint.h>

struct network {
    int32_t layers;
    int32_t heads;
    const int32_t *sizes; /* of each layer's input, and of the last one's output */
    const int32_t *ends;  /* where each head ends in the output */
    const float *panels;
    float *from; /* (rows, widest) the observations, and then what every second layer says */
    float *to;   /* (rows, widest) what the others say */
    int32_t widest;
    int32_t value_bytes; /* of a lone observation: 1 or, as floats, 4 */
    int32_t *best; /* (heads) */
};

int32_t forward(const struct network *network, int32_t rows);
int32_t choose(const struct network *network, const void *observation);

/* The best choice of a head whose worths lie from start to end: the first of equals. */
static inline int best_of(const float *worths, int start, int end)
{
    int best = start;
    for (int i = start + 1; i < end; i++)
        if (worths[i] > worths[best])
            best = i;
    return best - start;
}

#endif
