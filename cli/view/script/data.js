/* SPDX-License-Identifier: MIT
 *
 * data.js - what page.c and chunks.c embedded: sequences with their tokens, and heads, decoded on first use.
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
  return { ...given, named: Boolean(given.queries), queries, keys, same, repeated: repeatedIn(keys) };
});

/* A token as text: characters without a glyph are made visible. */
function visible(token) {
  if (token === '') return '∅';
  return token.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/^ +| +$/g, (blanks) => '␣'.repeat(blanks.length));
}

/* ---- bytes ---- */

function bytesOf(id) {
  const base64 = document.getElementById(id).textContent;
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

const halfs = { table: null };

/* The number of each of the 65536 half floats. */
function halfTable() {
  if (halfs.table) return halfs.table;
  const table = halfs.table = new Float32Array(65536);
  for (let bits = 0; bits < 32768; bits++) {
    const exponent = bits >> 10, fraction = bits & 1023;
    const value = exponent === 31 ? (fraction ? NaN : Infinity)
      : exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    table[bits] = value;
    table[bits + 32768] = -value;
  }
  return table;
}

/* Numbers one after the other, at any offset; little-endian, like everything that has a browser. */
class Reader {
  constructor(bytes) { Object.assign(this, { bytes, at: 0 }); }

  take(count) {
    this.at += count;
    return this.bytes.slice(this.at - count, this.at);
  }

  floats(count) { return new Float32Array(this.take(4 * count).buffer); }

  numbers(count, type) {
    if (type === 'f32') return this.floats(count);
    const table = halfTable(), bits = new Uint16Array(this.take(2 * count).buffer);
    return Float32Array.from(bits, (b) => table[b]);
  }

  /* A level of view_summary, as chunks.c has it. */
  level([rows, columns]) {
    const level = { rows, columns };
    for (const mode of ['most', 'mean']) { /* numbers when they are first asked for: a page has many levels, and draws few at once */
      const [low, high] = this.floats(2), codes = this.take(rows * columns), step = (high - low) / 254;
      let numbers = null;
      Object.defineProperty(level, mode, { get: () => {
        if (!numbers) {
          numbers = new Float32Array(codes.length);
          for (let k = 0; k < codes.length; k++) numbers[k] = codes[k] === 255 ? NaN : low + step * codes[k];
        }
        return numbers;
      } });
    }
    return level;
  }
}

/* The least recently used of these are forgotten when there are more than `limit` bytes. */
class Cache {
  constructor(limit) { Object.assign(this, { limit, bytes: 0, entries: new Map() }); }

  get(key) {
    const entry = this.entries.get(key);
    if (!entry) return null;
    this.entries.delete(key);
    this.entries.set(key, entry);
    return entry.value;
  }

  set(key, value, bytes) {
    this.drop(key);
    this.entries.set(key, { value, bytes });
    this.bytes += bytes;
    for (const old of this.entries.keys()) {
      if (this.bytes <= this.limit || old === key) break;
      this.drop(old);
    }
    return value;
  }

  drop(key) {
    this.bytes -= this.entries.get(key)?.bytes ?? 0;
    this.entries.delete(key);
  }
}

const chunks = new Cache(64 << 20);

function chunk(id, read) {
  const found = chunks.get(id);
  if (found) return found;
  const bytes = bytesOf(id);
  return chunks.set(id, read(new Reader(bytes)), 2 * bytes.length);
}

/* ---- heads ---- */

/* The weights of a head as they were stored.  `codes` is in row order and grows with the weight: weight = low + step * code. */
class Stored {
  constructor(codes, low, step, exact, lenK) { Object.assign(this, { codes, low, step, exact, lenK }); }

  sees() { return true; }

  at(kind, i, j) {
    const code = this.codes[i * this.lenK + j];
    return !this.exact && code === 65535 ? NaN : this.low + this.step * code;
  }

  fill(kind, r0, r1, c0, c1, out) {
    for (let i = r0, n = 0; i < r1; i++)
      for (let j = c0; j < c1; j++, n++) {
        const weight = this.at(kind, i, j);
        out[n] = weight === HIDDEN ? NaN : weight;
      }
  }
}

function storedAt(s, l, h) {
  const { lenQ, lenK } = sequences[s], count = lenQ * lenK;
  return chunk(`attn-weights-${s}-${l}`, (reader) => about.heads.map(() => {
    if (about.encoding === 'f32') return new Stored(reader.floats(count), 0, 1, true, lenK);
    const [low, high] = reader.floats(2);
    return new Stored(new Uint16Array(reader.take(2 * count).buffer), low, (high - low) / 65534, false, lenK);
  }))[h];
}

function scoresAt(s, l, h) {
  const { lenQ, lenK, rule } = sequences[s], group = rule.groups[h];
  const { q, lse } = chunk(`attn-q-${s}-${l}-${h}`, (reader) => ({ q: reader.numbers(lenQ * rule.dim, rule.type), lse: reader.floats(lenQ) }));
  const { k, norms } = chunk(`attn-k-${s}-${l}-${group}`, (reader) => ({ k: reader.numbers(lenK * rule.dim, rule.type),
                                                                         norms: rule.values ? reader.floats(lenK) : null }));
  return new Scores(rule, { q, k, lse, norms, lenQ, lenK, scale: rule.scale[h], slope: rule.slopes ? rule.slopes[l * headCount + h] : 0 });
}

function summariesAt(s, l) {
  const { lenQ, lenK, small } = sequences[s];
  return chunk(`attn-summary-${s}-${l}`, (reader) => about.heads.map(() => (
    { largest: reader.floats(1)[0], spread: reader.floats(lenQ), received: reader.floats(lenK), small: small ? reader.level(small) : null })));
}

/* One head of one sequence.  Its numbers are computed, or decoded, when they are asked for. */
class Head {
  constructor(s, layer, head) {
    const { lenQ, lenK, rule } = sequences[s];
    Object.assign(this, { sequence: s, layer, head, lenQ, lenK, rule: rule ?? null, id: `${s}-${layer}-${head}` });
  }

  get source() { return this.rule ? scoresAt(this.sequence, this.layer, this.head) : storedAt(this.sequence, this.layer, this.head); }
  get summary() { return summariesAt(this.sequence, this.layer)[this.head]; }
  get kinds() { return ['weight', ...(this.rule ? ['score'] : []), ...(this.rule?.values ? ['value'] : [])]; }

  weight(i, j) { return this.source.at('weight', i, j); }
  at(kind, i, j) { return this.source.at(kind, i, j); }

  row(i) {
    const out = new Float64Array(this.lenK);
    this.fill('weight', i, i + 1, 0, this.lenK, out);
    return out;
  }

  fill(kind, r0, r1, c0, c1, out) { this.source.fill(kind, r0, r1, c0, c1, out); }

  /* The largest finite weight. */
  max() { return this.summary.largest; }

  /* The picture of a level, or null. */
  level(name) {
    if (name === 'small') return this.summary.small;
    const shape = sequences[this.sequence].large;
    return shape ? chunk(`attn-large-${this.id}`, (reader) => reader.level(shape)) : null;
  }

  /* The place of the largest weight of row i; 0 if there is none. */
  strongest(i) {
    const row = this.row(i);
    let best = 0;
    for (let j = 1; j < row.length; j++) if (row[j] > row[best] || Number.isNaN(row[best])) best = j;
    return best;
  }
}

const heads = new Map();
function headAt(s, l, h) {
  const key = `${s}-${l}-${h}`;
  if (!heads.has(key)) heads.set(key, new Head(s, l, h));
  return heads.get(key);
}

/* A row; its entropy, -sum p ln p like the library's statistic, has a meaning only if the sum is 1. */
function rowStatistics(head, i) {
  const row = head.row(i);
  let sum = 0, entropy = 0, best = 0;
  row.forEach((p, j) => {
    sum += p;
    if (!(p <= 0)) entropy -= p * Math.log(p);
    if (p > row[best] || Number.isNaN(row[best])) best = j;
  });
  return { row, sum, entropy, best, max: row[best] };
}

/* The mean of the finite numbers; NaN if there is none. */
function meanOf(numbers) {
  let sum = 0, count = 0;
  for (const x of numbers) if (Number.isFinite(x)) { sum += x; count++; }
  return count ? sum / count : NaN;
}

/* Links of query i over all heads, strongest first; with `once`, for each key only the head that gives it most. */
function strongestLinks(s, i, once, count) {
  const { lenK } = sequences[s], links = [];
  const best = once ? new Array(lenK).fill(null) : null;
  for (let l = 0; l < layerCount; l++)
    for (let h = 0; h < headCount; h++) {
      const row = headAt(s, l, h).row(i);
      for (let j = 0; j < lenK; j++) {
        const weight = row[j];
        if (!(weight > 0)) continue;
        if (!once) links.push({ weight, layer: l, head: h, key: j });
        else if (!best[j] || weight > best[j].weight) best[j] = { weight, layer: l, head: h, key: j };
      }
    }
  return (once ? best.filter(Boolean) : links).sort((a, b) => b.weight - a.weight).slice(0, count);
}

function formatWeight(weight) {
  if (weight === HIDDEN) return 'hidden';
  return Number.isFinite(weight) ? weight.toFixed(3).replace(/^-(0\.0+)$/, '$1') : String(weight);
}
