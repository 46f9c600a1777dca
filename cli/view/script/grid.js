/* SPDX-License-Identifier: MIT
 *
 * grid.js - the first screen: one small heat map a head, layers as rows, heads as columns, drawn when it scrolls into view.
 */
const THUMBNAIL = { smallest: 40, largest: 120, gap: 6, margin: 36 };

const grid = { thumbnails: [], observer: null, width: 0 };

function thumbnailName(layer, head) { return `Layer ${about.layers[layer]}, head ${about.heads[head]}`; }

function buildGrid() {
  const rows = about.layers.map((number, layer) => {
    const cells = about.heads.map((_, head) => {
      const canvas = el('canvas', { 'aria-hidden': 'true' });
      const button = el('button', { type: 'button', class: 'thumbnail', tabindex: layer || head ? '-1' : '0',
                                    'aria-label': thumbnailName(layer, head) }, canvas);
      const thumbnail = { button, canvas, layer, head, cache: {}, seen: false, stale: true };
      button.addEventListener('click', () => go({ layer, head }, true));
      button.addEventListener('focus', () => rove(thumbnail));
      button.addEventListener('pointermove', (event) => describeThumbnail(event, thumbnail));
      button.addEventListener('pointerleave', hideTooltip);
      grid.thumbnails.push(thumbnail);
      return el('div', { role: 'gridcell' }, button);
    });
    return el('div', { role: 'row' }, el('div', { role: 'rowheader', 'aria-label': `Layer ${number}` }, String(number)), ...cells);
  });
  const headings = about.heads.map((number) => el('div', { role: 'columnheader', 'aria-label': `Head ${number}` }, String(number)));
  const corner = el('div', { role: 'columnheader', class: 'corner', 'aria-label': 'Layer' });
  const table = el('div', { role: 'grid', class: 'multiples', 'aria-label': 'All heads: layers as rows, heads as columns' },
                   el('div', { role: 'row' }, corner, ...headings), ...rows);
  table.style.gridTemplateColumns = `max-content repeat(${headCount}, max-content)`;
  byId('grid').replaceChildren(el('div', { class: 'axes quiet', 'aria-hidden': 'true' }, 'layer ↓  head →'), table);
  table.addEventListener('keydown', moveInGrid);
  grid.observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const thumbnail = grid.thumbnails.find((one) => one.button === entry.target);
      thumbnail.seen = entry.isIntersecting;
      if (thumbnail.seen && thumbnail.stale) drawOne(thumbnail);
    }
  }, { rootMargin: '200px' });
  for (const { button } of grid.thumbnails) grid.observer.observe(button);
}

/* One thumbnail at a time is in the tab order. */
function rove(thumbnail) {
  for (const { button } of grid.thumbnails) button.tabIndex = button === thumbnail.button ? 0 : -1;
}

function moveInGrid(event) {
  const from = grid.thumbnails.findIndex(({ button }) => button === document.activeElement);
  const column = from % headCount;
  const to = { ArrowLeft: column > 0 ? from - 1 : from, ArrowRight: column < headCount - 1 ? from + 1 : from,
               ArrowUp: from - headCount, ArrowDown: from + headCount,
               Home: from - column, End: from - column + headCount - 1 }[event.key];
  if (from < 0 || to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  if (grid.thumbnails[to]) grid.thumbnails[to].button.focus();
}

function describeThumbnail(event, { layer, head }) {
  const lines = [el('div', {}, thumbnailName(layer, head))];
  if (state.query !== null) {
    const data = headAt(state.sequence, layer, head), key = data.strongest(state.query);
    lines.push(el('div', {}, ...linkText(sequences[state.sequence], state.query, key, data.weight(state.query, key))));
  }
  showTooltip(event.clientX, event.clientY, ...lines);
}

/* The size of all thumbnails: as large as fits.  Where that costs little, a cell is a whole number of device pixels. */
function thumbnailSize() {
  const { lenQ, lenK } = sequences[state.sequence];
  const room = Math.floor((byId('grid').clientWidth - THUMBNAIL.margin) / headCount) - THUMBNAIL.gap;
  const side = Math.min(THUMBNAIL.largest, Math.max(THUMBNAIL.smallest, room)) - 2;
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
  drawThumbnail(thumbnail.canvas, head, thumbnail.cache, x.pixels, y.pixels, scaleTop(head), state.query);
  thumbnail.stale = false;
}

function renderGrid() {
  const { lenQ, lenK } = sequences[state.sequence], empty = !lenQ || !lenK;
  byId('grid').classList.toggle('empty', empty);
  if (empty) return;
  grid.size = thumbnailSize();
  for (const thumbnail of grid.thumbnails) {
    thumbnail.canvas.style.width = `${grid.size.x.length}px`;
    thumbnail.canvas.style.height = `${grid.size.y.length}px`;
    thumbnail.stale = true;
    if (thumbnail.seen) drawOne(thumbnail);
  }
}

function focusThumbnail(layer, head) {
  const thumbnail = grid.thumbnails[layer * headCount + head];
  rove(thumbnail);
  thumbnail.button.focus();
}
