/* SPDX-License-Identifier: MIT
 *
 * main.js - the state of the page and its address.  `go` is the only way to change the state.
 */
const longRows = sequences.some(({ lenK }) => lenK > 64); /* there, weights are small: start with each head's own scale */
const other = sequences.findIndex(({ file }) => file === 1); /* the first sequence of the file that is compared with */
const initial = { sequence: 0, layer: null, head: null, query: null, key: null, scale: longRows ? 'max' : 'one', tab: 'row', kind: 'weight', pool: 'most',
                  sort: 'place', filter: '', content: false, live: {}, b: other < 0 ? null : { sequence: other, layer: null, head: null } };
const state = { ...initial };

const openHead = () => (state.layer === null ? null : liveHead() ?? headAt(state.sequence, state.layer, state.head));
const scaleTop = (head) => (state.scale === 'one' ? 1 : head.max());

/* What the map can show: what the head has, and the difference if there is a B. */
const kindsInUse = () => [...(openHead()?.kinds ?? ['weight']), ...(state.b ? ['difference'] : [])];

/* ---- the address: #layer=3&head=1&query=9, in the numbers that are shown ---- */

const framed = location.protocol === 'about:'; /* srcdoc: it has no address */

function writeAddress(push) {
  if (framed) return;
  const { firstQuery } = sequences[state.sequence], parts = new URLSearchParams();
  if (sequences.length > 1) parts.set('sequence', state.sequence);
  if (state.layer !== null) {
    parts.set('layer', about.layers[state.layer]);
    parts.set('head', about.heads[state.head]);
  }
  if (state.query !== null) parts.set('query', firstQuery + state.query);
  if (state.key !== null) parts.set('key', state.key);
  for (const name of ['scale', 'tab', 'kind', 'pool', 'sort', 'filter']) if (state[name] !== initial[name]) parts.set(name, state[name]);
  if (state.content) parts.set('content', '1');
  if (JSON.stringify(state.b) !== JSON.stringify(initial.b))
    parts.set('b', state.b ? [state.b.sequence, ...(state.b.layer === null ? [] : [about.layers[state.b.layer], about.heads[state.b.head]])].join('.') : '');
  if (isChanged()) parts.set('live', writeLive());
  if (chosenTheme) parts.set('theme', chosenTheme);
  const hash = `#${parts}`;
  if (hash === (location.hash || '#')) return;
  try {
    history[push ? 'pushState' : 'replaceState'](null, '', hash);
  } catch { /* a frame may forbid it; the page works without it */ }
}

function readAddress() {
  const parts = new URLSearchParams(framed ? '' : location.hash.slice(1));
  const whole = (text) => (/^\d+$/.test(text ?? '') ? Number(text) : -1);
  const number = (name, count, first = 0) => {
    const value = parts.has(name) ? whole(parts.get(name)) - first : -1;
    return value >= 0 && value < count ? value : null;
  };
  const oneOf = (name, words) => (words.includes(parts.get(name)) ? parts.get(name) : null);
  const sequence = number('sequence', sequences.length) ?? 0, { lenQ, lenK, firstQuery } = sequences[sequence];
  const layer = about.layers.indexOf(number('layer', Infinity)), head = about.heads.indexOf(number('head', Infinity));
  const open = layer >= 0 && head >= 0;
  chosenTheme = oneOf('theme', ['light', 'dark']);
  Object.assign(state, { sequence, layer: open ? layer : null, head: open ? head : null, query: number('query', lenQ, firstQuery),
                         key: number('key', lenK), scale: oneOf('scale', ['one', 'max']) ?? initial.scale,
                         tab: oneOf('tab', TABS.map(({ id }) => id)) ?? initial.tab, pool: oneOf('pool', ['most', 'mean']) ?? initial.pool,
                         content: parts.get('content') === '1',
                         b: parts.has('b') ? readPlace(parts.get('b')) : initial.b, live: readLive(parts.get('live')) });
  state.sort = oneOf('sort', orderChoices().map(({ id }) => id)) ?? initial.sort;
  state.filter = oneOf('filter', roleTable.map(({ name }) => name)) ?? initial.filter;
  state.kind = oneOf('kind', kindsInUse()) ?? initial.kind;
}

