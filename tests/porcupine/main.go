// The judge of the torture test that was not written beside it: docs/torture.md.
//
//	go run . FOLDER
//
// FOLDER has the histories that scripts/torture --judge keeps: all of accept/ must be legal, and of each folder of refuse/ at
// least one must not. It exits with 1 if one is judged otherwise, or not within its time; with 2 if it cannot judge.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history that takes longer is not judged, which counts as a failure.
const patience = time.Minute

// A history is a file: MODEL-LOCK-PART.txt.
type history struct {
	path, model string
	operations  []porcupine.Operation
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . FOLDER")
		os.Exit(64)
	}
	accepted, err := accept(os.Args[1])
	refused, other := refuse(os.Args[1])
	for _, err := range []error{err, other} {
		if err != nil {
			fmt.Fprintln(os.Stderr, "error: porcupine:", err)
			os.Exit(2)
		}
	}
	if !accepted || !refused {
		os.Exit(1)
	}
}

// What is said of the histories of one model.
type sum struct {
	histories, operations int
	longest, took         time.Duration
}

// Judges what must be legal, and prints the table of it.
func accept(folder string) (bool, error) {
	rounds, err := filepath.Glob(filepath.Join(folder, "accept", "*"))
	if err == nil && len(rounds) == 0 {
		err = fmt.Errorf("no histories in %s", folder)
	}
	sums, legal := map[string]*sum{}, true
	for _, round := range rounds {
		histories, err := load(round)
		if err != nil {
			return false, err
		}
		for _, history := range histories {
			begin := time.Now()
			legal = history.mustBeLegal() && legal
			if sums[history.model] == nil {
				sums[history.model] = &sum{}
			}
			sums[history.model].add(history, time.Since(begin))
		}
	}
	table(sums)
	return legal, err
}

func (s *sum) add(h history, took time.Duration) {
	s.histories++
	s.operations += len(h.operations)
	s.took += took
	if span := h.span(); span > s.longest {
		s.longest = span
	}
}

// From the first call to the last that has a time.
func (h history) span() time.Duration {
	first, last := int64(never), int64(0)
	for _, operation := range h.operations {
		if operation.Call < first {
			first = operation.Call
		}
		if operation.Call > last && operation.Call != never {
			last = operation.Call
		}
	}
	return time.Duration(last - first)
}

// When an operation is done that may take effect at any time, and when the last of a history begins.
const never = 1<<63 - 1

func table(sums map[string]*sum) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "model\thistories\toperations\tlongest, s\tjudged in, s\t")
	var names []string
	for name := range sums {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		s := sums[name]
		took, longest := s.took.Seconds(), s.longest.Seconds()
		fmt.Fprintf(out, "%s\t%d\t%d\t%.1f\t%.2f\t\n", name, s.histories, s.operations, longest, took)
	}
	out.Flush()
}

// Says so if a history is not legal, and draws it beside itself.
func (h history) mustBeLegal() bool {
	verdict := judge(h.model, h.operations)
	if verdict == porcupine.Ok {
		return true
	}
	drawing := strings.TrimSuffix(h.path, ".txt") + ".html"
	_, info := porcupine.CheckOperationsVerbose(models[h.model], h.operations, patience)
	if err := porcupine.VisualizePath(models[h.model], info, drawing); err != nil {
		drawing = err.Error()
	}
	fmt.Printf("error: %s is %s, see %s\n", h.path, verdict, drawing)
	return false
}

// Judges the positive controls. One that left no history was not caught.
func refuse(folder string) (bool, error) {
	controls, err := filepath.Glob(filepath.Join(folder, "refuse", "*"))
	all := true
	for _, control := range controls {
		histories, err := load(control)
		if err != nil {
			return false, err
		}
		refused := false
		for _, history := range histories {
			refused = refused || judge(history.model, history.operations) == porcupine.Illegal
		}
		if refused {
			fmt.Printf("control %s: refused\n", filepath.Base(control))
		} else {
			fmt.Printf("error: control %s: none of %d histories is refused\n", filepath.Base(control), len(histories))
		}
		all = all && refused
	}
	fmt.Printf("%d controls\n", len(controls))
	return all, err
}

func judge(model string, operations []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(models[model], operations, patience)
}

func load(folder string) ([]history, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	var histories []history
	for _, path := range paths {
		history, err := read(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		histories = append(histories, history)
	}
	return histories, nil
}

var pattern = regexp.MustCompile(`^([a-z-]+)-\d+-\d+\.txt$`)

func read(path string) (history, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return history{}, err
	}
	name := pattern.FindStringSubmatch(filepath.Base(path))
	if name == nil {
		return history{}, fmt.Errorf("its name is not MODEL-LOCK-PART.txt")
	}
	if _, known := models[name[1]]; !known {
		return history{}, fmt.Errorf("there is no model %s", name[1])
	}
	found := history{path: path, model: name[1]}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		operation, err := parse(line)
		if err != nil {
			return history{}, err
		}
		found.operations = append(found.operations, operation)
	}
	return found, nil
}

// A line is: client, call, return, verb and its numbers.
func parse(line string) (porcupine.Operation, error) {
	words := strings.Fields(line)
	if len(words) < 4 {
		return porcupine.Operation{}, fmt.Errorf("a line of %d words: %q", len(words), line)
	}
	var numbers [3]int64
	for at := range numbers {
		number, err := strconv.ParseInt(words[at], 10, 64)
		if err != nil {
			return porcupine.Operation{}, err
		}
		numbers[at] = number
	}
	if numbers[2] < numbers[1] {
		return porcupine.Operation{}, fmt.Errorf("it returned before it was called: %q", line)
	}
	input := call(words[3:])
	return porcupine.Operation{ClientId: int(numbers[0]), Call: numbers[1], Return: numbers[2], Input: input}, nil
}
