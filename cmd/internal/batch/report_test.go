package batch

import (
	"encoding/csv"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// meanwhile does something once, when the first bytes of a report are written.
type meanwhile struct {
	strings.Builder
	do   func()
	once sync.Once
}

func (m *meanwhile) Write(p []byte) (int, error) {
	m.once.Do(m.do)
	return m.Builder.Write(p)
}

// TestReport_EveryRowOnce: also those that are enqueued while it is written.
func TestReport_EveryRowOnce(t *testing.T) {
	const rows = 3000
	w := newWorldAs(t, operate.Options{Limits: wide()}, Options{PartRows: 500})
	run := w.submit("run-1", csvRows(rows))
	out := &meanwhile{do: func() { w.enqueue(run) }}
	if err := w.Report(t.Context(), run, ForMachine, out); err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, record := range records[1:] {
		seen[record[slices.Index(records[0], "row_ref")]]++
	}
	if len(records) != rows+1 || len(seen) != rows {
		t.Errorf("%d lines, %d rows, want %d and %d", len(records), len(seen), rows+1, rows)
	}
}

// TestReport_SaysWhatItLacks: of a cancelled run, what was never enqueued is not kept.
func TestReport_SaysWhatItLacks(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	run := w.submit("run-1", csvRows(8))
	ended, err := w.Cancel(t.Context(), "run-1", w.people["olga"], "wrong month", false)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = w.Report(t.Context(), ended.Run, ForMachine, &out)
	if !errors.Is(err, ErrNotListed) || !strings.Contains(err.Error(), "8 of 8") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("report of %s: %v\n%s", run.RunKey, err, out.String())
	}
}