/* "1.3.8": sequence, layer, head; "1": the same head of sequence 1. */
function readPlace(text) {
  const [sequence, layer, head] = text.split('.').map((word) => (/^\d+$/.test(word) ? Number(word) : -1));
  if (!(sequence >= 0 && sequence < sequences.length)) return null;
  if (layer === undefined) return { sequence, layer: null, head: null };
  const place = { sequence, layer: about.layers.indexOf(layer), head: about.heads.indexOf(head) };
  return place.layer >= 0 && place.head >= 0 ? place : null;
}

/* ---- changing and drawing ---- */

function go(change, push = false) {
  const before = { ...state };
  Object.assign(state, change);
  const { lenQ, lenK } = sequences[state.sequence];
  if (state.query >= lenQ || state.key >= lenK || (state.sequence !== before.sequence && !sameTokens(before.sequence, state.sequence)))
    Object.assign(state, { query: null, key: null });
  if (!kindsInUse().includes(state.kind)) state.kind = 'weight';
  writeAddress(push);
  render();
  if (before.layer === null && state.layer !== null) map.box.focus({ preventScroll: true });
  if (before.layer !== null && state.layer === null) focusThumbnail(before.layer, before.head);
}

/* Whether a selection has a meaning in both sequences. */
const sameTokens = (a, b) => sequences[a].queries.length === sequences[b].queries.length && sequences[a].named
  && sequences[a].queries.filter((token, i) => token === sequences[b].queries[i]).length * 2 >= sequences[a].lenQ;

function renderTicks() {
  const head = openHead(), top = map.top ?? 0, limit = (x) => (x >= 10 ? x.toFixed(1) : formatWeight(x));
  const labels = SIGNED.has(state.kind) ? [`−${limit(top)}`, '0', limit(top)]
    : state.kind !== 'weight' ? ['0', limit(top)]
    : state.scale === 'one' ? ['0', '0.5', '1'] : ['0', head ? formatWeight(head.max()) : 'each head’s max'];
  byId('ticks').replaceChildren(...labels.map((label) => el('span', {}, label)));
  byId('ramp').setAttribute('aria-label', `Colors from ${labels[0]} to ${labels.at(-1)}`);
}

function renderLegend() {
  const context = byId('ramp').getContext('2d'), image = context.createImageData(256, 1), { pixels, signedPixels } = palette();
  new Uint32Array(image.data.buffer).set(SIGNED.has(state.kind) ? signedPixels : pixels);
  context.putImageData(image, 0, 0);
  renderTicks();
  for (const scale of ['one', 'max']) {
    byId(`scale-${scale}`).setAttribute('aria-checked', String(state.scale === scale));
    byId(`scale-${scale}`).tabIndex = state.scale === scale ? 0 : -1;
  }
}

function renderReadout() {
  const head = openHead() && shownHead(), sequence = sequences[state.sequence];
  if (!head || state.query === null) byId('readout').replaceChildren();
  else if (state.key === null) {
    const a = openHead(), best = a.strongest(state.query);
    byId('readout').replaceChildren(...linkText(sequence, state.query, best, a.weight(state.query, best)),
                                    el('span', { class: 'quiet' }, ' largest of its row'));
  } else
    byId('readout').replaceChildren(...linkText(sequence, state.query, state.key, head.at(state.kind, state.query, state.key)),
                                    ...(state.kind === 'weight' ? [] : [el('span', { class: 'quiet' }, ` ${KIND_NAMES[state.kind]}`)]));
}

/* The choices above the map; those that would change nothing are not there. */
function renderChoices(inHead) {
  const fill = (id, options, value) => {
    const select = byId(id), words = options.map(([name, text]) => `${name} ${text}`).join('|');
    if (select.dataset.words !== words) {
      select.dataset.words = words;
      select.replaceChildren(...options.map(([name, text]) => el('option', { value: name }, text)));
    }
    select.value = value;
  };
  const badges = new Set(inHead || !sequences[state.sequence].roles ? [] : grid.thumbnails.flatMap(({ layer, head }) => badgesOf(state.sequence, layer, head).map(({ name }) => name)));
  const { lenQ, lenK } = sequences[state.sequence];
  fill('kind', kindsInUse().map((kind) => [kind, KIND_NAMES[kind]]), state.kind);
  fill('sort', orderChoices().map(({ id, name }) => [id, name]), orderInUse().id);
  fill('filter', [['', 'any'], ...roleTable.filter(({ name }) => badges.has(name) || name === state.filter).map(({ name, heading }) => [name, heading])], state.filter);
  byId('pool').value = state.pool;
  byId('kind-choice').hidden = !inHead || kindsInUse().length < 2;
  byId('filter-choice').hidden = !badges.size && !state.filter;
  byId('pool-choice').hidden = lenQ * lenK <= MINIMAP.from;
  for (const id of ['back', 'steps', 'zooms', 'head']) byId(id).hidden = !inHead;
  byId('orders').hidden = inHead || layerCount * headCount < 2;
  byId('grid').hidden = inHead;
}

