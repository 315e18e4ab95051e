package main

import (
	"sort"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// A history is of one of these models, by the name of its file. They are specifications: what a lock on one machine would do.
var models = map[string]porcupine.Model{
	"mutex":      model("", mutex),
	"reentrant":  model(levels{}, reentrant),
	"fenced":     model(0, fenced),
	"read-write": model(sides{}, readWrite),
	"counter":    model(unknown, counter),
	"commands":   model(list{}, commands),
}

// A call is a verb and its numbers, as tests/torture/history/operations.rs writes them.
type call []string

func (c call) number(at int) int {
	number, err := strconv.Atoi(c[at])
	if err != nil {
		panic(err) // The torture test writes numbers there.
	}
	return number
}

func model[S comparable](init S, step func(S, call) (bool, S)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return init },
		Step: func(state, input, _ any) (bool, any) {
			legal, next := step(state.(S), input.(call))
			return legal, next
		},
		DescribeOperation: func(input, _ any) string { return strings.Join(input.(call), " ") },
	}
}

// A mutex is free or has one hold.
func mutex(hold string, c call) (bool, string) {
	switch c[0] {
	case "acquire":
		return hold == "", c[1]
	case "release":
		return hold == c[1], ""
	}
	panic(c)
}

// The hold of a re-entrant lock, and how often it was acquired.
type levels struct {
	hold  string
	depth int
}

// An inner acquire adds a level to the hold, a release takes one. A hold that expires loses all of them.
func reentrant(state levels, c call) (bool, levels) {
	switch c[0] {
	case "acquire":
		mine := state.hold == c[1] || state.depth == 0
		return mine && c.number(2) == state.depth+1, levels{c[1], c.number(2)}
	case "release":
		left := levels{c[1], c.number(2)}
		if left.depth == 0 {
			left.hold = ""
		}
		return state.hold == c[1] && c.number(2) == state.depth-1, left
	case "expire":
		return state.hold == c[1], levels{}
	}
	panic(c)
}

// Tokens of a fenced lock grow.
func fenced(last int, c call) (bool, int) {
	return c.number(1) > last, c.number(1)
}

// The hold and the thread of the writer, and the holds of readers in order.
type sides struct{ writer, thread, readers string }

// A writer is alone, but its own thread may read beside it.
func readWrite(state sides, c call) (bool, sides) {
	readers := strings.Fields(state.readers)
	switch c[0] {
	case "write":
		return state == sides{}, sides{writer: c[1], thread: c[2]}
	case "read":
		legal := state.writer == "" || state.thread == c[2]
		state.readers = sorted(append(readers, c[1]))
		return legal, state
	case "release":
		if state.writer == c[1] {
			return true, sides{readers: state.readers}
		}
		var others []string
		for _, reader := range readers {
			if reader != c[1] {
				others = append(others, reader)
			}
		}
		state.readers = sorted(others)
		return len(others) < len(readers), state
	}
	panic(c)
}

func sorted(readers []string) string {
	sort.Strings(readers)
	return strings.Join(readers, " ")
}

// What a counter has after a write that was too late.
const unknown = -1

// An update reads the value that the last one wrote.
func counter(value int, c call) (bool, int) {
	read := c.number(1)
	return value == unknown || value == read, read + 1
}

// The hold of a lock, and how many numbers the list has.
type list struct {
	hold string
	size int
}

// A number gets its place in the list while its hold has the lock. In the end nothing is in the list besides.
func commands(state list, c call) (bool, list) {
	switch c[0] {
	case "acquire":
		return state.hold == "", list{c[1], state.size}
	case "release":
		return state.hold == c[1], list{"", state.size}
	case "write":
		return state.hold == c[1] && c.number(2) == state.size, list{c[1], state.size + 1}
	case "end":
		return c.number(1) == state.size, state
	}
	panic(c)
}
