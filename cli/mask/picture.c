/* SPDX-License-Identifier: MIT
 * picture.c - PNG files. */
#include "picture.h"

#include <png.h>
#include <stdlib.h>

#include "cli/base/file.h"
#include "testing/text/failure.h"

/* libpng calls this when memory runs out, the text's or its own: writing to memory can fail in no other way. */
static void give_up(png_structp png, png_const_charp message)
{
    (void)message;
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp message) { (void)png, (void)message; }

static void put(png_structp png, png_bytep bytes, size_t count) { text_add(png_get_io_ptr(png), bytes, count); }

static void flush(png_structp png) { (void)png; }

/* Returns 0 if libpng gave up. */
static int encode(text_buffer *text, const unsigned char *pixels, int64_t height, int64_t width, int scale, unsigned char *row)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, give_up, ignore);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info || setjmp(png_jmpbuf(png))) {
        png_destroy_write_struct(&png, &info);
        return 0;
    }
    png_set_write_fn(png, text, put, flush);
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
    text_buffer text = {0};
    unsigned char *row = malloc((size_t)(width * scale) + 1);
    attn_status status = ATTN_OK;
    if (!row || !encode(&text, pixels, height, width, scale, row))
        status = failure(error, ATTN_ERR_MEMORY, "cannot allocate memory for a picture");
    if (status == ATTN_OK) status = file_write_text(&text, path, error);
    text_free(&text);
    free(row);
    return status;
}
