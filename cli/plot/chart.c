/* SPDX-License-Identifier: MIT
 *
 * chart.c - see chart.h. */
#include "chart.h"

#include <math.h>
#include <stdio.h>

#include "color.h"

enum { LEFT = 64, TOP = 26, BOTTOM = 44, LEGEND = 20, RIGHT = 8, MAX_TICKS = 40 };

static double share(const chart_axis *a, double value)
{
    if (a->scale == AXIS_LINEAR) return (value - a->low) / (a->high - a->low);
    return (log(value) - log(a->low)) / (log(a->high) - log(a->low));
}

double chart_x(const chart_space *s, double value) { return s->left + s->width * share(&s->x, value); }
double chart_y(const chart_space *s, double value) { return s->top + s->height * (1 - share(&s->y, value)); }

static double width_of(const chart *c) { return c->width > 0 ? c->width : CHART_WIDTH; }
static double height_of(const chart *c) { return c->height > 0 ? c->height : CHART_HEIGHT; }

static int legend_rows(const chart *c) { return c->series_count > 1 || c->lines_count ? c->series_count + c->lines_count : 0; }

/* The names of categories are turned: as high as the longest. */
static double names_height(const chart *c)
{
    double most = 0;
    for (int64_t k = 0; c->names && k < c->names_count; k++) most = fmax(most, figure_text_width(c->names[k]));
    return c->names ? fmin(most, 130) * 0.82 : 0;
}

void chart_range(chart_axis *axis, int64_t count, const double *values)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t n = 0; n < count; n++) {
        if (!isfinite(values[n])) continue;
        low = fmin(low, values[n]);
        high = fmax(high, values[n]);
    }
    if (!(low <= high)) low = 0, high = 1;
    if (axis->scale != AXIS_LINEAR) {
        axis->low = low / 1.3, axis->high = high * 1.3;
        return;
    }
    const double size = high - low > 0 ? high - low : fmax(fabs(high), 1);
    axis->low = low >= 0 && low < size ? 0 : low - 0.05 * size;
    axis->high = high <= 0 && -high < size ? 0 : high + 0.05 * size;
}

/* ---- axes ---- */

/* Ticks at 1, 2 or 5 times a power of ten, five to ten of them. */
static int linear_ticks(const chart_axis *a, double *ticks)
{
    double step = pow(10, floor(log10((a->high - a->low) / 5)));
    if ((a->high - a->low) / step > 20) step *= 5;
    else if ((a->high - a->low) / step > 10) step *= 2;
    if (a->integers && step < 1) step = 1;
    int count = 0;
    for (double n = ceil(a->low / step - 1e-9); n * step <= a->high + 1e-9 * step && count < MAX_TICKS; n++)
        ticks[count++] = n * step + 0.0; /* no -0 */
    return count;
}

/* Powers, at most about ten of them for ten and twenty for two; between powers of ten also 2 and 5 where there are few. */
static int log_ticks(const chart_axis *a, double *ticks)
{
    const int ten = a->scale == AXIS_LOG;
    const double tens = log10(a->high / a->low), base = ten ? 10 : 2;
    static const double parts[] = {1, 2, 5};
    int count = 0;
    const double each = ceil(tens / (ten ? 10 : 6));
    for (double power = each * floor(log(a->low) / log(base) / each); count < MAX_TICKS; power += each) {
        if (pow(base, power) > a->high * 1.000001) break;
        for (int k = 0; k < (ten && tens < 3 ? 3 : 1); k++) {
            const double tick = pow(base, power) * parts[k];
            if (tick >= a->low * 0.999999 && tick <= a->high * 1.000001 && count < MAX_TICKS) ticks[count++] = tick;
        }
    }
    return count;
}

/* "0.5", "2000", "1e13". */
static const char *tick_text(double tick, char text[32])
{
    if (fabs(tick) < 1e5 && (tick == 0 || fabs(tick) >= 1e-4)) {
        snprintf(text, 32, "%.6g", tick);
    } else {
        const int power = (int)floor(log10(fabs(tick)) + 1e-9);
        snprintf(text, 32, "%.3ge%d", tick / pow(10, power), power);
    }
    return text;
}

