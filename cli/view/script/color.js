/* SPDX-License-Identifier: MIT
 *
 * color.js - sequential ramps of even steps in lightness, made in OKLab (B. Ottosson 2020, https://bottosson.github.io/posts/oklab).
 */
const RAMP_STOPS = { /* lightness, chroma, hue in degrees; from weight 0 to the top of the scale */
  light: [[0.968, 0.006, 240], [0.80, 0.085, 225], [0.625, 0.125, 242], [0.45, 0.145, 264], [0.27, 0.105, 280]],
  dark: [[0.245, 0.014, 262], [0.44, 0.105, 268], [0.62, 0.125, 240], [0.79, 0.125, 195], [0.965, 0.10, 108]],
};
const SIGNED_STOPS = { /* from the most negative, blue, to the most positive, orange: also apart for colour-blind readers */
  light: [[0.42, 0.13, 250], [0.68, 0.11, 245], [0.968, 0.004, 240], [0.76, 0.13, 60], [0.52, 0.14, 45]],
  dark: [[0.80, 0.11, 235], [0.55, 0.11, 245], [0.245, 0.010, 262], [0.60, 0.12, 55], [0.85, 0.12, 70]],
};
const INVALID_COLOR = [214, 51, 132]; /* NaN and infinities */
const HIDDEN_COLORS = { light: [226, 229, 234], dark: [44, 49, 58] }; /* pairs that are not there */

function okLabToRgb([lightness, a, b]) {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
                  -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
                  -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s];
  return linear.map((x) => {
    const clipped = Math.min(1, Math.max(0, x));
    return Math.round(255 * (clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055));
  });
}

function makeRamp(stops) {
  const lab = stops.map(([lightness, chroma, hue]) => {
    const angle = hue * Math.PI / 180;
    return [lightness, chroma * Math.cos(angle), chroma * Math.sin(angle)];
  });
  return Array.from({ length: 256 }, (_, n) => {
    const x = n / 255 * (lab.length - 1), i = Math.min(Math.floor(x), lab.length - 2);
    return okLabToRgb(lab[i].map((from, c) => from + (lab[i + 1][c] - from) * (x - i)));
  });
}

const pack = ([r, g, b]) => (0xff000000 | b << 16 | g << 8 | r) >>> 0; /* a pixel of ImageData, little-endian */

function makePalette(theme) {
  const rgb = makeRamp(RAMP_STOPS[theme]);
  const paper = rgb[0];
  const faint = rgb.map((color) => color.map((c, k) => Math.round(paper[k] + (c - paper[k]) * 0.28)));
  const signed = makeRamp(SIGNED_STOPS[theme]);
  return { rgb, signed, pixels: Uint32Array.from(rgb, pack), faintPixels: Uint32Array.from(faint, pack), signedPixels: Uint32Array.from(signed, pack),
           invalid: pack(INVALID_COLOR), hidden: pack(HIDDEN_COLORS[theme]) };
}

const palettes = { light: makePalette('light'), dark: makePalette('dark') };
const prefersDark = matchMedia('(prefers-color-scheme: dark)');
let chosenTheme = null; /* 'light', 'dark', or null: as the system has it */
const themeInUse = () => chosenTheme || (prefersDark.matches ? 'dark' : 'light');
const palette = () => palettes[themeInUse()];

/* Index into a ramp of a weight on a scale from 0 to top. */
function rampIndex(weight, top) { return weight > 0 && top > 0 ? Math.min(255, Math.round(weight / top * 255)) : 0; }

/* The same into a ramp from -top to top, whose middle is 0. */
function signedIndex(value, top) { return top > 0 ? Math.min(255, Math.max(0, Math.round(127.5 + value / top * 127.5))) : 128; }

/* Background and readable ink for a number; null where it is not one. */
function swatch(value, top, signed = false) {
  if (!Number.isFinite(value)) return null;
  const rgb = signed ? palette().signed[signedIndex(value, top)] : palette().rgb[rampIndex(value, top)];
  const luminance = rgb.map((c) => (c / 255) ** 2.2).reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  return { background: `rgb(${rgb.join(' ')})`, ink: luminance > 0.2 ? '#10141a' : '#f6f8fa' };
}
