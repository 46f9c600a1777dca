/* SPDX-License-Identifier: MIT
 *
 * grid.js - the first screen: one small heat map a head, drawn when it scrolls into view.  Layers are rows and heads columns, or all
 * stand in the order of a number.
 */
const THUMBNAIL = { smallest: 40, smallestNarrow: 28, largest: 120, gap: 6, margin: 36 };

/* Orders of the heads: their number, and how it is shown. */
const ORDERS = [
  { id: 'place', name: 'layer and head' },
  { id: 'focused', name: 'lowest entropy', value: spreadOf, sign: 1 },
  { id: 'spread', name: 'highest entropy', value: spreadOf, sign: -1 },
  { id: 'sink', name: 'most on one key', value: (s, layer, head) => headAt(s, layer, head).summary.received.reduce((most, x) => (x > most ? x : most), 0), sign: -1 },
  { id: 'difference', name: 'difference from B', value: (s, layer, head) => distances.values[layer * headCount + head], sign: -1, needs: () => state.b !== null },
];

const grid = { thumbnails: [], observer: null, order: null };

function thumbnailName(layer, head) { return `Layer ${about.layers[layer]}, head ${about.heads[head]}`; }

function makeThumbnail(layer, head) {
  const canvas = el('canvas', { 'aria-hidden': 'true' });
  const button = el('button', { type: 'button', class: 'thumbnail', tabindex: layer || head ? '-1' : '0' }, canvas);
  const thumbnail = { button, canvas, layer, head, cache: {}, seen: false, stale: true, caption: el('span', { class: 'caption' }) };
  thumbnail.cell = el('div', { role: 'gridcell' }, button);
  button.append(thumbnail.caption);
  button.addEventListener('click', () => go({ layer, head }, true));
  button.addEventListener('focus', () => rove(thumbnail));
  button.addEventListener('pointermove', (event) => describeThumbnail(event, thumbnail));
  button.addEventListener('pointerleave', hideTooltip);
  return thumbnail;
}

function buildGrid() {
  for (let layer = 0; layer < layerCount; layer++)
    for (let head = 0; head < headCount; head++) grid.thumbnails.push(makeThumbnail(layer, head));
  const found = new Map(grid.thumbnails.map((one) => [one.button, one]));
  grid.observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const thumbnail = found.get(entry.target);
      thumbnail.seen = entry.isIntersecting;
      if (thumbnail.seen && thumbnail.stale && grid.size) drawOne(thumbnail);
    }
  }, { rootMargin: '200px' });
  for (const { button } of grid.thumbnails) grid.observer.observe(button);
}

/* ---- the order ---- */

const orderInUse = () => {
  const found = ORDERS.find(({ id }) => id === state.sort) ?? roleOrder(state.sort);
  return found && (!found.needs || found.needs()) ? found : ORDERS[0];
};

/* A role is an order too. */
function roleOrder(name) {
  const n = roleTable.findIndex((role) => role.name === name);
  return n < 0 || !sequences[state.sequence].roles ? null
    : { id: name, name: roleTable[n].heading, value: (s, layer, head) => rolesOf(s, layer, head)[n].score, sign: -1 };
}

function orderChoices() {
  return [...ORDERS.filter(({ needs }) => !needs || needs()), ...(sequences[state.sequence].roles ? roleTable.map(({ name }) => roleOrder(name)) : [])];
}

/* Puts the cells in their order; `shown` are the heads that the filter leaves. */
function arrangeGrid() {
  const order = orderInUse(), { sequence, filter } = state;
  if (order.id === 'difference') wantDistances();
  const has = ({ layer, head }) => !filter || badgesOf(sequence, layer, head).some(({ name }) => name === filter);
  const key = [order.id, sequence, filter, state.content, order.id === 'difference' ? `${distances.key} ${distances.done}` : ''].join('|');
  if (grid.order === key) return;
  grid.order = key;
  grid.place = order.id === 'place' && !filter;
  for (const thumbnail of grid.thumbnails) {
    const { layer, head } = thumbnail, badges = badgesOf(sequence, layer, head), value = order.value?.(sequence, layer, head);
    const number = value === undefined ? null : Number.isFinite(value) ? value.toFixed(2) : '–';
    const words = grid.place ? (badges[0]?.heading ?? '') : `L${about.layers[layer]} H${about.heads[head]}${number === null ? '' : ` ${number}`}`;
    thumbnail.caption.textContent = words;
    thumbnail.button.setAttribute('aria-label', [thumbnailName(layer, head), ...(badges.length ? [badges.map(({ heading }) => heading).join(', ')] : []),
                                                 ...(number === null ? [] : [`${order.name} ${number}`])].join('; '));
  }
  const captions = !grid.place || grid.thumbnails.some(({ caption }) => caption.textContent);
  grid.shown = grid.thumbnails.filter(has);
  if (order.value) {
    const value = new Map(grid.shown.map((one) => [one, order.value(sequence, one.layer, one.head)]));
    grid.shown.sort((a, b) => (order.sign * (value.get(a) - value.get(b))) || 0);
  }
  const table = grid.place ? placedTable() : listedTable();
  table.classList.toggle('captions', captions);
  table.addEventListener('keydown', moveInGrid);
  byId('grid').replaceChildren(...(grid.place ? [el('div', { class: 'axes quiet', 'aria-hidden': 'true' }, 'layer ↓  head →')] : []), table,
                               ...(grid.shown.length ? [] : [el('p', { class: 'quiet' }, 'No head has this role.')]));
  if (!grid.shown.some(({ button }) => button.tabIndex === 0) && grid.shown.length) rove(grid.shown[0]);
}

