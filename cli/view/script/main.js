/* SPDX-License-Identifier: MIT
 *
 * main.js - the state of the page, its address, its keys.  `go` is the only way to change the state.
 */
const longRows = sequences.some(({ lenK }) => lenK > 64); /* there, weights are small: start with each head's own scale */
const initial = { sequence: 0, layer: null, head: null, query: null, key: null, scale: longRows ? 'max' : 'one' };
const state = { ...initial };

const openHead = () => (state.layer === null ? null : headAt(state.sequence, state.layer, state.head));
const scaleTop = (head) => (state.scale === 'one' ? 1 : head.max());

/* ---- the address: #layer=3&head=1&query=9, in the numbers that are shown ---- */

function writeAddress(push) {
  const { firstQuery } = sequences[state.sequence], parts = new URLSearchParams();
  if (sequences.length > 1) parts.set('sequence', state.sequence);
  if (state.layer !== null) {
    parts.set('layer', about.layers[state.layer]);
    parts.set('head', about.heads[state.head]);
  }
  if (state.query !== null) parts.set('query', firstQuery + state.query);
  if (state.key !== null) parts.set('key', state.key);
  if (state.scale !== initial.scale) parts.set('scale', state.scale);
  if (chosenTheme) parts.set('theme', chosenTheme);
  const hash = `#${parts}`;
  if (hash === (location.hash || '#')) return;
  try {
    history[push ? 'pushState' : 'replaceState'](null, '', hash);
  } catch { /* a frame may forbid it; the page works without it */ }
}

function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const number = (name, count, first = 0) => {
    const value = /^\d+$/.test(parts.get(name) ?? '') ? Number(parts.get(name)) - first : -1;
    return value >= 0 && value < count ? value : null;
  };
  const oneOf = (name, words) => (words.includes(parts.get(name)) ? parts.get(name) : null);
  const sequence = number('sequence', sequences.length) ?? 0, { lenQ, lenK, firstQuery } = sequences[sequence];
  const layer = about.layers.indexOf(number('layer', Infinity)), head = about.heads.indexOf(number('head', Infinity));
  const open = layer >= 0 && head >= 0;
  chosenTheme = oneOf('theme', ['light', 'dark']);
  Object.assign(state, { sequence, layer: open ? layer : null, head: open ? head : null, query: number('query', lenQ, firstQuery),
                         key: number('key', lenK), scale: oneOf('scale', ['one', 'max']) ?? initial.scale });
}

/* ---- changing and drawing ---- */

function go(change, push = false) {
  const before = { ...state };
  Object.assign(state, change);
  const { lenQ, lenK } = sequences[state.sequence];
  if (state.sequence !== before.sequence || state.query >= lenQ || state.key >= lenK) Object.assign(state, { query: null, key: null });
  writeAddress(push);
  render();
  if (before.layer === null && state.layer !== null) map.box.focus({ preventScroll: true });
  if (before.layer !== null && state.layer === null) focusThumbnail(before.layer, before.head);
}

function renderLegend() {
  const ramp = byId('ramp'), context = ramp.getContext('2d'), head = openHead();
  const image = context.createImageData(256, 1);
  new Uint32Array(image.data.buffer).set(palette().pixels);
  context.putImageData(image, 0, 0);
  const labels = state.scale === 'one' ? ['0', '0.5', '1'] : ['0', head ? formatWeight(head.max()) : 'each head’s max'];
  byId('ticks').replaceChildren(...labels.map((label) => el('span', {}, label)));
  ramp.setAttribute('aria-label', `Colors from weight 0 to ${labels.at(-1)}`);
  for (const scale of ['one', 'max']) {
    byId(`scale-${scale}`).setAttribute('aria-checked', String(state.scale === scale));
    byId(`scale-${scale}`).tabIndex = state.scale === scale ? 0 : -1;
  }
}

function renderReadout() {
  const head = openHead(), sequence = sequences[state.sequence];
  if (!head || state.query === null) byId('readout').replaceChildren();
  else if (state.key === null) {
    const best = head.strongest(state.query);
    byId('readout').replaceChildren(...linkText(sequence, state.query, best, head.weight(state.query, best)),
                                    el('span', { class: 'quiet' }, ' largest of its row'));
  } else byId('readout').replaceChildren(...linkText(sequence, state.query, state.key, head.weight(state.query, state.key)));
}

