/* SPDX-License-Identifier: MIT
 *
 * rollout.h - how much of each input token is in a token of a later layer, from the weights of all layers: attention rollout and
 * attention flow (Abnar and Zuidema 2020, arXiv:2005.00928).  Matrices are [n][n], a row for the later token. */
#ifndef ATTN_CLI_COMPUTE_ROLLOUT_H
#define ATTN_CLI_COMPUTE_ROLLOUT_H

#include <stdint.h>

/* Half the mean of the heads' weights [heads][n][n], and half the identity, which is the residual connection; rows sum to 1. */
void rollout_mix(int64_t heads, int64_t n, const float *weights, double *mixed);

/* product = left right; not in place. */
void rollout_multiply(int64_t n, const double *left, const double *right, double *product);

/* The network of a token at the top and one at the bottom: an edge from each token of a layer to each of the one below, whose
 * capacity is the mixed weight. */
typedef struct flow_network flow_network;

/* mixed: [layers][n][n] of numbers from 0 to 1, the lowest layer first; not kept. */
flow_network *flow_network_make(int64_t layers, int64_t n, const double *mixed);
/* The most that can flow from token `top` of the last layer to the input token `bottom`, up to 2^-40 for each edge. */
double flow_between(flow_network *network, int64_t top, int64_t bottom);
void flow_network_free(flow_network *network);

#endif
