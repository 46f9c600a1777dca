/* SPDX-License-Identifier: MIT
 *
 * rollout.js - attention rollout (Abnar and Zuidema 2020, https://arxiv.org/abs/2005.00928): what reaches a token from each input token
 * through all layers so far, R_l = M_l R_{l-1}, where M_l is A_l + 1 with rows divided by their sums, A_l the mean of the heads, and 1
 * stands for the residual path: what `attn analyze --rollout` writes.
 * A picture beside each row of the grid, made in steps between frames.
 */
const ROLLOUT = { longest: 256, step: 8 }; /* tokens; milliseconds */

const rollout = { sequence: null, layers: [], layer: 0, head: 0, mean: null, cells: null };

/* Only where layers follow each other, and queries are the keys. */
function hasRollout(s) {
  const { lenQ, lenK, same } = sequences[s];
  return layerCount > 1 && about.layers.every((number, n) => number === about.layers[0] + n) && same && lenQ === lenK && lenQ > 0 && lenQ <= ROLLOUT.longest;
}

function wantRollout() {
  const s = state.sequence;
  if (!hasRollout(s) || rollout.sequence === s) return;
  Object.assign(rollout, { sequence: s, layers: [], layer: 0, head: 0, mean: null });
  setTimeout(stepRollout, 0, s);
}

function stepRollout(s) {
  if (rollout.sequence !== s) return;
  const end = performance.now() + ROLLOUT.step, n = sequences[s].lenQ;
  rollout.cells ??= new Float32Array(ROLLOUT.longest ** 2);
  while (rollout.layer < layerCount && performance.now() < end) {
    const cells = rollout.cells.subarray(0, n * n);
    rollout.mean ??= new Float64Array(n * n);
    headAt(s, rollout.layer, rollout.head).fill('weight', 0, n, 0, n, cells);
    for (let k = 0; k < n * n; k++) rollout.mean[k] += cells[k] / headCount;
    if (++rollout.head < headCount) continue;
    rollout.layers.push(throughLayer(rollout.mean, rollout.layers.at(-1), n));
    Object.assign(rollout, { layer: rollout.layer + 1, head: 0, mean: null });
  }
  if (rollout.layer < layerCount) setTimeout(stepRollout, 0, s);
  drawRollouts();
}

/* mean + 1, rows divided by their sums, times what was before; a row that sees no key keeps what it had. */
function throughLayer(mean, before, n) {
  const out = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    let sum = 1;
    for (let j = 0; j < n; j++) sum += mean[i * n + j];
    for (let j = 0; j < n; j++) {
      const share = (mean[i * n + j] + (i === j)) / sum;
      if (!before) out[i * n + j] = share;
      else if (share) for (let c = 0; c < n; c++) out[i * n + c] += share * before[j * n + c];
    }
  }
  return out;
}

function rolloutCell(layer) {
  const canvas = el('canvas', { role: 'img', 'aria-label': `Rollout up to layer ${about.layers[layer]}` });
  canvas.addEventListener('pointermove', (event) => showTooltip(event.clientX, event.clientY, ...describeRollout(layer)));
  canvas.addEventListener('pointerleave', hideTooltip);
  return el('div', { role: 'gridcell' }, el('div', { class: 'rollout', 'data-layer': layer }, canvas));
}

function describeRollout(layer) {
  const { lenQ: n, ...sequence } = sequences[state.sequence], cells = rollout.layers[layer], name = el('div', {}, `Rollout up to layer ${about.layers[layer]}`);
  if (state.query === null || !cells) return [name];
  const row = cells.subarray(state.query * n, (state.query + 1) * n);
  let best = 0;
  row.forEach((x, j) => { if (x > row[best]) best = j; });
  return [name, el('div', {}, ...linkText(sequence, state.query, best, row[best]))];
}

function drawRollouts() {
  const n = sequences[state.sequence].lenQ;
  for (const box of document.querySelectorAll('.rollout')) {
    const cells = rollout.sequence === state.sequence ? rollout.layers[box.dataset.layer] : null, canvas = box.firstChild;
    canvas.style.width = `${grid.size.x.length}px`;
    canvas.style.height = `${grid.size.y.length}px`;
    if (!cells) continue;
    const width = Math.min(n, grid.size.x.pixels), height = Math.min(n, grid.size.y.pixels);
    const kept = state.query === null || height < n ? null : { from: Math.ceil(state.query * height / n), to: Math.ceil((state.query + 1) * height / n) };
    const top = state.scale === 'one' ? 1 : cells.reduce((most, x) => (x > most ? x : most), 0);
    Object.assign(canvas, { width, height });
    canvas.getContext('2d').putImageData(imageOf(partition(cells, n, n, height, width, state.pool), width, height, top, kept, false), 0, 0);
  }
}
