package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/batch"
	"github.com/paidonce/paidonce/cmd/internal/batch/file"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
)

// batchFile are the flags that say what a file is, and what it should hold.
type batchFile struct {
	template   string
	texts      config.Template // of the flags
	changed    func(flag string) bool
	notBefore  string
	expectRows int
	expectSums []string
	maxFaults  int
}

// batchTexts are the flags in whose place a template may speak, with the setting of it.
func (f *batchFile) batchTexts() []batchText {
	t := &f.texts
	return []batchText{
		{"source", "source", &t.Source, "", "the upstream system that pays (needed, here or in the template)"},
		{"route", "route", &t.Route, "", "the route of rows that name none"},
		{"format", "format", &t.Format, "", "csv, ndjson, pain.001.001.03 or pain.001.001.09 (default: told from the file)"},
		{"delimiter", "delimiter", &t.Delimiter, ",", "CSV: between cells; tab for a tabulator"},
		{"decimal", "decimal_mark", &t.DecimalMark, ".", "CSV: the decimal mark"},
		{"thousands", "thousands_mark", &t.ThousandsMark, "", "CSV: between groups of three digits (default: nothing may stand there)"},
		{"columns", "columns", &t.Columns, "", "CSV: the header, exactly: column, HEADER=column, or HEADER=- for one that is passed over (default: the known columns, in their order)"},
		{"trailer", "trailer", &t.Trailer, "", "CSV: first cell of the row that closes the file, as TRAILER; without that row the file is cut off"},
		{"charset", "charset", &t.Charset, "", "sepa: only the Latin letters of the EPC in names and references"},
		{"ignore", "ignore", &t.Ignore, "", "pain.001: elements that may be dropped, as CtgyPurp"},
		{"time-zone", "time_zone", &t.TimeZone, "UTC", "where a date without a time begins, as Europe/Berlin"},
	}
}

type batchText struct {
	flag, setting string
	into          any // *string or *[]string
	fallback      string
	meaning       string
}

func (s *session) batchFileFlags(command *cobra.Command, f *batchFile) {
	flags := command.Flags()
	f.changed = flags.Changed
	flags.StringVar(&f.template, "template", "", "how the file is written, by its name under batch.templates in the configuration; flags go before it")
	for _, one := range f.batchTexts() {
		switch into := one.into.(type) {
		case *string:
			flags.StringVar(into, one.flag, one.fallback, one.meaning)
		case *[]string:
			flags.StringSliceVar(into, one.flag, nil, one.meaning)
		}
	}
	flags.StringVar(&f.notBefore, "not-before", "", "no row is sent before this time, as 2026-12-24T00:00:00Z")
	flags.IntVar(&f.expectRows, "expect-rows", 0, "control total: refuse a file with another number of rows")
	flags.StringArrayVar(&f.expectSums, "expect-sum", nil, "control total, as '98.00 GBP'; one for each currency, all of them")
	flags.IntVar(&f.maxFaults, "max-faults", 100, "faults that are listed; the others are counted")
	var formats []string
	for _, format := range file.Formats() {
		formats = append(formats, string(format))
	}
	s.must(command.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	s.must(command.RegisterFlagCompletionFunc("charset", cobra.FixedCompletions([]string{"sepa"}, cobra.ShellCompDirectiveNoFileComp)))
	s.must(command.RegisterFlagCompletionFunc("columns", cobra.FixedCompletions(file.Columns(), cobra.ShellCompDirectiveNoFileComp)))
	s.must(command.RegisterFlagCompletionFunc("template", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		c, err := s.load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(maps.Keys(c.Batch.Templates)), cobra.ShellCompDirectiveNoFileComp
	}))
}

// said is what the template says, and the flags that were given before it.
func (f *batchFile) said(c *config.Config) (config.Template, error) {
	if f.template == "" {
		return f.texts, nil
	}
	t, err := app.BatchTemplate(c, f.template)
	if err != nil {
		return t, fmt.Errorf("--template: %w", err)
	}
	flags := f.texts
	merged := &batchFile{texts: t}
	for i, one := range merged.batchTexts() {
		if !f.changed(one.flag) {
			continue
		}
		from := &batchFile{texts: flags}
		switch into := one.into.(type) {
		case *string:
			*into = *from.batchTexts()[i].into.(*string) //nolint:forcetypeassert // the same field
		case *[]string:
			*into = *from.batchTexts()[i].into.(*[]string) //nolint:forcetypeassert // the same field
		}
	}
	return merged.texts, nil
}

