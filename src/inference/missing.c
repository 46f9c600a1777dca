/* SPDX-License-Identifier: MIT
 *
 * missing.c - a library built with ATTN_INFERENCE_ONLY: the functions of the modules that are not in it, so that whoever calls them
 * links and is told why they fail.  (In the core, plans of gradients and of f64 are rejected; src/core/base/inference.h.)
 */
#ifdef ATTN_INFERENCE_ONLY

#include "../common/fail.h"
#include "attn/analysis.h"
#include "attn/bilinear.h"
#include "attn/distributed.h"
#include "attn/distributed_linear.h"
#include "attn/hopfield.h"
#include "attn/linear.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

static attn_status missing(const char *function, attn_error *error)
{
    return fail(error, ATTN_ERR_UNSUPPORTED, "%s is missing: this library was built with ATTN_INFERENCE_ONLY", function);
}

#define MISSING(name, ...)                                                                                                         \
    attn_status name(__VA_ARGS__) { return missing(#name, error); }

/* analysis.h */
MISSING(attn_decompose, const attn_problem *problem, const attn_tensors *tensors, const attn_steps *steps,
        const attn_options *options, attn_error *error)
MISSING(attn_gradient_flow, const attn_problem *problem, const attn_tensors *tensors, attn_flow *flow, const attn_options *options,
        attn_error *error)
MISSING(attn_verify_gradients, const attn_problem *problem, double step, int64_t most, const attn_tensors *tensors,
        attn_verification *result, const attn_options *options, attn_error *error)

/* bilinear.h */
MISSING(attn_metric_scaled, int64_t dim, double scale, double *g, attn_error *error)
MISSING(attn_metric_diagonal, int64_t dim, const double *diagonal, double *g, attn_error *error)
MISSING(attn_metric_learned, int64_t rows, int64_t dim, const double *w, double *g, attn_error *error)
MISSING(attn_metric_learned_backward, int64_t rows, int64_t dim, const double *w, const double *grad_g, double *grad_w,
        attn_error *error)
MISSING(attn_metric_inverse, int64_t dim, const double *g, double *inverse, attn_error *error)
MISSING(attn_metric_inverse_backward, int64_t dim, const double *inverse, const double *grad_inverse, double *grad_g,
        attn_error *error)
MISSING(attn_metric_check, int64_t dim, double tolerance, const double *g, attn_metric_properties *properties, attn_error *error)
MISSING(attn_index_lower, int64_t count, int64_t dim, const double *v, const double *g, double *lowered, attn_error *error)
MISSING(attn_index_raise, int64_t count, int64_t dim, const double *v, const double *inverse, double *raised, attn_error *error)
MISSING(attn_index_backward, int64_t count, int64_t dim, const double *v, const double *g, const double *grad, double *grad_v,
        double *grad_g, attn_error *error)
MISSING(attn_bilinear_form, int64_t count, int64_t dim, const double *u, const double *v, const double *g, double *form,
        attn_error *error)
MISSING(attn_bilinear_form_backward, int64_t count, int64_t dim, const double *u, const double *v, const double *g,
        const double *grad, double *grad_u, double *grad_v, double *grad_g, attn_error *error)
MISSING(attn_bilinear_form_batch, int64_t len_q, int64_t len_kv, int64_t dim, const double *q, const double *k, const double *g,
        double *scores, attn_error *error)
MISSING(attn_bilinear_form_batch_backward, int64_t len_q, int64_t len_kv, int64_t dim, const double *q, const double *k,
        const double *g, const double *grad, double *grad_q, double *grad_k, double *grad_g, attn_error *error)
MISSING(attn_quadratic_form, int64_t count, int64_t dim, const double *v, const double *g, double *form, attn_error *error)
MISSING(attn_inner_product, int64_t count, int64_t dim, const double *u, const double *v, const char *metric, double *form,
        attn_error *error)
MISSING(attn_bilinear_attention, const attn_problem *problem, const attn_tensors *tensors, const double *g,
        const attn_options *options, attn_error *error)

/* hopfield.h */
MISSING(attn_hopfield_update, const attn_hopfield *memory, int64_t count, const attn_hopfield_tensors *tensors, attn_error *error)
MISSING(attn_hopfield_update_backward, const attn_hopfield *memory, int64_t count, const attn_hopfield_tensors *tensors,
        attn_error *error)
MISSING(attn_hopfield_retrieve, const attn_hopfield *memory, int64_t count, int64_t most, double tolerance,
        const attn_hopfield_tensors *tensors, attn_error *error)
MISSING(attn_hopfield_classical, const attn_hopfield *memory, attn_hopfield_order order, int64_t count,
        const attn_hopfield_tensors *tensors, attn_error *error)
MISSING(attn_hopfield_separation, const attn_hopfield *memory, double *separation, attn_error *error)
MISSING(attn_hopfield_landscape, const attn_hopfield *memory, int64_t axis, int64_t points, double low, double high, double *x,
        double *energy, attn_error *error)
MISSING(attn_hopfield_basin, const attn_hopfield *memory, int64_t index, int64_t samples, double noise, uint64_t seed, int64_t most,
        double tolerance, double *share, attn_error *error)

/* linear.h */
MISSING(attn_linformer_project, const attn_linformer_problem *problem, const attn_linformer_tensors *tensors,
        const attn_options *options, attn_error *error)
MISSING(attn_linformer_backward, const attn_linformer_problem *problem, const attn_linformer_tensors *tensors,
        const attn_options *options, attn_error *error)

/* distributed.h */
MISSING(attn_distributed_plan_create, attn_distributed_plan **plan, const attn_problem *problem, const attn_tensors *tensors,
        const attn_split *split, const attn_transport *transport, const attn_options *options, attn_error *error)
size_t attn_distributed_workspace_size(const attn_distributed_plan *plan) { return 0; }
MISSING(attn_distributed_execute, const attn_distributed_plan *plan, const attn_tensors *tensors, void *workspace,
        size_t workspace_size, attn_error *error)
MISSING(attn_distributed_describe, const attn_distributed_plan *plan, attn_distributed_description *description, attn_error *error)
void attn_distributed_plan_destroy(attn_distributed_plan *plan) {}
MISSING(attn_split_describe, const attn_split *split, int64_t tokens, attn_axis axis, int rank, int ranks,
        attn_split_description *description, attn_error *error)
MISSING(attn_split_part_describe, const attn_split *split, int64_t tokens, attn_axis axis, int rank, int ranks, int64_t index,
        attn_split_part *part, attn_error *error)
MISSING(attn_distributed_scatter, attn_axis axis, const int64_t shape[4], const attn_input *whole, const attn_split *split,
        const attn_transport *transport, const attn_output *own, attn_error *error)
MISSING(attn_distributed_gather, attn_axis axis, const int64_t shape[4], const attn_input *own, const attn_split *split,
        const attn_transport *transport, const attn_output *whole, attn_error *error)
MISSING(attn_split_balance, const attn_problem *problem, int ranks, const attn_tensors *tensors, const attn_split *split,
        const attn_output *owners_q, const attn_output *owners_kv, attn_error *error)
MISSING(attn_split_machine_describe, attn_split_machine *machine, attn_error *error)
MISSING(attn_split_predict, const attn_problem *problem, int ranks, const attn_tensors *tensors, const attn_split *split,
        const attn_split_machine *machine, attn_split_prediction *prediction, attn_error *error)

/* distributed_linear.h */
MISSING(attn_distributed_linear_plan_create, attn_distributed_linear_plan **plan, const attn_linear_problem *problem,
        const attn_linear_tensors *tensors, const attn_split *split, const attn_transport *transport, const attn_options *options,
        attn_error *error)
size_t attn_distributed_linear_workspace_size(const attn_distributed_linear_plan *plan) { return 0; }
MISSING(attn_distributed_linear_execute, const attn_distributed_linear_plan *plan, const attn_linear_tensors *tensors,
        void *workspace, size_t workspace_size, attn_error *error)
MISSING(attn_distributed_linear_describe, const attn_distributed_linear_plan *plan,
        attn_distributed_linear_description *description, attn_error *error)
void attn_distributed_linear_plan_destroy(attn_distributed_linear_plan *plan) {}

#endif
