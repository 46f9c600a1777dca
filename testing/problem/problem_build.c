/* SPDX-License-Identifier: MIT
 *
 * problem_build.c - from a spec to the library's description of a problem. */
#include "problem.h"
#include "problem_rules.h"
#include "problem_terms.h"
#include "sparse.h"
#include "tensors.h"
#include "testing/text/failure.h"

/* int8 is f32 with keys and values of i8; what keys and values have anyway needs no word. */
static void normalise_types(problem_spec *spec)
{
    if (!spec->k_type && !spec->v_type) return;
    const int k = problem_stored(spec, TENSOR(k)), v = problem_stored(spec, TENSOR(v));
    if (spec->dtype == SPEC_INT8) spec->dtype = SPEC_F32;
    if (spec->dtype == SPEC_F32 && k == SPEC_STORED_I8 && v == SPEC_STORED_I8) spec->dtype = SPEC_INT8;
    spec->k_type = spec->v_type = SPEC_STORED_LIKE_Q;
    const int usual = problem_stored(spec, TENSOR(k));
    if (k != usual) spec->k_type = k;
    if (v != usual) spec->v_type = v;
}

attn_status problem_check(problem_spec *spec, attn_error *error)
{
    const char *other = spec->align ? "align" : spec->causal == SPEC_CAUSAL_BOTTOM_RIGHT ? "causal=bottom-right" : NULL;
    if (spec->offset_kind && other)
        return failure(error, ATTN_ERR_ARGUMENT, "offset and %s both set the positions of queries", other);
    if (spec->causal && spec->align)
        return failure(error, ATTN_ERR_ARGUMENT, "causal and align both set the positions of queries; use only causal=KIND");
    if (spec->causal == SPEC_CAUSAL_OFFSET) {
        if (!spec->offset_kind) return failure(error, ATTN_ERR_ARGUMENT, "causal=offset needs an offset");
        spec->causal = SPEC_CAUSAL_TOP_LEFT;
    }
    normalise_types(spec);
    if (spec->align == SPEC_ALIGN_TOP_LEFT) spec->align = SPEC_ALIGN_NONE;
    return problem_check_terms(spec, error);
}

/* A gradient needs the option that it belongs to. */
static attn_status check_gradients(const problem_spec *spec, attn_error *error)
{
    const struct {
        int requested, is_set;
        const char *name, *tensor, *is;
    } gradients[] = {{spec->dbias, spec->bias, "dbias", "bias", "the gradient of the bias"},
                     {spec->dslopes, spec->alibi, "dslopes", "alibi", "the gradient of its slopes"},
                     {spec->dtable, spec->t5 || spec->clipped, "dtable", "t5 or clipped", "the gradient of its table"},
                     {spec->drel, spec->rel[0], "drel", "rel", "the gradients of its tables"},
                     {spec->dsink, spec->sink, "dsink", "sink", "the gradient of the sink"},
                     {spec->dscale, spec->scale_heads, "dscale", "scale=heads", "the gradient of the scale of each head"}};
    const int backward = spec->op == SPEC_BACKWARD;
    for (size_t k = 0; k < sizeof gradients / sizeof *gradients; k++)
        if (gradients[k].requested && !(backward && gradients[k].is_set))
            return failure(error, ATTN_ERR_ARGUMENT, "%s needs bwd and %s: it is %s", gradients[k].name, gradients[k].tensor,
                           gradients[k].is);
    if (spec->dlse && !backward && spec->op != SPEC_DOUBLE_BACKWARD)
        return failure(error, ATTN_ERR_ARGUMENT, "dlse needs bwd or bwd2: it is an incoming gradient");
    return ATTN_OK;
}

