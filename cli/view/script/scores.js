/* SPDX-License-Identifier: MIT
 *
 * scores.js - weights of a head from its queries and keys, the same function as view/rule.c.  It knows numbers only and nothing
 * of the page, so that something faster may stand in for it: an object with these methods, and q and k for the tab Neuron.
 */
const HIDDEN = -Infinity; /* in place of a number, of a pair that is not there: a key that a query does not see, a token without a partner */

class Scores {
  /* part: q, k, lse, norms (or null), lenQ, lenK, scale, slope of this head. */
  constructor(rule, part) { Object.assign(this, { rule, dim: rule.dim }, part); }

  /* Whether query i sees key j. */
  sees(i, j) {
    const { causal, chunk, least, left, right, dilation, globalQ, globalK, position } = this.rule, p = position + i;
    if (causal && j > p) return false;
    if (chunk > 0 && Math.floor(j / chunk) !== Math.floor(p / chunk)) return false;
    if (Math.abs(p - j) < least) return false;
    if (j < globalK || (p >= 0 && p < globalQ)) return true;
    return !(left >= 0 && j < p - left) && !(right >= 0 && j > p + right) && (dilation <= 1 || (p - j) % dilation === 0);
  }

  /* Whether visibility has no rule but causality: then whole ranges of keys are skipped. */
  get plain() {
    const { chunk, least, left, right, dilation } = this.rule;
    return !(chunk > 0 || least > 0 || left >= 0 || right >= 0 || dilation > 1);
  }

  /* q times k.  Two sums, as in fill, so that both give the same number. */
  product(i, j) {
    const { q, k, dim } = this, a = i * dim, b = j * dim;
    let s0 = 0, s1 = 0, c = 0;
    for (; c + 1 < dim; c += 2) {
      s0 += q[a + c] * k[b + c];
      s1 += q[a + c + 1] * k[b + c + 1];
    }
    return (c < dim ? s0 + q[a + c] * k[b + c] : s0) + s1;
  }

  score(i, j) {
    const { softcap } = this.rule;
    let score = this.scale * this.product(i, j);
    if (softcap > 0) score = softcap * Math.tanh(score / softcap);
    return this.slope ? score - this.slope * Math.abs(this.rule.position + i - j) : score;
  }

  /* One number: kind is weight, score or value (the weight times the length of the key's value). */
  at(kind, i, j) {
    if (!this.sees(i, j)) return kind === 'score' ? HIDDEN : 0;
    const score = this.score(i, j);
    if (kind === 'score') return score;
    const weight = this.lse[i] === -Infinity ? 0 : Math.exp(score - this.lse[i]);
    return kind === 'value' ? weight * this.norms[j] : weight;
  }

  /* Rows r0 to r1 - 1 of columns c0 to c1 - 1, one after the other. */
  fill(kind, r0, r1, c0, c1, out) {
    const { q, k, dim, scale, slope, lse, norms, plain } = this, { softcap, causal, position } = this.rule, columns = c1 - c0;
    for (let i = r0; i < r1; i++) {
      const row = (i - r0) * columns, last = causal ? Math.min(c1, position + i + 1) : c1, none = kind === 'score' ? HIDDEN : 0;
      out.fill(none, row, row + columns);
      for (let j = c0; j < last; j++) {
        if (!plain && !this.sees(i, j)) continue;
        let s0 = 0, s1 = 0, c = 0;
        const a = i * dim, b = j * dim;
        for (; c + 1 < dim; c += 2) {
          s0 += q[a + c] * k[b + c];
          s1 += q[a + c + 1] * k[b + c + 1];
        }
        if (c < dim) s0 += q[a + c] * k[b + c];
        let score = scale * (s0 + s1);
        if (softcap > 0) score = softcap * Math.tanh(score / softcap);
        if (slope) score -= slope * Math.abs(position + i - j);
        if (kind === 'score') out[row + j - c0] = score;
        else {
          const weight = lse[i] === -Infinity ? 0 : Math.exp(score - lse[i]);
          out[row + j - c0] = kind === 'value' ? weight * norms[j] : weight;
        }
      }
    }
  }

  /* What each channel adds to a score before the softcap. */
  products(i, j) {
    return Array.from({ length: this.dim }, (_, c) => this.scale * this.q[i * this.dim + c] * this.k[j * this.dim + c]);
  }
}
