/* SPDX-License-Identifier: MIT
 *
 * compare.js - the open head, A, with another one, B: of another sequence or file, another layer, another head.  Rows and columns are
 * paired where the tokens are the same, else by their longest common subsequence.
 */
const COMPARE = { longest: 2048, heads: 12, keys: 16, step: 12 }; /* step: milliseconds of work between frames */

/* For each token of `a` the index of its partner in `b`, or -1. */
function alignTokens(a, b) {
  const pairs = new Int32Array(a.length).fill(-1);
  const equal = a.length === b.length && a.every((token, i) => token === b[i]);
  if (equal || a.length > COMPARE.longest || b.length > COMPARE.longest) {
    for (let i = 0; i < Math.min(a.length, b.length); i++) if (a[i] === b[i]) pairs[i] = i;
    return pairs;
  }
  const width = b.length + 1, longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) pairs[i++] = j++;
    else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i++;
    else j++;
  }
  return pairs;
}

const alignments = new Map();

/* The partners of the rows and columns of sequence a in sequence b. */
function pairsOf(a, b) {
  const key = `${a}-${b}`;
  if (!alignments.has(key))
    alignments.set(key, { rows: alignTokens(sequences[a].queries, sequences[b].queries), columns: alignTokens(sequences[a].keys, sequences[b].keys) });
  return alignments.get(key);
}

/* A - B, in the rows and columns of A; without a partner HIDDEN. */
class Difference {
  constructor(a, b) {
    Object.assign(this, { a, b, lenQ: a.lenQ, lenK: a.lenK, pairs: pairsOf(a.sequence, b.sequence), id: `${a.id}|${b.id}` });
  }

  at(kind, i, j) {
    const row = this.pairs.rows[i], column = this.pairs.columns[j];
    return row < 0 || column < 0 ? HIDDEN : this.a.weight(i, j) - this.b.weight(row, column);
  }

  fill(kind, r0, r1, c0, c1, out) {
    const { rows, columns } = this.pairs, source = this.b.source, width = c1 - c0;
    this.a.fill('weight', r0, r1, c0, c1, out);
    for (let i = r0; i < r1; i++)
      for (let j = c0; j < c1; j++) {
        const n = (i - r0) * width + j - c0;
        out[n] = rows[i] < 0 || columns[j] < 0 ? HIDDEN : out[n] - Math.fround(source.at('weight', rows[i], columns[j])); /* (out has floats) */
      }
  }

  level() { return null; }
  max() { return 1; }
}

/* B of this place, or null. */
function partnerAt(layer, head) {
  if (!state.b) return null;
  const { sequence } = state.b;
  return layer === null ? null : headAt(sequence, state.b.layer ?? layer, state.b.head ?? head);
}

function differenceHead() {
  const a = openHead(), b = partnerAt(state.layer, state.head);
  return a && b ? new Difference(a, b) : null;
}

/* Half the sum of |a - b| over the keys of a row of A and its partner; a key without a partner counts whole. */
function rowDistance(a, b, pairs, i) {
  const left = a.row(i), right = b.row(pairs.rows[i]);
  let apart = 0;
  left.forEach((p, j) => {
    const partner = pairs.columns[j];
    if (partner < 0) apart += p;
    else {
      apart += Math.abs(p - right[partner]);
      right[partner] = 0;
    }
  });
  return (apart + right.reduce((sum, p) => sum + p, 0)) / 2;
}

/* ---- the distance of every head from its B: the mean of its rows, made in steps ---- */

const distances = { key: null, values: [], done: 0, row: 0, sum: 0, count: 0 };

function wantDistances() {
  const key = state.b ? `${state.sequence}|${state.b.sequence}|${state.b.layer}|${state.b.head}` : null;
  if (key === distances.key) return;
  Object.assign(distances, { key, values: new Array(layerCount * headCount).fill(NaN), done: 0, row: 0, sum: 0, count: 0 });
  if (key) setTimeout(stepDistances, 0, key);
}