/* New tokens stand at the end of a cache and see all that is before them. */
static attn_status check_decode(const problem_spec *spec, attn_error *error)
{
    const int64_t sq = spec->shape.len_q, skv = spec->shape.len_kv;
    const char *other = spec->offset_kind ? "offset" : spec->packed ? "packed" : spec->ragged ? "ragged" : NULL;
    if (other) return failure(error, ATTN_ERR_ARGUMENT, "decode takes no %s: each sequence has sq new tokens, its last", other);
    if (spec->causal == SPEC_CAUSAL_TOP_LEFT)
        return failure(error, ATTN_ERR_ARGUMENT, "decode is causal from the last key on: causal=bottom-right, or without the word");
    if (sq > skv)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "sq (%lld) is more than skv (%lld), the keys in the cache once the sq new tokens are there", (long long)sq,
                       (long long)skv);
    if (spec->steps && (spec->steps > skv || spec->steps * sq > skv))
        return failure(error, ATTN_ERR_ARGUMENT, "%lld steps of sq%lld do not fit: the cache ends with skv%lld keys",
                       (long long)spec->steps, (long long)sq, (long long)skv);
    return ATTN_OK;
}

static attn_status check_serving(const problem_spec *spec, attn_error *error)
{
    const long long prefix = spec->prefix, page = spec->page, keys = spec->shape.len_kv, tree = spec->tree;
    if (prefix && !page)
        return failure(error, ATTN_ERR_ARGUMENT, "prefix needs page: sequences share the pages of their first keys");
    if (prefix && prefix % page)
        return failure(error, ATTN_ERR_ARGUMENT, "prefix=%lld is not a multiple of page=%lld: sequences share whole pages", prefix,
                       page);
    if (prefix > keys)
        return failure(error, ATTN_ERR_ARGUMENT, "prefix=%lld: there are only %lld keys, of which these are the first", prefix,
                       keys);
    if (tree > keys)
        return failure(error, ATTN_ERR_ARGUMENT, "tree=%lld: there are only %lld keys, of which drafts are the last", tree, keys);
    return ATTN_OK;
}

/* Names the first unsupported word. */
static attn_status check_supported(const problem_spec *spec, attn_error *error)
{
    const char *missing = spec->op == SPEC_LINEAR || spec->op == SPEC_LINEAR_BACKWARD ? "linear attention" : NULL;
    const char *word = spec->phi[0]         ? "phi"
                       : spec->decay        ? "decay"
                       : spec->rule         ? "rule"
                       : spec->denominator  ? "denominator"
                       : spec->epsilon != 0 ? "epsilon"
                       : spec->form         ? "form"
                                            : NULL;
    if (spec->rope)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "rope rotates queries and keys before there is a problem: attn run, top, view and analyze have --rope");
    if (!missing && word)
        return failure(error, ATTN_ERR_ARGUMENT, "%s is a word of linear attention: linear or linear-bwd, or attn run --linear",
                       word);
    if (missing) return failure(error, ATTN_ERR_UNSUPPORTED, "libattn %s has no %s", attn_version(), missing);
    if (spec->steps && spec->op != SPEC_DECODE)
        return failure(error, ATTN_ERR_ARGUMENT, "steps is a word of decode in attn bench, which appends so many times in a call");
    if (spec->spread && !spec->lengths && !spec->packed && spec->ragged != SPEC_RAGGED_RANDOM)
        return failure(error, ATTN_ERR_ARGUMENT, "spread is set without random lengths: it needs lens, packed or ragged");
    if (spec->packed && spec->ragged)
        return failure(error, ATTN_ERR_ARGUMENT, "packed and ragged are both set; ragged packs the queries alone");
    attn_status status = spec->op == SPEC_DECODE ? check_decode(spec, error) : ATTN_OK;
    if (status == ATTN_OK) status = check_serving(spec, error);
    return status == ATTN_OK ? check_gradients(spec, error) : status;
}

