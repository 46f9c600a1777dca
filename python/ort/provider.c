/* SPDX-License-Identifier: MIT
 * provider.c - the execution provider: what the runtime asks for when it loads a library, makes a session and splits a graph. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define NAME "LibattnExecutionProvider"

const ort_api *ort;
const ort_ep_api *ort_ep;

/* ---- kernels --------------------------------------------------------------------------------------------------- */

typedef struct kernel {
    ort_kernel base;
    const operator* o;
    int threads;
    attributes a;
} kernel;

typedef struct provider {
    ort_provider base;
    ort_registry *registry;
    int threads;
    struct making { /* the state of create_kernel */
        const operator* o;
        const struct provider *provider;
    } making[16];
} provider;

static ort_status *compute(ort_kernel *base, ort_context *context)
{
    const kernel *k = (const kernel *)base;
    call c;
    ort_status *status = call_begin(&c, context, k->threads);
    if (!status) status = k->o->compute(&k->a, &c);
    call_end(&c);
    if (!status) count_run(k->o);
    return status;
}

static void release_kernel(ort_kernel *base) { free(base); }

static ort_status *create_kernel(void *state, const ort_kernel_info *info, ort_kernel **made)
{
    const struct making *m = state;
    kernel *k = calloc(1, sizeof *k);
    if (!k) return fail(ORT_FAIL, "cannot allocate a kernel");
    k->base = (ort_kernel){.version = ORT_VERSION, .compute = compute, .release = release_kernel};
    k->o = m->o;
    k->threads = m->provider->threads;
    const char *reason = k->o->read(&(source){.kernel = info}, &k->a);
    *made = &k->base;
    if (!reason) return NULL;
    free(k);
    *made = NULL;
    return fail(ORT_NOT_IMPLEMENTED, "%s: %s", m->o->name, reason);
}

static ort_status *add_types(ort_builder *builder, const types *t)
{
    const ort_data_type *list[32];
    size_t count = 0;
    for (int type = 0; type < 32; type++)
        if (t->allowed >> type & 1) TRY(ort_ep->data_type(type, &list[count++]));
    return ort_ep->add_types(builder, t->name, list, count);
}

static ort_status *describe(ort_builder *builder, const operator* o)
{
    TRY(ort_ep->set_operator(builder, o->name));
    TRY(ort_ep->set_domain(builder, o->domain));
    TRY(ort_ep->set_versions(builder, o->first, o->last));
    TRY(ort_ep->set_provider(builder, NAME));
    for (const types *t = o->types; t->name; t++) TRY(add_types(builder, t));
    return NULL;
}

static ort_status *add(provider *p, int index)
{
    struct making *m = &p->making[index];
    ort_builder *builder = NULL;
    ort_definition *definition = NULL;
    *m = (struct making){&operators[index], p};
    TRY(ort_ep->create_builder(&builder));
    ort_status *status = describe(builder, m->o);
    if (!status) status = ort_ep->build(builder, &definition);
    if (!status) status = ort_ep->add_kernel(p->registry, definition, create_kernel, m);
    if (definition) ort_ep->release_definition(definition);
    ort_ep->release_builder(builder);
    return status;
}

/* ---- splitting a graph ----------------------------------------------------------------------------------------- */

static ort_status *look_at(const ort_value_info *found, int *type, int *rank)
{
    const ort_type_info *info;
    const ort_tensor_info *tensor = NULL;
    size_t axes;
    TRY(ort->type_of_value(found, &info));
    TRY(ort->tensor_info_of_type(info, &tensor));
    *type = 0;
    *rank = -1;
    if (!tensor) return NULL;
    TRY(ort->element_type(tensor, type));
    TRY(ort->rank(tensor, &axes));
    if (ort->has_shape(tensor)) *rank = (int)axes;
    return NULL;
}

