package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/paidonce/paidonce/ledger/money"
)

// CheckOptions say what a check compares with, and how much of what it finds it keeps. The zero value is a plain check.
type CheckOptions struct {
	MaxFaults     int            // that are kept; the others are counted; 100
	MaxDuplicates int            // groups that are kept; 100
	ExpectRows    int            // 0 = not known
	ExpectSums    []money.Amount // one per currency, all of them; nil = not known
	TempDir       string         // for what is sorted on disk; that of the system
	// Each is called for every good row, in the order of the file, while it is not yet known whether the file is good as a whole: what it does must
	// be undone if it is not. Its error ends the check. nil = none
	Each func(*Row) error
	// Progress is called now and then with what was read so far. nil = none
	Progress func(rows int, bytes int64)

	inMemory int // records of a sorter that are not yet on disk; memoryRecords
}

// Report is all that a check has found.
type Report struct {
	Format        Format
	Rows          int            // good and bad
	Bad           int            // rows
	Sums          []money.Amount // of the rows that are payments, by currency; without those that do not fit, which are a fault
	Trailer       *Totals        // what the file says about itself; nil = nothing
	Faults        []Fault        // the first ones
	FaultCount    int            // all
	FaultsByCode  map[string]int
	Duplicates    []Duplicate // the first ones
	DuplicateSets int         // all groups
	DuplicateRows int         // rows beyond the first of each group
	Complete      bool        // the file was read to its end
	Bytes         int64
	Digest        [32]byte // SHA-256 of the file
	ContentDigest [32]byte // of the payments; see content.go
}

// Good is true for a file without a fault. Whether its duplicates are meant is for a person to say.
func (r *Report) Good() bool { return r.Complete && r.FaultCount == 0 }

const (
	defaultMaxFaults = 100
	rowsPerLook      = 4096 // between two looks at the context
)

// Check reads a whole file. The error is about the reading: whatever is wrong with the file is in the report.
func Check(ctx context.Context, r io.Reader, format Format, opt Options, check CheckOptions) (Report, error) {
	reader, err := Open(r, format, opt)
	if err != nil {
		return Report{}, err
	}
	c := newChecker(format, check)
	defer func() { _ = c.contents.sorter.close(); _ = c.duplicates.sorter.close(); _ = c.refs.sorter.close() }()
	for {
		row, err := reader.Next()
		var fault *Fault
		switch {
		case err == nil:
			err = c.add(&row)
		case errors.As(err, &fault):
			c.fault(fault)
			err = nil
		case errors.Is(err, io.EOF):
			c.report.Complete = true
			return c.finish(reader)
		case errors.Is(err, ErrEnded):
			return c.finish(reader)
		}
		if err != nil {
			return Report{}, fmt.Errorf("check a batch file: %w", err)
		}
		if reader.Rows()%rowsPerLook == 0 {
			if ctx.Err() != nil {
				return Report{}, context.Cause(ctx)
			}
			if check.Progress != nil {
				check.Progress(reader.Rows(), reader.Bytes())
			}
		}
	}
}

// checker gathers the report.
type checker struct {
	opt        CheckOptions
	report     Report
	sums       map[string]int64
	over       map[string]bool // currencies whose sum does not fit
	contents   contents
	duplicates *duplicates
	refs       *refs
}

func newChecker(format Format, opt CheckOptions) *checker {
	if opt.MaxFaults == 0 {
		opt.MaxFaults = defaultMaxFaults
	}
	if opt.MaxDuplicates == 0 {
		opt.MaxDuplicates = defaultMaxFaults
	}
	if opt.inMemory == 0 {
		opt.inMemory = memoryRecords
	}
	return &checker{opt: opt, report: Report{Format: format, FaultsByCode: map[string]int{}}, sums: map[string]int64{}, over: map[string]bool{},
		contents: contents{sorter: newSorter(opt.TempDir, opt.inMemory)}, duplicates: newDuplicates(newSorter(opt.TempDir, opt.inMemory)),
		refs: newRefs(newSorter(opt.TempDir, opt.inMemory), format)}
}

func (c *checker) fault(f *Fault) {
	if f.Row != 0 {
		c.report.Bad++
	}
	c.note(f)
}

func (c *checker) note(f *Fault) {
	c.report.FaultCount++
	c.report.FaultsByCode[f.Code]++
	if len(c.report.Faults) < c.opt.MaxFaults {
		c.report.Faults = append(c.report.Faults, *f)
	}
}