// openedFile is a file of a batch, ready to be read once.
type openedFile struct {
	bytes   io.Reader
	close   func()
	size    int64 // 0 = not known
	format  file.Format
	columns []string // of the first line, where all of it are known columns
	read    file.Options
	expect  file.CheckOptions
}

// check gives the options of a check that moves a bar: by rows, in relation to how much of the file is read.
func (o *openedFile) check(bar *cli.Bar) file.CheckOptions {
	check := o.expect
	check.Progress = func(rows int, bytes int64) {
		total := int64(0)
		if o.size > 0 && bytes > 0 {
			total = int64(float64(rows) * max(1, float64(o.size)/float64(bytes)))
		}
		bar.Update(int64(rows), total)
	}
	return check
}

func (s *session) openBatchFile(c *config.Config, f *batchFile, name string) (*openedFile, error) {
	o := &openedFile{close: func() {}}
	if err := f.options(c, o); err != nil {
		return nil, cli.Exit(cli.Usage, err)
	}
	in := s.stdin
	if name != "-" {
		opened, err := os.Open(filepath.Clean(name))
		if err != nil {
			return nil, cli.Exit(cli.Usage, fmt.Errorf("open the file: %w", err))
		}
		o.close = func() { _ = opened.Close() } // it was read only
		if info, err := opened.Stat(); err == nil && info.Mode().IsRegular() {
			o.size = info.Size()
		}
		in = opened
	}
	buffered := bufio.NewReaderSize(in, 1<<16)
	o.bytes = buffered
	first, err := buffered.Peek(file.DetectBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		o.close()
		return nil, fmt.Errorf("read the file: %w", err)
	}
	if o.format == "" {
		if o.format, err = file.Detect(first, name); err != nil {
			o.close()
			return nil, cli.Exit(cli.Usage, fmt.Errorf("--format: %w", err))
		}
	}
	if o.format == file.FormatCSV {
		o.columns = columnsOf(first, o.read.Dialect.Delimiter)
	}
	return o, nil
}

// columnsOf reads the header of a CSV file, for a report with the same columns. The check judges it; what is no good header gives none here.
func columnsOf(first []byte, delimiter byte) []string {
	line, _, _ := strings.Cut(strings.TrimPrefix(string(first), "\ufeff"), "\n")
	var columns []string
	for cell := range strings.SplitSeq(strings.TrimSuffix(line, "\r"), string(delimiter)) {
		name := strings.Trim(cell, `"`)
		if !slices.Contains(file.Columns(), name) {
			return nil
		}
		columns = append(columns, name)
	}
	return columns
}