static attn_op op_of(const problem_spec *spec)
{
    return spec->op == SPEC_BACKWARD          ? ATTN_BACKWARD
           : spec->op == SPEC_JVP             ? ATTN_JVP
           : spec->op == SPEC_DOUBLE_BACKWARD ? ATTN_DOUBLE_BACKWARD
                                              : ATTN_FORWARD; /* decode, too: the plan recognises it by its sizes */
}

/* Requests optional tensors, except those of scores and of terms by distance; what an operation needs is already requested. */
static void request_outputs(const problem_spec *spec, const attn_problem *p, attn_tensors *all)
{
    const int both = spec->lengths == SPEC_LENGTHS_BOTH, tangents = p->op == ATTN_JVP || p->op == ATTN_DOUBLE_BACKWARD;
    const struct {
        int t, is_set;
    } requests[] = {{TENSOR(lse), spec->lse},
                    {TENSOR(weights), spec->weights},
                    {TENSOR(mask), spec->mask},
                    {TENSOR(bias), spec->bias},
                    {TENSOR(lengths_q), both || spec->lengths == SPEC_LENGTHS_Q},
                    {TENSOR(lengths_kv), both || spec->lengths == SPEC_LENGTHS_KV},
                    {TENSOR(cu_seqlens_q), spec->packed || spec->ragged},
                    {TENSOR(cu_seqlens_kv), spec->packed},
                    {TENSOR(page_table), spec->page != 0},
                    {TENSOR(tree), spec->tree != 0},
                    {TENSOR(offset_q), spec->offset_kind != SPEC_OFFSET_NONE},
                    {TENSOR(block_mask), spec->block},
                    {TENSOR(k_tail), problem_stored_dtype(spec, TENSOR(k)) == ATTN_Q4_1C},
                    {TENSOR(k_scale), problem_stored_scaled(spec, TENSOR(k))},
                    {TENSOR(v_scale), problem_stored_scaled(spec, TENSOR(v))},
                    {TENSOR(alibi_slopes), spec->alibi},
                    {TENSOR(sink), spec->sink},
                    {TENSOR(grad_lse), spec->dlse},
                    {TENSOR(grad_bias), spec->dbias},
                    {TENSOR(grad_scale), spec->dscale},
                    {TENSOR(grad_alibi_slopes), spec->dslopes},
                    {TENSOR(grad_sink), spec->dsink},
                    {TENSOR(tan_q), tangents},
                    {TENSOR(tan_k), tangents},
                    {TENSOR(tan_v), tangents},
                    {TENSOR(tan_bias), tangents && spec->bias},
                    {TENSOR(tan_lse), p->op == ATTN_JVP},
                    {TENSOR(second_bias), p->op == ATTN_DOUBLE_BACKWARD && spec->bias},
                    {TENSOR(second_grad_lse), p->op == ATTN_DOUBLE_BACKWARD}};
    for (size_t k = 0; k < sizeof requests / sizeof *requests; k++)
        if (requests[k].is_set) tensors_request(all, requests[k].t);
}

static attn_status lay(const attn_problem *p, attn_tensors *all, int t, const int order[4], int one, attn_error *error)
{
    int64_t size[4];
    tensors_elements(p, all, t, size);
    if (!tensors_has(all, t) || tensors_lay(tensors_slot(all, t), size, order, one)) return ATTN_OK;
    return failure(error, ATTN_ERR_SHAPE, "a tensor of %lld x %lld x %lld x %lld elements is too large", (long long)size[0],
                   (long long)size[1], (long long)size[2], (long long)size[3]);
}

