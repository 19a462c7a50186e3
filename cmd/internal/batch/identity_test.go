package batch

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/batch/file"
	"github.com/paidonce/paidonce/cmd/internal/operate"
)

const (
	twoRows = header + "r1,cust-1,10.00,GBP,A N Example,GB33BUKB20201555555555\n" + "r2,cust-2,20.50,GBP,B Example,GB33BUKB20201555555555\n"
	// The same payments: another order, other line ends, other names of the rows.
	reordered = header + "b,cust-2,20.50,GBP,B Example,GB33BUKB20201555555555\r\n" + "a,cust-1,10.00,GBP,A N Example,GB33BUKB20201555555555\r\n"
	otherRows = header + "r1,cust-1,10.01,GBP,A N Example,GB33BUKB20201555555555\n" + "r2,cust-2,20.51,GBP,B Example,GB33BUKB20201555555555\n"
	asNDJSON  = `{"debtor_account":"cust-2","amount":"20.50","currency":"GBP","beneficiary":{"name":"B Example","iban":"GB33BUKB20201555555555"}}` + "\n" +
		`{"debtor_account":"cust-1","amount":"10.00","currency":"GBP","beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"}}` + "\n"
)

func TestIdentity(t *testing.T) {
	w := newWorld(t, operate.Options{})
	run := w.submit("run-1", twoRows)
	before := w.keys(run)
	w.enqueue(run)
	for _, c := range []struct {
		name   string
		change func(w *world, s *Submission)
		want   error
		runs   int64 // on record afterwards
	}{
		{"same run key, same file: goes on", func(*world, *Submission) {}, nil, 1},
		{"same run key, other order and line ends: goes on", func(_ *world, s *Submission) { s.File = strings.NewReader(reordered) }, nil, 1},
		{"same run key, other format: goes on", func(_ *world, s *Submission) {
			s.File, s.Format = strings.NewReader(asNDJSON), file.FormatNDJSON
		}, nil, 1},
		{"same run key, submitted by somebody else: goes on", func(w *world, s *Submission) { s.By = w.people["oscar"] }, nil, 1},
		{"same run key, other content", func(_ *world, s *Submission) { s.File = strings.NewReader(otherRows) }, ErrOtherContent, 1},
		{"same run key, a row less", func(_ *world, s *Submission) {
			s.File = strings.NewReader(twoRows[:strings.LastIndex(twoRows, "r2")])
		}, ErrOtherContent, 1},
		{"same run key, a row twice", func(_ *world, s *Submission) {
			s.File, s.DuplicatesReason = strings.NewReader(twoRows+strings.Replace(twoRows[strings.LastIndex(twoRows, "r2"):], "r2", "r3", 1)), "two salaries"
		}, ErrOtherContent, 1},
		{"same run key, other start", func(_ *world, s *Submission) { s.Read.NotBefore = s.Read.NotBefore.AddDate(2040, 0, 0) }, ErrOtherContent, 1},
		{"same run key, other source", func(_ *world, s *Submission) { s.Read.Source = "wallet" }, ErrOtherContent, 1},
		{"same run key, other route", func(_ *world, s *Submission) { s.Read.Route = "gbp-chaps" }, ErrOtherContent, 1},
		{"other run key, other route", func(_ *world, s *Submission) { s.RunKey, s.Read.Route = "run-2", "gbp-chaps" }, ErrSameContent, 1},
		{"other run key, other source", func(_ *world, s *Submission) { s.RunKey, s.Read.Source = "run-2", "wallet" }, ErrSameContent, 1},
		{"other run key, same file", func(_ *world, s *Submission) { s.RunKey = "run-2" }, ErrSameContent, 1},
		{"other run key, other order", func(_ *world, s *Submission) { s.RunKey, s.File = "run-2", strings.NewReader(reordered) }, ErrSameContent, 1},
		{"other run key, other format", func(_ *world, s *Submission) {
			s.RunKey, s.File, s.Format = "run-2", strings.NewReader(asNDJSON), file.FormatNDJSON
		}, ErrSameContent, 1},
		{"other run key, other start of the run", func(_ *world, s *Submission) {
			s.RunKey, s.Read.NotBefore = "run-2", s.Read.NotBefore.AddDate(2040, 0, 0)
		}, ErrSameContent, 1},
		{"no run key", func(_ *world, s *Submission) { s.RunKey = "" }, ErrRunKey, 1},
		{"a run key with a space", func(_ *world, s *Submission) { s.RunKey = "run 2" }, ErrRunKey, 1},
		{"other run key, other content", func(_ *world, s *Submission) { s.RunKey, s.File = "run-2", strings.NewReader(otherRows) }, nil, 2},
		{"other run key, same file, again: waits for a second person", func(_ *world, s *Submission) {
			s.RunKey, s.AgainReason = "run-3", "bonus"
		}, operate.ErrWaiting, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := w.submission("run-1", twoRows)
			c.change(w, &s)
			dry := s
			text := new(strings.Builder)
			if _, err := s.File.(*strings.Reader).WriteTo(text); err != nil {
				t.Fatal(err)
			}
			s.File, dry.File, dry.DryRun = strings.NewReader(text.String()), strings.NewReader(text.String()), true
			tried, err := w.Submit(t.Context(), dry)
			if want := c.want; errors.Is(want, operate.ErrWaiting) && (err != nil || !tried.Waits) || !errors.Is(want, operate.ErrWaiting) && !errors.Is(err, want) {
				t.Errorf("dry run: %v, waits %v; want %v", err, tried.Waits, want)
			}
			known := value[int64](w, `SELECT count(*) FROM batch_runs`)
			out, err := w.Submit(t.Context(), s)
			w.want(c.runs, `SELECT count(*) FROM batch_runs`)
			if known > c.runs {
				t.Errorf("the dry run left %d runs", known)
			}
			if !errors.Is(err, c.want) {
				t.Fatalf("submit: %v, want %v", err, c.want)
			}
			if err == nil && s.RunKey == "run-1" {
				w.enqueue(out.Run)
				w.want(2, `SELECT count(*) FROM operations`)
			}
			if after := w.keys(run); len(before) != 2 || !maps.Equal(before, after) {
				t.Errorf("keys before %v, after %v", before, after)
			}
			w.want(0, `SELECT count(*) FROM batch_parts p WHERE NOT EXISTS (SELECT FROM batch_runs r WHERE r.id = p.run_id)`)
		})
	}
}