function placedTable() {
  const last = hasRollout(state.sequence);
  const cellsOf = (layer) => grid.thumbnails.slice(layer * headCount, (layer + 1) * headCount).map(({ cell }) => cell);
  const rows = about.layers.map((number, layer) => el('div', { role: 'row' },
    el('div', { role: 'rowheader', 'aria-label': `Layer ${number}` }, String(number)), ...cellsOf(layer),
    ...(last ? [rolloutCell(layer)] : [])));
  const headings = about.heads.map((number) => el('div', { role: 'columnheader', 'aria-label': `Head ${number}` }, String(number)));
  if (last) headings.push(el('div', { role: 'columnheader', title: 'Attention rollout: what reaches a token through all layers so far' }, 'rollout'));
  const corner = el('div', { role: 'columnheader', class: 'corner', 'aria-label': 'Layer' });
  const table = el('div', { role: 'grid', class: 'multiples', 'aria-label': 'All heads: layers as rows, heads as columns' },
                   el('div', { role: 'row' }, corner, ...headings), ...rows);
  table.style.gridTemplateColumns = `max-content repeat(${headCount + last}, max-content)`;
  return table;
}

function listedTable() {
  return el('div', { role: 'grid', class: 'multiples listed', 'aria-label': `Heads, ${orderInUse().name} first` },
            el('div', { role: 'row' }, ...grid.shown.map(({ cell }) => cell)));
}

/* One thumbnail at a time is in the tab order. */
function rove(thumbnail) {
  for (const { button } of grid.thumbnails) button.tabIndex = button === thumbnail.button ? 0 : -1;
}

function moveInGrid(event) {
  const from = grid.shown.findIndex(({ button }) => button === document.activeElement);
  const columns = grid.place ? headCount : grid.shown.filter(({ button }) => button.offsetTop === grid.shown[0].button.offsetTop).length;
  const column = from % columns;
  const to = { ArrowLeft: column > 0 ? from - 1 : from, ArrowRight: column < columns - 1 ? from + 1 : from,
               ArrowUp: from - columns, ArrowDown: from + columns,
               Home: from - column, End: from - column + columns - 1 }[event.key];
  if (from < 0 || to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  if (grid.shown[to]) grid.shown[to].button.focus();
}

function describeThumbnail(event, { layer, head }) {
  const badges = badgesOf(state.sequence, layer, head), spread = spreadOf(state.sequence, layer, head);
  const lines = [el('div', {}, thumbnailName(layer, head)),
                 ...badges.map(({ heading, score }) => el('div', {}, `${heading} `, el('b', {}, formatWeight(score)))),
                 ...(Number.isFinite(spread) ? [el('div', {}, 'entropy ', el('b', {}, spread.toFixed(2)), el('span', { class: 'quiet' }, ' of the most'))] : [])];
  if (state.query !== null) {
    const data = headAt(state.sequence, layer, head), key = data.strongest(state.query);
    lines.push(el('div', {}, ...linkText(sequences[state.sequence], state.query, key, data.weight(state.query, key))));
  }
  showTooltip(event.clientX, event.clientY, ...lines);
}

/* The size of all thumbnails: as large as fits.  Where that costs little, a cell is a whole number of device pixels. */
function thumbnailSize() {
  const { lenQ, lenK } = sequences[state.sequence];
  const gap = isNarrow() ? 2 : THUMBNAIL.gap, smallest = isNarrow() ? THUMBNAIL.smallestNarrow : THUMBNAIL.smallest;
  const last = grid.place && hasRollout(state.sequence), columns = grid.place ? headCount + last : Math.min(12, grid.shown.length);
  const room = Math.floor((byId('grid').clientWidth - (grid.place ? THUMBNAIL.margin + 8 * last : 8)) / columns) - gap;
  const side = Math.min(THUMBNAIL.largest, Math.max(grid.place ? smallest : 64, room)) - 2;
  const ratio = Math.min(2, Math.max(0.5, lenQ / lenK));
  const fit = (length, cells) => {
    const pixels = Math.round(length * devicePixelRatio);
    const whole = Math.floor(pixels / cells) * cells;
    return whole >= 0.75 * pixels ? { pixels: cells, length: whole / devicePixelRatio } : { pixels, length: pixels / devicePixelRatio };
  };
  return { x: fit(side, lenK), y: fit(side * ratio, lenQ) };
}

function drawOne(thumbnail) {
  const { x, y } = grid.size, head = headAt(state.sequence, thumbnail.layer, thumbnail.head);
  drawThumbnail(thumbnail.canvas, head, thumbnail.cache, x.pixels, y.pixels, scaleTop(head), state.query, state.pool);
  thumbnail.stale = false;
}

function renderGrid() {
  const { lenQ, lenK } = sequences[state.sequence], empty = !lenQ || !lenK;
  byId('grid').classList.toggle('empty', empty);
  if (empty) return;
  arrangeGrid();
  grid.size = thumbnailSize();
  for (const thumbnail of grid.thumbnails) {
    thumbnail.canvas.style.width = `${grid.size.x.length}px`;
    thumbnail.canvas.style.height = `${grid.size.y.length}px`;
    thumbnail.button.style.width = `${grid.size.x.length + 2}px`;
    thumbnail.stale = true;
    if (thumbnail.seen) drawOne(thumbnail);
  }
  wantRollout();
  if (grid.place) drawRollouts();
}

function focusThumbnail(layer, head) {
  const thumbnail = grid.thumbnails[layer * headCount + head];
  rove(thumbnail);
  thumbnail.button.focus();
}
