/* SPDX-License-Identifier: MIT
 *
 * head.js - one head, large: where its parts lie, and what the mouse and the arrows do.  The canvas covers only the visible part
 * and sticks to the scrolled box, so a head of any size can be enlarged (map.js draws it).
 */
const CELL = { largest: 44, gapFrom: 12, numbersFrom: 28, outlineInside: 20, zoomStep: 1.5 };
const LABEL = { widest: 128, size: 13, smallSize: 11, slant: 55 * Math.PI / 180, overhang: 72 };
const MARGIN = { size: 40, gap: 4 }; /* what keys receive, above the map; the entropy of rows, at its right */
const MINIMAP = { size: 200, from: 4096 }; /* weights: below, the whole map is in view */

const map = { cell: { x: 1, y: 1 }, zoom: 0, hover: null, buffer: document.createElement('canvas'), gutters: null };

function buildHead() {
  const part = (name, ...children) => {
    map[name] = el('div', { class: `map-${name}` }, ...children);
    return map[name];
  };
  for (const name of ['canvas', 'above', 'right', 'mini']) map[name] = el('canvas', { class: `canvas-${name}` });
  const corner = part('corner', el('span', {}, 'key →'), el('span', {}, 'query ↓'));
  const box = part('box', part('extent', map.canvas));
  box.setAttribute('role', 'application');
  box.setAttribute('aria-roledescription', 'heat map');
  box.tabIndex = 0;
  map.frame = el('div', { class: 'map-view' });
  map.minibox = el('div', { class: 'minimap' }, map.mini, map.frame, el('p', { class: 'quiet' }, 'the whole head'));
  byId('head').replaceChildren(map.minibox, el('div', { class: 'map' }, corner, part('keys'), el('span', { class: 'map-side quiet' }, 'entropy'),
    el('span', { class: 'map-received quiet' }, 'received'), map.above, el('span'), part('queries'), box, map.right));
  for (const node of [corner, map.keys, map.queries, map.above, map.right, map.minibox]) node.setAttribute('aria-hidden', 'true');

  box.addEventListener('scroll', () => { drawMap(); renderLabels(); });
  box.addEventListener('pointermove', (event) => hoverAt(event, cellUnder(event)));
  box.addEventListener('pointerleave', () => hoverAt(null, null));
  box.addEventListener('click', (event) => { const at = cellUnder(event); if (at) go(at); });
  box.addEventListener('keydown', moveInMap);
  map.queries.addEventListener('click', (event) => {
    const query = Math.floor((event.clientY - map.queries.getBoundingClientRect().top + box.scrollTop) / map.cell.y);
    if (query < sequences[state.sequence].lenQ) go({ query, key: null });
  });
  map.keys.addEventListener('click', (event) => {
    const label = event.target.closest('[data-key]');
    if (label) go({ key: Number(label.dataset.key) });
  });
  map.above.addEventListener('pointermove', (event) => describeMargin(event, 'received'));
  map.right.addEventListener('pointermove', (event) => describeMargin(event, 'spread'));
  for (const canvas of [map.above, map.right]) canvas.addEventListener('pointerleave', hideTooltip);
  const pan = (event) => { if (event.buttons) panTo(event); };
  map.minibox.addEventListener('pointerdown', pan);
  map.minibox.addEventListener('pointermove', pan);
}

/* Moves the middle of the map to where the pointer is on the small one. */
function panTo(event) {
  const { left, top, width, height } = map.mini.getBoundingClientRect(), { box } = map;
  box.scrollTo((event.clientX - left) / width * box.scrollWidth - box.clientWidth / 2,
               (event.clientY - top) / height * box.scrollHeight - box.clientHeight / 2);
}

function cellUnder(event) {
  const { left, top } = map.box.getBoundingClientRect(), { lenQ, lenK } = sequences[state.sequence];
  const key = Math.floor((event.clientX - left - map.box.clientLeft + map.box.scrollLeft) / map.cell.x);
  const query = Math.floor((event.clientY - top - map.box.clientTop + map.box.scrollTop) / map.cell.y);
  return query >= 0 && query < lenQ && key >= 0 && key < lenK ? { query, key } : null;
}

