/* SPDX-License-Identifier: MIT
 *
 * live.js - the open head, computed anew with other options.  It stands in for the recorded one while the tab Live is open or an option is
 * changed.  state.live has the options that are not as recorded.
 */
/* cells: of the largest head; compared: weights that are compared with the recorded ones; strip: tokens that are shaded anew while a slider
 * moves; rest: milliseconds without a change; step: of work between frames; nearly: of sums, as in summary.c */
const LIVE = { cells: 1 << 25, compared: 1 << 20, strip: 512, rest: 250, step: 12, nearly: 0.01 };

const live = { head: null, key: null, number: 0, timer: 0, frame: 0, time: 0, error: null };

const hasLibrary = byId('attn-wasm') !== null;

const isChanged = () => Object.keys(state.live).length > 0;

/* Why the head of a sequence cannot be computed anew; null if it can. */
function whyNotLive({ rule, lenQ, lenK }) {
  if (!rule) return 'This sequence has weights only. Live needs its q and k, of dot products under a softmax.';
  return lenQ * lenK > LIVE.cells ? `A head of ${lenQ} × ${lenK} weights is too large to compute anew while you wait; --queries chooses fewer.` : null;
}

/* A head whose weights arrive in blocks of rows; until then they are those that were recorded. */
class LiveHead extends Head {
  constructor(recorded) {
    super(recorded.sequence, recorded.layer, recorded.head);
    const { lenQ, lenK, rule, layer, head } = this;
    Object.assign(this, { recorded, id: `live ${recorded.id}`, before: recordedOptions(rule, layer, head, headCount), cells: new Float32Array(lenQ * lenK),
                          done: new Uint8Array(lenQ), current: new Uint8Array(lenQ), spread: new Float32Array(lenQ), totals: null, apart: null, changed: null, busy: true });
    this.difference = new Difference(this, recorded);
  }

  get options() { return { ...this.before, ...state.live }; }
  get source() { return this.changed ?? super.source; }
  get kinds() { return [...super.kinds, 'change']; }
  get summary() { return this.totals ?? super.summary; }
  get complete() { return this.totals !== null && this.current.every(Boolean); }
  level(name) { return name === 'small' && !this.totals ? super.level(name) : null; }

  begin() {
    this.changed = new Changed(super.source, this.before, this.options);
    this.current.fill(0);
    this.busy = true;
  }

  at(kind, i, j) {
    if (kind === 'score') return this.source.at(kind, i, j);
    if (!this.done[i]) return this.recorded.at(kind, i, j);
    const weight = this.cells[i * this.lenK + j];
    return kind === 'value' ? weight * this.source.norms[j] : weight;
  }

  weight(i, j) { return this.at('weight', i, j); }

  fill(kind, r0, r1, c0, c1, out) {
    if (kind === 'score') return this.source.fill(kind, r0, r1, c0, c1, out);
    for (let i = r0, n = 0; i < r1; i++, n += c1 - c0) {
      if (!this.done[i]) this.recorded.fill(kind, i, i + 1, c0, c1, out.subarray(n, n + c1 - c0));
      else out.set(this.cells.subarray(i * this.lenK + c0, i * this.lenK + c1), n);
      if (kind === 'value' && this.done[i]) for (let j = c0; j < c1; j++) out[n + j - c0] *= this.source.norms[j];
    }
    return null;
  }

  /* A block of weights. */
  take(from, to, weights) {
    const { lenK, changed, spread } = this, { plain, rule } = changed;
    this.cells.set(weights, from * lenK);
    for (let i = from; i < to; i++) {
      let sum = 0, entropy = 0, seen = plain ? Math.max(0, Math.min(lenK, rule.causal ? rule.position + i + 1 : lenK)) : 0;
      for (let j = 0, at = (i - from) * lenK; j < lenK; j++, at++) {
        const p = weights[at];
        sum += p;
        if (p > 0) entropy -= p * Math.log(p);
        if (!plain) seen += changed.sees(i, j);
      }
      spread[i] = seen > 1 && Math.abs(sum - 1) <= LIVE.nearly ? Math.min(1, entropy / Math.log(seen)) : NaN;
      this.done[i] = this.current[i] = 1;
    }
    if (this.current.every(Boolean)) this.total();
  }

  total() {
    const { lenQ, lenK, cells, spread } = this, sums = new Float64Array(lenK);
    let largest = 0;
    for (let i = 0, at = 0; i < lenQ; i++)
      for (let j = 0; j < lenK; j++, at++) {
        sums[j] += cells[at];
        if (cells[at] > largest) largest = cells[at];
      }
    this.totals = { largest, spread, received: Float32Array.from(sums, (sum) => sum / lenQ), small: null };
  }

  max() { return this.summary.largest; }
}

/* The head that stands in for the recorded one, or null. */
function liveHead() {
  if (!hasLibrary || state.layer === null || (state.tab !== 'live' && !isChanged()) || whyNotLive(sequences[state.sequence])) return null;
  const recorded = headAt(state.sequence, state.layer, state.head);
  if (live.head?.recorded !== recorded) Object.assign(live, { head: new LiveHead(recorded), key: null });
  return live.head;
}

/* ---- computing ---- */

