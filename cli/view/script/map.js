/* SPDX-License-Identifier: MIT
 *
 * map.js - draws the open head: cells, their numbers where there is room, what is selected, the two margins, the small map.
 */

/* What the map shows: the open head, its difference from B, or from what was recorded. */
const shownHead = () => (state.kind === 'difference' ? differenceHead() : state.kind === 'change' ? liveHead().difference : openHead());

/* The top of the colors of the map; null: the largest number in view. */
function mapTop(head) {
  if (state.kind === 'weight') return scaleTop(head);
  if (state.kind === 'difference' || state.kind === 'change') return state.scale === 'one' ? 1 : null;
  return null;
}

function sizeCanvas(canvas, width, height) {
  const scale = devicePixelRatio, x = Math.round(width * scale), y = Math.round(height * scale);
  if (canvas.width !== x || canvas.height !== y) Object.assign(canvas, { width: x, height: y });
  canvas.style.width = `${x / scale}px`;
  canvas.style.height = `${y / scale}px`;
  return canvas.getContext('2d');
}

function drawMap() {
  const head = state.layer === null ? null : shownHead();
  if (!head) return;
  const { box, canvas, cell, hover } = map, scale = devicePixelRatio;
  const context = sizeCanvas(canvas, box.clientWidth, box.clientHeight), style = getComputedStyle(canvas), { width, height } = canvas;
  const size = { x: cell.x * scale, y: cell.y * scale }, offset = { x: box.scrollLeft * scale, y: box.scrollTop * scale };
  const top = drawCells(context, head, state.kind, state.pool, size, offset, mapTop(head), map.buffer, drawMap);
  if (top !== map.top) { map.top = top; renderTicks(); }

  const line = Math.max(1, Math.round(scale)), gaps = Math.min(cell.x, cell.y) >= CELL.gapFrom;
  if (state.kind === 'difference') hatchUnmatched(context, head, size, offset, line);
  if (gaps) {
    context.fillStyle = style.backgroundColor;
    for (let x = size.x - offset.x % size.x; x < width; x += size.x) context.fillRect(x - line, 0, line, height);
    for (let y = size.y - offset.y % size.y; y < height; y += size.y) context.fillRect(0, y - line, width, line);
  }
  if (Math.min(cell.x, cell.y) >= CELL.numbersFrom) writeNumbers(context, head, size, offset, top, scale, style.fontFamily);
  const outline = (color, thick, c, r, columns) => {
    context.strokeStyle = color;
    context.lineWidth = thick;
    const gap = gaps ? line : 0;
    const inset = Math.min(cell.x, cell.y) >= CELL.outlineInside ? thick / 2 : -thick / 2; /* a small cell must not be hidden */
    const left = Math.max(thick / 2, c * size.x - offset.x + inset), above = Math.max(thick / 2, r * size.y - offset.y + inset);
    const right = Math.min(width - thick / 2, (c + columns) * size.x - offset.x - gap - inset);
    const bottom = Math.min(height - thick / 2, (r + 1) * size.y - offset.y - gap - inset);
    if (right > left && bottom > above) context.strokeRect(left, above, right - left, bottom - above);
  };
  if (hover) outline(style.color, line, hover.key, hover.query, 1);
  if (state.query !== null) outline(style.outlineColor, 2 * line, 0, state.query, head.lenK);
  if (state.query !== null && state.key !== null) outline(style.color, 2 * line, state.key, state.query, 1);
  drawMargins();
  moveView();
}

/* Two digits in each visible cell. */
function writeNumbers(context, head, size, offset, top, scale, family) {
  const { width, height } = context.canvas, signed = SIGNED.has(state.kind);
  const r0 = Math.floor(offset.y / size.y), r1 = Math.min(head.lenQ, Math.ceil((offset.y + height) / size.y));
  const c0 = Math.floor(offset.x / size.x), c1 = Math.min(head.lenK, Math.ceil((offset.x + width) / size.x));
  const cells = new Float32Array((r1 - r0) * (c1 - c0));
  head.fill(state.kind, r0, r1, c0, c1, cells);
  context.font = `${11 * scale}px ${family}`;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  for (let i = r0, n = 0; i < r1; i++)
    for (let j = c0; j < c1; j++, n++) {
      const paint = swatch(cells[n], top, signed);
      if (!paint || Math.abs(cells[n]) < 0.005) continue;
      context.fillStyle = paint.ink;
      context.fillText(shortNumber(cells[n]), (j + 0.5) * size.x - offset.x, (i + 0.5) * size.y - offset.y);
    }
}