func (c *checker) add(row *Row) error {
	amount := row.Job.Amount
	sum, err := money.Amount{Minor: c.sums[amount.Currency], Currency: amount.Currency}.Add(amount)
	switch {
	case err == nil:
		c.sums[amount.Currency] = sum.Minor
	case !c.over[amount.Currency]:
		c.over[amount.Currency] = true
		c.note(&Fault{Line: row.Line, Column: "amount", Code: "sum_range", Message: "the sum of the rows up to here does not fit 64 bits of minor units",
			Hint: "no run pays so much: look for an amount that is wrong, or split the file"})
	}
	if err := c.contents.add(row); err != nil {
		return err
	}
	if err := c.duplicates.add(row); err != nil {
		return err
	}
	if err := c.refs.add(row); err != nil {
		return err
	}
	if c.opt.Each != nil {
		return c.opt.Each(row)
	}
	return nil
}

// finish compares the totals, and completes the report.
func (c *checker) finish(reader *Reader) (Report, error) {
	report := &c.report
	report.Rows, report.Trailer = reader.Rows(), reader.Trailer()
	for currency, minor := range c.sums {
		if c.over[currency] {
			continue
		}
		report.Sums = append(report.Sums, money.Amount{Minor: minor, Currency: currency})
	}
	sortSums(report.Sums)
	repeated, err := c.noteRepeated(reader.source.refColumn())
	if err != nil {
		return Report{}, err
	}
	if report.Complete {
		c.compare()
	}
	report.Bad += repeated // behind the comparison of the sums, in which they are
	if report.Digest, err = reader.Digest(); err != nil {
		return Report{}, fmt.Errorf("read a batch file: %w", err)
	}
	report.Bytes = reader.Bytes()
	if report.ContentDigest, err = c.contents.sum(); err != nil {
		return Report{}, err
	}
	report.Duplicates, report.DuplicateSets, report.DuplicateRows, err = c.duplicates.find(c.opt.MaxDuplicates)
	return *report, err
}

// noteRepeated notes rows that are called like an earlier one, among the other faults in the order of the file. It gives their number.
func (c *checker) noteRepeated(column string, cell int) (int, error) {
	report := &c.report
	list, n, err := c.refs.repeated(c.opt.MaxFaults)
	if err != nil || n == 0 {
		return 0, err
	}
	for _, r := range list {
		report.Faults = append(report.Faults, Fault{Line: r.line, Row: r.row, Column: column, Cell: cell, Code: CodeRowRefTwice,
			Message: fmt.Sprintf("is the reference of line %d too: one payment of your records would be made twice", r.firstLine),
			Hint:    "leave one of the two rows out; if both are meant, give each a reference of its own, or none"})
	}
	slices.SortStableFunc(report.Faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	report.Faults = report.Faults[:min(len(report.Faults), c.opt.MaxFaults)]
	report.FaultCount += n
	report.FaultsByCode[CodeRowRefTwice] += n
	return n, nil
}

// compare judges the totals. Sums are compared only if every row could be read: otherwise they differ, and that says nothing.
func (c *checker) compare() {
	report := &c.report
	if report.Rows == 0 && report.FaultCount == 0 {
		c.note(&Fault{Code: "no_rows", Message: "the file has no payment", Hint: "was it exported completely?"})
	}
	if t := report.Trailer; t != nil {
		c.compareWith("trailer", "the trailer of the file says", t.Rows, t.Sums, true)
	}
	c.compareWith("expected", "the totals that were given with the file say", c.opt.ExpectRows, c.opt.ExpectSums, c.opt.ExpectSums != nil)
}

func (c *checker) compareWith(code, name string, rows int, sums []money.Amount, withSums bool) {
	report := &c.report
	if rows != 0 && rows != report.Rows || rows == 0 && code == "trailer" && report.Rows != 0 {
		c.note(&Fault{Code: code + "_rows", Message: fmt.Sprintf("the file has %d rows, %s %d", report.Rows, name, rows),
			Hint: "rows are missing or stand twice: compare with the system that wrote the file"})
	}
	if !withSums || report.Bad > 0 || len(c.over) > 0 {
		return
	}
	want := slices.Clone(sums)
	if !sortSums(want) {
		c.note(&Fault{Code: code + "_sums", Message: "a currency stands twice: " + name + " two sums of it", Hint: "give one sum per currency"})
		return
	}
	if !slices.Equal(want, report.Sums) {
		c.note(&Fault{Code: code + "_sums", Message: fmt.Sprintf("the rows sum up to %s, %s %s", sumsText(report.Sums), name, sumsText(want)),
			Hint: "an amount or a row is wrong: compare with the system that wrote the file"})
	}
}

func sumsText(sums []money.Amount) string {
	if len(sums) == 0 {
		return "nothing"
	}
	text := ""
	for i, sum := range sums {
		if i > 0 {
			text += " and "
		}
		text += sum.String()
	}
	return text
}
