/* SPDX-License-Identifier: MIT
 * curve.c - losses as .csv and as a picture. */
#include "curve.h"

#include <math.h>
#include <stdio.h>

static FILE *open_in(const char *folder, const char *name)
{
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && length < (int)sizeof path ? fopen(path, "w") : NULL;
}

static int close_written(FILE *f)
{
    const int bad = ferror(f);
    return fclose(f) == 0 && !bad;
}

enum { WIDTH = 640, HEIGHT = 360, LEFT = 60, TOP = 40, RIGHT = 20, BOTTOM = 50 };

/* Powers of ten that hold all losses. */
static void find_range(const double *losses, int steps, int *low, int *high)
{
    *low = 0, *high = 0;
    for (int i = 0; i < steps; i++) {
        const double tens = log10(losses[i] > 1e-9 ? losses[i] : 1e-9);
        if (tens < *low) *low = (int)floor(tens);
        if (tens > *high) *high = (int)ceil(tens);
    }
}

static int write_picture(FILE *f, const double *losses, int steps)
{
    const double across = (double)(WIDTH - LEFT - RIGHT) / steps;
    int low, high;
    find_range(losses, steps, &low, &high);
    const double down = (double)(HEIGHT - TOP - BOTTOM) / (high - low > 0 ? high - low : 1);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"24\" font-size=\"15\">Loss while learning "
            "to copy and to reverse</text>\n",
            WIDTH, HEIGHT, LEFT);
    for (int t = low; t <= high; t++) {
        const double y = TOP + (high - t) * down;
        fprintf(f, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">1e%d</text>\n", LEFT, y,
                WIDTH - RIGHT, LEFT - 8, y + 4, t);
    }
    for (int n = 0; n <= 5; n++)
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", LEFT + across * steps * n / 5,
                HEIGHT - BOTTOM + 18, steps * n / 5);
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n<polyline fill=\"none\" stroke=\"#1f5fb4\" points=\"",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12);
    for (int i = 0; i < steps; i++)
        fprintf(f, "%.1f,%.1f ", LEFT + across * (i + 0.5), TOP + (high - log10(losses[i] > 1e-9 ? losses[i] : 1e-9)) * down);
    fprintf(f, "\"/>\n</svg>\n");
    return close_written(f);
}

int curve_write(const char *folder, const double *losses, int steps)
{
    FILE *f = open_in(folder, "loss.csv");
    if (!f) return 0;
    fprintf(f, "step,loss\n");
    for (int i = 0; i < steps; i++) fprintf(f, "%d,%.17g\n", i + 1, losses[i]);
    if (!close_written(f)) return 0;
    f = open_in(folder, "loss.svg");
    return f ? write_picture(f, losses, steps) : 0;
}

int curve_write_matrix(const char *folder, const char *name, const float *matrix, int64_t n)
{
    FILE *f = open_in(folder, name);
    if (!f) return 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) fprintf(f, "%.6g%s", (double)matrix[i * n + j], j + 1 < n ? "," : "\n");
    return close_written(f);
}
