/* SPDX-License-Identifier: MIT
 *
 * panel.js - the tabs beside the map.  A tab is a name, and a function that gives its contents; a new one is a line of TABS.
 */
const TABS = [
  { id: 'row', name: 'Row', contents: () => rowTab() },
  { id: 'neuron', name: 'Neuron', contents: () => neuronTab() },
  { id: 'roles', name: 'Roles', contents: () => rolesTab() },
  { id: 'compare', name: 'Compare', contents: () => compareTab() },
  ...(hasLibrary ? [{ id: 'live', name: 'Live', contents: () => liveContents() }] : []),
];

const panel = { open: true };

function buildTabs() {
  byId('tabs').replaceChildren(...TABS.map(({ id, name }, n) => el('button', { type: 'button', role: 'tab', id: `tab-${id}`, class: 'tab', 'aria-controls': 'sheet',
    title: `${name} (${n + 1})`, onclick: () => chooseTab(id) }, name)));
  byId('tabs').addEventListener('keydown', (event) => {
    const at = TABS.findIndex(({ id }) => id === state.tab), to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: TABS.length - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    chooseTab(TABS[(to + TABS.length) % TABS.length].id);
    byId(`tab-${state.tab}`).focus();
  });
  byId('keys-tabs').replaceChildren(...TABS.map((_, n) => el('kbd', {}, String(n + 1))));
}

/* On a narrow screen the tabs are a sheet at the bottom, which a second press closes. */
function chooseTab(tab) {
  panel.open = !panel.open || tab !== state.tab;
  if (!isNarrow()) panel.open = true;
  go({ tab });
  if (tab === 'live' && isNarrow() && panel.open && state.layer !== null) /* sliders are of use beside the map alone */
    scrollTo(0, byId('head').getBoundingClientRect().top + scrollY - byId('back').parentElement.offsetHeight - 8);
}

const isNarrow = () => matchMedia('(max-width: 700px)').matches;

function renderPanel() {
  const sequence = sequences[state.sequence], sheet = byId('sheet');
  for (const { id } of TABS) {
    const tab = byId(`tab-${id}`), chosen = id === state.tab;
    tab.setAttribute('aria-selected', String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    if (id === 'live') tab.classList.toggle('changed', isChanged());
  }
  byId('panel').classList.toggle('closed', !panel.open);
  sheet.setAttribute('aria-labelledby', `tab-${state.tab}`);
  const focused = document.activeElement?.closest('#sheet') ? document.activeElement : null;
  const same = focused && (focused.id ? `#${focused.id}` : null), words = focused?.textContent;
  const contents = !sequence.lenQ || !sequence.lenK ? [el('p', { class: 'quiet' }, 'This sequence is empty.')]
    : [state.tab === 'live' ? null : liveMark(), ...TABS.find(({ id }) => id === state.tab).contents()].filter(Boolean);
  if (contents.length === 1 && sheet.childNodes.length === 1 && sheet.firstChild === contents[0]) return; /* a tab that keeps its element */
  const scrolled = sheet.scrollTop;
  sheet.replaceChildren(...contents);
  sheet.scrollTop = scrolled;
  if (focused && focused !== sheet) (same ? sheet.querySelector(same) : [...sheet.querySelectorAll('button')].find((button) => button.textContent === words))?.focus();
}