/* A logarithmic axis within one power has ticks at even steps. */
static int ticks_of(const chart_axis *a, double *ticks)
{
    const int count = a->scale == AXIS_LINEAR ? 0 : log_ticks(a, ticks);
    return count < 3 && (a->scale == AXIS_LINEAR || a->high < 4 * a->low) ? linear_ticks(a, ticks) : count;
}

/* The width left of the axes: the label of y, and its longest tick. */
static double left_of(const chart *c)
{
    double ticks[MAX_TICKS], most = 0;
    char text[32];
    const int count = ticks_of(&c->y, ticks);
    for (int k = 0; k < count; k++) most = fmax(most, figure_text_width(tick_text(ticks[k], text)));
    return fmax(LEFT, most + 30);
}

void chart_size(const chart *c, double *width, double *height)
{
    *width = fmax(left_of(c) + width_of(c) + RIGHT, 1.1 * figure_text_width(c->title));
    for (int k = 0; k < c->series_count && legend_rows(c); k++)
        *width = fmax(*width, left_of(c) + 34 + figure_text_width(c->series[k].name));
    *height = TOP + height_of(c) + BOTTOM + names_height(c) + LEGEND * legend_rows(c);
}

static void draw_axes(figure *f, const chart *c, const chart_space *s)
{
    double ticks[MAX_TICKS];
    char text[32];
    const double bottom = s->top + s->height, right = s->left + s->width;
    figure_group(f, "y-axis", c->y.label);
    int count = ticks_of(&c->y, ticks);
    for (int k = 0; k < count; k++) {
        const double y = chart_y(s, ticks[k]);
        figure_line(f, "grid", s->left, y, right, y);
        figure_text(f, "quiet end tick", s->left - 8, y + 4, "%s", tick_text(ticks[k], text));
    }
    figure_group_end(f);
    figure_group(f, "x-axis", c->x.label);
    count = c->names ? 0 : ticks_of(&c->x, ticks);
    for (int k = 0; k < count; k++) {
        const double x = chart_x(s, ticks[k]);
        figure_line(f, "grid", x, s->top, x, bottom);
        figure_text(f, "quiet middle tick", x, bottom + 18, "%s", tick_text(ticks[k], text));
    }
    int64_t each = 1;
    while (c->names && s->width / (double)c->names_count * (double)each < 13) each++;
    for (int64_t k = 0; c->names && k < c->names_count; k += each)
        figure_turned_text(f, "quiet end", chart_x(s, (double)k) + 5, bottom + 14, 55, c->names[k]);
    figure_group_end(f);
    figure_box(f, "frame", s->left, s->top, s->width, s->height, NULL);
    figure_text(f, "quiet middle", s->left + s->width / 2, bottom + 36 + names_height(c), "%s", c->x.label);
    figure_turned_text(f, "quiet middle", s->left - left_of(c) + 14, s->top + s->height / 2, 90, c->y.label);
}

static const char *class_of(const chart_series *s, char text[32])
{
    snprintf(text, 32, "line%s s%d", s->mark == MARK_DASHED ? " dashed" : "", s->color % COLOR_SERIES);
    return text;
}

static void draw_legend(figure *f, const chart *c, double x, double y)
{
    char class[32];
    for (int k = 0; k < c->series_count && legend_rows(c); k++, y += LEGEND) {
        const chart_series *s = &c->series[k];
        if (s->mark != MARK_BARS && s->mark != MARK_DOTS) figure_line(f, class_of(s, class), x, y, x + 26, y);
        snprintf(class, sizeof class, "f%d", s->color % COLOR_SERIES);
        if (s->mark == MARK_BARS) figure_box(f, class, x + 8, y - 5, 10, 10, NULL);
        if (s->mark == MARK_DOTS || s->mark == MARK_POINTS) figure_dot(f, class, x + 13, y, 4, NULL);
        figure_text(f, "label", x + 34, y + 4, "%s", s->name);
    }
    for (int k = 0; k < c->lines_count; k++, y += LEGEND) {
        figure_line(f, "thin dashed mark", x, y, x + 26, y);
        figure_text(f, "label", x + 34, y + 4, "%s", c->lines[k].name);
    }
}

