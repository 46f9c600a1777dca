/* SPDX-License-Identifier: MIT
 *
 * row.js - the tab Row: the selected token's row in the open head as a table, the selected link in every head, and its strongest links
 * over all heads.
 */
const ROW = { keys: 16, links: 12, square: 18, width: 300 };

const row = { allKeys: false, everyLink: false };

function barTrack(value, top) {
  const bar = el('span', { class: 'bar-fill' });
  bar.style.width = `${Math.max(0, Math.min(1, value / top || 0)) * 100}%`;
  return el('span', { class: 'bar-track', 'aria-hidden': 'true' }, bar);
}

/* A key, with its number where its token comes more than once. */
function keyText(sequence, key) {
  return [tokenText(sequence.keys[key]), sequence.repeated.has(sequence.keys[key]) ? el('span', { class: 'note' }, ` ${key}`) : null];
}

function describeRow(head, sequence) {
  const { sum, entropy, best, max } = rowStatistics(head, state.query);
  const term = (name, ...value) => el('div', {}, el('dt', {}, name), el('dd', {}, ...value));
  if (sum === 0) return el('p', { class: 'quiet' }, 'This query sees no key: all its weights are 0.');
  return el('dl', { class: 'statistics' },
            term('Largest', el('b', { class: 'number' }, formatWeight(max)), ' ', tokenText(sequence.keys[best])),
            Math.abs(sum - 1) > 0.002 ? term('Sum', el('b', { class: 'number' }, formatWeight(sum)))
              : term('Entropy', el('b', { class: 'number' }, formatWeight(entropy)), ` nats, like ${Math.exp(entropy).toFixed(1)} equal keys`));
}

function rowSection(head, sequence) {
  const weights = head.row(state.query), top = scaleTop(head);
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]);
  const shown = row.allKeys || order.length <= ROW.keys ? order : order.slice(0, ROW.keys - 2);
  const lines = shown.map((key) => {
    const chosen = key === state.key, choose = () => go({ key: chosen ? null : key });
    return el('tr', { class: `bar-line${chosen ? ' chosen' : ''}` },
      el('th', { scope: 'row' }, el('button', { type: 'button', class: 'bar-key', 'aria-pressed': String(chosen), onclick: choose }, ...keyText(sequence, key))),
      el('td', { class: 'bar-cell' }, barTrack(weights[key], top)), el('td', { class: 'number' }, formatWeight(weights[key])));
  });
  const more = order.length > ROW.keys
    ? el('button', { type: 'button', class: 'link', id: 'row-more', onclick: () => { row.allKeys = !row.allKeys; renderPanel(); } },
         row.allKeys ? 'Show fewer' : `Show all ${order.length} keys`) : null;
  return el('section', {}, el('h3', {}, `Attends to, in layer ${about.layers[state.layer]} head ${about.heads[state.head]}`),
            describeRow(head, sequence),
            el('table', { class: 'row-table', id: 'row-bars' }, el('caption', { class: 'unseen' }, 'Weights of the selected query'),
               el('colgroup', {}, el('col', { class: 'col-key' }), el('col', {}), el('col', { class: 'col-number' })),
               el('tbody', {}, ...lines)), more);
}

