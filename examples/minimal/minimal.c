/* SPDX-License-Identifier: MIT
 * minimal.c - one causal attention of three tokens; the example of README.md. */
#include <attn/attn.h>
#include <stdio.h>

int main(void)
{
    float q[3][2] = {{1, 0}, {0, 1}, {1, 1}}, k[3][2] = {{1, 0}, {0, 1}, {1, 1}}, v[3][2] = {{2, 0}, {0, 2}, {1, 1}}, o[3][2];
    attn_problem problem = {.struct_size = sizeof problem};
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    attn_error error;

    problem.shape = (attn_shape){.batch = 1, .heads_q = 1, .heads_kv = 1, .len_q = 3, .len_kv = 3, .dim_qk = 2, .dim_v = 2};
    problem.mask.causal = 1;
    if (attn_compute(&problem, &t, &error) != ATTN_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    for (int i = 0; i < 3; i++) printf("%.4f %.4f\n", o[i][0], o[i][1]);
    return 0;
}
