/* SPDX-License-Identifier: MIT
 * softmax.c - softmax with a temperature, and the statistics of a distribution. */
#include <inttypes.h>
#include <math.h>

#include "../common/places.h"
#include "../common/slots.h"
#include "attn/analysis.h"

static attn_status check(const double *scores, int64_t n, double temperature, attn_error *error)
{
    CHECK(n >= 0, ATTN_ERR_SHAPE, "n (%" PRId64 ") is negative", n);
    CHECK(scores || n == 0, ATTN_ERR_ARGUMENT, "scores is NULL");
    CHECK(temperature > 0 && isfinite(temperature), ATTN_ERR_ARGUMENT, "temperature is %g; it must be above 0 and finite",
          temperature);
    return ATTN_OK;
}

/* The output `to`, scores and keep have n elements each; `to` may be scores itself, but must not overlap them otherwise. */
static attn_status check_no_overlap(int64_t n, const double *scores, const unsigned char *keep, const char *name, const double *to,
                                    attn_error *error)
{
    places all = {.size = sizeof *to};
    places_add_numbers(&all, name, to, 1, 1, n, 1);
    if (to != scores) places_add_numbers(&all, "scores", scores, 1, 1, n, 0);
    all.size = sizeof *keep;
    places_add_numbers(&all, "keep", keep, 1, 1, n, 0);
    return places_check(&all, "analysis", error);
}

static int kept(const unsigned char *keep, int64_t j) { return !keep || keep[j]; }

/* log Z = most / T + log_sum.  Everything is computed from differences to the largest score, which are exact if scores are close
 * to each other, so that adding a constant to all scores changes nothing. */
typedef struct partition {
    double most, log_sum;
} partition;

static partition partition_of(const double *s, const unsigned char *keep, int64_t n, double T)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        if (kept(keep, j) && !(s[j] <= most)) most = s[j];
    if (most == -INFINITY) return (partition){most, 0};
    for (int64_t j = 0; j < n; j++)
        if (kept(keep, j)) sum += exp((s[j] - most) / T);
    return (partition){most, log(sum)};
}

/* x y; 0 if x is 0, whatever y is. */
static double times(double x, double y) { return x > 0 || isnan(x) ? x * y : 0; }

static double log_weight(const partition *Z, double s, double T) { return (s - Z->most) / T - Z->log_sum; }

static attn_gibbs numbers_of(const double *s, const unsigned char *keep, int64_t n, double T, const partition *Z)
{
    attn_gibbs g = {.log_partition = Z->most, .free_energy = INFINITY};
    double mean = 0, variance = 0; /* of the differences */
    if (Z->most == -INFINITY) return g;
    g.log_partition = Z->most / T + Z->log_sum;
    g.free_energy = -(Z->most + T * Z->log_sum);
    for (int64_t j = 0; j < n; j++)
        if (kept(keep, j)) mean += times(exp(log_weight(Z, s[j], T)), s[j] - Z->most);
    for (int64_t j = 0; j < n; j++) {
        if (!kept(keep, j)) continue;
        const double log_w = log_weight(Z, s[j], T), w = exp(log_w), off = s[j] - Z->most - mean;
        g.entropy -= times(w, log_w);
        variance += times(w, off * off);
    }
    g.mean_energy = -(Z->most + mean);
    g.entropy = g.entropy > 0 || isnan(g.entropy) ? g.entropy : 0;
    g.effective_states = exp(g.entropy);
    g.heat_capacity = variance / T / T;
    return g;
}