function render() {
  const inHead = state.layer !== null;
  hideTooltip();
  map.hover = null;
  document.documentElement.dataset.theme = themeInUse();
  byId('theme').textContent = themeInUse() === 'dark' ? 'Light' : 'Dark';
  byId('theme').title = `${byId('theme').textContent} colors (t)`;
  byId('sequence').value = state.sequence;
  byId('heading').textContent = inHead ? thumbnailName(state.layer, state.head)
    : `${layerCount} ${layerCount === 1 ? 'layer' : 'layers'} × ${headCount} ${headCount === 1 ? 'head' : 'heads'}`;
  document.title = [inHead ? thumbnailName(state.layer, state.head) : null, about.title || 'Attention weights'].filter(Boolean).join(' · ');
  renderChoices(inHead);
  renderStrips();
  renderLegend();
  if (inHead) renderHead();
  else renderGrid();
  renderReadout();
  renderPanel();
  followLive();
}

/* ---- start ---- */

function sequenceName(s) {
  const sequence = sequences[s];
  const text = sequence.name ?? (sequence.named ? sequence.queries.slice(0, 12).map(visible).join(' ') : `${sequence.lenQ} × ${sequence.lenK}`);
  return `${s}: ${text}`;
}

function fillTexts() {
  byId('title').textContent = byId('title').title = about.title || 'Attention weights';
  byId('sources').replaceChildren(...about.sources.map((source, n) => {
    const own = sequences.map(({ file }, s) => (file === n ? s : -1)).filter((s) => s >= 0); /* "0", or "0–3": the sequences of this file */
    return el('p', { class: 'source' }, about.sources.length > 1 ? el('b', {}, `${[...new Set([own[0], own.at(-1)])].join('–')} `) : null, source ?? '');
  }));
  byId('attribution').textContent = about.attribution || '';
  byId('facts').hidden = !about.facts.length;
  byId('facts').querySelector('dl').append(...about.facts.map(([name, value]) =>
    el('div', {}, el('dt', {}, name ?? ''), el('dd', { dir: 'auto' }, value ?? ''))));
  byId('sequence-choice').hidden = sequences.length < 2;
  byId('sequence').append(...sequences.map((_, s) => el('option', { value: s }, sequenceName(s))));
}

function listen() {
  byId('sequence').addEventListener('change', (event) => go({ sequence: Number(event.target.value) }));
  for (const name of ['sort', 'filter', 'kind', 'pool']) byId(name).addEventListener('change', (event) => go({ [name]: event.target.value }));
  const clicks = { back: escape, previous: () => stepHead(-1), next: () => stepHead(1), 'zoom-in': () => zoomMap(1), 'zoom-out': () => zoomMap(-1),
                   theme: switchTheme, 'help-open': () => byId('help').showModal(), 'export-open': openExport, 'goto-close': () => byId('goto').close() };
  for (const [id, action] of Object.entries(clicks)) byId(id).addEventListener('click', action);
  for (const scale of ['one', 'max']) byId(`scale-${scale}`).addEventListener('click', () => go({ scale }));
  byId('scale-one').parentElement.addEventListener('keydown', (event) => {
    if (!event.key.startsWith('Arrow')) return;
    event.preventDefault();
    switchScale();
    byId(`scale-${state.scale}`).focus();
  });
  listenToSearch();
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
}

function start() {
  fillTexts();
  buildTabs();
  buildGrid();
  buildHead();
  panel.open = !isNarrow();
  listen();
  readAddress();
  render();
}