// options checks what template and flags say, and says everything at once.
func (f *batchFile) options(c *config.Config, o *openedFile) error {
	said, err := f.said(c)
	if err != nil {
		return err
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var problems []config.Problem
	o.format, o.read, problems = app.BatchFile(c, said)
	for _, p := range problems {
		flag := ""
		for _, one := range f.batchTexts() {
			if one.setting == p.Path {
				flag = "--" + one.flag + " "
			}
		}
		bad("%s%s", flag, p.Text)
	}
	if !job.ValidName(said.Source) {
		bad("--source must name the upstream system")
	} else if len(c.Sources) > 0 && c.Sources[said.Source] == nil {
		bad("--source: %s is not configured", said.Source)
	}
	if said.Route != "" && !job.ValidName(said.Route) {
		bad("--route is no possible name")
	}
	if f.notBefore != "" {
		if o.read.NotBefore, err = time.Parse(time.RFC3339, f.notBefore); err != nil {
			bad("--not-before must be a time as 2026-12-24T00:00:00Z")
		}
		o.read.NotBefore = o.read.NotBefore.UTC().Truncate(time.Second)
	}
	o.expect = file.CheckOptions{MaxFaults: f.maxFaults, ExpectRows: f.expectRows}
	if f.expectRows < 0 || f.maxFaults < 0 {
		bad("--expect-rows and --max-faults must not be below 0")
	}
	for _, text := range f.expectSums {
		decimal, currency, _ := strings.Cut(text, " ")
		amount, err := money.Parse(decimal, currency)
		if err != nil {
			bad("--expect-sum must be as '98.00 GBP'")
			continue
		}
		o.expect.ExpectSums = append(o.expect.ExpectSums, amount)
	}
	return errors.Join(errs...)
}

func (s *session) checkFile(ctx context.Context, f *batchFile, name, duplicates string) error {
	c, err := s.load()
	if err != nil {
		return err
	}
	in, err := s.openBatchFile(c, f, name)
	if err != nil {
		return err
	}
	defer in.close()
	bar := cli.NewBar(s.stderr, "check")
	report, err := file.Check(ctx, in.bytes, in.format, in.read, in.check(bar))
	bar.End()
	if err != nil {
		return err
	}
	return codeOfRuns(errors.Join(s.showReport(&report), batch.Accepted(&report, duplicates)))
}

// What check prints of a file, as JSON.
type (
	checkRow struct {
		Format        string         `json:"format"`
		Good          bool           `json:"good"`
		Complete      bool           `json:"complete"`
		Rows          int            `json:"rows"`
		Bad           int            `json:"bad"`
		Sums          []sumRow       `json:"sums"`
		Bytes         int64          `json:"bytes"`
		Digest        string         `json:"digest"`
		ContentDigest string         `json:"content_digest"`
		FaultCount    int            `json:"fault_count"`
		FaultsByCode  map[string]int `json:"faults_by_code"`
		Faults        []faultRow     `json:"faults"`
		DuplicateRows int            `json:"duplicate_rows"`
		Duplicates    []twinsRow     `json:"duplicates"`
	}
	sumRow struct {
		Currency string `json:"currency"`
		Amount   string `json:"amount"`
	}
	faultRow struct {
		Line    int    `json:"line"`
		Row     int    `json:"row,omitzero"`
		Column  string `json:"column,omitzero"`
		Cell    int    `json:"cell,omitzero"`
		Code    string `json:"code"`
		Message string `json:"message"`
		Hint    string `json:"hint"`
	}
	twinsRow struct {
		Count    int    `json:"count"`
		Lines    []int  `json:"lines"`
		Amount   string `json:"amount"`
		Currency string `json:"currency"`
	}
)

// showReport prints what a check has found: as text, as one object, or its faults as rows.
func (s *session) showReport(r *file.Report) error {
	p := s.printer()
	faults := make([]faultRow, 0, len(r.Faults))
	for _, f := range r.Faults {
		faults = append(faults, faultRow{f.Line, f.Row, f.Column, f.Cell, f.Code, f.Message, f.Hint})
	}
	switch p.Format {
	case cli.FormatTable:
		return r.WriteText(p.Out)
	case cli.FormatJSON:
		row := checkRow{
			Format: string(r.Format), Good: r.Good(), Complete: r.Complete, Rows: r.Rows, Bad: r.Bad, Sums: []sumRow{}, Bytes: r.Bytes, Digest: hex.EncodeToString(r.Digest[:]),
			ContentDigest: hex.EncodeToString(r.ContentDigest[:]), FaultCount: r.FaultCount, FaultsByCode: r.FaultsByCode, Faults: faults,
			DuplicateRows: r.DuplicateRows, Duplicates: []twinsRow{},
		}
		for _, sum := range r.Sums {
			row.Sums = append(row.Sums, sumRow{sum.Currency, sum.Decimal()})
		}
		for _, d := range r.Duplicates {
			row.Duplicates = append(row.Duplicates, twinsRow{d.Count, d.Lines, d.Amount.Decimal(), d.Amount.Currency})
		}
		return cli.One(p, cli.Table[checkRow]{Rows: []checkRow{row}})
	}
	return cli.List(p, cli.Table[faultRow]{
		Columns: []string{"line", "row", "column", "cell", "code", "message", "hint"},
		Cells: func(f faultRow) []string {
			return []string{fmt.Sprint(f.Line), number(uint64(f.Row)), f.Column, number(uint64(f.Cell)), f.Code, f.Message, f.Hint} //nolint:gosec // both from 0
		},
		Rows: faults,
	})
}