function stepDistances(key) {
  if (key !== distances.key) return;
  const end = performance.now() + COMPARE.step;
  while (distances.done < distances.values.length && performance.now() < end) {
    const layer = Math.floor(distances.done / headCount), head = distances.done % headCount;
    const a = headAt(state.sequence, layer, head), b = partnerAt(layer, head), pairs = pairsOf(a.sequence, b.sequence);
    for (; distances.row < a.lenQ && performance.now() < end; distances.row++)
      if (pairs.rows[distances.row] >= 0) {
        distances.sum += rowDistance(a, b, pairs, distances.row);
        distances.count++;
      }
    if (distances.row < a.lenQ) break;
    distances.values[distances.done++] = distances.count ? distances.sum / distances.count : NaN;
    Object.assign(distances, { row: 0, sum: 0, count: 0 });
  }
  if (distances.done < distances.values.length) setTimeout(stepDistances, 0, key);
  else render();
}

const distancesReady = () => distances.key !== null && distances.done === distances.values.length;

/* ---- choosing B ---- */

function placeName(sequence, layer, head) {
  const where = `layer ${about.layers[layer]}, head ${about.heads[head]}`;
  return sequences.length > 1 ? `sequence ${sequence}, ${where}` : where;
}

function pinHead() {
  if (state.layer !== null) go({ b: { sequence: state.sequence, layer: state.layer, head: state.head }, tab: 'compare' });
}

function swapHeads() {
  if (!state.b) return;
  const { sequence, layer, head } = state.b;
  const b = { sequence: state.sequence, layer: layer === null ? null : state.layer, head: head === null ? null : state.head };
  if (layer !== null && state.layer === null) return;
  go({ sequence, layer: layer ?? state.layer, head: head ?? state.head, b }, true);
}

/* ---- the tab ---- */

function chooser(id, label, options, value, choose) {
  const select = el('select', { id }, ...options.map(([name, text]) => el('option', { value: name }, text)));
  select.value = value;
  select.addEventListener('change', () => choose(select.value === '' ? null : Number(select.value)));
  return el('label', { class: 'choice' }, label, select);
}

function compareChoices() {
  const b = state.b ?? { sequence: null, layer: null, head: null };
  const change = (part) => {
    const next = { ...b, ...part };
    if (next.sequence === null) return go({ b: null, kind: state.kind === 'difference' ? 'weight' : state.kind });
    if ((next.layer === null) !== (next.head === null)) /* one of both was chosen */
      Object.assign(next, 'layer' in part || 'head' in part ? { layer: next.layer ?? state.layer ?? 0, head: next.head ?? state.head ?? 0 } : {});
    return go({ b: next });
  };
  const places = about.layers.flatMap((layer, l) => about.heads.map((head, h) => [l * headCount + h, `layer ${layer}, head ${head}`]));
  return el('div', { class: 'choices' },
    chooser('b-sequence', 'B is', [['', 'nothing'], ...sequences.map((_, s) => [s, sequences.length > 1 ? sequenceName(s) : 'this sequence'])],
            b.sequence ?? '', (sequence) => change({ sequence })),
    state.b ? chooser('b-head', 'its', [['', 'same head'], ...places], b.layer === null ? '' : b.layer * headCount + b.head,
                      (place) => go({ b: { ...b, layer: place === null ? null : Math.floor(place / headCount), head: place === null ? null : place % headCount } })) : null,
    el('button', { type: 'button', class: 'control', id: 'pin', disabled: state.layer === null, onclick: pinHead, title: 'c' }, 'This head as B'),
    el('button', { type: 'button', class: 'control', id: 'swap', disabled: !state.b, onclick: swapHeads, title: 'x' }, 'Swap'));
}

