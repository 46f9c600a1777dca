/* SPDX-License-Identifier: MIT
 *
 * picture.c - one head as SVG: labels are text, so that programs can edit them. */
#include "picture.h"

#include <inttypes.h>
#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encode.h"
#include "testing/text/failure.h"
#include "testing/text/shown.h"

enum { CELL = 28, WIDE = 640, LABEL = 13, APART = 18, LETTER = 8, LONGEST = 24, TOP = 52, STEPS = 256, STOPS = 5 };

/* ---- colors: the light ramp of script/color.js, whose steps are even in lightness ---- */

typedef struct rgb {
    uint8_t part[3];
} rgb;

static const double stops[STOPS][3] = {/* lightness, chroma, hue */
                                       {0.968, 0.006, 240},
                                       {0.80, 0.085, 225},
                                       {0.625, 0.125, 242},
                                       {0.45, 0.145, 264},
                                       {0.27, 0.105, 280}};
static const rgb not_a_number = {{214, 51, 132}};

/* OKLab (B. Ottosson 2020) to sRGB. */
static rgb from_lab(const double lab[3])
{
    static const double to_lms[3][2] = {
        {0.3963377774, 0.2158037573}, {-0.1055613458, -0.0638541728}, {-0.0894841775, -1.291485548}};
    static const double to_rgb[3][3] = {{4.0767416621, -3.3077115913, 0.2309699292},
                                        {-1.2684380046, 2.6097574011, -0.3413193965},
                                        {-0.0041960863, -0.7034186147, 1.707614701}};
    double lms[3];
    rgb color;
    for (int k = 0; k < 3; k++) {
        const double root = lab[0] + to_lms[k][0] * lab[1] + to_lms[k][1] * lab[2];
        lms[k] = root * root * root;
    }
    for (int k = 0; k < 3; k++) {
        double x = to_rgb[k][0] * lms[0] + to_rgb[k][1] * lms[1] + to_rgb[k][2] * lms[2];
        x = x < 0 ? 0 : x > 1 ? 1 : x;
        color.part[k] = (uint8_t)lrint(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * pow(x, 1 / 2.4) - 0.055));
    }
    return color;
}

static void make_ramp(rgb ramp[STEPS])
{
    double lab[STOPS][3];
    for (int s = 0; s < STOPS; s++) {
        const double angle = stops[s][2] * acos(-1.0) / 180;
        lab[s][0] = stops[s][0], lab[s][1] = stops[s][1] * cos(angle), lab[s][2] = stops[s][1] * sin(angle);
    }
    for (int n = 0; n < STEPS; n++) {
        const double x = (double)n / (STEPS - 1) * (STOPS - 1);
        const int i = n < STEPS - 1 ? n * (STOPS - 1) / (STEPS - 1) : STOPS - 2;
        double mixed[3];
        for (int c = 0; c < 3; c++) mixed[c] = lab[i][c] + (lab[i + 1][c] - lab[i][c]) * (x - i);
        ramp[n] = from_lab(mixed);
    }
}

static rgb color_of(const rgb ramp[STEPS], float weight, float top)
{
    if (!isfinite(weight)) return not_a_number;
    if (!(weight > 0) || !(top > 0)) return ramp[0];
    const double x = (double)weight / (double)top;
    return ramp[x < 1 ? lrint(x * (STEPS - 1)) : STEPS - 1];
}

static float largest(const picture *p)
{
    float top = 0;
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++) {
            const float weight = p->weights[i * p->stride + j];
            if (isfinite(weight) && weight > top) top = weight;
        }
    return top;
}

/* ---- text ---- */

/* At most `most` characters that XML allows, escaped. */
static void add_text(text_buffer *out, const char *text, int most)
{
    int count = 0;
    for (const char *at = text; *at && count < most; count++) {
        const uint32_t code = next_code_point(&at);
        const int allowed = code >= 0x20 && code != 0xfffe && code != 0xffff;
        text_print(out, code >= 0x7f || !allowed || strchr("<>&\"'", (int)code) ? "&#%" PRIu32 ";" : "%c", allowed ? code : 0xfffd);
    }
}

static void add_label(text_buffer *out, const char *const *labels, int64_t k, int64_t first)
{
    if (labels) add_text(out, labels[k], LONGEST);
    else text_print(out, "%" PRId64, first + k);
}

static int64_t longest(const char *const *labels, int64_t count, int64_t first)
{
    int64_t most = 1;
    for (int64_t k = 0; k < count; k++) {
        char number[24];
        int64_t length = 0;
        snprintf(number, sizeof number, "%" PRId64, first + k);
        for (const char *at = labels ? labels[k] : number; *at && length < LONGEST; length++) (void)next_code_point(&at);
        most = length > most ? length : most;
    }
    return most;
}

/* ---- cells ---- */

