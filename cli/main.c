/* SPDX-License-Identifier: MIT
 *
 * main.c - attn: passes the command line to one of the commands. */
#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/program.h"
#include "testing/text/json.h"

/* In groups: what a newcomer needs first, then what fewer need. */
static const program_command commands[] = {
    {"make", "PROBLEM -o FILE", "write random tensors of a problem string", attn_cmd_make, "Compute and look"},
    {"run", "IN -o OUT", "compute attention over the tensors of a file", attn_cmd_run, NULL},
    {"show", "FILE [TENSOR]", "print numbers and figures of a file, or how two files differ", attn_cmd_show, NULL},
    {"plot", "KIND IN... -o OUT.svg", "draw a picture of what other commands wrote", attn_cmd_plot, NULL},
    {"view", "IN -o PAGE.html", "write one page that shows all weights in a browser", attn_cmd_view, NULL},
    {"top", "IN --token WORD", "list what a token attends to, by layer and head", attn_cmd_top, "Models"},
    {"analyze", "IN", "print what heads do: entropy, roles, norms of gradients", attn_cmd_analyze, NULL},
#if ATTN_CLI_LAYERS
    {"layer", "IN -o OUT", "run an attention layer with weights from a file", attn_cmd_layer, NULL},
    {"train", "TASK [-o OUT]", "train a small model to copy, to reverse or on a text", attn_cmd_train, NULL},
#endif
    {"explain", "PROBLEM", "print which kernel, tiles and memory a problem gets, and why", attn_cmd_explain, "Speed and cost"},
    {"cost", "PROBLEM", "count operations, bytes, parameters and caches", attn_cmd_cost, NULL},
    {"bench", "[PROBLEM...]", "measure speed as a share of what this CPU can do", attn_cmd_bench, NULL},
    {"check", "[PROBLEM...]", "check every kernel of this CPU against the reference", attn_cmd_check, NULL},
    {"info", "", "print what this CPU and this build can do", attn_cmd_info, NULL},
    {"mask", "NAME... -n N", "print a mask as text or a picture, and what it saves", attn_cmd_mask, "Parts, and relatives"},
    {"position", "KIND [IN]", "make tables of positions, or put positions into tensors", attn_cmd_position, NULL},
    {"metric", "IN [-o OUT]", "check a metric, and apply it to vectors", attn_cmd_metric, NULL},
    {"merge", "IN... -o OUT", "merge results over parts of the keys", attn_cmd_merge, NULL},
    {"einsum", "CONTRACTION [FILE...]", "explain or compute a contraction by its indices", attn_cmd_einsum, NULL},
    {"hopfield", "IN [-o OUT]", "store patterns and retrieve them from noisy ones", attn_cmd_hopfield, NULL},
};

static const program attn = {
    .name = "attn",
    .about = "Attention over tensors in files, exact up to rounding, in memory linear in the sequence length.\n"
             "To begin, `attn make fwd:f32:hq2:sq6:d8 -o in.npz` makes a file, and prints what computes it.",
    .commands = commands,
    .count = sizeof commands / sizeof *commands,
};

int main(int argc, char **argv)
{
    file_guard();
    json_need_memory();
    return program_run(&attn, argc, argv);
}
