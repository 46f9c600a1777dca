/* SPDX-License-Identifier: MIT
 *
 * tiles.js - the numbers of a head by squares of 256 x 256, made when they come into view: at once while that is quick, the rest in
 * short steps between frames.  Zoomed out, a tile keeps only parts of 2 x 2, 4 x 4 ... cells.
 */
const TILE = { side: 256, atOnce: 12, step: 8, bytes: 64 << 20 }; /* atOnce, step: milliseconds */
const SIGNED = new Set(['score', 'difference', 'change']);

const tiles = { cache: new Cache(TILE.bytes), queue: [], running: false, scratch: new Float32Array(TILE.side * TILE.side) };

/* Parts of factor x factor cells of a matrix.  Numbers that are not finite win; of signed numbers the one farthest from 0. */
function poolCells(cells, rows, columns, factor, mode, signed) {
  const height = Math.ceil(rows / factor), width = Math.ceil(columns / factor), out = new Float32Array(width * height);
  for (let y = 0, n = 0; y < height; y++)
    for (let x = 0; x < width; x++, n++) {
      const bottom = Math.min(rows, (y + 1) * factor), right = Math.min(columns, (x + 1) * factor);
      let most = HIDDEN, sum = 0, count = 0;
      for (let i = y * factor; i < bottom; i++)
        for (let at = i * columns + x * factor, end = i * columns + right; at < end; at++) {
          const value = cells[at];
          if (value === HIDDEN) continue;
          sum += value;
          count++;
          if (Number.isNaN(value) || most === HIDDEN || (signed ? Math.abs(value) > Math.abs(most) : value > most)) most = value;
          if (Number.isNaN(most)) { sum = NaN; break; }
        }
      out[n] = mode === 'mean' && count ? sum / count : most;
    }
  return { width, height, cells: out };
}

class Tile {
  constructor(rows, columns, factor, signed) { Object.assign(this, { rows, columns, factor, signed, levels: new Map(), top: 0 }); }

  keep(cells) {
    for (let k = 0; k < cells.length; k++) {
      const size = Math.abs(cells[k]);
      if (size > this.top && size < Infinity) this.top = size;
    }
    if (this.factor === 1) {
      const whole = { width: this.columns, height: this.rows, cells: cells.slice(0, this.rows * this.columns) };
      this.levels.set('1most', whole).set('1mean', whole);
    } else for (const mode of ['most', 'mean']) this.levels.set(this.factor + mode, poolCells(cells, this.rows, this.columns, this.factor, mode, this.signed));
  }

  level(factor, mode) {
    const key = factor + mode;
    if (!this.levels.has(key)) {
      const from = this.levels.get(this.factor + mode);
      this.levels.set(key, poolCells(from.cells, from.height, from.width, factor / this.factor, mode, this.signed));
    }
    return this.levels.get(key);
  }
}

const tileKey = (head, kind, ty, tx) => `${head.id} ${kind} ${ty} ${tx}`;

function makeTile(head, kind, ty, tx, factor) {
  const r0 = ty * TILE.side, r1 = Math.min(head.lenQ, r0 + TILE.side), c0 = tx * TILE.side, c1 = Math.min(head.lenK, c0 + TILE.side);
  const cells = tiles.scratch.subarray(0, (r1 - r0) * (c1 - c0)), tile = new Tile(r1 - r0, c1 - c0, factor, SIGNED.has(kind));
  head.fill(kind, r0, r1, c0, c1, cells);
  tile.keep(cells);
  return tiles.cache.set(tileKey(head, kind, ty, tx), tile, Math.ceil(4 * cells.length * (factor === 1 ? 1.7 : 2.7 / factor ** 2)));
}

/* The tile, if it is there and fine enough. */
function tileAt(head, kind, ty, tx, factor) {
  const tile = tiles.cache.get(tileKey(head, kind, ty, tx));
  return tile && tile.factor <= factor ? tile : null;
}

/* Makes what is missing of `wanted` ([ty, tx], the most urgent first), and calls `changed` when there is something new to draw. */
function wantTiles(head, kind, factor, wanted, changed) {
  const end = performance.now() + TILE.atOnce, missing = [];
  for (const [ty, tx] of wanted) {
    if (tileAt(head, kind, ty, tx, factor)) continue;
    if (performance.now() < end) makeTile(head, kind, ty, tx, factor);
    else missing.push([ty, tx]);
  }
  tiles.queue = missing.map(([ty, tx]) => ({ head, kind, ty, tx, factor, changed }));
  if (missing.length && !tiles.running) {
    tiles.running = true;
    setTimeout(stepTiles);
  }
}

function stepTiles() {
  const end = performance.now() + TILE.step;
  let changed = null;
  while (tiles.queue.length && performance.now() < end) {
    const { head, kind, ty, tx, factor, changed: tell } = tiles.queue.shift();
    if (!tileAt(head, kind, ty, tx, factor)) makeTile(head, kind, ty, tx, factor);
    changed = tell;
  }
  tiles.running = tiles.queue.length > 0;
  if (changed) requestAnimationFrame(() => changed());
  if (tiles.running) setTimeout(stepTiles, 4);
}
