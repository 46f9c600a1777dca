/* SPDX-License-Identifier: MIT
 *
 * chat.h - a prompt as a turn of a conversation, in the form that models with <|im_start|> were trained on (ChatML).
 */
#ifndef CHAT_H
#define CHAT_H

#include "attn/io.h"

/*
 * The text of a conversation that begins with `prompt`, up to where the model answers; the caller frees it.  system: what comes
 * first; NULL: what the file's template says, perhaps nothing.  NULL, with *error filled, if the file's chat template is not of
 * this form.  (Templates are programs in Jinja, which this does not run: it looks for the words.)
 */
char *chat_text(const attn_archive *file, const char *system, const char *prompt, attn_error *error);

#endif
