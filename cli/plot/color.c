/* SPDX-License-Identifier: MIT
 *
 * color.c - ramps of even steps in lightness, made in OKLab (B. Ottosson 2020, https://bottosson.github.io/posts/oklab).  The
 * sequential one has the stops of the page of `attn view` (view/script/color.js). */
#include "color.h"

#include <math.h>

enum { STOPS = 5, THEMES = 2 };

typedef struct stop {
    double lightness, chroma, hue; /* hue in degrees */
} stop;

static const stop sequential[THEMES][STOPS] = {
    {{0.968, 0.006, 240}, {0.80, 0.085, 225}, {0.625, 0.125, 242}, {0.45, 0.145, 264}, {0.27, 0.105, 280}},
    {{0.245, 0.014, 262}, {0.44, 0.105, 268}, {0.62, 0.125, 240}, {0.79, 0.125, 195}, {0.965, 0.10, 108}}};
static const stop diverging[THEMES][STOPS] = {
    {{0.40, 0.12, 30}, {0.70, 0.13, 45}, {0.968, 0.004, 90}, {0.68, 0.11, 245}, {0.38, 0.13, 265}},
    {{0.88, 0.11, 75}, {0.58, 0.14, 45}, {0.245, 0.01, 262}, {0.55, 0.12, 255}, {0.88, 0.08, 220}}};

/* Rules with one colour on light paper and one on dark. */
static const struct {
    const char *rule, *color[THEMES];
} plain[] = {{".paper{fill:%s}", {"#ffffff", "#14171c"}},   {"text{fill:%s}", {"#171b21", "#e8ebf0"}},
             {".quiet{fill:%s}", {"#5a6472", "#9aa5b4"}},   {".grid{stroke:%s}", {"#e3e7ec", "#2a303a"}},
             {".frame{stroke:%s}", {"#aab3bf", "#515b69"}}, {".mark{stroke:%s}", {"#5a6472", "#9aa5b4"}},
             {".dot{stroke:%s}", {"#ffffff", "#14171c"}},   {".over{fill:%s}", {"#ffffff", "#10141a"}},
             {".none{fill:%s}", {"#c9ced6", "#434a55"}}};

static const char *const series[THEMES][COLOR_SERIES] = {
    {"#2f62bd", "#c2410c", "#15803d", "#7e22ce", "#b4127a", "#0e7490", "#a16207", "#475569"},
    {"#7aa8f5", "#ffa94d", "#5fd38a", "#c792ff", "#ff8ac2", "#5cd0e6", "#e5c558", "#a8b4c4"}};

int color_step(double value, double low, double high)
{
    const double share = high > low ? (value - low) / (high - low) : 0;
    return share <= 0 ? 0 : share >= 1 ? COLOR_STEPS : (int)lround(share * COLOR_STEPS);
}

static int byte_of(double linear)
{
    const double x = fmin(1, fmax(0, linear)), encoded = x <= 0.0031308 ? 12.92 * x : 1.055 * pow(x, 1 / 2.4) - 0.055;
    return (int)lround(255 * encoded);
}

static void put_ok_lab(text_buffer *out, double lightness, double a, double b)
{
    const double l = pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3);
    const double m = pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3);
    const double s = pow(lightness - 0.0894841775 * a - 1.291485548 * b, 3);
    text_print(out, "#%02x%02x%02x", byte_of(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
               byte_of(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
               byte_of(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s));
}

static void write_ramp(text_buffer *out, char letter, const stop *stops)
{
    const double radians = acos(-1) / 180;
    for (int n = 0; n <= COLOR_STEPS; n++) {
        const double x = (double)n / COLOR_STEPS * (STOPS - 1);
        const int i = n == COLOR_STEPS ? STOPS - 2 : (int)x;
        const stop *from = &stops[i], *to = &stops[i + 1];
        const double at = x - i, a0 = from->chroma * cos(from->hue * radians), b0 = from->chroma * sin(from->hue * radians);
        const double a1 = to->chroma * cos(to->hue * radians), b1 = to->chroma * sin(to->hue * radians);
        for (int line = 0; line < 2; line++) {
            if (line && letter != 'h') break;
            if (line) text_print(out, ".c%d{stroke:", n);
            else text_print(out, ".%c%d{fill:", letter, n);
            put_ok_lab(out, from->lightness + at * (to->lightness - from->lightness), a0 + at * (a1 - a0), b0 + at * (b1 - b0));
            text_string(out, "}");
        }
    }
    text_letter(out, '\n');
}

static void write_theme(text_buffer *out, int theme)
{
    for (size_t k = 0; k < sizeof plain / sizeof *plain; k++) {
        const char *color = plain[k].color[theme];
        for (const char *c = plain[k].rule; *c; c++) {
            if (*c != '%') text_letter(out, *c);
            else text_string(out, color), c++;
        }
    }
    for (int n = 0; n < COLOR_SERIES; n++)
        text_print(out, ".s%d{stroke:%s}.f%d{fill:%s}", n, series[theme][n], n, series[theme][n]);
    text_letter(out, '\n');
    write_ramp(out, 'h', sequential[theme]);
    write_ramp(out, 'd', diverging[theme]);
}

void color_write_rules(text_buffer *out)
{
    text_string(out,
                "text{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",Arial,sans-serif}"
                ".title{font-size:18px;font-weight:650}.name{font-size:13px;font-weight:650}.end{text-anchor:end}"
                ".middle{text-anchor:middle}.cell{font-size:10px;text-anchor:middle}"
                ".line{fill:none;stroke-width:2;stroke-linejoin:round}.thin{fill:none;stroke-width:1}.dashed{stroke-dasharray:6 4}"
                ".cells{shape-rendering:crispEdges}.frame,.grid{fill:none}.m0{fill:#000}.m1{fill:#fff}\n");
    write_theme(out, 0);
    text_string(out, "@media (prefers-color-scheme:dark){\n");
    write_theme(out, 1);
    text_string(out, "}\n");
}