/* Rows of the map that are in view, and the selected one; in parts that an engine computes at once. */
function blocksOf(head, visible) {
  const { box, cell } = map, rows = engine.rows(head), { lenQ } = head, blocks = [];
  const inView = (from, to) => (to > box.scrollTop / cell.y && from < (box.scrollTop + box.clientHeight) / cell.y) || (state.query >= from && state.query < to && state.query !== null);
  for (let from = 0; from < lenQ; from += rows) blocks.push([from, Math.min(lenQ, from + rows)]);
  const urgent = blocks.filter(([from, to]) => inView(from, to));
  return visible ? urgent : [...urgent, ...blocks.filter((block) => !urgent.includes(block))];
}

function solve(head, visible) {
  if (!engine.solve) return;
  head.begin();
  live.error = null;
  live.time = 0;
  engine.solve({ number: ++live.number, changed: head.changed, blocks: blocksOf(head, visible) });
  renderLiveTab();
}

function takeAnswer({ number, from, to, weights, time, error }) {
  const { head } = live;
  if (number !== live.number || !head) return;
  live.time += time;
  if (error) live.error = error;
  else {
    head.take(from, to, weights);
    dropTiles(head, from, to);
  }
  live.frame ||= requestAnimationFrame(drawLive);
}

/* Pictures of rows that have changed. */
function dropTiles({ id, difference, lenK }, from, to) {
  for (let ty = Math.floor(from / TILE.side); ty * TILE.side < to; ty++)
    for (let tx = 0; tx * TILE.side < lenK; tx++)
      for (const [owner, kind] of [[id, 'weight'], [id, 'value'], [id, 'score'], [difference.id, 'change']]) tiles.cache.drop(tileKey({ id: owner }, kind, ty, tx));
  for (const old of [...tiles.cache.entries.keys()]) if (old.startsWith(`${id}|`) && old.includes(' difference ')) tiles.cache.drop(old); /* from B */
}

function drawLive() {
  live.frame = 0;
  if (!liveHead()) return;
  if (live.head.complete && !live.timer) {
    map.miniCache = null;
    render();
  } else { /* there is more to come: what is quick */
    drawMap();
    if (live.head.lenK <= LIVE.strip) renderStrips();
    renderReadout();
    renderLiveTab();
  }
  if (live.head.complete) wantApart(live.head, live.number);
}

/* How far the weights are from the recorded ones: the largest change, and the mean over rows of half the sum of |a - b|.  Of a long head, every
 * n-th row is compared. */
function wantApart(head, number) {
  const { recorded, lenQ, lenK, cells } = head, apart = { most: 0, query: 0, key: 0, sum: 0, every: Math.ceil(lenQ * lenK / LIVE.compared) };
  let i = 0;
  const step = () => {
    if (number !== live.number) return;
    for (const end = performance.now() + LIVE.step; i < lenQ && performance.now() < end; i += apart.every) {
      const row = recorded.row(i);
      for (let j = 0; j < lenK; j++) {
        const size = Math.abs(cells[i * lenK + j] - row[j]);
        apart.sum += size / 2 / Math.ceil(lenQ / apart.every);
        if (size > apart.most) Object.assign(apart, { most: size, query: i, key: j });
      }
    }
    if (i < lenQ) { setTimeout(step); return; }
    Object.assign(head, { apart, busy: false });
    renderLiveTab();
  };
  step();
}

/* Called by every drawing: computes what is not computed yet. */
function followLive() {
  const head = liveHead(), key = head && `${head.id} ${JSON.stringify(state.live)}`;
  if (!head || key === live.key) return;
  if (!engine.solve) {
    startEngine(takeAnswer).then(() => { if (engine.solve) render(); });
    return;
  }
  live.key = key;
  solve(head, false);
}

/* ---- changing ---- */

/* Sets an option; as it was recorded if `value` is that.  moving: there is more to come, so that what is in view is enough for now. */
function setLive(name, value, moving) {
  const { before } = live.head, next = { ...state.live, [name]: value };
  if (JSON.stringify(value) === JSON.stringify(before[name])) delete next[name];
  clearTimeout(live.timer);
  live.timer = 0;
  if (!moving) {
    live.key = null; /* of what moved, rows out of view are not computed */
    go({ live: next });
    return;
  }
  state.live = next;
  live.key = `${live.head.id} ${JSON.stringify(next)}`;
  solve(live.head, true);
  live.timer = setTimeout(() => Object.assign(live, { timer: 0, key: null }) && go({}), LIVE.rest);
}

/* "scale:0.5,causal:1,out:2.5": for the address. */
function writeLive() {
  return Object.entries(state.live).map(([name, value]) => `${name}:${Array.isArray(value) ? value.join('.') : Number(value ?? NaN)}`).join(',');
}

function readLive(text) {
  const found = {}, known = { scale: 1, softcap: 1, causal: 1, left: 1, right: 1, slope: 1, sink: 1, base: 1, out: 1 };
  for (const part of (hasLibrary && text ? text.split(',') : [])) {
    const [name, value] = part.split(':'), number = Number(value);
    if (!known[name] || value === undefined) continue;
    if (name === 'out') found.out = value.split('.').map(Number).filter((j) => Number.isInteger(j) && j >= 0);
    else if (name === 'causal') found.causal = number === 1;
    else if (Number.isFinite(number)) found[name] = name === 'left' || name === 'right' ? Math.round(number) : number;
    else if (name === 'sink' || name === 'base') found[name] = null;
  }
  return found;
}