static ort_status *look(const ort_node *node, shape_of_node *n)
{
    const ort_value_info *values[MAX_INPUTS] = {NULL};
    size_t inputs, outputs;
    memset(n, 0, sizeof *n);
    TRY(ort->node_input_count(node, &inputs));
    TRY(ort->node_output_count(node, &outputs));
    if (inputs > MAX_INPUTS || outputs > MAX_OUTPUTS) {
        n->inputs = n->outputs = ~0u;
        return NULL;
    }
    TRY(ort->node_inputs(node, values, inputs));
    for (size_t i = 0; i < inputs; i++) {
        if (!values[i]) continue;
        n->inputs |= 1u << i;
        TRY(look_at(values[i], &n->type[i], &n->rank[i]));
    }
    TRY(ort->node_outputs(node, values, outputs));
    for (size_t i = 0; i < outputs; i++)
        if (values[i]) n->outputs |= 1u << i;
    return NULL;
}

static ort_status *consider(ort_support *support, const ort_node *node, const operator* o)
{
    const ort_definition *definition = NULL;
    shape_of_node n;
    attributes a = {0};
    TRY(ort_ep->find_kernel(support, node, &definition));
    TRY(look(node, &n));
    const char *reason = definition ? o->read(&(source){.node = node}, &a) : "a version or type of this operator";
    if (!reason) reason = n.inputs == ~0u ? "more inputs or outputs than this operator has" : o->refuse(&n, &a);
    if (!reason) return ort_ep->take_node(support, node);
    count_left(o, reason);
    return NULL;
}

static ort_status *consider_any(ort_support *support, const ort_node *node)
{
    const char *name, *domain;
    TRY(ort->node_operator(node, &name));
    TRY(ort->node_domain(node, &domain));
    for (int i = 0; i < operator_count; i++)
        if (!strcmp(name, operators[i].name) && !strcmp(domain, operators[i].domain)) return consider(support, node, &operators[i]);
    return NULL;
}

static ort_status *capability(ort_provider *base, const ort_graph *graph, ort_support *support)
{
    size_t count;
    (void)base;
    TRY(ort->node_count(graph, &count));
    if (!count) return NULL;
    const ort_node **nodes = calloc(count, sizeof *nodes);
    if (!nodes) return fail(ORT_FAIL, "cannot allocate a list of %zu nodes", count);
    ort_status *status = ort->nodes(graph, nodes, count);
    for (size_t i = 0; !status && i < count; i++) status = consider_any(support, nodes[i]);
    free(nodes);
    return status;
}

/* ---- the provider ---------------------------------------------------------------------------------------------- */

static const char *provider_name(const ort_provider *base)
{
    (void)base;
    return NAME;
}

static ort_status *registry(ort_provider *base, const ort_registry **found)
{
    *found = ((provider *)base)->registry;
    return NULL;
}

static void destroy(provider *p)
{
    if (p->registry) ort_ep->release_registry(p->registry);
    free(p);
}

/* How many threads a session has is not for providers to know, so libattn.onnx.session_options passes it as an option. */
static ort_status *threads_of(const ort_session_options *options, int *threads)
{
    static const char key[] = "ep.libattnexecutionprovider.threads";
    attn_options resolved = {.struct_size = sizeof resolved};
    attn_error error;
    char text[32] = "", end;
    size_t size = sizeof text;
    int present = 0;
    TRY(ort->has_config(options, key, &present));
    if (present) {
        TRY(ort->config(options, key, text, &size));
        if (sscanf(text, "%d%c", threads, &end) != 1 || *threads < 1 || *threads > 1024)
            return fail(ORT_INVALID_ARGUMENT, "the option threads of " NAME " is '%s'; it must be a number from 1 to 1024", text);
        return NULL;
    }
    if (attn_options_resolve(NULL, &resolved, &error)) return fail(ORT_INVALID_ARGUMENT, "%s", error.message);
    *threads = resolved.threads;
    return NULL;
}

static ort_status *fill(provider *p, const ort_session_options *options)
{
    p->base = (ort_provider){.version = ORT_VERSION, .name = provider_name, .capability = capability, .registry = registry};
    TRY(threads_of(options, &p->threads));
    TRY(ort_ep->create_registry(&p->registry));
    for (int i = 0; i < operator_count; i++) TRY(add(p, i));
    return NULL;
}