/* ".07", "1.0", "-12": what fits into a cell. */
function shortNumber(x) {
  const size = Math.abs(x);
  return size >= 9.95 ? x.toFixed(0) : size >= 0.995 ? x.toFixed(1) : x.toFixed(2).replace('0.', '.');
}

/* Stripes over rows and columns whose token has no partner in B. */
function hatchUnmatched(context, head, size, offset, line) {
  const { width, height } = context.canvas, { rows, columns } = head.pairs;
  context.save();
  context.beginPath();
  const visibleFrom = (at, step) => Math.max(0, Math.floor(at / step));
  for (let i = visibleFrom(offset.y, size.y); i < head.lenQ && i * size.y < offset.y + height; i++)
    if (rows[i] < 0) context.rect(0, i * size.y - offset.y, Math.min(width, head.lenK * size.x), size.y);
  for (let j = visibleFrom(offset.x, size.x); j < head.lenK && j * size.x < offset.x + width; j++)
    if (columns[j] < 0) context.rect(j * size.x - offset.x, 0, size.x, Math.min(height, head.lenQ * size.y));
  context.clip();
  context.strokeStyle = getComputedStyle(byId('heading')).color;
  context.globalAlpha = 0.25;
  context.lineWidth = line;
  context.beginPath();
  for (let x = -height; x < width; x += 6 * line) {
    context.moveTo(x, height);
    context.lineTo(x + height, 0);
  }
  context.stroke();
  context.restore();
}

/* ---- margins ---- */

/* Bars along the visible part of the map; where several fall on a pixel, the longest. */
function drawBars(canvas, numbers, top, size, from, room, upright, chosen) {
  const scale = devicePixelRatio, length = MARGIN.size;
  const context = upright ? sizeCanvas(canvas, room, length) : sizeCanvas(canvas, length, room), style = getComputedStyle(canvas);
  context.clearRect(0, 0, canvas.width, canvas.height);
  const first = Math.floor(from / size), last = Math.min(numbers.length, Math.ceil((from + room) / size));
  const thick = Math.max(1, (size >= CELL.gapFrom ? size - 1 : size) * scale);
  for (let n = first; n < last; n++) {
    const long = Math.max(0, Math.min(1, numbers[n] / top || 0)) * (length - 2) * scale, at = (n * size - from) * scale;
    context.fillStyle = n === chosen ? style.outlineColor : style.color;
    if (upright) context.fillRect(at, canvas.height - long, thick, long);
    else context.fillRect(0, at, long, thick);
  }
}

function drawMargins() {
  const head = openHead(), { box, cell } = map, { received, spread } = head.summary;
  const top = received.reduce((most, x) => (x > most ? x : most), 0);
  drawBars(map.above, received, top, cell.x, box.scrollLeft, box.clientWidth, true, state.key);
  drawBars(map.right, spread, 1, cell.y, box.scrollTop, box.clientHeight, false, state.query);
}

/* ---- the small map ---- */

function drawMinimap() {
  if (map.minibox.hidden) return;
  const head = openHead(), { lenQ, lenK } = head;
  map.miniCache ??= {};
  drawThumbnail(map.mini, head, map.miniCache, Math.min(lenK, MINIMAP.size), Math.min(lenQ, MINIMAP.size), scaleTop(head), null, state.pool);
  const longer = Math.max(lenQ, lenK);
  map.mini.style.width = `${MINIMAP.size * lenK / longer}px`;
  map.mini.style.height = `${Math.max(20, MINIMAP.size * lenQ / longer)}px`;
  moveView();
}

function moveView() {
  if (map.minibox.hidden) return;
  const { box, frame, mini } = map, x = mini.clientWidth / box.scrollWidth, y = mini.clientHeight / box.scrollHeight;
  Object.assign(frame.style, { left: `${box.scrollLeft * x}px`, top: `${box.scrollTop * y}px`,
                               width: `${box.clientWidth * x}px`, height: `${box.clientHeight * y}px` });
}
