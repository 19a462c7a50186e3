package batch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/batch/file"
)

const (
	sumDomain = "paidonce/batch/row/1" // separates these hashes from every other use of SHA-256
	sumBytes  = 8                      // of each: two rows that are not the same are taken for it once in 10^13 comparisons of a row with a million
	sumsPage  = 32                     // parts whose sums are read at once: 1 MB
	linesTold = 3
)

// rowSum is what a row is known by in another run, and where it is in its own file.
type rowSum struct {
	sum  uint64
	line int
}

// ownSums are those of a file that is submitted. Filled by several, and compared by one.
type ownSums struct {
	on     bool // they are compared
	mu     sync.Mutex
	parts  [][]rowSum
	rows   []rowSum    // all of them, sorted
	looked []uuid.UUID // runs in which none of them is
}

// compared begins the sums of a submission. Whoever says that payments are made again has a second person who looks.
func (s *Service) compared(sub *Submission) *ownSums {
	return &ownSums{on: s.opt.OverlapWindow > 0 && sub.AgainReason == ""}
}

func (o *ownSums) add(sums []rowSum) {
	if !o.on || len(sums) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parts = append(o.parts, sums)
}

// addRow takes a row of a file that is not staged.
func (o *ownSums) addRow(row *file.Row) error {
	if o.on && row.RowRef != "" {
		sum, _ := sumOf(nil, row)
		o.rows = append(o.rows, rowSum{sum, row.Line})
	}
	return nil
}

// sorted gives all of them.
func (o *ownSums) sorted() []rowSum {
	if len(o.parts) > 0 {
		o.rows, o.parts = slices.Concat(o.parts...), nil
	}
	slices.SortFunc(o.rows, bySum)
	return o.rows
}

func bySum(a, b rowSum) int { return cmp.Compare(a.sum, b.sum) }

// sumsOf gives the sums of the rows that their author has named, sorted.
func sumsOf(rows []file.Row) []rowSum {
	sums := make([]rowSum, 0, len(rows))
	var b []byte
	for i := range rows {
		if rows[i].RowRef == "" {
			continue
		}
		var sum uint64
		sum, b = sumOf(b, &rows[i])
		sums = append(sums, rowSum{sum, rows[i].Line})
	}
	slices.SortFunc(sums, bySum)
	return sums
}

// sumOf hashes what two rows have alike that are one payment in two exports: the first bytes do, since whoever forces two of them together has only made
// his own file look worse. The memory of b is used again.
func sumOf(b []byte, row *file.Row) (uint64, []byte) {
	j := &row.Job
	b = appendText(b[:0], sumDomain)
	b = appendText(b, j.Source)
	b = appendText(b, row.RowRef)
	b = binary.AppendVarint(b, j.Amount.Minor)
	b = appendText(b, j.Amount.Currency)
	b = appendText(b, j.Reference.Reveal())
	b = file.AppendAccount(b, &j.Beneficiary) // last, since it has no length before it
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:]), b
}

func packSums(sums []rowSum) []byte {
	b := make([]byte, 0, sumBytes*len(sums))
	for _, s := range sums {
		b = binary.BigEndian.AppendUint64(b, s.sum)
	}
	return b
}

// lock has those whose rows are compared come on record one after the other, source by source, so that each finds the run of the one before.
func (o *ownSums) lock(ctx context.Context, tx pgx.Tx, source string) error {
	if !o.on {
		return nil
	}
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('paidonce batch source ' || $1, 0))`, source)
	return err
}

// refuseOverlap finds another run of the source, of the last days, that has rows of the file, and others. One that has the same came after
// refuseSameContent had looked, which looks again. Runs that it has looked at once it does not look at again.
func (s *Service) refuseOverlap(ctx context.Context, db querier, sub Submission, content [32]byte, own *ownSums) error {
	if !own.on || len(own.sorted()) == 0 {
		return nil
	}
	if own.looked == nil {
		own.looked = []uuid.UUID{}
	}
	runs, err := read(ctx, s, db, scanRun, `SELECT `+runColumns+` FROM batch_runs r WHERE source = $1 AND run_key <> $2 AND content_digest <> $5
   AND at > now() - $3::int8 * interval '1 ms' AND id <> ALL ($4::uuid[]) AND NOT `+paysNothing+` ORDER BY at, id`,
		sub.Read.Source, sub.RunKey, s.opt.OverlapWindow.Milliseconds(), own.looked, content[:])
	if err != nil {
		return fmt.Errorf("look for runs that may have rows of the file: %w", err)
	}
	for i := range runs {
		lines, err := s.linesIn(ctx, db, runs[i].ID, own.rows)
		if err != nil {
			return fmt.Errorf("compare with the rows of run %s: %w", runs[i].RunKey, err)
		}
		if len(lines) > 0 {
			return overlapError(&runs[i], lines)
		}
		own.looked = append(own.looked, runs[i].ID)
	}
	return nil
}

// linesIn gives the lines of the rows that a run has too, in the order of the file.
func (s *Service) linesIn(ctx context.Context, db querier, run uuid.UUID, own []rowSum) (lines []int, err error) {
	type page struct {
		part int
		sums []byte
	}
	var hit []bool
	for after := -1; ; {
		pages, err := read(ctx, s, db, func(row pgx.CollectableRow) (p page, err error) { return p, row.Scan(&p.part, &p.sums) },
			`SELECT part, sums FROM batch_sums WHERE run_id = $1 AND part > $2 ORDER BY part LIMIT $3`, run, after, sumsPage)
		if err != nil {
			return nil, err
		}
		if len(pages) == 0 {
			break
		}
		for _, p := range pages {
			hit = markAll(hit, own, p.sums)
			after = p.part
		}
	}
	for i := range hit {
		if hit[i] {
			lines = append(lines, own[i].line)
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// markAll marks the rows whose sums are among those of a part. Both are sorted, so that it goes through the rows once.
func markAll(hit []bool, own []rowSum, sums []byte) []bool {
	from := 0
	for ; len(sums) >= sumBytes; sums = sums[sumBytes:] {
		sum := binary.BigEndian.Uint64(sums)
		at, found := slices.BinarySearchFunc(own[from:], sum, func(r rowSum, sum uint64) int { return cmp.Compare(r.sum, sum) })
		from += at
		if !found {
			continue
		}
		if hit == nil {
			hit = make([]bool, len(own))
		}
		for i := from; i < len(own) && own[i].sum == sum; i++ { // the EndToEndId of pain.001 may be in many rows
			hit[i] = true
		}
	}
	return hit
}

func overlapError(run *Run, lines []int) error {
	told := make([]string, 0, linesTold)
	for _, line := range lines[:min(len(lines), linesTold)] {
		told = append(told, strconv.Itoa(line))
	}
	where := "line"
	if len(lines) > 1 {
		where = "lines"
	}
	more := ""
	if len(lines) > linesTold {
		more = fmt.Sprintf(" and %d more", len(lines)-linesTold)
	}
	return fmt.Errorf("%w: %d in run %s, submitted by %s at %s, with the same row_ref, amount, account and reference (%s %s%s of the file). Leave them out; "+
		"or, to pay them again all the same: --again with the reason; a second person has to agree",
		ErrOverlap, len(lines), run.RunKey, run.By, stamp(run.At), where, strings.Join(told, ", "), more)
}
