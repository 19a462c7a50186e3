package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/cmd/internal/batch/file"
	"github.com/paidonce/paidonce/cmd/internal/operate"
)

const referred = "row_ref,debtor_account,amount,currency,name,iban,reference\n"

// try submits with a dry run and then in earnest, which must come to the same; and whoever is refused leaves nothing.
func (w *world) try(s Submission, want error) error {
	w.t.Helper()
	text, err := io.ReadAll(s.File)
	if err != nil {
		w.t.Fatal(err)
	}
	const kept = `SELECT count(*) FROM (SELECT run_id FROM batch_parts UNION ALL SELECT run_id FROM batch_sums UNION ALL SELECT id FROM batch_runs) AS kept`
	before := value[int64](w, kept)
	dry := s
	s.File, dry.File, dry.DryRun = strings.NewReader(string(text)), strings.NewReader(string(text)), true
	if _, err := w.Submit(w.t.Context(), dry); !errors.Is(err, want) && !errors.Is(want, operate.ErrWaiting) {
		w.t.Errorf("dry run of %s: %v, want %v", s.RunKey, err, want)
	}
	w.want(before, kept)
	_, err = w.Submit(w.t.Context(), s)
	if !errors.Is(err, want) {
		w.t.Errorf("submit %s: %v, want %v", s.RunKey, err, want)
	}
	if errors.Is(want, ErrOverlap) {
		w.want(before, kept)
	}
	return err
}

// TestOverlap_RowsOfAnotherRun: the same payments in a second export are refused, and told from others that have something in common with them.
func TestOverlap_RowsOfAnotherRun(t *testing.T) {
	w := newWorldAs(t, operate.Options{}, Options{PartRows: 2, Workers: 2})
	first := referred + "a,c-1,10.00,GBP,A N Example,GB33BUKB20201555555555,One\n" + "b,c-2,20.00,GBP,B Example,GB33BUKB20201555555555,Two\n" +
		"c,c-3,500,JPY,C Example,GB33BUKB20201555555555,Three\n" + "d,c-4,40.00,GBP,D Example,GB33BUKB20201555555555,Four\n" + ",c-5,50.00,GBP,E Example,GB33BUKB20201555555555,Five\n"
	w.enqueue(w.submit("first", first)) // its parts are gone
	w.want(2, `SELECT count(*) FROM batch_sums`)
	w.want(32, `SELECT sum(octet_length(sums)) FROM batch_sums`)
	for i, c := range []struct {
		name, rows string
		want       error
		says       string
	}{
		{"all and one more", strings.TrimPrefix(first, referred) + "n,c-9,1.00,GBP,N Example,GB33BUKB20201555555555,Nine\n", ErrOverlap, "4 in run first, submitted by olga at 20%(lines 2, 3, 4 and 1 more of the file)%--again"},
		{"one of them", "n,c-9,1.00,GBP,N Example,GB33BUKB20201555555555,Nine\nb,c-2,20.00,GBP,B Example,GB33BUKB20201555555555,Two\n", ErrOverlap, "1 in run first,%(line 3 of the file)"},
		{"another name and another account that is debited", "b,c-7,20.00,GBP,B N Example,GB33BUKB20201555555555,Two\n", ErrOverlap, "(line 2 of the file)"},
		{"another row_ref", "b2,c-2,20.00,GBP,B Example,GB33BUKB20201555555555,Two\n", nil, ""},
		{"another amount", "b,c-2,20.01,GBP,B Example,GB33BUKB20201555555555,Two\n", nil, ""},
		{"another currency", "c,c-3,5.00,GBP,C Example,GB33BUKB20201555555555,Three\n", nil, ""}, // as many minor units
		{"another account", "b,c-2,20.00,GBP,B Example,GB94BARC10201530093459,Two\n", nil, ""},
		{"another reference", "b,c-2,20.00,GBP,B Example,GB33BUKB20201555555555,Three\n", nil, ""},
		{"without a row_ref", ",c-5,50.00,GBP,E Example,GB33BUKB20201555555555,Five\n,c-6,60.00,GBP,F Example,GB33BUKB20201555555555,Six\n", nil, ""},
	} {
		err := w.try(w.submission(fmt.Sprint("run-", i), referred+c.rows), c.want)
		for part := range strings.SplitSeq(c.says, "%") {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want it to say %q", c.name, err, part)
			}
		}
		if t.Failed() {
			t.Fatal(c.name)
		}
	}
	other := w.submission("other-source", referred+"n,c-9,1.00,GBP,N Example,GB33BUKB20201555555555,Nine\n"+"b,c-2,20.00,GBP,B Example,GB33BUKB20201555555555,Two\n")
	other.Read.Source = "wallet"
	_ = w.try(other, nil)
	again := w.submission("again", referred+"n,c-9,1.01,GBP,N Example,GB33BUKB20201555555555,Nine\n"+"b,c-2,20.00,GBP,B Example,GB33BUKB20201555555555,Two\n")
	again.AgainReason = "the first one was lost at the bank"
	_ = w.try(again, operate.ErrWaiting)
	w.want(1, `SELECT count(*) FROM proposals WHERE target = 'again' AND position(convert_to('"again":true', 'UTF8') IN content) > 0`)
}

