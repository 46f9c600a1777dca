/* SPDX-License-Identifier: MIT
 *
 * livetab.js - the tab Live: controls of what live.js computes.  They are made once, so that a slider which is held stays the same.
 */

/* Sliders: `low`, `high`, `step` are theirs; `from` and `to` turn their place into the option and back; `none`: the value that a tick
 * takes away and gives back. */
const LIVE_CONTROLS = [
  { id: 'scale', name: 'Scale', low: -3, high: 3, step: 0.05, to: (x, { scale }) => x && rounded(scaleMiddle(scale) * 2 ** x) || scaleMiddle(scale),
    from: (value, { scale }) => Math.log2(value / scaleMiddle(scale)), title: 'factor of q k, before softcap and mask' },
  { id: 'softcap', name: 'Softcap', low: 0, high: 50, step: 0.5, least: 0, title: 'scores s become c tanh(s / c); 0: none' },
  { id: 'causal', name: 'Causal', tick: true, title: 'a query sees no key after itself' },
  { id: 'left', name: 'Window back', window: true, title: 'how many keys back a query sees; empty: all' },
  { id: 'right', name: 'Window ahead', window: true, title: 'how many keys ahead a query sees; empty: all' },
  { id: 'slope', name: 'ALiBi slope', low: 0, high: 1, step: 0.01, title: 'a score loses this times the distance of query and key' },
  { id: 'sink', name: 'Sink', low: -10, high: 10, step: 0.25, none: 0, title: 'a score in the denominator that has no key' },
  { id: 'base', name: 'RoPE base', low: 1, high: 7, step: 0.05, none: 10000, least: 1, to: (x) => rounded(10 ** x), from: Math.log10, title: 'rotary positions: base of the frequencies' },
];

const liveTab = { root: null, controls: [] };

const rounded = (x) => Number(x.toPrecision(6));
const scaleMiddle = (scale) => (scale > 0 ? scale : 1);

/* What rotary positions mean for this sequence. */
function ropeText({ rule }) {
  if (rule.rope === false) return 'These q and k were rotated with stretched frequencies or given positions: their base stays.';
  return rule.rope ? 'q and k were rotated by --rope; another base rotates them again, no tick shows them unrotated.'
    : 'Rotary positions have a meaning only if q and k of the file are not rotated yet; those that a model used mostly are.';
}

function liveControl(control) {
  const { id, name, tick, window: isWindow, none, title } = control, label = `live-${id}`;
  const node = { ...control, row: null, tickbox: null, slider: null, number: null };
  if (tick || none !== undefined) {
    node.tickbox = el('input', { type: 'checkbox', id: tick ? label : `${label}-on` });
    node.tickbox.addEventListener('change', () => setLive(id, tick ? node.tickbox.checked : node.tickbox.checked ? live.head.before[id] ?? none : null));
  }
  if (!tick) {
    node.slider = el('input', { type: 'range', id: `${label}-slider`, 'aria-label': name, min: control.low ?? 0, max: control.high ?? 1, step: control.step ?? 1 });
    node.number = el('input', { type: 'number', id: label, step: 'any', 'aria-label': `${name}, a number`, placeholder: isWindow ? 'all' : null });
    const slid = (moving) => setLive(id, isWindow ? (Number(node.slider.value) >= Number(node.slider.max) ? -1 : Number(node.slider.value))
      : control.to ? control.to(Number(node.slider.value), live.head.before) : Number(node.slider.value), moving);
    node.slider.addEventListener('input', () => slid(true));
    node.slider.addEventListener('change', () => slid(false));
    node.number.addEventListener('change', () => {
      const value = node.number.value === '' ? (isWindow ? -1 : live.head.before[id]) : Number(node.number.value);
      setLive(id, isWindow ? Math.max(-1, Math.round(value)) : Math.max(control.least ?? -Infinity, value));
    });
  }
  node.row = el('div', { class: 'live-row', title }, node.tickbox ? el('label', { class: 'check' }, node.tickbox, name) : el('span', { 'aria-hidden': 'true' }, name), node.slider, node.number);
  return node;
}

function buildLiveTab() {
  liveTab.controls = LIVE_CONTROLS.map(liveControl);
  const part = (name, tag, attributes = {}) => { liveTab[name] = el(tag, { id: `live-${name}`, ...attributes }); return liveTab[name]; };
  liveTab.show = el('input', { type: 'checkbox', id: 'live-show' });
  liveTab.show.addEventListener('change', () => go({ kind: liveTab.show.checked ? 'change' : 'weight' }));
  liveTab.reset = el('button', { type: 'button', class: 'control', id: 'live-reset', onclick: () => go({ live: {} }) }, 'Reset');
  liveTab.root = el('div', { id: 'live' }, part('engine', 'p', { class: 'quiet' }), el('div', { class: 'live-controls' }, ...liveTab.controls.map(({ row: line }) => line)),
    part('rope', 'p', { class: 'quiet' }), el('fieldset', { class: 'live-keys' }, el('legend', {}, 'Knocked-out keys'), part('out', 'div', { class: 'live-out' })),
    el('div', { class: 'choices' }, liveTab.reset, el('label', { class: 'check' }, liveTab.show, 'show the change')),
    part('apart', 'dl', { class: 'statistics', 'aria-live': 'polite' }), part('flags', 'p', { class: 'quiet' }));
}

