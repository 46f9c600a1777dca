/* SPDX-License-Identifier: MIT
 *
 * tooltip.js - making elements, and the one tooltip.  All text from the data goes through textContent.
 */
const byId = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'onclick') node.addEventListener('click', value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/* A token, kept apart from the direction of the text around it. */
function tokenText(token) { return el('bdi', { class: 'token' }, visible(token)); }

/* "it → animal  0.687" as nodes. */
function linkText(sequence, query, key, weight) {
  return [tokenText(sequence.queries[query]), ' → ', tokenText(sequence.keys[key]), ' ', el('b', { title: String(weight) }, formatWeight(weight))];
}

/* Shows the tooltip beside a point of the window. */
function showTooltip(x, y, ...nodes) {
  const tooltip = byId('tooltip');
  tooltip.replaceChildren(...nodes);
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  const left = x + 14 + width > innerWidth - 8 ? x - 14 - width : x + 14;
  const top = y + 16 + height > innerHeight - 8 ? y - 12 - height : y + 16;
  tooltip.style.left = `${Math.max(8, left)}px`;
  tooltip.style.top = `${Math.max(8, top)}px`;
}

function hideTooltip() { byId('tooltip').hidden = true; }
