/* SPDX-License-Identifier: MIT
 * curve.c - losses and weights as .csv and as pictures, for light and for dark screens. */
#include "curve.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int curve_make_folder(const char *folder)
{
    struct stat found;
    return mkdir(folder, 0777) == 0 || (stat(folder, &found) == 0 && S_ISDIR(found.st_mode));
}

static FILE *open_in(const char *folder, const char *name, const char *extension)
{
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/%s%s", folder, name, extension);
    return length > 0 && length < (int)sizeof path ? fopen(path, "w") : NULL;
}

static int close_written(FILE *f)
{
    const int bad = ferror(f);
    return fclose(f) == 0 && !bad;
}

static void begin_picture(FILE *f, int width, int height, int left, const char *title)
{
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n<style>"
            ".paper{fill:#fff}text{fill:#171b21}.grid{stroke:#d9dee5}.loss{stroke:#2f62bd}.cell{fill:#2f62bd}\n"
            "@media(prefers-color-scheme:dark){.paper{fill:#14171c}text{fill:#e8ebf0}.grid{stroke:#323944}.loss{stroke:#7aa8f5}"
            ".cell{fill:#7aa8f5}}</style>\n"
            "<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n<text x=\"%d\" y=\"24\" font-size=\"15\">%s</text>\n",
            width, height, left, title);
}

/* ---- losses ---- */

enum { WIDTH = 640, HEIGHT = 360, LEFT = 70, TOP = 40, RIGHT = 20, BOTTOM = 50 };

static double tens_of(double loss) { return log10(loss > 1e-9 ? loss : 1e-9); }

/* Powers of ten that bracket all losses. */
static void find_range(const double *losses, int steps, int *low, int *high)
{
    *low = 0, *high = 0;
    for (int i = 0; i < steps; i++) {
        const double tens = tens_of(losses[i]);
        if (tens < *low) *low = (int)floor(tens);
        if (tens > *high) *high = (int)ceil(tens);
    }
}

static int write_losses(FILE *f, const char *title, const double *losses, int steps)
{
    const double across = (double)(WIDTH - LEFT - RIGHT) / steps;
    int low, high;
    find_range(losses, steps, &low, &high);
    const double down = (double)(HEIGHT - TOP - BOTTOM) / (high - low > 0 ? high - low : 1);
    begin_picture(f, WIDTH, HEIGHT, LEFT, title);
    for (int t = low; t <= high; t++) {
        const double y = TOP + (high - t) * down;
        fprintf(f, "<path d=\"M%d %.1fH%d\" class=\"grid\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">1e%d</text>\n", LEFT, y,
                WIDTH - RIGHT, LEFT - 8, y + 4, t);
    }
    for (int n = 0; n <= 5; n++)
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", LEFT + across * steps * n / 5,
                HEIGHT - BOTTOM + 18, steps * n / 5);
    fprintf(f,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n<text transform=\"translate(18 %d) rotate(-90)\" "
            "text-anchor=\"middle\">loss (nats a token)</text>\n<polyline fill=\"none\" class=\"loss\" points=\"",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, (TOP + HEIGHT - BOTTOM) / 2);
    for (int i = 0; i < steps; i++) fprintf(f, "%.1f,%.1f ", LEFT + across * (i + 0.5), TOP + (high - tens_of(losses[i])) * down);
    fprintf(f, "\"/>\n</svg>\n");
    return close_written(f);
}

int curve_write(const char *folder, const char *title, const double *losses, int steps)
{
    FILE *f = open_in(folder, "loss", ".csv");
    if (!f) return 0;
    fprintf(f, "step,loss\n");
    for (int i = 0; i < steps; i++) fprintf(f, "%d,%.17g\n", i + 1, losses[i]);
    if (!close_written(f)) return 0;
    f = open_in(folder, "loss", ".svg");
    return f ? write_losses(f, title, losses, steps) : 0;
}

/* ---- weights ---- */

enum { CELL = 26, SIDE = 60, HEAD = 72 };

/* The larger its weight, the darker a cell: opacity is the scale, from 0 to 1. */
static int write_cells(FILE *f, const char *title, const float *weights, int64_t n)
{
    const int size = (int)n * CELL, middle = SIDE + size / 2, width = SIDE + size + SIDE;
    begin_picture(f, width > 440 ? width : 440, HEAD + size + 40, SIDE, title);
    fprintf(f,
            "<text x=\"%d\" y=\"46\" text-anchor=\"middle\">key</text>\n<text transform=\"translate(18 %d) "
            "rotate(-90)\" text-anchor=\"middle\">query</text>\n",
            middle, HEAD + size / 2);
    for (int64_t i = 0; i < n; i++) {
        const int at = (int)i * CELL;
        fprintf(f,
                "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%d</text><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                SIDE - 8, HEAD + at + CELL / 2 + 4, (int)i + 1, SIDE + at + CELL / 2, HEAD - 8, (int)i + 1);
        for (int64_t j = 0; j < n; j++) {
            const double w = (double)weights[i * n + j];
            fprintf(
                f,
                "<rect class=\"cell\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" opacity=\"%.3f\"><title>%.3g</title></rect>\n",
                SIDE + (int)j * CELL, HEAD + at, CELL, CELL, w, w);
        }
    }
    fprintf(f, "<rect class=\"grid\" fill=\"none\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n</svg>\n", SIDE, HEAD, size,
            size);
    return close_written(f);
}

int curve_write_weights(const char *folder, const char *name, const char *title, const float *weights, int64_t n)
{
    FILE *f = open_in(folder, name, ".csv");
    if (!f) return 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) fprintf(f, "%.6g%s", (double)weights[i * n + j], j + 1 < n ? "," : "\n");
    if (!close_written(f)) return 0;
    f = open_in(folder, name, ".svg");
    return f ? write_cells(f, title, weights, n) : 0;
}

/* ---- progress ---- */

void curve_show_progress(int step, int steps, double loss)
{
    enum { BAR = 40 };
    char bar[BAR + 1];
    if (!isatty(STDERR_FILENO)) return;
    const int done = step * BAR / steps;
    memset(bar, '.', BAR);
    memset(bar, '#', (size_t)done);
    bar[BAR] = 0;
    fprintf(stderr, "\r%s %4d of %d steps, loss %.4f ", bar, step, steps, loss);
    if (step == steps) fprintf(stderr, "\n");
}
