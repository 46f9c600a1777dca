/* SPDX-License-Identifier: MIT
 *
 * heatmap.js - numbers to pixels.  Where there are more numbers than pixels, a pixel shows the largest one under it, so that a lone
 * strong link is never lost, or their mean.
 */

/* An image of numbers; rows of pixels outside `kept` are faint (kept null: none are). */
function imageOf(cells, width, height, top, kept, signed) {
  const image = new ImageData(width, height), pixels = new Uint32Array(image.data.buffer);
  const { pixels: full, faintPixels: faint, signedPixels, invalid, hidden } = palette();
  for (let y = 0; y < height; y++) {
    const ramp = signed ? signedPixels : kept === null || (y >= kept.from && y < kept.to) ? full : faint;
    for (let k = y * width; k < (y + 1) * width; k++) {
      const x = cells[k];
      pixels[k] = Number.isFinite(x) ? ramp[signed ? signedIndex(x, top) : rampIndex(x, top)] : x === HIDDEN ? hidden : invalid;
    }
  }
  return image;
}

/* The parts of an even partition of a matrix into height x width. */
function partition(cells, rows, columns, height, width, mode) {
  const out = new Float32Array(width * height);
  for (let y = 0; y < height; y++) {
    const top = Math.floor(y * rows / height), bottom = Math.max(top + 1, Math.floor((y + 1) * rows / height));
    for (let x = 0; x < width; x++) {
      const left = Math.floor(x * columns / width), right = Math.max(left + 1, Math.floor((x + 1) * columns / width));
      let most = -Infinity, sum = 0;
      for (let i = top; i < bottom; i++)
        for (let k = i * columns + left; k < i * columns + right; k++) {
          sum += cells[k];
          if (cells[k] > most || Number.isNaN(cells[k])) most = cells[k]; /* NaN wins and stays: it must be seen */
        }
      out[y * width + x] = mode === 'mean' ? sum / ((bottom - top) * (right - left)) : most;
    }
  }
  return out;
}

/* A whole head in height x width pixels: from its picture if it has one, else from its weights. */
function smallPicture(head, height, width, mode) {
  const level = head.level('small');
  if (level) return partition(level[mode], level.rows, level.columns, Math.min(height, level.rows), Math.min(width, level.columns), mode);
  const cells = new Float32Array(head.lenQ * head.lenK);
  head.fill('weight', 0, head.lenQ, 0, head.lenK, cells);
  return partition(cells, head.lenQ, head.lenK, height, width, mode);
}

/* A whole head on a small canvas.  `cache` keeps what does not depend on colors or selection. */
function drawThumbnail(canvas, head, cache, width, height, top, query, mode) {
  const level = head.level('small');
  if (level) [width, height] = [Math.min(width, level.columns), Math.min(height, level.rows)];
  if (cache.head !== head || cache.width !== width || cache.height !== height || cache.mode !== mode)
    Object.assign(cache, { head, width, height, mode, pooled: smallPicture(head, height, width, mode) });
  let { pooled } = cache, kept = null;
  if (query !== null) {
    const from = height >= head.lenQ ? Math.ceil(query * height / head.lenQ) : Math.floor(query * height / head.lenQ);
    kept = { from, to: Math.max(from + 1, Math.ceil((query + 1) * height / head.lenQ)) };
    if (height < head.lenQ) { /* the row of pixels stands for several queries: show the selected one alone */
      kept.to = from + 1;
      pooled = pooled.slice();
      pooled.set(partition(head.row(query), 1, head.lenK, 1, width, mode), from * width);
    }
  }
  canvas.width = width;
  canvas.height = height;
  canvas.getContext('2d').putImageData(imageOf(pooled, width, height, top, kept, false), 0, 0);
}

/* The picture of a level, in place of the tiles that are missing or not needed; never of more parts than pixels. */
function drawLevel(context, head, level, mode, cell, offset, top, buffer) {
  const width = Math.min(level.columns, Math.ceil(head.lenK * cell.x)), height = Math.min(level.rows, Math.ceil(head.lenQ * cell.y));
  const cells = width < level.columns || height < level.rows ? partition(level[mode], level.rows, level.columns, height, width, mode) : level[mode];
  buffer.width = width;
  buffer.height = height;
  buffer.getContext('2d').putImageData(imageOf(cells, width, height, top, null, false), 0, 0);
  context.drawImage(buffer, -offset.x, -offset.y, head.lenK * cell.x, head.lenQ * cell.y);
}

/* Part of a head on a large canvas: the cell sizes and the scroll offset are in pixels of the canvas.  top: of the colors, or null:
 * the largest number in view.  Returns the top that was used. */
function drawCells(context, head, kind, mode, cell, offset, top, buffer, changed) {
  const { width, height } = context.canvas, signed = SIGNED.has(kind);
  const c0 = Math.max(0, Math.floor(offset.x / cell.x)), c1 = Math.min(head.lenK, Math.ceil((offset.x + width) / cell.x));
  const r0 = Math.max(0, Math.floor(offset.y / cell.y)), r1 = Math.min(head.lenQ, Math.ceil((offset.y + height) / cell.y));
  context.clearRect(0, 0, width, height);
  context.imageSmoothingEnabled = false;
  if (c1 <= c0 || r1 <= r0) return top ?? 0;
  const factor = Math.min(TILE.side, 2 ** Math.max(0, Math.ceil(Math.log2(1 / Math.max(cell.x, cell.y)) - 1e-9)));
  const coarse = kind === 'weight' ? head.level('large') ?? head.level('small') : null;
  if (coarse && coarse.columns * factor >= head.lenK && coarse.rows * factor >= head.lenQ) { /* as fine as the tiles would be */
    drawLevel(context, head, coarse, mode, cell, offset, top ?? head.max(), buffer);
    return top ?? head.max();
  }
  const wanted = [], middle = [(r0 + r1) / 2 / TILE.side - 0.5, (c0 + c1) / 2 / TILE.side - 0.5];
  for (let ty = Math.floor(r0 / TILE.side); ty * TILE.side < r1; ty++)
    for (let tx = Math.floor(c0 / TILE.side); tx * TILE.side < c1; tx++) wanted.push([ty, tx]);
  const distance = ([ty, tx]) => Math.hypot(ty - middle[0], tx - middle[1]);
  wanted.sort((a, b) => distance(a) - distance(b));
  wantTiles(head, kind, factor, wanted, changed);
  const found = wanted.map(([ty, tx]) => ({ ty, tx, tile: tileAt(head, kind, ty, tx, factor) }));
  const used = top ?? found.reduce((most, { tile }) => Math.max(most, tile?.top ?? 0), 0);
  if (coarse && found.some(({ tile }) => !tile)) drawLevel(context, head, coarse, mode, cell, offset, used, buffer);
  for (const { ty, tx, tile } of found) {
    if (!tile) continue;
    const level = tile.level(factor, mode);
    buffer.width = level.width;
    buffer.height = level.height;
    buffer.getContext('2d').putImageData(imageOf(level.cells, level.width, level.height, used, null, signed), 0, 0);
    context.drawImage(buffer, tx * TILE.side * cell.x - offset.x, ty * TILE.side * cell.y - offset.y,
                      level.width * factor * cell.x, level.height * factor * cell.y);
  }
  return used;
}
