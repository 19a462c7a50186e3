package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/integration/stack"
)

func TestMain(m *testing.M) {
	if stack.RunChild() {
		return
	}
	os.Exit(m.Run())
}

// TestSmall runs everything once on a small ledger: the rows that it is filled with pass every CHECK of the schema, and are proved.
func TestSmall(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out bytes.Buffer
	file := t.TempDir() + "/growth.jsonl"
	args := []string{"--rows", "5000", "--keys", "v4", "--seconds", "1", "--rate", "1000", "--purge", "0", "--json", file}
	if err := run(ctx, args, &out); err != nil {
		t.Fatal(err)
	}
	last := out.String()[strings.LastIndex(strings.TrimSpace(out.String()), "\n")+1:]
	if !regexp.MustCompile(`^growth: v4@5k_wal=[0-9.]+x v4@5k_cpu=[0-9.]+x\n$`).MatchString(last) {
		t.Errorf("last line %q", last)
	}
	text, err := os.ReadFile(file)
	if err != nil || bytes.Count(text, []byte("\n")) != 3 {
		t.Fatalf("%v; measurements:\n%s", err, text)
	}
	for _, want := range []string{`"rows":5000`, `"sweep_found":2,`, `"proved_keys":`, `"operations_key":`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func TestParse_Refuses(t *testing.T) {
	for _, args := range [][]string{{"--rows", "10"}, {"--rows", "2000,1000"}, {"--keys", "v5"}, {"--seconds", "0"}, {"--rate", "1"}, {"x"}} {
		if o, err := parse(args); err == nil {
			t.Errorf("%v was read as %+v", args, o)
		}
	}
}
