/* SPDX-License-Identifier: MIT
 *
 * neuron.js - the tab Neuron: how the score of a query and a key comes about, channel by channel.
 */
const NEURON = { keys: 20, cell: 3, height: 16, widest: 72 };

const neuron = { order: 'channel' };

/* A strip of numbers in signed colors; under the mouse, the channel and its number. */
function strip(numbers, order, top, name) {
  const width = Math.max(24, Math.min(NEURON.widest, numbers.length * NEURON.cell));
  const canvas = el('canvas', { class: 'neuron-strip', 'aria-hidden': 'true' });
  canvas.width = numbers.length;
  canvas.height = 1;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${NEURON.height}px`;
  canvas.getContext('2d').putImageData(imageOf(order.map((c) => numbers[c]), numbers.length, 1, top, null, true), 0, 0);
  canvas.addEventListener('pointermove', (event) => {
    const { left } = canvas.getBoundingClientRect(), channel = order[Math.min(order.length - 1, Math.max(0, Math.floor((event.clientX - left) / width * order.length)))];
    showTooltip(event.clientX, event.clientY, `${name}, channel ${channel} `, el('b', {}, numbers[channel].toFixed(3)));
  });
  canvas.addEventListener('pointerleave', hideTooltip);
  return canvas;
}

const largestOf = (numbers) => numbers.reduce((most, x) => (Math.abs(x) > most ? Math.abs(x) : most), 0);

function neuronTab() {
  const sequence = sequences[state.sequence], head = openHead();
  if (!sequence.rule) return [el('p', { class: 'quiet' }, 'This page has weights only. Where a file has q and k, this tab shows how they make a score.')];
  if (!head || state.query === null) return [el('p', { class: 'quiet' }, 'Open a head and choose a token: then its query and the keys it looks at most are here, channel by channel.')];
  const { source } = head, { dim } = sequence.rule, i = state.query, weights = head.row(i);
  const query = source.q.subarray(i * dim, (i + 1) * dim), vector = (j) => source.k.subarray(j * dim, (j + 1) * dim);
  const keys = [...weights.keys()].filter((j) => source.sees(i, j)).sort((a, b) => weights[b] - weights[a]).slice(0, NEURON.keys);
  if (state.key !== null && !keys.includes(state.key) && source.sees(i, state.key)) keys[Math.min(keys.length, NEURON.keys - 1)] = state.key;
  if (!keys.length) return [rowTitle(sequence), el('p', { class: 'quiet' }, 'This query sees no key.')];
  const products = new Map(keys.map((j) => [j, source.products(i, j)])), chosen = keys.includes(state.key) ? state.key : keys[0];
  const order = [...query.keys()];
  if (neuron.order === 'product') order.sort((a, b) => Math.abs(products.get(chosen)[b]) - Math.abs(products.get(chosen)[a]));
  const topVector = Math.max(largestOf(query), ...keys.map((j) => largestOf(vector(j)))), topProduct = Math.max(...[...products.values()].map(largestOf));
  const sumOf = (j) => products.get(j).reduce((sum, x) => sum + x, 0);
  const further = sequence.rule.softcap > 0 || Boolean(sequence.rule.slopes); /* then the score is not the sum alone */
  const lines = keys.map((j) => el('tr', { class: `neuron-line${j === state.key ? ' chosen' : ''}` },
    el('th', { scope: 'row' }, el('button', { type: 'button', class: 'bar-key', 'aria-pressed': String(j === state.key), onclick: () => go({ key: j === state.key ? null : j }) }, ...keyText(sequence, j))),
    el('td', {}, strip(vector(j), order, topVector, 'k')), el('td', {}, strip(products.get(j), order, topProduct, 'q × k')),
    el('td', { class: 'number' }, sumOf(j).toFixed(2)), further ? el('td', { class: 'number' }, source.score(i, j).toFixed(2)) : null,
    el('td', { class: 'number' }, formatWeight(weights[j]))));
  const select = el('select', { id: 'neuron-order' }, el('option', { value: 'channel' }, 'number'), el('option', { value: 'product' }, 'what they add to the score'));
  select.value = neuron.order;
  select.addEventListener('change', () => { neuron.order = select.value; renderPanel(); byId('neuron-order').focus(); });
  const names = ['key', 'k', 'q × k', further ? 'sum' : 'score', ...(further ? ['score'] : []), 'weight'];
  return [rowTitle(sequence),
    el('div', { class: 'neuron-query' }, el('span', {}, 'q'), strip(query, order, topVector, 'q'), el('span', { class: 'quiet' }, `${dim} channels`)),
    el('label', { class: 'choice' }, 'Channels by', select),
    el('table', { class: 'numbers', id: 'neuron' }, el('caption', {}, `The ${keys.length} keys of most weight: q × k is scaled, its sum is the score`),
       el('thead', {}, el('tr', {}, ...names.map((name) => el('th', { scope: 'col' }, name)))), el('tbody', {}, ...lines)),
    el('p', { class: 'quiet' }, `Orange is above 0, blue below. Sorted, the order is that of ${visible(sequence.keys[chosen])}${state.key === null ? ', the strongest key' : ''}.`)];
}
