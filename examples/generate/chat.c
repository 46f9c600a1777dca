/* SPDX-License-Identifier: MIT
 *
 * chat.c - see chat.h. */
#include "chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The system's text in a template, between its marks, if it is no expression: *length bytes of it. */
static const char *system_of(const char *template, size_t *length)
{
    static const char begin[] = "<|im_start|>system", end[] = "<|im_end|>";
    const char *text = strstr(template, begin);
    *length = 0;
    if (!text) return "";
    text += strlen(begin);
    text += *text == '\n' ? 1 : !strncmp(text, "\\n", 2) ? 2 : 0;
    const char *stop = strstr(text, end);
    if (!stop || memchr(text, '{', (size_t)(stop - text)) || memchr(text, '\'', (size_t)(stop - text))) return "";
    *length = (size_t)(stop - text);
    return text;
}

char *chat_text(const attn_archive *file, const char *system, const char *prompt, attn_error *error)
{
    const char *template = attn_archive_get_metadata(file, "tokenizer.chat_template");
    if (!template || !strstr(template, "<|im_start|>")) {
        *error = (attn_error){.status = ATTN_ERR_UNSUPPORTED,
                              .message = "the file's chat template is not of the form <|im_start|>...<|im_end|>: use --raw"};
        return NULL;
    }
    size_t length = system ? strlen(system) : 0;
    if (!system) system = system_of(template, &length);
    const size_t room = length + strlen(prompt) + 128;
    char *text = malloc(room);
    if (!text) {
        *error = (attn_error){.status = ATTN_ERR_MEMORY, .message = "cannot allocate memory"};
        return NULL;
    }
    size_t used = 0;
    if (length) used = (size_t)snprintf(text, room, "<|im_start|>system\n%.*s<|im_end|>\n", (int)length, system);
    (void)snprintf(text + used, room - used, "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n", prompt);
    return text;
}
