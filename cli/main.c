/* SPDX-License-Identifier: MIT
 *
 * main.c - attn: passes the command line to one of the commands. */
#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/program.h"
#include "testing/text/json.h"

static const program_command commands[] = {
    {"make", "PROBLEM -o FILE", "write random tensors of a problem string", attn_cmd_make},
    {"run", "IN -o OUT", "compute attention over the tensors of a file", attn_cmd_run},
    {"show", "FILE [TENSOR]", "print shapes, figures and numbers, or differences of two files", attn_cmd_show},
    {"top", "IN --token WORD", "list what a token attends to, by layer and head", attn_cmd_top},
    {"view", "IN -o PAGE.html", "write one page that shows all weights in a browser", attn_cmd_view},
    {"plot", "KIND IN... -o OUT.svg", "draw what the other commands wrote", attn_cmd_plot},
#if ATTN_CLI_LAYERS
    {"layer", "IN -o OUT", "run an attention layer with weights from a file", attn_cmd_layer},
    {"train", "TASK [-o OUT]", "train a small model to copy, to reverse or on a text", attn_cmd_train},
#endif
    {"analyze", "IN", "print entropy and diversity of heads, and norms of gradients", attn_cmd_analyze},
    {"mask", "NAME... -n N", "print a mask as text or a picture, and what it saves", attn_cmd_mask},
    {"merge", "IN... -o OUT", "merge results over parts of the keys", attn_cmd_merge},
    {"hopfield", "IN [-o OUT]", "store patterns and retrieve them from noisy ones", attn_cmd_hopfield},
    {"position", "KIND [IN]", "make tables of positions, or put positions into tensors", attn_cmd_position},
    {"metric", "IN [-o OUT]", "check a metric, and apply it to vectors", attn_cmd_metric},
    {"einsum", "CONTRACTION [FILE...]", "explain or compute a contraction by its indices", attn_cmd_einsum},
    {"check", "[PROBLEM...]", "check every kernel of this CPU against the reference", attn_cmd_check},
    {"bench", "[PROBLEM...]", "measure speed as a share of what this CPU can do", attn_cmd_bench},
    {"info", "", "print what this CPU and this build can do", attn_cmd_info},
    {"cost", "PROBLEM", "count operations, bytes, parameters and caches", attn_cmd_cost},
    {"explain", "PROBLEM", "print which kernel, tiles and memory a problem gets, and why", attn_cmd_explain},
};

static const program attn = {
    .name = "attn",
    .about = "Attention over tensors in files, exact up to rounding, in memory linear in the sequence length.",
    .commands = commands,
    .count = sizeof commands / sizeof *commands,
};

int main(int argc, char **argv)
{
    file_guard();
    json_need_memory();
    return program_run(&attn, argc, argv);
}
