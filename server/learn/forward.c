/* Passes observations through a plain MLP: what takes numpy a dozen calls, in one.

   Weights lie in panels of 16 columns, two registers of eight floats: (outputs / 16) panels of
   (inputs + 1) rows each, the bias last, layer after layer. Up to four observations go through a
   panel together, so that each weight is read once for all of them. */

#include "forward.h"

#include <string.h>

#define WIDE 8
#define PANEL 16
#define inline_always static inline __attribute__((always_inline))

typedef float wide __attribute__((vector_size(WIDE * sizeof(float)), aligned(4), may_alias));
typedef int32_t bits __attribute__((vector_size(WIDE * sizeof(int32_t))));

/* One panel for some rows; chains: sums that run side by side where there are few rows. */
inline_always void panel(const int rows, const int chains, const float *x, const float *weights,
                         int inputs, float *y, int widest, int last)
{
    const wide *w = (const wide *)weights;
    wide sum[4][4][2];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < chains; c++)
            for (int half = 0; half < 2; half++)
                sum[r][c][half] = c ? (wide){0} : w[2 * inputs + half];
    int i = 0;
    for (; i + chains <= inputs; i += chains)
        for (int c = 0; c < chains; c++)
            for (int r = 0; r < rows; r++)
                for (int half = 0; half < 2; half++)
                    sum[r][c][half] += x[r * widest + i + c] * w[2 * (i + c) + half];
    for (; i < inputs; i++)
        for (int r = 0; r < rows; r++)
            for (int half = 0; half < 2; half++)
                sum[r][0][half] += x[r * widest + i] * w[2 * i + half];
    for (int r = 0; r < rows; r++)
        for (int half = 0; half < 2; half++) {
            wide total = sum[r][0][half];
            for (int c = 1; c < chains; c++)
                total += sum[r][c][half];
            if (!last)
                total = (wide)((bits)total & (total > 0));
            ((wide *)(y + r * widest))[half] = total;
        }
}

static void layer(int rows, const float *x, const float *weights, int inputs, int outputs, float *y,
                  int widest, int last)
{
    for (int column = 0; column < outputs; column += PANEL, weights += (inputs + 1) * PANEL) {
        int row = 0;
        for (; row + 4 <= rows; row += 4)
            panel(4, 1, x + row * widest, weights, inputs, y + row * widest + column, widest, last);
        for (; row + 2 <= rows; row += 2)
            panel(2, 2, x + row * widest, weights, inputs, y + row * widest + column, widest, last);
        if (row < rows)
            panel(1, 4, x + row * widest, weights, inputs, y + row * widest + column, widest, last);
    }
}

/* Judge the observations in `from`; say which of the two buffers the outputs are in. */
int32_t forward(const struct network *network, int32_t rows)
{
    const float *weights = network->panels;
    float *x = network->from, *y = network->to;
    for (int number = 0; number < network->layers; number++) {
        int inputs = network->sizes[number], outputs = network->sizes[number + 1];
        layer(rows, x, weights, inputs, outputs, y, network->widest, number + 1 == network->layers);
        weights += (inputs + 1) * ((outputs + PANEL - 1) / PANEL * PANEL);
        float *said = y;
        y = x;
        x = said;
    }
    return x == network->to;
}

/* Judge a lone observation, and note the best choice of each head: the first of equals. */
int32_t choose(const struct network *network, const void *observation)
{
    if (network->value_bytes == 1)
        for (int i = 0; i < network->sizes[0]; i++)
            network->from[i] = ((const uint8_t *)observation)[i];
    else
        memcpy(network->from, observation, network->sizes[0] * sizeof(float));
    int32_t where = forward(network, 1);
    const float *out = where ? network->to : network->from;
    int start = 0;
    for (int head = 0; head < network->heads; head++) {
        network->best[head] = best_of(out, start, network->ends[head]);
        start = network->ends[head];
    }
    return where;
}