attn_status attn_softmax(int64_t n, double temperature, const double *scores, const unsigned char *keep, double *weights,
                         attn_gibbs *gibbs, attn_error *error)
{
    TRY(check(scores, n, temperature, error));
    if (gibbs) TRY(struct_writable(gibbs, sizeof *gibbs, "attn_gibbs", error));
    TRY(check_no_overlap(n, scores, keep, "weights", weights, error));
    const partition Z = partition_of(scores, keep, n, temperature);
    if (gibbs) {
        const attn_gibbs numbers = numbers_of(scores, keep, n, temperature, &Z);
        struct_fill(gibbs, &numbers, sizeof numbers);
    }
    for (int64_t j = 0; weights && j < n; j++)
        weights[j] = kept(keep, j) && Z.most != -INFINITY ? exp(log_weight(&Z, scores[j], temperature)) : 0;
    return succeed(error);
}

attn_status attn_log_softmax(int64_t n, double temperature, const double *scores, const unsigned char *keep, double *logs,
                             attn_error *error)
{
    TRY(check(scores, n, temperature, error));
    CHECK(logs || n == 0, ATTN_ERR_ARGUMENT, "logs is NULL");
    TRY(check_no_overlap(n, scores, keep, "logs", logs, error));
    const partition Z = partition_of(scores, keep, n, temperature);
    for (int64_t j = 0; j < n; j++)
        logs[j] = kept(keep, j) && Z.most != -INFINITY ? log_weight(&Z, scores[j], temperature) : -INFINITY;
    return succeed(error);
}

attn_status attn_temperature_sweep(int64_t n, int64_t count, const double *scores, const double *temperatures, double *weights,
                                   double *entropy, attn_error *error)
{
    CHECK(count >= 0, ATTN_ERR_SHAPE, "count (%" PRId64 ") is negative", count);
    CHECK(count == 0 || (temperatures && weights), ATTN_ERR_ARGUMENT, "%s is NULL", temperatures ? "weights" : "temperatures");
    for (int64_t t = 0; t < count; t++) TRY(check(scores, n, temperatures[t], error));
    places all = {.size = sizeof *weights};
    places_add_numbers(&all, "weights", weights, 1, count, n, 1);
    places_add_numbers(&all, "entropy", entropy, 1, 1, count, 1);
    places_add_numbers(&all, "scores", scores, 1, 1, n, 0);
    places_add_numbers(&all, "temperatures", temperatures, 1, 1, count, 0);
    TRY(places_check(&all, "analysis", error));
    for (int64_t t = 0; t < count; t++) {
        attn_gibbs gibbs = {.struct_size = sizeof gibbs};
        TRY(attn_softmax(n, temperatures[t], scores, NULL, weights + t * n, &gibbs, error));
        if (entropy) entropy[t] = gibbs.entropy;
    }
    return succeed(error);
}

double attn_entropy(int64_t n, const double *p)
{
    double entropy = 0;
    for (int64_t j = 0; j < n; j++) entropy -= times(p[j], log(p[j]));
    return entropy > 0 || isnan(entropy) ? entropy : 0;
}

double attn_max_entropy(int64_t n) { return n > 1 ? log((double)n) : 0; }

double attn_normalised_entropy(int64_t n, const double *p) { return n > 1 ? attn_entropy(n, p) / attn_max_entropy(n) : 0; }

double attn_effective_states(int64_t n, const double *p) { return exp(attn_entropy(n, p)); }

double attn_kl_divergence(int64_t n, const double *p, const double *q)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += times(p[j], log(p[j] / q[j]));
    return sum;
}

double attn_mutual_information(int64_t rows, int64_t n, const double *weights)
{
    double of_mean = 0, mean_of = 0;
    if (rows <= 0 || n <= 0) return 0;
    for (int64_t j = 0; j < n; j++) {
        double mean = 0;
        for (int64_t i = 0; i < rows; i++) mean += weights[i * n + j] / (double)rows;
        of_mean -= times(mean, log(mean));
    }
    for (int64_t i = 0; i < rows; i++) mean_of += attn_entropy(n, weights + i * n) / (double)rows;
    return of_mean - mean_of;
}

