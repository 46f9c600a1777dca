/* SPDX-License-Identifier: MIT
 *
 * heatmap.js - weights to pixels.  Where there are more weights than pixels a pixel shows the largest one under it, so that
 * a lone strong link is never lost.
 */

/* The largest weights over an even partition of rows [r0, r1) x columns [c0, c1) into height x width parts. */
function poolWeights(head, r0, r1, c0, c1, width, height) {
  const out = new Float32Array(width * height);
  const columnStart = (x) => c0 + Math.floor(x * (c1 - c0) / width);
  for (let y = 0; y < height; y++) {
    const top = r0 + Math.floor(y * (r1 - r0) / height);
    const bottom = Math.max(top + 1, r0 + Math.floor((y + 1) * (r1 - r0) / height));
    for (let x = 0; x < width; x++) {
      const left = columnStart(x), right = Math.max(left + 1, columnStart(x + 1));
      let best = -Infinity;
      for (let i = top; i < bottom; i++)
        for (let k = i * head.lenK + left, end = i * head.lenK + right; k < end; k++) {
          const code = head.codes[k];
          if (code > best || Number.isNaN(code)) best = code; /* NaN wins and stays: it must be seen */
        }
      out[y * width + x] = !head.exact && best === 65535 ? NaN : head.low + head.step * best;
    }
  }
  return out;
}

/* An image of pooled weights; rows of pixels outside `kept` are faint (kept null: none are). */
function weightImage(pooled, width, height, top, kept) {
  const image = new ImageData(width, height), pixels = new Uint32Array(image.data.buffer);
  const { pixels: full, faintPixels: faint, invalid } = palette();
  for (let y = 0; y < height; y++) {
    const ramp = kept === null || (y >= kept.from && y < kept.to) ? full : faint;
    for (let k = y * width; k < (y + 1) * width; k++)
      pixels[k] = Number.isFinite(pooled[k]) ? ramp[rampIndex(pooled[k], top)] : invalid;
  }
  return image;
}

/* A whole head on a small canvas.  `cache` keeps what does not depend on colors or selection. */
function drawThumbnail(canvas, head, cache, width, height, top, query) {
  if (cache.head !== head || cache.width !== width || cache.height !== height)
    Object.assign(cache, { head, width, height, pooled: poolWeights(head, 0, head.lenQ, 0, head.lenK, width, height) });
  let { pooled } = cache, kept = null;
  if (query !== null) {
    const from = height >= head.lenQ ? Math.ceil(query * height / head.lenQ) : Math.floor(query * height / head.lenQ);
    kept = { from, to: Math.max(from + 1, Math.ceil((query + 1) * height / head.lenQ)) };
    if (height < head.lenQ) { /* the row of pixels stands for several queries: show the selected one alone */
      kept.to = from + 1;
      pooled = pooled.slice();
      pooled.set(poolWeights(head, query, query + 1, 0, head.lenK, width, 1), from * width);
    }
  }
  canvas.width = width;
  canvas.height = height;
  canvas.getContext('2d').putImageData(weightImage(pooled, width, height, top, kept), 0, 0);
}

/* Part of a head on a large canvas: the cell sizes and the scroll offset are in pixels of the canvas. */
function drawCells(context, head, cell, offset, top, buffer) {
  const { width, height } = context.canvas;
  const c0 = Math.max(0, Math.floor(offset.x / cell.x)), c1 = Math.min(head.lenK, Math.ceil((offset.x + width) / cell.x));
  const r0 = Math.max(0, Math.floor(offset.y / cell.y)), r1 = Math.min(head.lenQ, Math.ceil((offset.y + height) / cell.y));
  context.clearRect(0, 0, width, height);
  if (c1 <= c0 || r1 <= r0) return;
  buffer.width = Math.min(c1 - c0, Math.ceil((c1 - c0) * cell.x));
  buffer.height = Math.min(r1 - r0, Math.ceil((r1 - r0) * cell.y));
  const pooled = poolWeights(head, r0, r1, c0, c1, buffer.width, buffer.height);
  buffer.getContext('2d').putImageData(weightImage(pooled, buffer.width, buffer.height, top, null), 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(buffer, c0 * cell.x - offset.x, r0 * cell.y - offset.y, (c1 - c0) * cell.x, (r1 - r0) * cell.y);
}