function distanceList() {
  if (!distancesReady()) return el('p', { class: 'quiet' }, `Comparing: ${distances.done} of ${distances.values.length} heads …`);
  const order = distances.values.map((value, n) => [value, n]).filter(([value]) => Number.isFinite(value)).sort((a, b) => b[0] - a[0]);
  return el('ol', { class: 'bars', id: 'distances' }, ...order.slice(0, COMPARE.heads).map(([value, n]) => {
    const layer = Math.floor(n / headCount), head = n % headCount;
    return el('li', {}, el('button', { type: 'button', class: 'bar-line', onclick: () => go({ layer, head }, true) },
      el('span', { class: 'bar-key' }, `L${about.layers[layer]} H${about.heads[head]}`), barTrack(value, 1), el('span', { class: 'number' }, formatWeight(value))));
  }));
}

/* The keys of the selected row that differ most. */
function compareRow(a, b) {
  const sequence = sequences[a.sequence], pairs = pairsOf(a.sequence, b.sequence), partner = pairs.rows[state.query];
  if (partner < 0) return el('p', { class: 'quiet' }, 'This token has no partner in B.');
  const left = a.row(state.query), right = b.row(partner);
  const lines = [...left].map((p, j) => ({ j, a: p, b: pairs.columns[j] < 0 ? NaN : right[pairs.columns[j]] })).filter(({ b: q }) => Number.isFinite(q))
    .sort((x, y) => Math.abs(y.a - y.b) - Math.abs(x.a - x.b)).slice(0, COMPARE.keys);
  return el('table', { class: 'numbers', id: 'compare-row' }, el('caption', {}, 'Keys whose weight differs most'),
    el('thead', {}, el('tr', {}, ...['key', 'A', 'B', 'A − B'].map((name) => el('th', { scope: 'col' }, name)))),
    el('tbody', {}, ...lines.map(({ j, a: p, b: q }) => {
      const cell = el('td', { class: 'number' }, `${p - q > 0 ? '+' : ''}${formatWeight(p - q)}`), paint = swatch(p - q, 1, true);
      if (paint) Object.assign(cell.style, { backgroundColor: paint.background, color: paint.ink });
      return el('tr', { class: 'compare-line' }, el('th', { scope: 'row' }, tokenText(sequence.keys[j])), el('td', { class: 'number' }, formatWeight(p)), el('td', { class: 'number' }, formatWeight(q)), cell);
    })));
}

function compareTab() {
  const a = openHead(), b = partnerAt(state.layer, state.head);
  wantDistances();
  if (!state.b) return [compareChoices(), el('p', { class: 'quiet' }, 'Choose what to compare with: another sequence, or another head. c makes the open head B.')];
  const parts = [compareChoices()];
  if (a && b) {
    const show = el('input', { type: 'checkbox', id: 'show-difference' });
    show.checked = state.kind === 'difference';
    show.addEventListener('change', () => { go({ kind: show.checked ? 'difference' : 'weight' }); byId('show-difference')?.focus(); });
    parts.push(el('dl', { class: 'statistics' }, ...[['A', a], ['B', b]].map(([name, { sequence, layer, head }]) =>
                 el('div', {}, el('dt', {}, name), el('dd', {}, placeName(sequence, layer, head))))),
               el('label', { class: 'check' }, show, 'map of A − B: orange where A is larger, blue where B is'),
               el('dl', { class: 'statistics', id: 'distance' }, el('div', {}, el('dt', {}, 'Distance'),
                 el('dd', {}, el('b', { class: 'number' }, distancesReady() ? formatWeight(distances.values[state.layer * headCount + state.head]) : '…'), ' of 1, mean of the rows'))));
    parts.push(state.query === null ? el('p', { class: 'quiet' }, 'Choose a token to compare its row.') : compareRow(a, b));
  }
  parts.push(el('section', {}, el('h3', {}, 'Heads that differ most'), el('p', { class: 'quiet' }, 'half the sum of |A − B| over a row, mean of all rows'), distanceList()));
  return parts;
}
