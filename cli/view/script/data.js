/* SPDX-License-Identifier: MIT
 *
 * data.js - what page.c embedded: sequences with their tokens, and the weights of a head, decoded on first use.
 */
const about = JSON.parse(document.getElementById('attn-about').textContent);
const layerCount = about.layers.length, headCount = about.heads.length;

function repeatedIn(tokens) {
  const seen = new Set(), repeated = new Set();
  for (const token of tokens) (seen.has(token) ? repeated : seen).add(token);
  return repeated;
}

const sequences = about.sequences.map((given) => {
  const numbers = (count, first) => Array.from({ length: count }, (_, i) => String(first + i));
  const queries = given.queries || numbers(given.lenQ, given.firstQuery);
  const keys = given.keys || numbers(given.lenK, 0);
  const same = queries.length === keys.length && queries.every((token, i) => token === keys[i]);
  return { name: given.name, lenQ: given.lenQ, lenK: given.lenK, firstQuery: given.firstQuery, named: Boolean(given.queries),
           queries, keys, same, repeated: repeatedIn(keys) };
});

/* A token as text: characters without a glyph are made visible. */
function visible(token) {
  if (token === '') return '∅';
  return token.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/^ +| +$/g, (blanks) => '␣'.repeat(blanks.length));
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/* The weights of one head.  `codes` is in row order and grows with the weight: weight = low + step * code. */
class Head {
  constructor(codes, low, step, sequence, exact) {
    Object.assign(this, { codes, low, step, lenQ: sequence.lenQ, lenK: sequence.lenK, exact, largest: undefined });
  }

  weight(i, j) {
    const code = this.codes[i * this.lenK + j];
    return !this.exact && code === 65535 ? NaN : this.low + this.step * code;
  }

  row(i) { return Array.from({ length: this.lenK }, (_, j) => this.weight(i, j)); }

  /* The largest finite weight. */
  max() {
    if (this.largest === undefined) {
      let best = -Infinity;
      for (const code of this.codes) if (code > best && (this.exact ? code < Infinity : code !== 65535)) best = code;
      this.largest = best === -Infinity ? 0 : this.low + this.step * best;
    }
    return this.largest;
  }

  /* The place of the largest weight of row i; 0 if there is none. */
  strongest(i) {
    let best = 0;
    for (let j = 1; j < this.lenK; j++)
      if (this.weight(i, j) > this.weight(i, best) || Number.isNaN(this.weight(i, best))) best = j;
    return best;
  }
}

/* Typed arrays are little-endian on everything that has a browser. */
function decodeLayer(s, l) {
  const sequence = sequences[s], count = sequence.lenQ * sequence.lenK;
  const bytes = bytesOf(document.getElementById(`attn-weights-${s}-${l}`).textContent);
  return about.heads.map((_, h) => {
    if (about.encoding === 'f32') return new Head(new Float32Array(bytes.buffer, h * count * 4, count), 0, 1, sequence, true);
    const start = h * (8 + count * 2), range = new DataView(bytes.buffer, start, 8);
    const low = range.getFloat32(0, true), high = range.getFloat32(4, true);
    return new Head(new Uint16Array(bytes.buffer, start + 8, count), low, (high - low) / 65534, sequence, false);
  });
}

const decoded = new Map();
function headAt(s, l, h) {
  const key = `${s}-${l}`;
  if (!decoded.has(key)) decoded.set(key, decodeLayer(s, l));
  return decoded.get(key)[h];
}

/* A row; its entropy, -sum p ln p like the library's statistic, has a meaning only if the sum is 1. */
function rowStatistics(head, i) {
  let sum = 0, entropy = 0;
  for (let j = 0; j < head.lenK; j++) {
    const p = head.weight(i, j);
    sum += p;
    if (!(p <= 0)) entropy -= p * Math.log(p);
  }
  const best = head.strongest(i);
  return { sum, entropy, best, max: head.weight(i, best) };
}

/* Links of query i over all heads, strongest first; with `once`, for each key only the head that gives it most. */
function strongestLinks(s, i, once, count) {
  const { lenK } = sequences[s], links = [];
  const best = once ? new Array(lenK).fill(null) : null;
  for (let l = 0; l < layerCount; l++)
    for (let h = 0; h < headCount; h++) {
      const head = headAt(s, l, h);
      for (let j = 0; j < lenK; j++) {
        const weight = head.weight(i, j);
        if (!(weight > 0)) continue;
        if (!once) links.push({ weight, layer: l, head: h, key: j });
        else if (!best[j] || weight > best[j].weight) best[j] = { weight, layer: l, head: h, key: j };
      }
    }
  return (once ? best.filter(Boolean) : links).sort((a, b) => b.weight - a.weight).slice(0, count);
}

function formatWeight(weight) { return Number.isFinite(weight) ? weight.toFixed(3) : String(weight); }
