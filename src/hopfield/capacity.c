/* SPDX-License-Identifier: MIT
 * capacity.c - how many patterns a network can store. */
#include <math.h>

#include "attn/hopfield.h"

double attn_hopfield_classical_capacity(int64_t dim) { return 0.14 * (double)dim; }
double attn_hopfield_modern_capacity(int64_t dim) { return exp((double)dim / 2); }
