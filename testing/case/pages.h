/* SPDX-License-Identifier: MIT
 *
 * pages.h - keys and values of a check case in pages.
 */
#ifndef ATTN_TESTING_CASE_PAGES_H
#define ATTN_TESTING_CASE_PAGES_H

#include "call.h"
#include "testing/random/random.h"

/* Moves the keys and values of a call, and their scales, into pages in no order, and gives it their table.  What no sequence has,
 * in its last page, stays GUARD_BYTE (NaN), and its entries past the last page are no page.  Returns 0 if out of memory. */
int pages_lay(check_call *call, const check_case *c, const attn_paging *paging, random_state *random);

#endif