/* For functions that take the distribution p. */
static attn_status check_given(int64_t n, double temperature, const double *p, attn_error *error)
{
    CHECK(n >= 0, ATTN_ERR_SHAPE, "n (%" PRId64 ") is negative", n);
    CHECK(temperature > 0 && isfinite(temperature), ATTN_ERR_ARGUMENT, "temperature is %g; it must be above 0 and finite",
          temperature);
    CHECK(p || n == 0, ATTN_ERR_ARGUMENT, "p is NULL");
    return ATTN_OK;
}

attn_status attn_softmax_jacobian(int64_t n, double temperature, const double *p, double *jacobian, attn_error *error)
{
    TRY(check_given(n, temperature, p, error));
    CHECK(jacobian || n == 0, ATTN_ERR_ARGUMENT, "jacobian is NULL");
    places all = {.size = sizeof *p};
    places_add_numbers(&all, "jacobian", jacobian, 1, n, n, 1);
    places_add_numbers(&all, "p", p, 1, 1, n, 0);
    TRY(places_check(&all, "analysis", error));
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < n; k++) jacobian[j * n + k] = p[j] * ((j == k ? 1 : 0) - p[k]) / temperature;
    return succeed(error);
}

attn_status attn_softmax_jvp(int64_t n, double temperature, const double *p, const double *x, double *out, attn_error *error)
{
    double mean = 0;
    TRY(check_given(n, temperature, p, error));
    CHECK((x && out) || n == 0, ATTN_ERR_ARGUMENT, "%s is NULL", x ? "out" : "x");
    places all = {.size = sizeof *p};
    places_add_numbers(&all, "out", out, 1, 1, n, 1);
    places_add_numbers(&all, "p", p, 1, 1, n, 0);
    if (out != x) places_add_numbers(&all, "x", x, 1, 1, n, 0);
    TRY(places_check(&all, "analysis", error));
    for (int64_t k = 0; k < n; k++) mean += times(p[k], x[k]);
    for (int64_t j = 0; j < n; j++) out[j] = times(p[j], x[j] - mean) / temperature;
    return succeed(error);
}

double attn_head_diversity(int64_t heads, int64_t n, const double *weights)
{
    double sum = 0;
    for (int64_t g = 0; g < heads && n > 0; g++)
        for (int64_t h = 0; h < g; h++) {
            const double *a = weights + g * n, *b = weights + h * n;
            double ab = 0, aa = 0, bb = 0;
            for (int64_t k = 0; k < n; k++) ab += a[k] * b[k], aa += a[k] * a[k], bb += b[k] * b[k];
            if (aa > 0 && bb > 0) sum += ab / sqrt(aa * bb);
        }
    return heads > 1 ? 1 - sum / ((double)heads * (double)(heads - 1) / 2) : 0;
}

attn_status attn_head_entropy(int64_t heads, int64_t rows, int64_t n, const double *weights, double *entropy, attn_error *error)
{
    CHECK(heads >= 0 && rows >= 0 && n >= 0, ATTN_ERR_SHAPE, "%s (%" PRId64 ") is negative",
          heads < 0  ? "heads"
          : rows < 0 ? "rows"
                     : "n",
          heads < 0  ? heads
          : rows < 0 ? rows
                     : n);
    CHECK(weights || heads == 0 || rows == 0 || n == 0, ATTN_ERR_ARGUMENT, "weights is NULL");
    CHECK(entropy || heads == 0, ATTN_ERR_ARGUMENT, "entropy is NULL");
    places all = {.size = sizeof *weights};
    places_add_numbers(&all, "entropy", entropy, 1, 1, heads, 1);
    places_add_numbers(&all, "weights", weights, heads, rows, n, 0);
    TRY(places_check(&all, "analysis", error));
    for (int64_t h = 0; h < heads; h++) {
        entropy[h] = 0;
        for (int64_t i = 0; i < rows && n > 0; i++) entropy[h] += attn_entropy(n, weights + (h * rows + i) * n) / (double)rows;
    }
    return succeed(error);
}