function renderControls(head) {
  const { options, before, lenK, rule } = head;
  for (const { id, row, tickbox, slider, number, tick, window: isWindow, none, from, high } of liveTab.controls) {
    const value = options[id], off = none !== undefined && value === null;
    row.classList.toggle('changed', id in state.live);
    if (tickbox) tickbox.checked = tick ? value : !off;
    if (tickbox && id === 'base') tickbox.disabled = rule.rope === false;
    if (tick) continue;
    slider.disabled = number.disabled = off;
    slider.max = isWindow ? lenK : high === undefined ? 1 : from ? high : Math.max(high, Math.ceil(2 * (before[id] ?? 0)));
    if (document.activeElement !== slider || !live.timer) slider.value = isWindow ? (value < 0 ? lenK : value) : off ? (from ?? Number)(none, before) : (from ?? Number)(value, before);
    if (document.activeElement !== number) number.value = off || (isWindow && value < 0) ? '' : rounded(value);
  }
  liveTab.rope.textContent = ropeText(sequences[head.sequence]);
}

function renderOut(head) {
  const sequence = sequences[head.sequence], { out } = head.options, chosen = state.key !== null && !out.includes(state.key) ? state.key : null;
  const name = (j) => [tokenText(sequence.keys[j]), sequence.repeated.has(sequence.keys[j]) ? el('span', { class: 'note' }, ` ${j}`) : null];
  const words = `${out} ${chosen} ${head.sequence}`;
  if (liveTab.out.dataset.words === words) return;
  liveTab.out.dataset.words = words;
  const focused = liveTab.out.contains(document.activeElement);
  const knock = el('button', { type: 'button', class: 'control', id: 'live-knock', disabled: chosen === null,
                               onclick: () => setLive('out', [...out, chosen].sort((a, b) => a - b)) }, ...(chosen === null ? ['Choose a key in the map'] : ['Knock out ', ...name(chosen)]));
  liveTab.out.replaceChildren(...out.filter((j) => j < head.lenK).map((j) => el('button', { type: 'button', class: 'chip-link', 'aria-label': `Bring back ${visible(sequence.keys[j])}`,
    onclick: () => setLive('out', out.filter((other) => other !== j)) }, ...name(j), ' ×')), knock);
  if (focused) (knock.disabled ? liveTab.reset : knock).focus();
}

/* The changes as flags of attn run, and what needs a tensor there. */
function flagsText({ options, before, lenQ, lenK, rule }) {
  const flags = [], others = [], { live: changed } = state, has = (...names) => names.some((name) => name in changed);
  if (has('scale')) flags.push(`--scale=${options.scale}`);
  if (has('softcap')) (options.softcap > 0 ? flags : others).push(options.softcap > 0 ? `--softcap=${options.softcap}` : 'no --softcap');
  if (has('causal')) (options.causal ? flags : others).push(options.causal ? (rule.position === lenK - lenQ && rule.position ? '--causal=bottom-right' : '--causal') : 'no --causal');
  if (has('left', 'right')) flags.push(`--window=${options.left},${options.right}`);
  if (has('base')) (options.base === null ? others : flags).push(options.base === null ? 'no --rope' : `${before.base === null ? '--rope ' : ''}--rope-base=${options.base}`);
  if (has('slope')) others.push('slopes in the file');
  if (has('sink')) others.push(options.sink === null ? 'no sink' : 'a sink in the file');
  if (has('out')) others.push(`a mask that hides ${options.out.length === 1 ? 'that key' : 'those keys'}`);
  if (!flags.length && !others.length) return [];
  return ['The same with attn run: ', ...flags.flatMap((flag) => [el('code', { class: 'nowrap' }, flag), ' ']), flags.length && others.length ? 'and ' : null, others.join(' and ')];
}

function renderLiveTab() {
  const { head } = live, { apart } = head ?? {}, line = (name, ...value) => el('div', {}, el('dt', {}, name), el('dd', {}, ...value));
  if (!head || !liveTab.root || state.tab !== 'live') return;
  liveTab.root.setAttribute('aria-busy', String(head.busy));
  renderControls(head);
  renderOut(head);
  liveTab.reset.disabled = !isChanged();
  liveTab.show.checked = state.kind === 'change';
  liveTab.engine.textContent = live.error ?? (engine.name ? `Computed by ${engine.name}${engine.why ? `, ${engine.why}` : ''}.` : 'Starting …');
  liveTab.engine.title = `${live.time.toFixed(1)} ms`;
  liveTab.apart.replaceChildren(...(apart ? [
    line('Largest', el('b', { class: 'number', id: 'live-largest', title: String(apart.most) }, formatWeight(apart.most)), ...(apart.most >= 0.0005
      ? [' change: ', tokenText(sequences[head.sequence].queries[apart.query]), ' → ', tokenText(sequences[head.sequence].keys[apart.key])] : [' change: what was recorded'])),
    line('Distance', el('b', { class: 'number' }, formatWeight(apart.sum)), apart.every > 1 ? ` of 1, mean of every ${apart.every}th row` : ' of 1, mean of the rows')] : [line('Largest', '…'), line('Distance', '…')]));
  liveTab.flags.replaceChildren(...flagsText(head).filter(Boolean));
}

/* What the other tabs say of a head that is not as it was recorded. */
function liveMark() {
  return isChanged() && liveHead() ? el('p', { class: 'live-mark' }, 'Options of this head are changed. ', el('button', { type: 'button', class: 'link', id: 'live-back', onclick: () => chooseTab('live') }, 'Live')) : null;
}

function liveContents() {
  const why = whyNotLive(sequences[state.sequence]);
  if (why) return [el('p', { class: 'quiet' }, why)];
  if (!liveHead()) return [el('p', { class: 'quiet' }, 'Open a head: then sliders change its scale, mask and positions, and the library computes its weights anew.')];
  if (!liveTab.root) buildLiveTab();
  renderLiveTab();
  return [liveTab.root];
}
