/* SPDX-License-Identifier: MIT
 *
 * hunt.c - searches for the problems whose errors are the largest fractions of their bounds, by hill climbing.
 *
 *      hunt_bounds --seconds=S --seed=N
 *
 * It starts from cases of `attn check`, keeps the ten largest fractions, no two of the same operation and type (in forward: and
 * kind of numbers), and changes their numbers, sizes, scales and options.  Prints them, largest first, in the form of
 * tests/check/worst.txt; exits with 1 if a check failed, which includes any fraction above 1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draws.h"
#include "numbered.h"
#include "testing/case/sweep.h"
#include "testing/verdict/run.h"

enum { KEPT = 10 };

typedef struct found {
    check_case c;
    double fraction;
    char where[32];
} found;

static found best[KEPT];
static int failed;

static int alike(const check_case *a, const check_case *b)
{
    return a->spec.op == b->spec.op && a->spec.dtype == b->spec.dtype && (a->fill == b->fill || a->spec.op != SPEC_FORWARD);
}

/* Replaces the kept case that is alike, or else the smallest, if the fraction is larger. */
static void keep(const check_case *c, const check_result *r)
{
    int at = 0;
    for (int i = 1; i < KEPT; i++)
        if (best[i].fraction < best[at].fraction) at = i;
    for (int i = 0; i < KEPT; i++)
        if (best[i].fraction > 0 && alike(&best[i].c, c)) at = i;
    if (r->numbers.fraction <= best[at].fraction) return;
    best[at] = (found){.c = *c, .fraction = r->numbers.fraction};
    snprintf(best[at].where, sizeof best[at].where, "%s", r->numbers.where ? r->numbers.where : "");
}

static void judge(const check_case *c)
{
    static const check_setting setting = {.options = {.struct_size = sizeof(attn_options), .isa = ATTN_ISA_DEFAULT, .threads = 1}};
    char text[CASE_TEXT], again[CASE_TEXT];
    check_case parsed;
    check_result r;
    const int narrow = c->spec.dtype == SPEC_F16 || c->spec.k_type == SPEC_STORED_F16 || c->spec.v_type == SPEC_STORED_F16 ||
                       c->o_dtype == ATTN_F16;
    if (c->spec.shape.heads_q == 0) return;       /* no results, and the reference has no tables of 0 heads */
    if (narrow && c->fill == FILL_SPREAD) return; /* values beyond f16 become infinite */
    case_print(c, text, sizeof text);             /* the reported case is the one that ran */
    if (case_parse(text, &parsed, NULL) != ATTN_OK) return;
    case_print(&parsed, again, sizeof again);
    if (getenv("FUZZ_TRACE")) fprintf(stderr, "%s\n", again);
    check_run_case(&r, &parsed, &setting);
    if (r.status == CHECK_FAILED && (r.numbers.failed || strstr(r.reason, "wrote"))) {
        printf("FAILED %s: %s\n", again, r.reason);
        failed = 1;
    }
    if (r.status == CHECK_PASSED) keep(&parsed, &r);
}

static void change_size(draws *d, int64_t *size, int64_t most)
{
    static const int64_t steps[] = {-8, -1, 1, 8};
    if (*size < 0) return;
    switch (draw_below(d, 3)) {
    case 0:
        *size = *size / 2;
        break;
    case 1:
        *size = *size * 2;
        break;
    default:
        *size += steps[draw_below(d, 4)];
    }
    if (*size < 1) *size = 1;
    if (*size > most) *size = most;
}

static void change(draws *d, check_case *c)
{
    static const double scales[] = {0.01, 0.125, 0.5, 1, 2, 8};
    problem_spec *s = &c->spec;
    int64_t *const sizes[] = {&s->shape.len_q, &s->shape.len_kv, &s->shape.dim_qk, &s->shape.dim_v, &s->shape.batch};
    static const int64_t most[] = {100, 300, 128, 128, 3};
    const int which = (int)draw_below(d, 5);
    switch (draw_below(d, 12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        s->seed = draw_word(d) % 1000000;
        break;
    case 4:
    case 5:
    case 6:
        change_size(d, sizes[which], most[which]);
        break;
    case 7:
        s->has_scale = 1, s->scale_heads = 0, s->scale = scales[draw_below(d, 6)];
        break;
    case 8:
        c->fill = (case_fill)draw_below(d, FILL_KINDS);
        break;
    case 9:
        s->dtype = (int)draw_below(d, SPEC_BF16 + 1);
        s->k_type = s->v_type = SPEC_STORED_LIKE_Q;
        c->o_dtype = c->bias_dtype = ATTN_DTYPE_DEFAULT;
        break;
    case 10:
        s->softcap = draw_one_in(d, 2) ? 0 : (double)(1 + draw_below(d, 30));
        break;
    default:
        s->causal = (int)draw_below(d, SPEC_CAUSAL_BOTTOM_RIGHT + 1), s->offset_kind = SPEC_OFFSET_NONE;
    }
}

static int falling(const void *a, const void *b)
{
    const double x = ((const found *)a)->fraction, y = ((const found *)b)->fraction;
    return (x < y) - (x > y);
}

int main(int count, char **arguments)
{
    numbered run;
    draws d;
    sweep from;
    long ran = 0;
    numbered_begin(&run, 60, count, arguments);
    if (!sweep_create(&from, (sweep_tile){16, 128}, run.seed + 1, 0)) return fputs("hunt: cannot allocate memory\n", stderr), 2;
    for (; numbered_next(&run, &d); ran++) {
        const int climbing = draw_below(&d, 4) > 0 && ran > 200;
        check_case c = from.cases[draw_word(&d) % (uint64_t)from.count];
        if (climbing) {
            c = best[draw_below(&d, KEPT)].c;
            for (int64_t n = 1 + draw_below(&d, 3); n > 0; n--) change(&d, &c);
        }
        judge(&c);
    }
    qsort(best, KEPT, sizeof *best, falling);
    for (int i = 0; i < KEPT; i++) {
        char text[CASE_TEXT];
        case_print(&best[i].c, text, sizeof text);
        printf("%.3f %-8s %s\n", best[i].fraction, best[i].where, text);
    }
    printf("%ld cases\n", ran);
    sweep_destroy(&from);
    return failed;
}
