/* SPDX-License-Identifier: MIT
 *
 * tokens.js - the sentence: one strip where queries and keys are the same tokens, else one of each.  A token of the query
 * strip is selected by click or arrow; the key strip is shaded by the weights of the selected query of an open head, else by what keys
 * receive.
 */
const STRIP_LIMIT = 4096;

const strips = { sequence: null, queries: null, keys: null };

function makeStrip(caption, tokens, choose) {
  const shown = tokens.slice(0, STRIP_LIMIT);
  const chips = shown.map((token, i) => el('button', { type: 'button', role: 'option', class: 'chip', tabindex: i ? '-1' : '0',
                                                       'data-index': i, 'aria-selected': 'false' }, tokenText(token)));
  const list = el('div', { class: 'strip', role: 'listbox', 'aria-label': caption, 'aria-orientation': 'horizontal' }, ...chips);
  const indexOf = (event) => {
    const chip = event.target.closest('.chip');
    return chip ? Number(chip.dataset.index) : null;
  };
  list.addEventListener('click', (event) => { if (indexOf(event) !== null) choose(indexOf(event), true); });
  list.addEventListener('keydown', (event) => {
    const from = indexOf(event);
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: chips.length - 1 }[event.key];
    if (from === null || to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (!chips[to]) return;
    chips[to].focus();
    choose(to, false);
  });
  list.addEventListener('pointermove', (event) => {
    const index = indexOf(event);
    if (index !== null) describeChip(event, tokens === sequences[state.sequence].queries ? 'queries' : 'keys', index);
  });
  list.addEventListener('pointerleave', hideTooltip);
  const rest = tokens.length - shown.length;
  return { chips, selected: null, node: el('div', { class: 'strip-row' }, caption ? el('span', { class: 'quiet' }, caption) : null, list,
                                           rest > 0 ? el('span', { class: 'quiet' }, `and ${rest} more, in the heat map`) : null) };
}

function describeChip(event, axis, index) {
  const sequence = sequences[state.sequence], head = openHead();
  if (head && state.query !== null && (sequence.same || axis === 'keys'))
    showTooltip(event.clientX, event.clientY, ...linkText(sequence, state.query, index, head.weight(state.query, index)));
  else {
    const share = sequence.same || axis === 'keys' ? receivedBy(head)[index] : null;
    showTooltip(event.clientX, event.clientY, tokenText(sequence[axis][index]), ' ',
                el('span', { class: 'quiet' }, `${index + (axis === 'queries' ? sequence.firstQuery : 0)}`),
                ...(share === null ? [] : [el('span', { class: 'quiet' }, `, receives ${formatWeight(share)} of each row`)]));
  }
}

function buildStrips() {
  const sequence = sequences[state.sequence];
  const chooseQuery = (query, toggle) => go(toggle && query === state.query ? { query: null, key: null } : { query, key: null });
  const chooseKey = (key) => go({ key: key === state.key ? null : key });
  strips.sequence = state.sequence;
  strips.queries = makeStrip(sequence.same ? '' : 'Queries', sequence.queries, chooseQuery);
  strips.keys = sequence.same ? strips.queries : makeStrip('Keys', sequence.keys, chooseKey);
  strips.queries.node.querySelector('.strip').setAttribute('aria-label', 'Choose a token to see where it attends');
  byId('strips').replaceChildren(...new Set([strips.queries.node, strips.keys.node]));
}

function markSelected(strip, index, name) {
  if (strip.selected !== null && strip.chips[strip.selected]) {
    strip.chips[strip.selected].classList.remove(name);
    strip.chips[strip.selected].setAttribute('aria-selected', 'false');
  }
  strip.selected = index;
  const chip = index === null ? null : strip.chips[index];
  for (const other of strip.chips) if (other.tabIndex === 0 && chip && other !== chip) other.tabIndex = -1;
  if (!chip) return;
  chip.tabIndex = 0;
  chip.classList.add(name);
  chip.setAttribute('aria-selected', 'true');
  const list = chip.parentElement; /* brings it into view inside the strip, without moving the page */
  if (chip.offsetTop < list.scrollTop || chip.offsetTop + chip.offsetHeight > list.scrollTop + list.clientHeight)
    list.scrollTop = chip.offsetTop - list.clientHeight / 2;
}

const received = new Map();

/* What each key receives, the mean over all rows: of one head, or (null) of all heads. */
function receivedBy(head) {
  if (head) return head.summary.received;
  if (!received.has(state.sequence)) {
    const sums = new Float64Array(sequences[state.sequence].lenK);
    about.layers.forEach((_, layer) => about.heads.forEach((__, h) =>
      headAt(state.sequence, layer, h).summary.received.forEach((x, j) => { sums[j] += x / (layerCount * headCount); })));
    received.set(state.sequence, sums);
  }
  return received.get(state.sequence);
}

function renderStrips() {
  if (strips.sequence !== state.sequence) buildStrips();
  markSelected(strips.queries, state.query, 'query');
  if (strips.keys !== strips.queries) markSelected(strips.keys, state.key, 'key');
  else strips.keys.chips.forEach((chip, j) => chip.classList.toggle('key', j === state.key));
  const head = openHead(), { lenQ, lenK } = sequences[state.sequence];
  const own = head !== null && state.query !== null, shares = !lenQ || !lenK ? [] : own ? head.row(state.query) : receivedBy(head);
  const top = own ? scaleTop(head) : shares.reduce((most, x) => (x > most ? x : most), 0);
  strips.keys.chips.forEach((chip, j) => {
    const paint = shares.length ? swatch(shares[j], top) : null;
    chip.style.backgroundColor = paint ? paint.background : '';
    chip.style.color = paint ? paint.ink : '';
  });
}

/* The next query after `from` whose token contains the text, in any case; null if there is none. */
function findToken(text, from) {
  const { queries, keys, same } = sequences[state.sequence], tokens = same ? keys : queries, wanted = text.toLowerCase();
  for (let n = 1; n <= tokens.length && wanted; n++) {
    const i = (from + n + tokens.length) % tokens.length;
    if (visible(tokens[i]).toLowerCase().includes(wanted)) return i;
  }
  return null;
}