/* "received by cat: 0.25 of each row", "entropy of cat: 0.7 of the most there could be". */
function describeMargin(event, what) {
  const sequence = sequences[state.sequence], { box, cell } = map, { summary } = openHead(), { left, top } = box.getBoundingClientRect();
  const at = what === 'received' ? Math.floor((event.clientX - left + box.scrollLeft) / cell.x) : Math.floor((event.clientY - top + box.scrollTop) / cell.y);
  const numbers = summary[what], tokens = what === 'received' ? sequence.keys : sequence.queries;
  if (at < 0 || at >= numbers.length) return;
  showTooltip(event.clientX, event.clientY, tokenText(tokens[at]), ' ', el('b', {}, formatWeight(numbers[at])),
              el('span', { class: 'quiet' }, what === 'received' ? ' received from each row, on average' : ' of the largest possible entropy'));
}

function hoverAt(event, at) {
  const before = map.hover;
  map.hover = at;
  if (at && openHead())
    showTooltip(event.clientX, event.clientY, ...linkText(sequences[state.sequence], at.query, at.key, shownHead().at(state.kind, at.query, at.key)));
  else hideTooltip();
  if (before?.query !== at?.query || before?.key !== at?.key) {
    drawMap();
    for (const label of map.queries.children) label.classList.toggle('lit', Number(label.dataset.query) === at?.query);
    for (const label of map.keys.children) label.classList.toggle('lit', Number(label.dataset.key) === at?.key);
  }
}

function moveInMap(event) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
                 Home: [0, -Infinity], End: [0, Infinity], PageUp: [-10, 0], PageDown: [10, 0] }[event.key];
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const times = event.shiftKey && event.key.startsWith('Arrow') ? 10 : 1;
  const { lenQ, lenK } = sequences[state.sequence], clamp = (value, end) => Math.max(0, Math.min(end - 1, value));
  if (state.query === null) go({ query: 0, key: state.key ?? 0 });
  else if (state.key === null) go({ key: openHead().strongest(state.query) });
  else go({ query: clamp(state.query + times * step[0], lenQ), key: clamp(state.key + times * step[1], lenK) });
  scrollToSelection();
}

function scrollToSelection() {
  const inView = (at, size, from, room) => (at * size < from || (at + 1) * size > from + room ? (at + 0.5) * size - room / 2 : from);
  const { box, cell } = map;
  if (state.query !== null) box.scrollTop = inView(state.query, cell.y, box.scrollTop, box.clientHeight);
  if (state.key !== null) box.scrollLeft = inView(state.key, cell.x, box.scrollLeft, box.clientWidth);
}

/* Space for the labels: depends on the tokens only, so that nothing moves from head to head.  On a narrow screen only the selection
 * has labels. */
function measureGutters(sequence) {
  const made = `${state.sequence} ${byId('head').clientWidth < 560}`; /* measuring takes time: once for each sequence */
  if (map.gutters?.made === made) return map.gutters;
  const pen = map.buffer.getContext('2d');
  pen.font = `${LABEL.size}px ${getComputedStyle(document.body).fontFamily}`;
  const longest = (tokens) => tokens.slice(0, STRIP_LIMIT).reduce((most, token) =>
    Math.max(most, pen.measureText(visible(token).slice(0, 40)).width), 16);
  const narrow = byId('head').clientWidth < 560 ? 0.5 : 1;
  const query = Math.min(LABEL.widest * narrow, longest(sequence.queries)), key = Math.min(LABEL.widest * narrow, longest(sequence.keys));
  return { made, left: Math.max(52, Math.ceil(query) + 18), top: narrow < 1 ? 24 : Math.ceil(key * Math.sin(LABEL.slant)) + 20, label: LABEL.widest * narrow,
           narrow: narrow < 1, right: narrow < 1 ? 0 : Math.min(LABEL.overhang, Math.ceil(key * Math.cos(LABEL.slant)) + 8) };
}