// TestJ11_SameListAgainOnlyWithASecondPerson: a new run key pays again, and only with the word of two people.
func TestJ11_SameListAgainOnlyWithASecondPerson(t *testing.T) {
	w := newWorld(t, operate.Options{})
	w.enqueue(w.submit("november", twoRows))
	s := w.submission("december", twoRows)
	s.AgainReason = "the salaries of December"
	if _, err := w.Submit(t.Context(), s); !errors.Is(err, operate.ErrWaiting) {
		t.Fatalf("submit again: %v, want it to wait", err)
	}
	if _, _, err := w.Approve(t.Context(), "december", w.people["ada"], "checked", false); err != nil {
		t.Fatal(err)
	}
	out, err := w.Release(t.Context(), "december", w.people["olga"], "goes on", WalkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.enqueue(out.Run)
	w.want(4, `SELECT count(*) FROM operations`)
	w.want(4, `SELECT count(DISTINCT key) FROM operations`)
	if _, err := w.Submit(t.Context(), w.submission("january", twoRows)); !errors.Is(err, ErrSameContent) {
		t.Errorf("a third time without a word: %v", err)
	}
}

// TestJ5_TwoHonestEqualRowsAreBothPaid: they need a word, and none is dropped.
func TestJ5_TwoHonestEqualRowsAreBothPaid(t *testing.T) {
	w := newWorld(t, operate.Options{})
	row := "cust-1,10.00,GBP,A N Example,GB33BUKB20201555555555\n"
	text := "debtor_account,amount,currency,name,iban\n" + row + row
	out, err := w.Submit(t.Context(), w.submission("run-1", text))
	if !errors.Is(err, ErrDuplicates) || out.Report.DuplicateSets != 1 || out.Report.DuplicateRows != 1 {
		t.Fatalf("submit: %v, report %+v", err, out.Report)
	}
	w.want(0, `SELECT (SELECT count(*) FROM batch_runs) + (SELECT count(*) FROM batch_parts)`)
	s := w.submission("run-1", text)
	s.DuplicatesReason = "two shifts"
	if out, err = w.Submit(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.enqueue(out.Run)
	w.want(2, `SELECT count(DISTINCT key) FROM operations`)
	w.want(1, `SELECT count(*) FROM batch_runs WHERE duplicates = 1 AND duplicates_reason = 'two shifts'`)
}

// TestJ7_SwappedColumnsAreRefused and nothing of the file is kept.
func TestJ7_SwappedColumnsAreRefused(t *testing.T) {
	w := newWorld(t, operate.Options{})
	swapped := strings.Replace(twoRows, "amount,currency,name,iban", "currency,amount,iban,name", 1)
	out, err := w.Submit(t.Context(), w.submission("run-1", swapped))
	if !errors.Is(err, ErrFaulty) || len(out.Report.Faults) == 0 {
		t.Errorf("submit: %v, faults %v", err, out.Report.Faults)
	}
	bad := csvRows(9) + "r10,cust-10,1.9E+18,GBP,A N Example,GB33BUKB20201555555555\n" // the last row: parts of the others were written
	if out, err = w.Submit(t.Context(), w.submission("run-1", bad)); !errors.Is(err, ErrFaulty) || out.Report.Bad != 1 {
		t.Errorf("submit: %v, %d bad rows", err, out.Report.Bad)
	}
	w.want(0, `SELECT (SELECT count(*) FROM batch_runs) + (SELECT count(*) FROM batch_parts) + (SELECT count(*) FROM operations)`)
}

// TestSubmit_TwoAtOnceAreOneRun: both find the same run, and each row is one operation.
func TestSubmit_TwoAtOnceAreOneRun(t *testing.T) {
	for _, c := range []struct {
		name   string
		second func(s *Submission)
		want   error
	}{
		{"same run key", func(*Submission) {}, nil},
		{"other run key", func(s *Submission) { s.RunKey = "run-2" }, ErrSameContent},
		{"same run key, other content", func(s *Submission) { s.File = strings.NewReader(csvRows(4)) }, ErrOtherContent},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, operate.Options{})
			subs := []Submission{w.submission("run-1", csvRows(5)), w.submission("run-1", csvRows(5))}
			subs[1].By = w.people["oscar"]
			c.second(&subs[1])
			errs := make([]error, 2)
			runs := make([]Run, 2)
			var both sync.WaitGroup
			for i := range subs {
				both.Go(func() {
					out, err := w.Submit(t.Context(), subs[i])
					if runs[i] = out.Run; err == nil {
						err = w.Enqueue(t.Context(), out.Run, EnqueueOptions{})
					}
					errs[i] = err
				})
			}
			both.Wait()
			w.want(1, `SELECT count(*) FROM batch_runs`)
			w.want(0, `SELECT count(*) FROM batch_parts`)
			rows := value[int64](w, `SELECT rows::int8 FROM batch_runs`)
			w.want(rows, `SELECT count(*) FROM operations`)
			w.want(rows, `SELECT count(*) FROM batch_rows`)
			failed := errors.Join(errs...)
			if !errors.Is(failed, c.want) || errs[0] != nil && errs[1] != nil {
				t.Errorf("errors %v, want at most one, %v", errs, c.want)
			}
			if c.want == nil && runs[0].ID != runs[1].ID {
				t.Errorf("two runs: %s and %s", runs[0].ID, runs[1].ID)
			}
		})
	}
}