/* The selected link, or the largest weight of the row, in every head: a square each. */
function everyHeadSection(sequence) {
  const value = (layer, head) => {
    const data = headAt(state.sequence, layer, head);
    return data.weight(state.query, state.key ?? data.strongest(state.query));
  };
  const size = Math.max(2, Math.min(ROW.square, Math.floor(ROW.width / headCount))), gap = size > 5 ? 2 : 0;
  const canvas = el('canvas', { class: 'squares', role: 'img', 'aria-label': 'This weight in every head, layers as rows, heads as columns' });
  canvas.width = headCount * size * devicePixelRatio;
  canvas.height = layerCount * size * devicePixelRatio;
  canvas.style.width = `${headCount * size}px`;
  canvas.style.height = `${layerCount * size}px`;
  const context = canvas.getContext('2d');
  context.scale(devicePixelRatio, devicePixelRatio);
  const values = about.layers.map((_, layer) => about.heads.map((__, head) => value(layer, head)));
  const top = state.scale === 'one' ? 1 : values.flat().reduce((most, x) => (x > most ? x : most), 0);
  values.forEach((line, layer) => line.forEach((weight, head) => {
    const paint = swatch(weight, top);
    context.fillStyle = paint ? paint.background : `rgb(${INVALID_COLOR.join(' ')})`;
    context.fillRect(head * size, layer * size, size - gap, size - gap);
  }));
  const under = (event) => {
    const { left, top: above } = canvas.getBoundingClientRect();
    return { layer: Math.min(layerCount - 1, Math.max(0, Math.floor((event.clientY - above) / size))),
             head: Math.min(headCount - 1, Math.max(0, Math.floor((event.clientX - left) / size))) };
  };
  canvas.addEventListener('click', (event) => go(under(event), true));
  canvas.addEventListener('pointermove', (event) => {
    const { layer, head } = under(event);
    showTooltip(event.clientX, event.clientY, `${thumbnailName(layer, head)} `, el('b', {}, formatWeight(values[layer][head])));
  });
  canvas.addEventListener('pointerleave', hideTooltip);
  const mark = el('div', { class: 'squares-mark' });
  Object.assign(mark.style, { left: `${state.head * size}px`, top: `${state.layer * size}px`,
                              width: `${size - gap}px`, height: `${size - gap}px` });
  const title = state.key === null ? [tokenText(sequence.queries[state.query]), ': largest weight in every head']
    : [tokenText(sequence.queries[state.query]), ' → ', tokenText(sequence.keys[state.key]), ' in every head'];
  return el('section', {}, el('h3', {}, ...title), el('p', { class: 'quiet' }, 'layers as rows, heads as columns'), el('div', { class: 'squares-box' }, canvas, mark));
}

function linksSection(sequence) {
  const links = strongestLinks(state.sequence, state.query, !row.everyLink, ROW.links);
  const lines = links.map(({ weight, layer, head, key }) => {
    const chosen = layer === state.layer && head === state.head && key === state.key;
    return el('li', {}, el('button', { type: 'button', class: `bar-line${chosen ? ' chosen' : ''}`, 'aria-pressed': String(chosen), onclick: () => go({ layer, head, key }, true) },
      el('span', { class: 'bar-key' }, ...keyText(sequence, key).filter(Boolean)), barTrack(weight, 1), el('span', { class: 'number' }, formatWeight(weight)),
      el('span', { class: 'note' }, `L${about.layers[layer]} H${about.heads[head]}`)));
  });
  const toggle = el('input', { type: 'checkbox', id: 'every-link' });
  toggle.checked = row.everyLink;
  toggle.addEventListener('change', () => { row.everyLink = toggle.checked; renderPanel(); byId('every-link').focus(); });
  return el('section', {}, el('h3', {}, 'Attends to, over all heads'),
            el('label', { class: 'quiet check' }, toggle, 'more than one head per key'),
            el('ol', { class: 'bars links', id: 'links' }, ...lines));
}

function guide(sequence) {
  const line = (...children) => el('p', { class: 'quiet' }, ...children);
  return [el('h2', {}, 'Reading the maps'),
          line('Each small map is one head. A row is the token that looks (query), a column the token looked at (key); the stronger the color, the more weight.'),
          line('A vertical stripe: all look at one token. A diagonal: each looks at itself, or one step beside it.'),
          line(`Choose a ${sequence.named ? 'token' : 'query'} above to see where it attends, in all heads at once; they are shaded by what they receive.`),
          line('Open a head for its tokens and values.')];
}

function rowTitle(sequence) {
  const number = sequence.firstQuery + state.query;
  return sequence.named ? el('h2', {}, tokenText(sequence.queries[state.query]), el('span', { class: 'quiet' }, ` query ${number}`))
    : el('h2', {}, `Query ${number}`);
}

function rowTab() {
  const sequence = sequences[state.sequence], head = openHead();
  if (state.query === null) return guide(sequence);
  return [rowTitle(sequence), ...(head ? [rowSection(head, sequence), everyHeadSection(sequence)] : []), linksSection(sequence)];
}
