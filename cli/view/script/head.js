/* SPDX-License-Identifier: MIT
 *
 * head.js - one head, large.  The canvas covers only the visible part and sticks to the scrolled box, so a head of any size
 * can be enlarged; labels are elements, made for the visible rows and columns.
 */
const CELL = { largest: 44, gapFrom: 12, outlineInside: 20, zoomStep: 1.5 };
const LABEL = { widest: 128, size: 13, smallSize: 11, slant: 55 * Math.PI / 180, overhang: 72 };

const map = { cell: { x: 1, y: 1 }, zoom: 0, hover: null, buffer: document.createElement('canvas'), gutters: null };

function buildHead() {
  const part = (name, ...children) => {
    map[name] = el('div', { class: `map-${name}` }, ...children);
    return map[name];
  };
  map.canvas = el('canvas');
  const corner = part('corner', el('span', {}, 'key →'), el('span', {}, 'query ↓'));
  const box = part('box', part('extent', map.canvas));
  box.setAttribute('role', 'application');
  box.setAttribute('aria-roledescription', 'heat map');
  box.tabIndex = 0;
  byId('head').replaceChildren(el('div', { class: 'map' }, corner, part('keys'), part('queries'), box));
  for (const node of [corner, map.keys, map.queries]) node.setAttribute('aria-hidden', 'true');

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
}

function cellUnder(event) {
  const { left, top } = map.box.getBoundingClientRect(), { lenQ, lenK } = sequences[state.sequence];
  const key = Math.floor((event.clientX - left - map.box.clientLeft + map.box.scrollLeft) / map.cell.x);
  const query = Math.floor((event.clientY - top - map.box.clientTop + map.box.scrollTop) / map.cell.y);
  return query >= 0 && query < lenQ && key >= 0 && key < lenK ? { query, key } : null;
}

function hoverAt(event, at) {
  const before = map.hover;
  map.hover = at;
  if (at && openHead())
    showTooltip(event.clientX, event.clientY,
                ...linkText(sequences[state.sequence], at.query, at.key, openHead().weight(at.query, at.key)));
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
  const { lenQ, lenK } = sequences[state.sequence], clamp = (value, end) => Math.max(0, Math.min(end - 1, value));
  if (state.query === null) go({ query: 0, key: state.key ?? 0 });
  else if (state.key === null) go({ key: openHead().strongest(state.query) });
  else go({ query: clamp(state.query + step[0], lenQ), key: clamp(state.key + step[1], lenK) });
  scrollToSelection();
}

function scrollToSelection() {
  const inView = (at, size, from, room) => (at * size < from || (at + 1) * size > from + room ? (at + 0.5) * size - room / 2 : from);
  const { box, cell } = map;
  if (state.query !== null) box.scrollTop = inView(state.query, cell.y, box.scrollTop, box.clientHeight);
  if (state.key !== null) box.scrollLeft = inView(state.key, cell.x, box.scrollLeft, box.clientWidth);
}

/* Space for the labels: depends on the tokens only, so that nothing moves from head to head. */
function measureGutters(sequence) {
  const pen = map.buffer.getContext('2d');
  pen.font = `${LABEL.size}px ${getComputedStyle(document.body).fontFamily}`;
  const longest = (tokens) => tokens.slice(0, STRIP_LIMIT).reduce((most, token) =>
    Math.max(most, pen.measureText(visible(token).slice(0, 40)).width), 16);
  const narrow = byId('head').clientWidth < 560 ? 0.6 : 1;
  const query = Math.min(LABEL.widest * narrow, longest(sequence.queries)), key = Math.min(LABEL.widest * narrow, longest(sequence.keys));
  return { left: Math.max(52, Math.ceil(query) + 18), top: Math.ceil(key * Math.sin(LABEL.slant)) + 20, label: LABEL.widest * narrow,
           right: Math.min(LABEL.overhang, Math.ceil(key * Math.cos(LABEL.slant)) + 8) };
}

function layOutMap() {
  const sequence = sequences[state.sequence], { lenQ, lenK } = sequence;
  const gutters = map.gutters = measureGutters(sequence);
  const above = byId('head').getBoundingClientRect().top + scrollY;
  const room = { x: Math.max(120, byId('head').clientWidth - gutters.left - gutters.right - 4),
                 y: Math.max(300, innerHeight - above - gutters.top - 56) };
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
  keys.style.width = `${width + gutters.right}px`;
  queries.style.height = `${height}px`;
}

