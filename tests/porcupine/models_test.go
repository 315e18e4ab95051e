package main

import (
	"fmt"
	"testing"

	"github.com/anishathalye/porcupine"
)

// Histories in which each operation takes effect at one moment, in the order of the lines.
func TestModels(t *testing.T) {
	for _, test := range []struct {
		model string
		legal bool
		calls []string
	}{
		{"mutex", true, []string{"acquire 1", "release 1", "acquire 2"}},
		{"mutex", false, []string{"acquire 1", "acquire 2"}},
		{"mutex", false, []string{"acquire 1", "release 2"}},
		{"reentrant", true, []string{"acquire 1 1", "acquire 1 2", "release 1 1", "release 1 0", "acquire 2 1"}},
		{"reentrant", true, []string{"acquire 1 1", "acquire 1 2", "expire 1", "acquire 2 1"}},
		{"reentrant", false, []string{"acquire 1 1", "acquire 2 1"}},
		{"reentrant", false, []string{"acquire 1 1", "acquire 1 2", "release 1 1", "acquire 2 1"}},
		{"reentrant", false, []string{"acquire 1 1", "acquire 1 2", "release 1 0"}},
		{"reentrant", false, []string{"acquire 1 1", "acquire 1 3"}},
		{"reentrant", false, []string{"acquire 1 2"}},
		{"fenced", true, []string{"grant 5", "grant 6", "grant 9"}},
		{"fenced", false, []string{"grant 5", "grant 5"}},
		{"fenced", false, []string{"grant 6", "grant 5"}},
		{"read-write", true, []string{"read 1 0", "read 2 1", "release 1", "release 2", "write 3 2", "release 3"}},
		{"read-write", true, []string{"write 1 0", "read 2 0", "release 1", "read 3 1"}},
		{"read-write", false, []string{"write 1 0", "read 2 1"}},
		{"read-write", false, []string{"read 1 0", "write 2 1"}},
		{"read-write", false, []string{"write 1 0", "read 2 0", "release 1", "write 3 1"}},
		{"read-write", false, []string{"write 1 0", "write 2 1"}},
		{"read-write", false, []string{"read 1 0", "release 2"}},
		{"counter", true, []string{"add 7", "add 8"}},
		{"counter", false, []string{"add 7", "add 7"}},
		{"commands", true, []string{"acquire 1", "write 1 0", "write 1 1", "release 1", "acquire 2", "write 2 2", "end 3"}},
		{"commands", false, []string{"acquire 1", "write 1 0", "release 1", "end 2"}},
		{"commands", false, []string{"acquire 1", "write 1 -1"}},
		{"commands", false, []string{"acquire 1", "release 1", "write 1 0"}},
		{"commands", false, []string{"acquire 1", "acquire 2"}},
	} {
		if verdict := judge(test.model, apart(t, test.calls)); (verdict == porcupine.Ok) != test.legal {
			t.Errorf("%s: %q is %s", test.model, test.calls, verdict)
		}
	}
}

func apart(t *testing.T, calls []string) []porcupine.Operation {
	var operations []porcupine.Operation
	for at, call := range calls {
		operations = append(operations, line(t, "0", at, at, call))
	}
	return operations
}

func line(t *testing.T, client string, call, done int, what string) porcupine.Operation {
	operation, err := parse(fmt.Sprint(client, " ", call, " ", done, " ", what))
	if err != nil {
		t.Fatal(err)
	}
	return operation
}

// Two operations at the same time may take effect in either order.
func TestTimes(t *testing.T) {
	first, second := line(t, "0", 1, 4, "grant 9"), line(t, "1", 3, 6, "grant 8")
	if verdict := judge("fenced", []porcupine.Operation{first, second}); verdict != porcupine.Ok {
		t.Error("at the same time", verdict)
	}
	second.Call = 5
	if verdict := judge("fenced", []porcupine.Operation{first, second}); verdict != porcupine.Illegal {
		t.Error("one after the other", verdict)
	}
}

func TestLines(t *testing.T) {
	for _, wrong := range []string{"", "1 2 3", "x 1 2 grant 1", "0 1 x grant 1", "0 2 1 grant 1"} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