chart_space chart_frame(figure *f, const chart *c, double x, double y)
{
    const chart_space s = {x + left_of(c), y + TOP, width_of(c), height_of(c), c->x, c->y};
    figure_group(f, "panel", c->title);
    figure_text(f, "name", x, y + 12, "%s", c->title);
    draw_axes(f, c, &s);
    draw_legend(f, c, s.left, y + TOP + height_of(c) + BOTTOM + names_height(c) + 10);
    return s;
}

/* ---- what is inside ---- */

/* Whether a point can be drawn: a logarithm needs a number above 0. */
static int is_inside(const chart_space *s, double x, double y)
{
    const double h = share(&s->x, x), v = share(&s->y, y);
    return h >= -1e-9 && h <= 1 + 1e-9 && v >= -1e-9 && v <= 1 + 1e-9;
}

static void draw_line(figure *f, const chart_series *s, const chart_space *space)
{
    char class[32];
    int down = 0;
    text_print(&f->out, "<path class=\"%s\" d=\"", class_of(s, class));
    for (int64_t n = 0; n < s->count; n++) {
        if (!is_inside(space, s->x[n], s->y[n])) {
            down = 0;
            continue;
        }
        text_print(&f->out, "%s%.2f %.2f", down++ ? "L" : "M", chart_x(space, s->x[n]), chart_y(space, s->y[n]));
    }
    text_string(&f->out, "\"/>\n");
}

static void draw_marks(figure *f, const chart *c, const chart_series *s, const chart_space *space)
{
    char class[32], hover[400];
    for (int64_t n = 0; n < s->count; n++) {
        if (!(s->mark == MARK_BARS ? isfinite(s->y[n]) : is_inside(space, s->x[n], s->y[n]))) continue;
        const int named = c->names && s->x[n] >= 0 && s->x[n] < (double)c->names_count;
        if (named) snprintf(hover, sizeof hover, "%.200s: %.4g", c->names[(int64_t)(s->x[n] + 0.5)], s->y[n]);
        else snprintf(hover, sizeof hover, "%.200s: %.4g, %.4g", s->name, s->x[n], s->y[n]);
        snprintf(class, sizeof class, "f%d%s", s->color % COLOR_SERIES, s->mark == MARK_BARS ? "" : " dot");
        const double x = chart_x(space, s->x[n]);
        if (s->mark != MARK_BARS) {
            figure_dot(f, class, x, chart_y(space, s->y[n]), 4, hover);
            continue;
        }
        const double zero =
            chart_y(space, fmax(space->y.low, fmin(space->y.high, space->y.scale == AXIS_LINEAR ? 0 : space->y.low)));
        const double y = chart_y(space, s->y[n]), wide = space->width * s->width / (space->x.high - space->x.low);
        figure_box(f, class, x - wide / 2, fmin(y, zero), wide, fabs(y - zero), hover);
    }
}

void chart_fill(figure *f, const chart *c, const chart_space *space)
{
    for (int k = 0; k < c->series_count; k++) {
        const chart_series *s = &c->series[k];
        figure_group(f, "series", s->name);
        if (s->mark != MARK_BARS && s->mark != MARK_DOTS) draw_line(f, s, space);
        if (s->mark != MARK_LINE && s->mark != MARK_DASHED) draw_marks(f, c, s, space);
        figure_group_end(f);
    }
    for (int k = 0; k < c->lines_count; k++) {
        const chart_line *l = &c->lines[k];
        const double at = l->vertical ? share(&space->x, l->value) : share(&space->y, l->value);
        if (!(at >= 0 && at <= 1)) continue;
        figure_group(f, "reference", l->name);
        if (l->vertical)
            figure_line(f, "thin dashed mark", chart_x(space, l->value), space->top, chart_x(space, l->value),
                        space->top + space->height);
        else
            figure_line(f, "thin dashed mark", space->left, chart_y(space, l->value), space->left + space->width,
                        chart_y(space, l->value));
        figure_group_end(f);
    }
    figure_group_end(f);
}

chart_space chart_put(figure *f, const chart *c)
{
    double width, height, x, y;
    chart_size(c, &width, &height);
    figure_place(f, width, height, &x, &y);
    const chart_space space = chart_frame(f, c, x, y);
    chart_fill(f, c, &space);
    return space;
}
