/* SPDX-License-Identifier: MIT
 *
 * keys.js - keys that do not belong to one part of the page, the search, and the way to a head by its number.
 */
const keys = { letters: true };

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

const after = (list, value) => list[(list.indexOf(value) + 1) % list.length];
const switchScale = () => go({ scale: state.scale === 'one' ? 'max' : 'one' });

const everywhere = {
  Escape: escape, s: switchScale, t: switchTheme, '?': () => byId('help').showModal(), e: openExport, '/': () => byId('search').focus(), g: openGoto,
  x: swapHeads, p: () => go({ pool: after(['most', 'mean'], state.pool) }),
  ...Object.fromEntries(TABS.map(({ id }, n) => [String(n + 1), () => chooseTab(id)])),
};
const insideHead = {
  '[': () => stepHead(-1), h: () => stepHead(-1), ']': () => stepHead(1), l: () => stepHead(1), c: pinHead, m: () => go({ kind: after(kindsInUse(), state.kind) }),
  k: () => go({ layer: Math.max(0, state.layer - 1) }, true), j: () => go({ layer: Math.min(layerCount - 1, state.layer + 1) }, true),
  '+': () => zoomMap(1), '=': () => zoomMap(1), '-': () => zoomMap(-1), 0: () => zoomMap(0),
};
const inGrid = { r: () => go({ sort: after(orderChoices().map(({ id }) => id), orderInUse().id) }) };

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]') || event.target.closest('select, input')) return;
  if (!keys.letters && event.key.length === 1 && event.key !== '?') return;
  const action = everywhere[event.key] || (state.layer === null ? inGrid : insideHead)[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

/* ---- search ---- */

function listenToSearch() {
  const search = byId('search');
  const find = (from) => {
    const query = findToken(search.value, from);
    search.setAttribute('aria-invalid', String(query === null && search.value !== ''));
    if (query !== null) go({ query, key: null });
    if (query !== null && state.layer !== null) scrollToSelection();
  };
  search.addEventListener('input', () => find(-1));
  search.addEventListener('keydown', (event) => {
    if (event.key === 'Enter') find(state.query ?? -1);
    if (event.key === 'Escape') { search.value = ''; search.blur(); }
  });
  byId('letters').addEventListener('change', (event) => { keys.letters = event.target.checked; });
  byId('goto-form').addEventListener('submit', goToPlace);
}

/* ---- "2.8" ---- */

function openGoto() {
  byId('goto-error').textContent = '';
  byId('goto-place').value = state.layer === null ? '' : `${about.layers[state.layer]}.${about.heads[state.head]}`;
  byId('goto').showModal();
  byId('goto-place').select();
}

function goToPlace(event) {
  const found = /^\s*l?(\d+)\s*[.,\s]\s*h?(\d+)\s*$/i.exec(byId('goto-place').value);
  const layer = about.layers.indexOf(Number(found?.[1])), head = about.heads.indexOf(Number(found?.[2]));
  if (found && layer >= 0 && head >= 0) return go({ layer, head }, true);
  event.preventDefault();
  byId('goto-error').textContent = found ? `There is no layer ${found[1]}, head ${found[2]}.` : 'Two numbers, such as 2.8: layer 2, head 8.';
  return null;
}

start();
