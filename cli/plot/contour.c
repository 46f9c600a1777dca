/* SPDX-License-Identifier: MIT
 *
 * contour.c - see contour.h.  Marching squares: in each cell of the grid a level crosses none, two or all four of its sides. */
#include "contour.h"

#include "color.h"

enum { FAINT = 14 };

typedef struct corner {
    double x, y, height;
} corner;

/* Where the level crosses the side from a to b. */
static void put_crossing(figure *f, const chart_space *s, char letter, corner a, corner b, double level)
{
    const double at = (level - a.height) / (b.height - a.height);
    text_print(&f->out, "%c%.2f %.2f", letter, chart_x(s, a.x + at * (b.x - a.x)), chart_y(s, a.y + at * (b.y - a.y)));
}

static void put_cell(figure *f, const chart_space *s, const corner corners[4], double level)
{
    int crossed[4], count = 0;
    for (int side = 0; side < 4; side++)
        if ((corners[side].height > level) != (corners[(side + 1) % 4].height > level)) crossed[count++] = side;
    for (int k = 0; k + 1 < count; k += 2) {
        put_crossing(f, s, 'M', corners[crossed[k]], corners[(crossed[k] + 1) % 4], level);
        put_crossing(f, s, 'L', corners[crossed[k + 1]], corners[(crossed[k + 1] + 1) % 4], level);
    }
}

void contour_fill(figure *f, const chart_space *s, int64_t points, const double *heights, int levels, double low, double high)
{
    const double step_x = (s->x.high - s->x.low) / (double)(points - 1), step_y = (s->y.high - s->y.low) / (double)(points - 1);
    figure_group(f, "contours", "energy");
    for (int l = 0; l < levels; l++) {
        const double level = low + (high - low) * (l + 0.5) / levels;
        /* The colours next to the paper would be invisible. */
        const int step = color_step(level, low, high), seen = step < FAINT ? FAINT : step;
        text_print(&f->out, "<path class=\"thin c%d\" data-level=\"%.6g\" d=\"", seen, level);
        for (int64_t i = 0; i + 1 < points; i++)
            for (int64_t j = 0; j + 1 < points; j++) {
                corner corners[4];
                static const int right[] = {0, 1, 1, 0}, up[] = {0, 0, 1, 1};
                for (int k = 0; k < 4; k++)
                    corners[k] = (corner){s->x.low + step_x * (double)(j + right[k]), s->y.low + step_y * (double)(i + up[k]),
                                          heights[(i + up[k]) * points + j + right[k]]};
                put_cell(f, s, corners, level);
            }
        text_string(&f->out, "\"/>\n");
    }
    figure_group_end(f);
}
