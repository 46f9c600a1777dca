/* SPDX-License-Identifier: MIT
 *
 * roles.js - the tab Roles: what a head does, in the numbers that the command computed; and of each role the heads that have most of it.
 */
const roleTable = about.roles ?? []; /* { name, heading, line, badge } */
const ROLES = { heads: 3 };

/* { score, baseline, rows } of each role of a head, or null; without separators, if that was chosen. */
function rolesOf(s, layer, head) {
  const { roles, contentRoles } = sequences[s], found = (state.content && contentRoles ? contentRoles : roles)?.[layer * headCount + head];
  return found ? roleTable.map((_, n) => ({ score: found[n][0] ?? NaN, baseline: found[n][1] ?? NaN, rows: found[n][2], has: found[n][3] === 1 })) : null;
}

/* Many heads have these; others say more. */
const COMMON_ROLES = new Set(['first', 'separator', 'sink', 'positional']);

/* The roles that a head has: those that few have first, then by score. */
function badgesOf(s, layer, head) {
  const found = rolesOf(s, layer, head);
  if (!found) return [];
  return roleTable.map((role, n) => ({ ...role, ...found[n] })).filter(({ has }) => has).sort((a, b) => COMMON_ROLES.has(a.name) - COMMON_ROLES.has(b.name) || b.score - a.score);
}

/* The mean share of the largest possible entropy. */
const spreadOf = (s, layer, head) => meanOf(headAt(s, layer, head).summary.spread);

function headRoles(s, layer, head) {
  const found = rolesOf(s, layer, head);
  if (!found) return null;
  return el('table', { class: 'numbers', id: 'roles' }, el('caption', {}, `Layer ${about.layers[layer]}, head ${about.heads[head]}`),
    el('thead', {}, el('tr', {}, ...['role', 'score', 'uniform', 'rows'].map((name) => el('th', { scope: 'col' }, name)))),
    el('tbody', {}, ...roleTable.map((role, n) => el('tr', { class: `role-line${found[n].has ? ' chosen' : ''}`, title: role.line },
      el('th', { scope: 'row' }, role.heading, found[n].has ? el('span', { class: 'badge' }, 'has it') : null),
      el('td', { class: 'number' }, Number.isFinite(found[n].score) ? formatWeight(found[n].score) : '–'),
      el('td', { class: 'number' }, Number.isFinite(found[n].baseline) ? formatWeight(found[n].baseline) : '–'),
      el('td', { class: 'number' }, String(found[n].rows))))));
}

function strongestHeads(s) {
  const lines = roleTable.map((role, n) => {
    const all = about.layers.flatMap((_, layer) => about.heads.map((__, head) => ({ layer, head, score: rolesOf(s, layer, head)[n].score })));
    const best = all.filter(({ score }) => Number.isFinite(score)).sort((a, b) => b.score - a.score).slice(0, ROLES.heads);
    return !best.length ? null : el('tr', { class: 'role-heads', title: role.line }, el('th', { scope: 'row' }, role.heading), el('td', {}, ...best.map(({ layer, head, score }) =>
      el('button', { type: 'button', class: 'chip-link', onclick: () => go({ layer, head }, true) }, `L${about.layers[layer]} H${about.heads[head]} `, el('b', { class: 'number' }, score.toFixed(2))))));
  });
  return el('table', { class: 'numbers', id: 'role-heads' }, el('caption', {}, 'Heads that have most of each'), el('tbody', {}, ...lines));
}

function rolesTab() {
  const s = state.sequence, open = state.layer !== null;
  const note = (text) => el('p', { class: 'quiet' }, text);
  if (!sequences[s].roles) {
    if (!open) return [note('Open a head to see how far its rows spread.')];
    return [note(`Entropy of its rows: ${formatWeight(spreadOf(s, state.layer, state.head))} of the most there could be, on average.`)];
  }
  const content = el('input', { type: 'checkbox', id: 'content' });
  content.checked = state.content;
  content.addEventListener('change', () => { go({ content: content.checked }); byId('content')?.focus(); });
  return [sequences[s].contentRoles ? el('label', { class: 'check' }, content, 'as if special tokens and punctuation were not there') : null,
          open ? headRoles(s, state.layer, state.head) : null, strongestHeads(s),
          note('Mean weight over the rows for which such a key exists; uniform is what a head gets that looks at all keys alike. A role describes weights, and is no explanation.'),
          note('Copying needs the output weights and the embeddings of the model, which are not here.')];
}
