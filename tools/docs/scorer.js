// SPDX-License-Identifier: MIT
// The order of search results: Sphinx's own, except that the page of a mechanism comes before lists that name it (unless the list
// itself is asked for by its title), and these before sources, experiments and the changelog.
var Scorer = {
  score: ([page, , , , score, , kind]) => score + (/^docs\/mechanisms\//.test(page) ? 6 : kind !== "title" && /^docs\/coverage$/.test(page) ? -10
                                         : /^(source\/|lab\/|fuzz\/|CHANGELOG)/.test(page) ? -20 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
