// SPDX-License-Identifier: MIT

// One step of decoding from Go: three sequences of different lengths over shared pages, with a schedule, in one call; then each by
// itself over rows of its own, with the same bits.  All memory that structs point to is C's.
package main

import (
	"fmt"
	"os"
	"unsafe"

	"example/attn"
)

const (
	headsQ, headsKV, dim, page = 4, 2, 32, 16
	capacity, pages            = 112, 11
	row                        = headsKV * dim
)

var lengths = [3]int64{5, 33, 100}

func check(status attn.Status, err *attn.Error) {
	if status != attn.Ok {
		n := 0
		for n < len(err.Message) && err.Message[n] != 0 {
			n++
		}
		fmt.Fprintln(os.Stderr, string(err.Message[:n]))
		os.Exit(1)
	}
}

func floats(count int) []float32 {
	return unsafe.Slice((*float32)(attn.Alloc(uint64(4*count))), count)
}

// Numbers between -1 and 1, always the same.
func numbers(seed uint32, count int) []float32 {
	x := floats(count)
	for i := range x {
		seed = seed*1664525 + 1013904223
		x[i] = float32(seed>>8)/(1<<23) - 1
	}
	return x
}

func in(x []float32) attn.Input   { return attn.Input{Data: uintptr(unsafe.Pointer(&x[0]))} }
func out(x []float32) attn.Output { return attn.Output{Data: uintptr(unsafe.Pointer(&x[0]))} }

// Plans and runs; makes a schedule if the queries are packed.
func run(problem *attn.Problem, tensors *attn.Tensors) {
	var err attn.Error
	plan := (**attn.Plan)(attn.Alloc(8))
	check(attn.PlanCreate(plan, problem, tensors, nil, &err), &err)
	memory := attn.Alloc(attn.ScheduleSize(*plan))
	bytes := attn.PlanWorkspaceSize(*plan)
	if tensors.CuSeqlensQ.Data != 0 {
		schedule := (**attn.Schedule)(attn.Alloc(8))
		check(attn.ScheduleMake(schedule, *plan, tensors, memory, attn.ScheduleSize(*plan), nil, &err), &err)
		bytes = attn.ScheduleWorkspaceSize(*schedule)
		call := (*attn.Call)(attn.Alloc(uint64(unsafe.Sizeof(attn.Call{}))))
		call.StructSize = uint64(unsafe.Sizeof(*call))
		call.Schedule = *schedule
		tensors.Call = call
	}
	workspace := attn.Alloc(bytes + 1)
	check(attn.Execute(*plan, tensors, workspace, bytes, &err), &err)
	attn.PlanDestroy(*plan)
	attn.Free(workspace)
	attn.Free(memory)
}

func main() {
	batch := len(lengths)
	q := numbers(20, batch*headsQ*dim)
	kPages, vPages := floats(pages*page*row), floats(pages*page*row)
	table := unsafe.Slice((*int32)(attn.Alloc(uint64(4*batch*capacity/page))), batch*capacity/page)
	lengthsKV := unsafe.Slice((*int64)(attn.Alloc(8*3)), 3)
	starts := unsafe.Slice((*int64)(attn.Alloc(8*4)), 4)
	var keys, values [3][]float32
	free := pages
	for b, length := range lengths {
		keys[b], values[b] = numbers(uint32(b), int(length)*row), numbers(uint32(b)+10, int(length)*row)
		lengthsKV[b], starts[b+1] = length, int64(b+1)
		for n := 0; n*page < int(length); n++ { // pages of [token, head, channel], given out from the last one on
			free--
			table[b*capacity/page+n] = int32(free)
			copy(kPages[free*page*row:(free+1)*page*row], keys[b][n*page*row:])
			copy(vPages[free*page*row:(free+1)*page*row], values[b][n*page*row:])
		}
	}

	problem := attn.Problem{
		StructSize: uint64(unsafe.Sizeof(attn.Problem{})),
		Shape:      attn.Shape{Batch: int64(batch), HeadsQ: headsQ, HeadsKv: headsKV, LenQ: 1, LenKv: capacity, DimQk: dim, DimV: dim},
		Paging:     attn.Paging{PageSize: page, Pages: pages},
	}
	problem.Mask.Causal = 1
	problem.Mask.Align = attn.AlignBottomRight
	together := floats(batch * headsQ * dim)
	tensors := attn.Tensors{StructSize: uint64(unsafe.Sizeof(attn.Tensors{})), Q: in(q), O: out(together), K: in(kPages), V: in(vPages)}
	tensors.K.Stride = [4]int64{page * row, dim, row, 1}
	tensors.V.Stride = tensors.K.Stride
	tensors.CuSeqlensQ.Data = uintptr(unsafe.Pointer(&starts[0]))
	tensors.LengthsKv.Data = uintptr(unsafe.Pointer(&lengthsKV[0]))
	tensors.PageTable = attn.Input{Data: uintptr(unsafe.Pointer(&table[0])), Dtype: attn.I32}
	run(&problem, &tensors)

	problem.Paging = attn.Paging{}
	problem.Shape.Batch = 1
	for b, length := range lengths {
		alone := floats(headsQ * dim)
		problem.Shape.LenKv = length
		tensors := attn.Tensors{StructSize: tensors.StructSize, Q: in(q[b*headsQ*dim:]), O: out(alone), K: in(keys[b]), V: in(values[b])}
		tensors.K.Stride = [4]int64{0, dim, row, 1}
		tensors.V.Stride = tensors.K.Stride
		run(&problem, &tensors)
		for i, x := range alone {
			if x != together[b*headsQ*dim+i] {
				fmt.Fprintf(os.Stderr, "sequence %d has other bits alone\n", b)
				os.Exit(1)
			}
		}
	}
	fmt.Printf("%d sequences over %d pages: the same bits as one by one\n", batch, pages)
}
