/* SPDX-License-Identifier: MIT
 *
 * text_file.c - see text_file.h. */
#include "text_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/text/failure.h"

attn_status text_file_read(const char *path, char **text, attn_error *error)
{
    FILE *file = fopen(path, "r");
    size_t capacity = 0;
    *text = NULL;
    if (!file) return failure(error, ATTN_ERR_IO, "%.150s: %s", path, strerror(errno));
    char *read = NULL;
    const ssize_t length = getdelim(&read, &capacity, 0, file);
    const int bad = ferror(file);
    fclose(file);
    if (!bad) *text = need_text(length > 0 ? read : "", length > 0 ? strlen(read) : 0);
    free(read);
    return bad ? failure(error, ATTN_ERR_IO, "%.150s: cannot be read", path) : ATTN_OK;
}