function render() {
  const inHead = state.layer !== null;
  hideTooltip();
  map.hover = null;
  document.documentElement.dataset.theme = themeInUse();
  byId('theme').textContent = themeInUse() === 'dark' ? 'Light' : 'Dark';
  byId('theme').title = `${byId('theme').textContent} colors (t)`;
  byId('sequence').value = state.sequence;
  for (const id of ['back', 'steps', 'zooms', 'head']) byId(id).hidden = !inHead;
  byId('grid').hidden = inHead;
  byId('heading').textContent = inHead ? thumbnailName(state.layer, state.head)
    : `${layerCount} ${layerCount === 1 ? 'layer' : 'layers'} × ${headCount} ${headCount === 1 ? 'head' : 'heads'}`;
  document.title = [inHead ? thumbnailName(state.layer, state.head) : null, about.title || 'Attention weights'].filter(Boolean).join(' · ');
  renderStrips();
  renderLegend();
  if (inHead) renderHead();
  else renderGrid();
  renderReadout();
  renderPanel();
}

/* ---- keys that do not belong to one part of the page ---- */

function stepHead(change) {
  const count = layerCount * headCount, at = (state.layer * headCount + state.head + change + count) % count;
  go({ layer: Math.floor(at / headCount), head: at % headCount }, true);
}

function escape() {
  if (state.layer !== null) go({ layer: null, head: null, key: null }, true);
  else if (state.query !== null) go({ query: null, key: null });
}

function switchTheme() {
  chosenTheme = themeInUse() === 'dark' ? 'light' : 'dark';
  if (chosenTheme === (prefersDark.matches ? 'dark' : 'light')) chosenTheme = null;
  go({});
}

const switchScale = () => go({ scale: state.scale === 'one' ? 'max' : 'one' });

const everywhere = { Escape: escape, s: switchScale, t: switchTheme, '?': () => byId('help').showModal() };
const insideHead = {
  '[': () => stepHead(-1), h: () => stepHead(-1), ']': () => stepHead(1), l: () => stepHead(1),
  k: () => go({ layer: Math.max(0, state.layer - 1) }, true), j: () => go({ layer: Math.min(layerCount - 1, state.layer + 1) }, true),
  '+': () => zoomMap(1), '=': () => zoomMap(1), '-': () => zoomMap(-1), 0: () => zoomMap(0),
};

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId('help').open || event.target.closest('select')) return;
  const action = everywhere[event.key] || (state.layer === null ? null : insideHead[event.key]);
  if (!action) return;
  event.preventDefault();
  action();
});

/* ---- start ---- */

function fillTexts() {
  byId('title').textContent = about.title || 'Attention weights';
  byId('source').textContent = about.source || '';
  byId('attribution').textContent = about.attribution || '';
  byId('facts').hidden = !about.facts.length;
  byId('facts').querySelector('dl').append(...about.facts.map(([name, value]) =>
    el('div', {}, el('dt', {}, name ?? ''), el('dd', { dir: 'auto' }, value ?? ''))));
  byId('sequence-choice').hidden = sequences.length < 2;
  const name = (sequence, s) => sequence.name ?? (sequence.named ? sequence.queries.slice(0, 12).map(visible).join(' ') : `${sequence.lenQ} × ${sequence.lenK}`);
  byId('sequence').append(...sequences.map((sequence, s) => el('option', { value: s }, `${s}: ${name(sequence, s)}`)));
}

function start() {
  fillTexts();
  buildGrid();
  buildHead();
  byId('sequence').addEventListener('change', (event) => go({ sequence: Number(event.target.value) }));
  byId('back').addEventListener('click', escape);
  byId('previous').addEventListener('click', () => stepHead(-1));
  byId('next').addEventListener('click', () => stepHead(1));
  byId('zoom-in').addEventListener('click', () => zoomMap(1));
  byId('zoom-out').addEventListener('click', () => zoomMap(-1));
  byId('theme').addEventListener('click', switchTheme);
  byId('help-open').addEventListener('click', () => byId('help').showModal());
  for (const scale of ['one', 'max']) byId(`scale-${scale}`).addEventListener('click', () => go({ scale }));
  byId('scale-one').parentElement.addEventListener('keydown', (event) => {
    if (!event.key.startsWith('Arrow')) return;
    event.preventDefault();
    switchScale();
    byId(`scale-${state.scale}`).focus();
  });
  const again = () => { readAddress(); render(); };
  addEventListener('hashchange', again);
  addEventListener('popstate', again);
  prefersDark.addEventListener('change', render);
  let width = 0;
  new ResizeObserver(() => {
    const now = byId('grid').parentElement.clientWidth;
    if (now !== width) { width = now; render(); }
  }).observe(byId('grid').parentElement);
  addEventListener('resize', () => { if (state.layer !== null) renderHead(); });
  again();
}

start();