function drawMap() {
  const head = openHead();
  if (!head) return;
  const { box, canvas, cell, hover } = map, scale = devicePixelRatio;
  const width = Math.round(box.clientWidth * scale), height = Math.round(box.clientHeight * scale);
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  canvas.style.width = `${width / scale}px`;
  canvas.style.height = `${height / scale}px`;
  const context = canvas.getContext('2d'), style = getComputedStyle(canvas);
  const size = { x: cell.x * scale, y: cell.y * scale }, offset = { x: box.scrollLeft * scale, y: box.scrollTop * scale };
  drawCells(context, head, size, offset, scaleTop(head), map.buffer);

  const line = Math.max(1, Math.round(scale));
  if (Math.min(cell.x, cell.y) >= CELL.gapFrom) {
    context.fillStyle = style.backgroundColor;
    for (let x = size.x - offset.x % size.x; x < width; x += size.x) context.fillRect(x - line, 0, line, height);
    for (let y = size.y - offset.y % size.y; y < height; y += size.y) context.fillRect(0, y - line, width, line);
  }
  const outline = (color, thick, c, r, columns) => {
    context.strokeStyle = color;
    context.lineWidth = thick;
    const gap = Math.min(cell.x, cell.y) >= CELL.gapFrom ? line : 0;
    const inset = Math.min(cell.x, cell.y) >= CELL.outlineInside ? thick / 2 : -thick / 2; /* a small cell must not be hidden */
    const left = Math.max(thick / 2, c * size.x - offset.x + inset), top = Math.max(thick / 2, r * size.y - offset.y + inset);
    const right = Math.min(width - thick / 2, (c + columns) * size.x - offset.x - gap - inset);
    const bottom = Math.min(height - thick / 2, (r + 1) * size.y - offset.y - gap - inset);
    if (right > left && bottom > top) context.strokeRect(left, top, right - left, bottom - top);
  };
  if (hover) outline(style.color, line, hover.key, hover.query, 1);
  if (state.query !== null) outline(style.outlineColor, 2 * line, 0, state.query, head.lenK);
  if (state.query !== null && state.key !== null) outline(style.color, 2 * line, state.key, state.query, 1);
}

/* The rows or columns with a label: the visible ones, thinned if they are small, and the selected one instead of its neighbors. */
function labeled(count, size, scroll, room, chosen) {
  const step = Math.max(1, Math.ceil(LABEL.size / size)), shown = [];
  const first = Math.floor(scroll / size), last = Math.min(count - 1, Math.ceil((scroll + room) / size) - 1);
  for (let n = first - first % step; n <= last; n += step)
    if (n >= first && (chosen === null || n === chosen || Math.abs(n - chosen) * size >= LABEL.size)) shown.push(n);
  if (chosen !== null && chosen >= first && chosen <= last && !shown.includes(chosen)) shown.push(chosen);
  return shown;
}

function renderLabels() {
  const sequence = sequences[state.sequence], { box, cell, gutters } = map;
  const fontSize = (size) => `${size < 16 ? LABEL.smallSize : LABEL.size}px`;
  map.queries.replaceChildren(...labeled(sequence.lenQ, cell.y, box.scrollTop, box.clientHeight, state.query).map((i) => {
    const label = el('div', { class: `label${i === state.query ? ' chosen' : ''}`, 'data-query': i, dir: 'auto',
                              title: sequence.queries[i].length > 14 ? sequence.queries[i] : null }, visible(sequence.queries[i]));
    label.style.top = `${Math.min(box.clientHeight - 8, Math.max(8, (i + 0.5) * cell.y - box.scrollTop))}px`;
    label.style.fontSize = fontSize(cell.y);
    return label;
  }));
  map.keys.replaceChildren(...labeled(sequence.lenK, cell.x, box.scrollLeft, box.clientWidth, state.key).map((j) => {
    const label = el('div', { class: `label${j === state.key ? ' chosen' : ''}`, 'data-key': j, dir: 'auto',
                              title: sequence.keys[j].length > 14 ? sequence.keys[j] : null }, visible(sequence.keys[j]));
    label.style.left = `${(j + 0.5) * cell.x - box.scrollLeft}px`;
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
