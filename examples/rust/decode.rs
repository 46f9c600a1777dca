// SPDX-License-Identifier: MIT
// One step of decoding from Rust: three sequences of different lengths over shared pages, with a schedule, in one call; then each by
// itself over rows of its own, with the same bits.
mod attn;

use attn::*;
use std::ffi::CStr;
use std::os::raw::c_void;
use std::ptr;

const HEADS_Q: usize = 4;
const HEADS_KV: usize = 2;
const DIM: usize = 32;
const PAGE: usize = 16;
const LENGTHS: [i64; 3] = [5, 33, 100];
const CAPACITY: usize = 112;
const PAGES: usize = 11;
const ROW: usize = HEADS_KV * DIM;

fn check(status: attn_status, error: &attn_error) {
    if status != ATTN_OK {
        panic!("{}", unsafe { CStr::from_ptr(error.message.as_ptr()) }.to_string_lossy());
    }
}

/// Numbers between -1 and 1, always the same.
fn numbers(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Plans and runs; makes a schedule if the queries are packed.
fn run(problem: &attn_problem, tensors: &mut attn_tensors) {
    let mut error = attn_error::default();
    let mut call = attn_call::default();
    let mut plan: *mut attn_plan = ptr::null_mut();
    unsafe {
        check(attn_plan_create(&mut plan, problem, tensors, ptr::null(), &mut error), &error);
        let mut memory = vec![0u64; attn_schedule_size(plan) / 8 + 1];
        let mut bytes = attn_plan_workspace_size(plan);
        if !tensors.cu_seqlens_q.data.is_null() {
            let size = memory.len() * 8;
            let at = memory.as_mut_ptr() as *mut c_void;
            check(attn_schedule_make(&mut call.schedule, plan, tensors, at, size, ptr::null(), &mut error), &error);
            bytes = attn_schedule_workspace_size(call.schedule);
            tensors.call = &call;
        }
        let mut workspace = vec![0u8; bytes + 1];
        check(attn_execute(plan, tensors, workspace.as_mut_ptr() as *mut c_void, bytes, &mut error), &error);
        attn_plan_destroy(plan);
    }
    tensors.call = ptr::null();
}

fn main() {
    let batch = LENGTHS.len();
    let keys: Vec<Vec<f32>> = (0..batch).map(|b| numbers(b as u32, LENGTHS[b] as usize * ROW)).collect();
    let values: Vec<Vec<f32>> = (0..batch).map(|b| numbers(b as u32 + 10, LENGTHS[b] as usize * ROW)).collect();
    let q = numbers(20, batch * HEADS_Q * DIM);

    // Pages of [token, head, channel], given out from the last one on.
    let (mut k_pages, mut v_pages) = (vec![0f32; PAGES * PAGE * ROW], vec![0f32; PAGES * PAGE * ROW]);
    let mut table = vec![-1i32; batch * CAPACITY / PAGE];
    let mut free = PAGES;
    for b in 0..batch {
        for (n, rows) in keys[b].chunks(PAGE * ROW).enumerate() {
            free -= 1;
            table[b * CAPACITY / PAGE + n] = free as i32;
            k_pages[free * PAGE * ROW..][..rows.len()].copy_from_slice(rows);
            v_pages[free * PAGE * ROW..][..rows.len()].copy_from_slice(&values[b][n * PAGE * ROW..][..rows.len()]);
        }
    }

    let mut problem = attn_problem::default();
    problem.shape = attn_shape {
        batch: batch as i64,
        heads_q: HEADS_Q as i64,
        heads_kv: HEADS_KV as i64,
        len_q: 1,
        len_kv: CAPACITY as i64,
        dim_qk: DIM as i64,
        dim_v: DIM as i64,
    };
    problem.mask.causal = 1;
    problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    problem.paging.page_size = PAGE as i64;
    problem.paging.pages = PAGES as i64;
    let starts: Vec<i64> = (0..=batch as i64).collect();
    let mut together = vec![0f32; q.len()];
    let stride = [(PAGE * ROW) as i64, DIM as i64, ROW as i64, 1];
    let mut tensors = attn_tensors { q: attn_in(&q), o: attn_out(&mut together), ..Default::default() };
    tensors.k = attn_input { stride, ..attn_in(&k_pages) };
    tensors.v = attn_input { stride, ..attn_in(&v_pages) };
    tensors.cu_seqlens_q = attn_in(&starts);
    tensors.lengths_kv = attn_in(&LENGTHS);
    tensors.page_table = attn_input { dtype: ATTN_I32, ..attn_in(&table) };
    run(&problem, &mut tensors);

    problem.paging = attn_paging::default();
    problem.shape.batch = 1;
    for b in 0..batch {
        let mut alone = vec![0f32; HEADS_Q * DIM];
        let stride = [0, DIM as i64, ROW as i64, 1];
        problem.shape.len_kv = LENGTHS[b];
        let mut tensors = attn_tensors { q: attn_in(&q[b * HEADS_Q * DIM..]), o: attn_out(&mut alone), ..Default::default() };
        tensors.k = attn_input { stride, ..attn_in(&keys[b]) };
        tensors.v = attn_input { stride, ..attn_in(&values[b]) };
        run(&problem, &mut tensors);
        assert_eq!(alone[..], together[b * HEADS_Q * DIM..][..HEADS_Q * DIM], "sequence {}", b);
    }
    println!("{} sequences over {} pages: the same bits as one by one", batch, PAGES);
}
