/* SPDX-License-Identifier: MIT
 * embedded_options.c - options that change scores, masks and weights of a sequence. */
#include "embedded.h"

static void plain(embedded *e) { (void)e; }
static void causal(embedded *e)
{
    e->problem.mask.causal = 1;
    e->problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
}
static void window(embedded *e)
{
    causal(e);
    e->problem.mask.window = 1;
    e->problem.mask.window_left = 90;
    e->uses |= SINK;
}
static void globals(embedded *e)
{
    window(e);
    e->problem.mask.global_kv = 5;
    e->problem.mask.global_q = 3;
    e->problem.mask.align = ATTN_ALIGN_TOP_LEFT;
    e->problem.mask.causal = 0;
    e->problem.mask.dilation = 3;
}
static void chunks(embedded *e)
{
    e->problem.mask.chunk = 50;
    e->problem.score.softcap = 2;
}
static void alibi(embedded *e)
{
    causal(e);
    e->uses |= SLOPES;
}
static void bias(embedded *e) { e->uses |= BIAS; }
static void bias_table(embedded *e)
{
    e->problem.bias_table = (attn_bias_table){.kind = ATTN_DISTANCE_CLIPPED, .max_distance = ROWS / 2};
    e->uses |= TABLE;
}
static void relative(embedded *e)
{
    e->problem.relative = (attn_relative){.first = -ROWS / 2, .rows = ROWS};
    e->uses |= RELATIVE;
}
static void relative_causal(embedded *e)
{
    causal(e);
    relative(e);
    e->uses |= RELATIVE_QUERIES | SHARED;
}
static void has_w(embedded *e, attn_score_kind kind)
{
    e->problem.score.kind = kind;
    e->uses |= MATRIX;
}
static void general(embedded *e) { has_w(e, ATTN_SCORE_GENERAL); }
static void metric(embedded *e) { has_w(e, ATTN_SCORE_METRIC); }
static void additive(embedded *e)
{
    has_w(e, ATTN_SCORE_ADDITIVE);
    e->problem.score.additive_bias = 1;
}
static void cosine(embedded *e) { e->problem.score.kind = ATTN_SCORE_COSINE; }
static void distance(embedded *e) { e->problem.score.kind = ATTN_SCORE_DISTANCE; }
static void sigmoid(embedded *e) { e->problem.score.normaliser = ATTN_NORMALISER_SIGMOID; }
static void relu(embedded *e)
{
    causal(e);
    e->problem.score.normaliser = ATTN_NORMALISER_RELU;
}

const embedded_option options[OPTIONS] = {{"plain", plain},
                                          {"causal", causal},
                                          {"window, sink", window},
                                          {"globals, dilation", globals},
                                          {"chunks, softcap", chunks},
                                          {"alibi", alibi},
                                          {"bias", bias},
                                          {"bias by distance", bias_table},
                                          {"relative", relative},
                                          {"relative, causal", relative_causal},
                                          {"general", general},
                                          {"metric", metric},
                                          {"additive", additive},
                                          {"cosine", cosine},
                                          {"distance", distance},
                                          {"sigmoid", sigmoid},
                                          {"relu", relu}};
