/* SPDX-License-Identifier: MIT
 * picture.c - PNG files: written beside the target and renamed, so that no half picture is left. */
#include "picture.h"

#include <errno.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

/* Returns 0 if libpng gave up. */
static int encode(FILE *file, const unsigned char *pixels, int64_t height, int64_t width, int scale, unsigned char *row)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info || setjmp(png_jmpbuf(png))) {
        png_destroy_write_struct(&png, &info);
        return 0;
    }
    png_init_io(png, file);
    png_set_IHDR(png, info, (png_uint_32)(width * scale), (png_uint_32)(height * scale), 8, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int64_t i = 0; i < height; i++) {
        for (int64_t j = 0; j < width * scale; j++) row[j] = pixels[i * width + j / scale];
        for (int again = 0; again < scale; again++) png_write_row(png, row);
    }
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    return 1;
}

attn_status picture_write(const char *path, const unsigned char *pixels, int64_t height, int64_t width, int scale,
                          attn_error *error)
{
    const size_t size = strlen(path) + 8;
    char *part = malloc(size);
    unsigned char *row = malloc((size_t)(width * scale) + 1);
    attn_status status = part && row ? ATTN_OK : failure(error, ATTN_ERR_MEMORY, "no memory for a picture");
    if (status == ATTN_OK) {
        (void)snprintf(part, size, "%s.part", path);
        FILE *file = fopen(part, "wb");
        int whole = file && encode(file, pixels, height, width, scale, row);
        if (file) whole &= fclose(file) == 0;
        if (!whole || rename(part, path) != 0) {
            status = failure(error, ATTN_ERR_IO, "%.150s cannot be written: %s", path, strerror(errno));
            if (file) (void)remove(part);
        }
    }
    free(part);
    free(row);
    return status;
}