static void add_rectangles(text_buffer *out, const picture *p, const rgb ramp[STEPS], float top, double left, double above)
{
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++) {
            const float weight = p->weights[i * p->stride + j];
            const rgb c = color_of(ramp, weight, top);
            text_print(out, "<rect class=\"cell\" x=\"%g\" y=\"%g\" width=\"%d\" height=\"%d\" fill=\"#%02x%02x%02x\"><title>",
                       left + (double)j * CELL, above + (double)i * CELL, CELL - 1, CELL - 1, c.part[0], c.part[1], c.part[2]);
            add_label(out, p->queries, i, p->first_query);
            text_string(out, " &#8594; ");
            add_label(out, p->keys, j, 0);
            text_print(out, " %.3f</title></rect>\n", (double)weight);
        }
}

/* The largest weight of factor x factor cells; one that is not finite wins. */
static float pooled(const picture *p, int64_t factor, int64_t y, int64_t x)
{
    float most = -INFINITY;
    for (int64_t i = y * factor; i < (y + 1) * factor && i < p->rows; i++)
        for (int64_t j = x * factor; j < (x + 1) * factor && j < p->columns; j++) {
            const float weight = p->weights[i * p->stride + j];
            if (!isfinite(weight)) return weight;
            if (weight > most) most = weight;
        }
    return most;
}

/* The cells as a PNG in base64.  Returns 0 if there is no memory for it. */
static int add_image(text_buffer *out, const picture *p, const rgb ramp[STEPS], float top)
{
    const int64_t longer = p->rows > p->columns ? p->rows : p->columns, factor = (longer + PICTURE_PIXELS - 1) / PICTURE_PIXELS;
    const int64_t height = (p->rows + factor - 1) / factor, width = (p->columns + factor - 1) / factor;
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = (png_uint_32)width, .height = (png_uint_32)height, .format = PNG_FORMAT_RGB};
    uint8_t *pixels = need_memory(width * height, sizeof(rgb)), *bytes = NULL;
    png_alloc_size_t size = 0;
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++) {
            const rgb c = color_of(ramp, pooled(p, factor, y, x), top);
            memcpy(pixels + (y * width + x) * 3, c.part, 3);
        }
    int done = png_image_write_to_memory(&image, NULL, &size, 0, pixels, 0, NULL);
    if (done) {
        bytes = need_memory((int64_t)size, 1);
        done = png_image_write_to_memory(&image, bytes, &size, 0, pixels, 0, NULL);
    }
    view_base64 stream = {.out = out};
    for (png_alloc_size_t k = 0; k < size && done; k++) view_base64_u8(&stream, bytes[k]);
    view_base64_end(&stream);
    free(pixels);
    free(bytes);
    return done;
}

attn_status picture_draw(text_buffer *out, const picture *p, attn_error *error)
{
    const int few = p->rows <= PICTURE_CELLS && p->columns <= PICTURE_CELLS;
    const double cell = few ? CELL : (double)WIDE / (double)(p->rows > p->columns ? p->rows : p->columns);
    const double left = (double)(16 + longest(p->queries, p->rows, p->first_query) * LETTER);
    const double above = TOP + fmax(32, (double)longest(p->keys, p->columns, 0) * LETTER * 0.82);
    const double words = 16 + 0.6 * LABEL * (double)(strlen(p->title) > strlen(p->about) ? strlen(p->title) : strlen(p->about));
    const double width = fmax(words, left + (double)p->columns * cell + 80), height = above + (double)p->rows * cell + 16;
    const int64_t every = (int64_t)ceil(APART / cell);
    const float top = few ? 1 : largest(p);
    rgb ramp[STEPS];
    make_ramp(ramp);
    text_print(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" "
        "font-size=\"%d\" fill=\"#171b21\">\n<title>",
        width, height, width, height, LABEL);
    add_text(out, p->title, 400);
    text_string(out,
                "</title><rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"8\" y=\"20\" font-weight=\"bold\">");
    add_text(out, p->title, 400);
    text_string(out, "</text>\n<text x=\"8\" y=\"38\" fill=\"#5a6472\">");
    add_text(out, p->about, 400);
    text_string(out, "</text>\n");
    for (int64_t i = 0; i < p->rows; i += every) {
        text_print(out, "<text class=\"query\" x=\"%g\" y=\"%g\" text-anchor=\"end\" dominant-baseline=\"central\">", left - 6,
                   above + ((double)i + 0.5) * cell);
        add_label(out, p->queries, i, p->first_query);
        text_string(out, "</text>\n");
    }
    for (int64_t j = 0; j < p->columns; j += every) {
        text_print(out, "<text class=\"key\" transform=\"translate(%g %g) rotate(-55)\">", left + ((double)j + 0.5) * cell,
                   above - 6);
        add_label(out, p->keys, j, 0);
        text_string(out, "</text>\n");
    }
    if (few) {
        add_rectangles(out, p, ramp, top, left, above);
    } else {
        text_print(out,
                   "<image class=\"cells\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" style=\"image-rendering:pixelated\" "
                   "href=\"data:image/png;base64,",
                   left, above, (double)p->columns * cell, (double)p->rows * cell);
        if (!add_image(out, p, ramp, top)) return failure(error, ATTN_ERR_MEMORY, "cannot allocate memory for a picture");
        text_string(out, "\"/>\n");
    }
    text_string(out, "</svg>\n");
    return text_status(out, "the picture", error);
}