// TestOverlap_OfWhichRuns: those within the window that pay, or may have paid.
func TestOverlap_OfWhichRuns(t *testing.T) {
	w := newWorldAs(t, operate.Options{Limits: wide()}, Options{PartRows: 4, Workers: 2})
	w.submit("first", csvRows(2))
	_ = w.try(w.submission("second", csvRows(3)), ErrOverlap) // of a run that is not enqueued yet
	same := w.submission("same", csvRows(2))
	own := w.compared(&same)
	report, err := file.Check(t.Context(), same.File, same.Format, same.Read, file.CheckOptions{Each: own.addRow})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.refuseOverlap(t.Context(), w.pool, same, report.ContentDigest, own); err != nil {
		t.Errorf("a run with the same content, which is refused as such: %v", err)
	}
	if _, err := w.Cancel(t.Context(), "first", w.people["olga"], "wrong file", false); err != nil {
		t.Fatal(err)
	}
	_ = w.try(w.submission("second", csvRows(3)), nil) // nothing of the first was begun
	w.enqueue(w.submit("third", rowsOf("third", 2)))
	if _, err := w.Cancel(t.Context(), "third", w.people["olga"], "wrong file", false); err != nil {
		t.Fatal(err)
	}
	_ = w.try(w.submission("fourth", rowsOf("third", 3)), ErrOverlap)
	w.exec(`ALTER TABLE batch_runs DISABLE TRIGGER USER`)
	w.exec(`UPDATE batch_runs SET at = at - interval '119 h'`)
	_ = w.try(w.submission("fourth", rowsOf("third", 3)), ErrOverlap)
	w.exec(`UPDATE batch_runs SET at = at - interval '2 h'`)
	w.exec(`ALTER TABLE batch_runs ENABLE TRIGGER USER`)
	_ = w.try(w.submission("fourth", rowsOf("third", 3)), nil)
	_ = w.try(w.submission("fifth", rowsOf("third", 4)), ErrOverlap)
	w.opt.OverlapWindow = -1
	_ = w.try(w.submission("fifth", rowsOf("third", 4)), nil)
}

// TestOverlap_EveryRowIsFound however many parts they lie in, and in whatever order.
func TestOverlap_EveryRowIsFound(t *testing.T) {
	w := newWorldAs(t, operate.Options{Limits: wide()}, Options{Workers: 2})
	for _, rows := range []int{1, 64} {
		w.opt.PartRows = rows
		label := fmt.Sprint("parts-of-", rows)
		w.submit(label, rowsOf(label, 40))
		if err := w.try(w.submission("more", rowsOf(label, 41)), ErrOverlap); err != nil && !strings.Contains(err.Error(), "40 in run "+label) {
			t.Error(err)
		}
	}
}

// TestOverlap_TwoAtOnce: whoever comes on record second finds the one before, though it was not there when the rows were compared first.
func TestOverlap_TwoAtOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		at   point // of the one that comes first, where the other is submitted
	}{
		{"the other is on record before this one", pointChecked},
		{"the other comes while this one is not committed", pointRegister},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorldAs(t, operate.Options{Limits: wide()}, Options{PartRows: 4, Workers: 2})
			var begun atomic.Bool
			done := make(chan error, 1)
			w.opt.point = func(_ context.Context, at point) {
				if at != c.at || begun.Swap(true) {
					return
				}
				go func() {
					_, err := w.Submit(t.Context(), w.submission("run-2", csvRows(4)))
					done <- err
				}()
				w.untilEndedOrWaiting(done)
			}
			_, mine := w.Submit(t.Context(), w.submission("run-1", csvRows(3)))
			errs := []error{mine, <-done}
			if c.at == pointRegister {
				errs[0], errs[1] = errs[1], errs[0]
			}
			if !errors.Is(errs[0], ErrOverlap) || errs[1] != nil {
				t.Errorf("the second %v, the first %v", errs[0], errs[1])
			}
			w.want(1, `SELECT count(*) FROM batch_runs`)
			w.want(1, `SELECT count(*) FROM batch_sums`)
		})
	}
}

// untilEndedOrWaiting returns when done has something, or somebody waits for an advisory lock.
func (w *world) untilEndedOrWaiting(done chan error) {
	for len(done) == 0 && value[int64](w, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == 0 {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-w.t.Context().Done():
			return
		}
	}
}

// TestOverlap_SumsAreKept once their run is on record, and go with parts that belong to nobody.
func TestOverlap_SumsAreKept(t *testing.T) {
	w := newWorldAs(t, operate.Options{Limits: wide()}, Options{PartRows: 4, Workers: 2})
	run := w.submit("run-1", csvRows(6))
	w.refused("PO022", `INSERT INTO batch_sums (run_id, part, sums) VALUES ($1, 9, sha256('x'))`, run.ID)
	w.refused("PO022", `DELETE FROM batch_sums`)
	w.refused("42501", `UPDATE batch_sums SET part = 9`)
	w.refused("42501", `TRUNCATE batch_sums`)
	wantRefusal(t, "by the owner", func() error { _, err := w.owner.Exec(t.Context(), `UPDATE batch_sums SET part = 9`); return err }(), "PO009")
	w.exec(`INSERT INTO batch_parts (run_id, part, first_n, rows, body, at) VALUES ($1, 0, 1, 9, '', now() - interval '2 days')`, uuid.UUID{1})
	w.exec(`INSERT INTO batch_sums (run_id, part, sums) VALUES ($1, 0, sha256('x'))`, uuid.UUID{1})
	if err := w.removeOrphans(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.want(2, `SELECT count(*) FROM batch_parts`)
	w.want(2, `SELECT count(*) FROM batch_sums`)
}