function layOutMap() {
  const sequence = sequences[state.sequence], { lenQ, lenK } = sequence;
  const gutters = map.gutters = measureGutters(sequence);
  map.minibox.hidden = lenQ * lenK <= MINIMAP.from || byId('head').clientWidth < 760;
  const aside = map.minibox.hidden ? 0 : MINIMAP.size + 24, side = MARGIN.size + MARGIN.gap;
  const above = byId('head').getBoundingClientRect().top + scrollY;
  const room = { x: Math.max(120, byId('head').clientWidth - aside - gutters.left - Math.max(side, gutters.right) - 4),
                 y: Math.max(300, innerHeight - above - gutters.top - side - 56) };
  let x = Math.min(CELL.largest, room.x / lenK), y = Math.min(CELL.largest, room.y / lenQ);
  if (lenQ === lenK) x = y = Math.min(x, y);
  else [x, y] = [Math.min(x, Math.max(24, y)), Math.min(y, Math.max(24, x))];
  const whole = (size) => (size * devicePixelRatio >= 1 ? Math.floor(size * devicePixelRatio) / devicePixelRatio : size);
  const zoomed = (size) => whole(Math.min(CELL.largest, size * CELL.zoomStep ** map.zoom));
  map.cell = { x: zoomed(x), y: zoomed(y) };
  map.largest = map.cell.x >= CELL.largest && map.cell.y >= CELL.largest;

  const width = Math.ceil(Math.min(room.x, lenK * map.cell.x)), height = Math.ceil(Math.min(room.y, lenQ * map.cell.y));
  const { box, extent, keys, queries, corner } = map;
  extent.style.width = `${lenK * map.cell.x}px`;
  extent.style.height = `${lenQ * map.cell.y}px`;
  box.style.overflow = width < lenK * map.cell.x - 0.5 || height < lenQ * map.cell.y - 0.5 ? 'auto' : 'hidden';
  box.style.width = `${width + 2}px`;
  box.style.height = `${height + 2}px`;
  corner.style.width = queries.style.width = `${gutters.left}px`;
  corner.style.height = keys.style.height = `${gutters.top}px`;
  keys.style.width = `${width + Math.min(gutters.right, side)}px`;
  queries.style.height = `${height}px`;
}

/* The rows or columns with a label: the visible ones, thinned if they are small, and the selected one instead of its neighbors. */
function labeled(count, size, scroll, room, chosen) {
  const step = Math.max(1, Math.ceil(LABEL.size / size)), shown = [];
  const first = Math.floor(scroll / size), last = Math.min(count - 1, Math.ceil((scroll + room) / size) - 1);
  for (let n = first - first % step; n <= last && !map.gutters.narrow; n += step)
    if (n >= first && (chosen === null || n === chosen || Math.abs(n - chosen) * size >= LABEL.size)) shown.push(n);
  if (chosen !== null && chosen >= first && chosen <= last && !shown.includes(chosen)) shown.push(chosen);
  return shown;
}

function renderLabels() {
  const sequence = sequences[state.sequence], { box, cell, gutters } = map;
  const fontSize = (size) => `${size < 16 && !gutters.narrow ? LABEL.smallSize : LABEL.size}px`;
  map.queries.replaceChildren(...labeled(sequence.lenQ, cell.y, box.scrollTop, box.clientHeight, state.query).map((i) => {
    const label = el('div', { class: `label${i === state.query ? ' chosen' : ''}`, 'data-query': i, dir: 'auto',
                              title: sequence.queries[i].length > 14 ? sequence.queries[i] : null }, visible(sequence.queries[i]));
    label.style.top = `${Math.min(box.clientHeight - 8, Math.max(8, (i + 0.5) * cell.y - box.scrollTop))}px`;
    label.style.fontSize = fontSize(cell.y);
    return label;
  }));
  map.keys.classList.toggle('flat', gutters.narrow);
  map.keys.replaceChildren(...labeled(sequence.lenK, cell.x, box.scrollLeft, box.clientWidth, state.key).map((j) => {
    const label = el('div', { class: `label${j === state.key ? ' chosen' : ''}`, 'data-key': j, dir: 'auto',
                              title: sequence.keys[j].length > 14 ? sequence.keys[j] : null }, visible(sequence.keys[j]));
    const left = (j + 0.5) * cell.x - box.scrollLeft;
    label.style.left = `${gutters.narrow ? Math.max(0, Math.min(left - 24, box.clientWidth - 56)) : left}px`;
    label.style.maxWidth = `${gutters.label}px`;
    label.style.fontSize = fontSize(cell.x);
    return label;
  }));
}

function renderHead() {
  const { lenQ, lenK } = sequences[state.sequence];
  byId('head').classList.toggle('empty', !lenQ || !lenK);
  if (!lenQ || !lenK) return;
  map.box.setAttribute('aria-label', `${thumbnailName(state.layer, state.head)}: ${lenQ} queries by ${lenK} keys; arrow keys move`);
  layOutMap();
  drawMap();
  drawMinimap();
  renderLabels();
}

function zoomMap(change) {
  if (change > 0 && map.largest) return;
  const { box } = map, x = (box.scrollLeft + box.clientWidth / 2) / box.scrollWidth, y = (box.scrollTop + box.clientHeight / 2) / box.scrollHeight;
  map.zoom = change ? Math.max(0, map.zoom + change) : 0;
  renderHead();
  box.scrollTo(x * box.scrollWidth - box.clientWidth / 2, y * box.scrollHeight - box.clientHeight / 2);
  scrollToSelection();
}