/* Sets the strides of tensors that are not dense, and storage types. */
static attn_status lay_all(const problem_spec *spec, const attn_problem *p, attn_tensors *all, attn_error *error)
{
    static const int bhsd[4] = {0, 1, 2, 3}, bshd[4] = {0, 2, 1, 3};
    const attn_dtype stored = problem_dtype(spec);
    attn_status status = ATTN_OK;
    for (int t = 0; t < TENSORS && status == ATTN_OK; t++) {
        const int primal = tensors_about(t)->gradient_of, like = primal >= 0 ? primal : t;
        if (!tensors_has(all, t)) continue;
        if (like == TENSOR(q) || like == TENSOR(k) || like == TENSOR(v) || like == TENSOR(o)) tensors_slot(all, t)->dtype = stored;
        if (t == TENSOR(k) || t == TENSOR(v)) tensors_slot(all, t)->dtype = problem_stored_dtype(spec, t);
        /* Packed tensors have tokens outermost anyway. */
        if (spec->order == SPEC_BSHD && !tensors_are_packed(all, t) && tensors_packs(t) &&
            tensors_about(t)->axes[3] != ATTN_AXIS_ONE)
            status = lay(p, all, t, bshd, 0, error);
    }
    if (status == ATTN_OK) status = lay(p, all, TENSOR(mask), bhsd, spec->mask_one, error);
    if (status == ATTN_OK) status = lay(p, all, TENSOR(block_mask), bhsd, spec->block_one, error);
    if (status == ATTN_OK) status = lay(p, all, TENSOR(bias), bhsd, spec->bias_one, error);
    if (status == ATTN_OK) status = lay(p, all, TENSOR(tan_bias), bhsd, spec->bias_one, error);
    if (status == ATTN_OK && spec->alibi == SPEC_ALIBI_BATCH_HEAD) status = lay(p, all, TENSOR(alibi_slopes), bhsd, 0, error);
    return status;
}

attn_status problem_build(const problem_spec *given, attn_problem *problem, attn_tensors *tensors, attn_error *error)
{
    problem_spec checked = *given;
    const problem_spec *spec = &checked;
    attn_status status = problem_check(&checked, error);
    if (status == ATTN_OK) status = check_supported(spec, error);
    if (status != ATTN_OK) return status;

    attn_problem p = {.struct_size = sizeof p, .op = op_of(spec), .shape = spec->shape};
    attn_tensors all = tensors_needed(p.op);
    request_outputs(spec, &p, &all);
    status = problem_build_terms(spec, &p, &all, error);
    if (status != ATTN_OK) return status;

    p.dropout.probability = spec->dropout;
    p.paging.page_size = spec->page;
    if (spec->page && __builtin_mul_overflow(p.shape.batch, problem_blocks(p.shape.len_kv, spec->page), &p.paging.pages))
        return failure(error, ATTN_ERR_SHAPE, "page: the batch has more than 2^63 pages of %lld tokens", (long long)spec->page);
    if (spec->prefix && p.shape.batch > 0) p.paging.pages -= (p.shape.batch - 1) * (spec->prefix / spec->page);
    p.mask.tree_keys = spec->tree;
    p.mask.causal = spec->causal != SPEC_CAUSAL_NONE;
    if (spec->op == SPEC_DECODE && spec->shape.len_q > 1) p.mask.causal = 1; /* a single one sees all keys anyway */
    if (spec->causal == SPEC_CAUSAL_BOTTOM_RIGHT || spec->align == SPEC_ALIGN_BOTTOM_RIGHT || spec->op == SPEC_DECODE)
        p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    p.mask.window = spec->window;
    p.mask.window_left = spec->window ? spec->window_left : 0;
    p.mask.window_right = spec->window ? spec->window_right : 0;
    p.mask.chunk = spec->chunk;
    p.mask.empty = (attn_empty)spec->empty;
    if (spec->block) p.mask.block_q = spec->block_q, p.mask.block_kv = spec->block_kv;
    status = lay_all(spec, &p, &all, error);
    sparse_mask mask = {0};
    if (status == ATTN_OK) status = sparse_plan(&mask, spec, error);
    if (status == ATTN_OK) status = sparse_put(&mask, spec, 1, &p, &all, error);
    sparse_free(&mask);
    if (status == ATTN_OK) *problem = p, *tensors = all;
    return status;
}
