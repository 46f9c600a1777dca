/* SPDX-License-Identifier: MIT
 *
 * export.js - what is shown, as files: a picture of the open head or of all heads as SVG or PNG, its numbers as CSV or .npy.
 */
const EXPORT = { cell: 28, rectangles: 64, picture: 640, thumbnail: 96, label: 13, apart: 18, gap: 8 };

const escapeXml = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '\ufffd');

const colorOf = (value, top, signed) => swatch(value, top, signed)?.background ?? (value === HIDDEN ? '#888888' : `rgb(${INVALID_COLOR.join(' ')})`);

function saveFile(name, parts, type) {
  const link = el('a', { href: URL.createObjectURL(new Blob(parts, { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/* All numbers of the map. */
function mapNumbers() {
  const head = shownHead(), cells = new Float32Array(head.lenQ * head.lenK);
  head.fill(state.kind, 0, head.lenQ, 0, head.lenK, cells);
  const signed = SIGNED.has(state.kind), largest = cells.reduce((most, x) => (Number.isFinite(x) && Math.abs(x) > most ? Math.abs(x) : most), 0);
  return { head, cells, signed, top: mapTop(head) ?? largest };
}

/* The cells as a picture of at most `side` pixels. */
function cellCanvas(cells, rows, columns, top, signed, side) {
  const factor = Math.max(1, Math.ceil(Math.max(rows, columns) / side)), pooled = poolCells(cells, rows, columns, factor, state.pool, signed);
  const canvas = document.createElement('canvas');
  Object.assign(canvas, { width: pooled.width, height: pooled.height });
  canvas.getContext('2d').putImageData(imageOf(pooled.cells, pooled.width, pooled.height, top, null, signed), 0, 0);
  return canvas;
}

function svgOf(width, height, title, body) {
  const { color, backgroundColor } = getComputedStyle(document.body);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="${EXPORT.label}" fill="${color}">`
    + `<title>${escapeXml(title)}</title><rect width="100%" height="100%" fill="${backgroundColor}"/>${body.join('\n')}</svg>\n`;
}

/* A canvas as an element of SVG. */
function svgImage(canvas, place) {
  const attributes = { class: 'cells', ...place, style: 'image-rendering:pixelated', href: canvas.toDataURL('image/png') };
  return `<image ${Object.entries(attributes).map(([name, value]) => `${name}="${value}"`).join(' ')}/>`;
}

/* The open head: labels are text; up to 64 x 64 cells are rectangles, more are a picture inside. */
function headSvg() {
  const { head, cells, signed, top } = mapNumbers(), sequence = sequences[state.sequence], { lenQ, lenK } = head;
  const few = lenQ <= EXPORT.rectangles && lenK <= EXPORT.rectangles, cell = few ? EXPORT.cell : EXPORT.picture / Math.max(lenQ, lenK);
  const letters = (tokens) => Math.min(24, tokens.reduce((most, token) => Math.max(most, [...visible(token)].length), 1));
  const left = 16 + letters(sequence.queries) * 8, above = 40 + Math.max(32, letters(sequence.keys) * 8 * 0.82), body = [];
  const every = Math.max(1, Math.ceil(EXPORT.apart / cell)), short = (token) => escapeXml([...visible(token)].slice(0, 24).join(''));
  body.push(`<text x="8" y="20" font-weight="bold">${escapeXml(exportTitle())}</text>`);
  for (let i = 0; i < lenQ; i += every)
    body.push(`<text class="query" x="${left - 6}" y="${above + (i + 0.5) * cell}" text-anchor="end" dominant-baseline="central">${short(sequence.queries[i])}</text>`);
  for (let j = 0; j < lenK; j += every)
    body.push(`<text class="key" transform="translate(${left + (j + 0.5) * cell} ${above - 6}) rotate(-55)">${short(sequence.keys[j])}</text>`);
  if (few)
    for (let i = 0; i < lenQ; i++)
      for (let j = 0; j < lenK; j++) {
        const value = cells[i * lenK + j];
        body.push(`<rect class="cell" x="${left + j * cell}" y="${above + i * cell}" width="${cell - 1}" height="${cell - 1}" fill="${colorOf(value, top, signed)}">`
          + `<title>${short(sequence.queries[i])} → ${short(sequence.keys[j])} ${formatWeight(value)}</title></rect>`);
      }
  else
    body.push(svgImage(cellCanvas(cells, lenQ, lenK, top, signed, 2048), { x: left, y: above, width: lenK * cell, height: lenQ * cell }));
  return svgOf(left + lenK * cell + 80, above + lenQ * cell + 16, exportTitle(), body);
}

/* All heads, in rows of layers. */
function gridCanvas() {
  const step = EXPORT.thumbnail + EXPORT.gap, canvas = document.createElement('canvas');
  Object.assign(canvas, { width: headCount * step + 40, height: layerCount * step + 40 });
  const pen = canvas.getContext('2d'), { color, backgroundColor, fontFamily } = getComputedStyle(document.body);
  pen.fillStyle = backgroundColor;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.imageSmoothingEnabled = false;
  pen.font = `${EXPORT.label}px ${fontFamily}`;
  const small = document.createElement('canvas');
  for (const { layer, head } of grid.thumbnails) {
    const data = headAt(state.sequence, layer, head);
    drawThumbnail(small, data, {}, Math.min(EXPORT.thumbnail, data.lenK), Math.min(EXPORT.thumbnail, data.lenQ), scaleTop(data), null, state.pool);
    pen.drawImage(small, 32 + head * step, 32 + layer * step, EXPORT.thumbnail, EXPORT.thumbnail);
  }
  pen.fillStyle = color;
  about.heads.forEach((number, head) => pen.fillText(String(number), 32 + head * step, 20));
  about.layers.forEach((number, layer) => pen.fillText(String(number), 8, 32 + layer * step + EXPORT.thumbnail / 2));
  return canvas;
}

function gridSvg() {
  const canvas = gridCanvas();
  return svgOf(canvas.width, canvas.height, exportTitle(), [svgImage(canvas, { width: canvas.width, height: canvas.height })]);
}

/* ---- numbers ---- */

const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);

/* A line for each query, a column for each key. */
function headCsv() {
  const { head, cells } = mapNumbers(), sequence = sequences[state.sequence];
  const lines = [['query', ...sequence.keys].map(quoted).join(',')];
  for (let i = 0; i < head.lenQ; i++)
    lines.push([quoted(sequence.queries[i]), ...Array.from(cells.subarray(i * head.lenK, (i + 1) * head.lenK), (x) => (x === HIDDEN ? '' : String(x)))].join(','));
  return `${lines.join('\n')}\n`;
}

/* A line for each head. */
function gridCsv() {
  const lines = [['layer', 'head', 'largest', 'entropy', ...roleTable.map(({ name }) => name)].join(',')];
  for (const { layer, head } of grid.thumbnails) {
    const { largest } = headAt(state.sequence, layer, head).summary, found = rolesOf(state.sequence, layer, head);
    lines.push([about.layers[layer], about.heads[head], largest, spreadOf(state.sequence, layer, head), ...(found ?? []).map(({ score }) => score)].join(','));
  }
  return `${lines.join('\n')}\n`;
}

/* Format 1.0 of NumPy: a header of a multiple of 64 bytes, then f32 in row order. */
function npyParts(cells, shape) {
  const words = `{'descr': '<f4', 'fortran_order': False, 'shape': (${shape.join(', ')}), }`, length = Math.ceil((10 + words.length + 1) / 64) * 64 - 10;
  const header = new Uint8Array(10 + length).fill(0x20);
  header.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, length & 255, length >> 8]);
  header.set([...words].map((c) => c.charCodeAt(0)), 10);
  header[header.length - 1] = 0x0a;
  return [header, cells.map((x) => (x === HIDDEN ? NaN : x))];
}

/* ---- the dialog ---- */

const KIND_NAMES = { weight: 'weights', score: 'scores', value: 'weight × |value|', difference: 'A − B', change: 'live − recorded' };

const exportTitle = () => (state.layer === null ? `${about.title ?? 'Attention weights'}: all heads`
  : `${thumbnailName(state.layer, state.head)}, ${KIND_NAMES[state.kind]}${isChanged() && state.kind !== 'change' ? ', options changed' : ''}`);
const exportName = () => (state.layer === null ? 'heads' : `layer${about.layers[state.layer]}-head${about.heads[state.head]}${state.kind === 'weight' ? '' : `-${state.kind}`}`);

/* The picture of an SVG's text, as PNG. */
function savePng() {
  const canvas = state.layer === null ? gridCanvas() : pictureCanvas();
  canvas.toBlob((blob) => saveFile(`${exportName()}.png`, [blob], 'image/png'), 'image/png');
}

/* The cells of the map, enlarged to whole pixels. */
function pictureCanvas() {
  const { head, cells, signed, top } = mapNumbers(), small = cellCanvas(cells, head.lenQ, head.lenK, top, signed, 4096);
  const times = Math.max(1, Math.floor(1024 / Math.max(small.width, small.height))), canvas = document.createElement('canvas');
  Object.assign(canvas, { width: small.width * times, height: small.height * times });
  const pen = canvas.getContext('2d');
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, 0, 0, canvas.width, canvas.height);
  return canvas;
}

const EXPORTS = [
  { id: 'svg', name: 'SVG', what: 'a picture with text', save: () => saveFile(`${exportName()}.svg`, [state.layer === null ? gridSvg() : headSvg()], 'image/svg+xml') },
  { id: 'png', name: 'PNG', what: 'a picture of the cells', save: savePng },
  { id: 'csv', name: 'CSV', what: 'numbers, for a table', save: () => saveFile(`${exportName()}.csv`, [state.layer === null ? gridCsv() : headCsv()], 'text/csv') },
  { id: 'npy', name: '.npy', what: 'numbers, for NumPy', head: true,
    save: () => { const { head, cells } = mapNumbers(); saveFile(`${exportName()}.npy`, npyParts(cells, [head.lenQ, head.lenK]), 'application/octet-stream'); } },
];

function openExport() {
  byId('export-what').textContent = exportTitle();
  byId('export-files').replaceChildren(...EXPORTS.filter(({ head }) => !head || state.layer !== null).map(({ id, name, what, save }) =>
    el('button', { type: 'button', class: 'control', id: `export-${id}`, onclick: save }, el('b', {}, name), ` ${what}`)));
  byId('export').showModal();
}