static ort_status *create(ort_factory *factory, const ort_hardware *const *hardware, const ort_pairs *const *metadata, size_t count,
                          const ort_session_options *options, const ort_logger *logger, ort_provider **made)
{
    (void)factory, (void)hardware, (void)metadata, (void)count, (void)logger;
    provider *p = calloc(1, sizeof *p);
    if (!p) return fail(ORT_FAIL, "cannot allocate the provider");
    ort_status *status = fill(p, options);
    if (status) destroy(p);
    else *made = &p->base;
    return status;
}

static void release(ort_factory *factory, ort_provider *base)
{
    (void)factory;
    destroy((provider *)base);
}

/* ---- the factory ----------------------------------------------------------------------------------------------- */

static const char *name(const ort_factory *factory)
{
    (void)factory;
    return NAME;
}

static const char *vendor(const ort_factory *factory)
{
    (void)factory;
    return "libattn";
}

static uint32_t vendor_id(const ort_factory *factory)
{
    (void)factory;
    return 0;
}

static const char *provider_version(const ort_factory *factory)
{
    (void)factory;
    return attn_version();
}

static ort_status *devices(ort_factory *factory, const ort_hardware *const *hardware, size_t count, ort_device **made, size_t most,
                           size_t *number)
{
    *number = 0;
    for (size_t i = 0; i < count && *number < most; i++) {
        if (ort->hardware_type(hardware[i]) != ORT_CPU) continue;
        TRY(ort_ep->create_device(factory, hardware[i], NULL, NULL, &made[*number]));
        ++*number;
    }
    return NULL;
}

/* Tensors are in the memory of the CPU, which the runtime allocates itself. */
static ort_status *create_allocator(ort_factory *factory, const ort_memory_info *memory, const ort_pairs *options,
                                    ort_allocator **allocator)
{
    (void)factory, (void)memory, (void)options;
    *allocator = NULL;
    return NULL;
}

static void release_allocator(ort_factory *factory, ort_allocator *allocator) { (void)factory, (void)allocator; }

static ort_status *create_transfer(ort_factory *factory, void **transfer)
{
    (void)factory;
    *transfer = NULL;
    return NULL;
}

static bool is_stream_aware(const ort_factory *factory)
{
    (void)factory;
    return false;
}

static ort_factory the_factory = {
    .version = ORT_VERSION,
    .name = name,
    .vendor = vendor,
    .devices = devices,
    .create = create,
    .release = release,
    .vendor_id = vendor_id,
    .provider_version = provider_version,
    .create_allocator = create_allocator,
    .release_allocator = release_allocator,
    .create_transfer = create_transfer,
    .is_stream_aware = is_stream_aware,
};

/* The two functions that the runtime looks for in a library. */
#define EXPORT __attribute__((visibility("default")))
EXPORT ort_status *CreateEpFactories(const char *registered, const ort_base *base, const ort_logger *logger,
                                     ort_factory **factories, size_t most, size_t *count);
EXPORT ort_status *ReleaseEpFactory(ort_factory *factory);

ort_status *CreateEpFactories(const char *registered, const ort_base *base, const ort_logger *logger, ort_factory **factories,
                              size_t most, size_t *count)
{
    (void)registered, (void)logger;
    *count = 0;
    const ort_api *api = base->get(ORT_VERSION);
    if (!api) return base->get(1)->create_status(ORT_FAIL, "libattn needs ONNX Runtime 1.24 or newer");
    ort = api;
    ort_ep = api->ep_api();
    if (!most) return fail(ORT_INVALID_ARGUMENT, "libattn has one provider, and there is space for none");
    factories[0] = &the_factory;
    *count = 1;
    return NULL;
}

ort_status *ReleaseEpFactory(ort_factory *factory)
{
    (void)factory;
    return NULL;
}
