/* SPDX-License-Identifier: MIT
 *
 * figure.c - see figure.h. */
#include "figure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/file.h"
#include "color.h"
#include "testing/text/failure.h"
#include "testing/text/shown.h"

enum { MARGIN = 24, TOP = 72, GAP = 32, MAX_WIDTH = 1340, LINE = 18 };

void figure_begin(figure *f) { *f = (figure){.x = MARGIN, .y = TOP}; }

/* Extends the figure to this point. */
static void reach(figure *f, double right, double bottom)
{
    if (right > f->right) f->right = right;
    if (bottom > f->bottom) f->bottom = bottom;
}

void figure_new_row(figure *f)
{
    if (f->row > 0) f->y += f->row + GAP;
    f->x = MARGIN;
    f->row = 0;
}

void figure_place(figure *f, double width, double height, double *x, double *y)
{
    if (f->x > MARGIN && f->x + width > MAX_WIDTH) figure_new_row(f);
    *x = f->x;
    *y = f->y;
    f->x += width + GAP;
    if (height > f->row) f->row = height;
    reach(f, *x + width, *y + height);
}

/* ---- text ---- */

/* Text with the reserved characters of XML escaped; bytes that are not UTF-8 become U+FFFD. */
static void escape(text_buffer *out, const char *text)
{
    for (const char *at = text; *at;) {
        const uint32_t code = next_code_point(&at);
        /* Characters that XML 1.0 cannot hold at all are replaced as well. */
        const int held = code == '\t' || code == '\n' || (code >= 0x20 && code < 0xfffe) || code >= 0x10000;
        if (code > 0x20 && code < 0x7f && !strchr("<>&\"", (int)code)) text_letter(out, (char)code);
        else if (code == ' ') text_letter(out, ' ');
        else text_print(out, "&#%u;", held ? (unsigned)code : 0xfffdu);
    }
}

double figure_text_width(const char *text)
{
    double width = 0;
    for (const char *at = text; *at;) {
        const uint32_t code = next_code_point(&at);
        width += code >= 0x1100 && code != 0x1d40 && !(code >= 0x2000 && code < 0x2c00) ? 12.5 : 7;
    }
    return width;
}

void figure_text(figure *f, const char *class, double x, double y, const char *format, ...)
{
    char text[600];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    text_print(&f->out, "<text class=\"%s\" x=\"%.2f\" y=\"%.2f\">", class, x, y);
    escape(&f->out, text);
    text_string(&f->out, "</text>\n");
    const double width = figure_text_width(text);
    reach(f, strstr(class, "end") ? x : strstr(class, "middle") || strstr(class, "cell") ? x + width / 2 : x + width, y + 4);
}

void figure_turned_text(figure *f, const char *class, double x, double y, double degrees, const char *text)
{
    text_print(&f->out, "<text class=\"%s\" transform=\"translate(%.2f %.2f) rotate(%g)\">", class, x, y, -degrees);
    escape(&f->out, text);
    text_string(&f->out, "</text>\n");
}

/* ---- shapes ---- */

void figure_line(figure *f, const char *class, double x0, double y0, double x1, double y1)
{
    text_print(&f->out, "<path class=\"%s\" d=\"M%.2f %.2fL%.2f %.2f\"/>\n", class, x0, y0, x1, y1);
}

static void put_hover(figure *f, const char *element, const char *hover)
{
    if (!hover) {
        text_string(&f->out, "/>\n");
        return;
    }
    text_string(&f->out, "><title>");
    escape(&f->out, hover);
    text_print(&f->out, "</title></%s>\n", element);
}

void figure_box(figure *f, const char *class, double x, double y, double width, double height, const char *hover)
{
    text_print(&f->out, "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"", class, x, y, width, height);
    put_hover(f, "rect", hover);
}

void figure_dot(figure *f, const char *class, double x, double y, double radius, const char *hover)
{
    text_print(&f->out, "<circle class=\"%s\" cx=\"%.2f\" cy=\"%.2f\" r=\"%.2f\"", class, x, y, radius);
    put_hover(f, "circle", hover);
}

void figure_group(figure *f, const char *class, const char *name)
{
    text_print(&f->out, "<g class=\"%s\" data-name=\"", class);
    escape(&f->out, name);
    text_string(&f->out, "\">\n");
}

void figure_group_end(figure *f) { text_string(&f->out, "</g>\n"); }

/* ---- the file ---- */

static const char page_head[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
    "content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<meta "
    "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'nonce-attn'; img-src data:; base-uri "
    "'none'\">\n<link rel=\"icon\" href=\"data:,\">\n<style nonce=\"attn\">html{background:#fff}body{margin:0}"
    "svg{display:block;margin:0 auto;max-width:100%;height:auto}"
    "@media (prefers-color-scheme:dark){html{background:#14171c}}</style>\n<title>";

/* The note, in lines of at most this width.  Returns where the next line would be. */
static double write_note(figure *f, const char *note, double y, double width)
{
    char line[400];
    size_t used = 0;
    for (const char *at = note; at && *at;) {
        const size_t word = strcspn(at, " "), space = used ? 1 : 0;
        if (used && (used + space + word >= sizeof line || 7 * (double)(used + space + word) > width)) {
            figure_text(f, "quiet", MARGIN, y, "%s", line);
            y += LINE, used = 0;
            continue;
        }
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%.*s", space ? " " : "", (int)word, at);
        if (used >= sizeof line) used = sizeof line - 1;
        at += word + (at[word] == ' ');
    }
    if (used) figure_text(f, "quiet", MARGIN, y, "%s", line), y += LINE;
    return y;
}

static void write_svg(text_buffer *out, const figure *f, const figure_words *words, double width, double height)
{
    text_print(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
               "aria-labelledby=\"attn-title\">\n<title id=\"attn-title\">",
               width, height, width, height);
    escape(out, words->title);
    text_string(out, "</title>\n<style nonce=\"attn\">");
    color_write_rules(out);
    text_print(out, "</style>\n<rect class=\"paper\" width=\"%.0f\" height=\"%.0f\"/>\n", width, height);
    text_add(out, f->out.bytes, f->out.count);
    text_string(out, "</svg>\n");
}

attn_status figure_write(figure *f, const figure_words *words, const char *path, attn_error *error)
{
    const char *dot = strrchr(path, '.');
    const int html = dot && strcmp(dot, ".html") == 0;
    text_buffer out = {0};
    figure_text(f, "title", MARGIN, 34, "%s", words->title);
    reach(f, MARGIN + 1.5 * figure_text_width(words->title), 40);
    if (words->about) figure_text(f, "quiet", MARGIN, 54, "%s", words->about);
    double below = f->bottom + GAP;
    if (words->note) below = write_note(f, words->note, below, f->right - MARGIN > 500 ? f->right - MARGIN : 500);
    else below = f->bottom + MARGIN;
    if (html) {
        text_string(&out, page_head);
        escape(&out, words->title);
        text_string(&out, "</title>\n</head>\n<body>\n");
    }
    write_svg(&out, f, words, f->right + MARGIN, below);
    if (html) text_string(&out, "</body>\n</html>\n");
    attn_status status = text_status(&f->out, "a picture", error);
    if (status == ATTN_OK) status = text_status(&out, "a picture", error);
    if (status == ATTN_OK) status = file_write_text(&out, path, error);
    text_free(&out);
    figure_drop(f);
    return status;
}

void figure_drop(figure *f) { text_free(&f->out); }
