/* SPDX-License-Identifier: MIT
 * minimal.c - one causal attention of three tokens; the example of README.md. */
#include <attn/attn.h>
#include <stdio.h>

int main(void)
{
    float q[3][2] = {{1, 0}, {0, 1}, {1, 1}}, v[3][2] = {{2, 0}, {0, 2}, {1, 1}}, o[3][2];
    attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, 3, 3, 2, 2}, .mask = {.causal = 1}};
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(q), .k = attn_in(q), .v = attn_in(v), .o = attn_out(o)};
    attn_error error;

    if (attn_compute(&p, &t, &error) != ATTN_OK) return fprintf(stderr, "%s\n", error.message), 1;
    for (int i = 0; i < 3; i++) printf("%.4f %.4f\n", o[i][0], o[i][1]);
}
