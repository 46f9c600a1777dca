/* SPDX-License-Identifier: MIT
 *
 * changed.js - a head with other options than those it was recorded with.  Numbers only, and nothing of the page, as in scores.js.
 */

/* The options of a head that can change, as they were recorded: sink and base (of rotary positions) are null where there are none, `out`
 * lists keys that are knocked out. */
function recordedOptions(rule, layer, head, heads) {
  return { scale: rule.scale[head], softcap: rule.softcap, causal: Boolean(rule.causal), left: rule.left, right: rule.right,
           slope: rule.slopes ? rule.slopes[layer * heads + head] : 0, sink: rule.sinks ? rule.sinks[head] : null, base: rule.rope ? rule.rope.base : null, out: [] };
}

/* Rows of q or k, rotated by the angles of base `from`, now by those of base `to` (null: not rotated); row n is at position first + n.
 * Pairs of channels turn by position * base^(-2 pair / channels). */
function turnRows(rows, dim, first, from, to, rope) {
  if (from === to) return rows;
  const channels = rope?.channels || dim - dim % 2, pairs = channels / 2, out = rows.slice();
  const speed = (base, pair) => (base === null ? 0 : base ** (-2 * pair / channels));
  for (let pair = 0; pair < pairs; pair++) {
    const turn = speed(to, pair) - speed(from, pair), x = rope?.halves ? pair : 2 * pair, y = rope?.halves ? pair + pairs : 2 * pair + 1;
    for (let n = 0, at = 0; at < rows.length; n++, at += dim) {
      const c = Math.cos((first + n) * turn), s = Math.sin((first + n) * turn);
      out[at + x] = rows[at + x] * c - rows[at + y] * s;
      out[at + y] = rows[at + x] * s + rows[at + y] * c;
    }
  }
  return out;
}

class Changed extends Scores {
  /* recorded: the Scores of the head; `before` and `options` as from recordedOptions. */
  constructor(recorded, before, options) {
    const { softcap, causal, left, right, scale, slope, sink, base, out } = options, { rule, dim, lenQ, lenK, norms } = recorded;
    super({ ...rule, softcap, causal, left, right }, {
      q: turnRows(recorded.q, dim, rule.position, before.base, base, rule.rope), k: turnRows(recorded.k, dim, 0, before.base, base, rule.rope),
      norms, lenQ, lenK, scale, slope, sink, kept: new Uint8Array(lenK).fill(1), whole: !out.length });
    for (const j of out) this.kept[j] = 0;
  }

  sees(i, j) { return this.kept[j] === 1 && super.sees(i, j); }
  get plain() { return this.whole && super.plain; }

  /* The weights of rows from to `to` - 1: what the library computes, where it cannot run. */
  rows(from, to) {
    const { lenK, sink } = this, out = new Float32Array((to - from) * lenK), row = new Float64Array(lenK);
    for (let i = from; i < to; i++) {
      this.fill('score', i, i + 1, 0, lenK, row);
      let most = sink ?? -Infinity, sum = 0;
      for (let j = 0; j < lenK; j++) if (row[j] > most || Number.isNaN(row[j])) most = row[j];
      if (most === -Infinity) continue; /* it sees nothing */
      for (let j = 0; j < lenK; j++) sum += row[j] = Math.exp(row[j] - most);
      if (sink !== null) sum += Math.exp(sink - most);
      for (let j = 0; j < lenK; j++) out[(i - from) * lenK + j] = row[j] / sum;
    }
    return out;
  }
}
