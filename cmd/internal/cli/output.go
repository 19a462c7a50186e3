package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/mattn/go-isatty"
)

// Format is how data is written.
type Format string

// The formats of -o.
const (
	FormatTable Format = "table"
	FormatJSON  Format = "json"
	FormatJSONL Format = "jsonl"
	FormatCSV   Format = "csv"
)

// Formats lists them for help and completion.
func Formats() []string {
	return []string{string(FormatTable), string(FormatJSON), string(FormatJSONL), string(FormatCSV)}
}

// ParseFormat reads the value of -o.
func ParseFormat(text string) (Format, error) {
	if !slices.Contains(Formats(), text) {
		return "", Exit(Usage, fmt.Errorf("-o must be one of %s", strings.Join(Formats(), ", ")))
	}
	return Format(text), nil
}

// Printer writes a command's data to Out.
type Printer struct {
	Out    io.Writer
	Aside  io.Writer // what is no data, as that a table has no rows. Default: not said
	Format Format
	Color  bool

	Headless bool // CSV goes on with what was written before: no header
}

// Colored reports whether out is a terminal that wants colour.
func Colored(out io.Writer, lookup func(string) (string, bool)) bool {
	if text, ok := lookup("NO_COLOR"); ok && text != "" {
		return false
	}
	if text, _ := lookup("TERM"); text == "dumb" {
		return false
	}
	f, ok := out.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// Table is rows of one type, with the columns that a table or CSV shows of it. JSON shows the row itself.
type Table[T any] struct {
	Columns []string
	Cells   func(T) []string
	Rows    []T
}

// List writes many rows: a JSON array, or one line per row.
func List[T any](p Printer, t Table[T]) error {
	switch p.Format {
	case FormatJSON:
		rows := t.Rows
		if rows == nil {
			rows = []T{}
		}
		return writeJSON(p.Out, rows, true)
	case FormatJSONL:
		for _, row := range t.Rows {
			if err := writeJSON(p.Out, row, false); err != nil {
				return err
			}
		}
		return nil
	case FormatCSV:
		return writeCSV(p, t)
	default:
		return writeTable(p, t)
	}
}

// One writes a single row: a JSON object; as a table, one line per field.
func One[T any](p Printer, t Table[T]) error {
	if len(t.Rows) != 1 {
		panic("One writes exactly one row")
	}
	switch p.Format {
	case FormatJSON:
		return writeJSON(p.Out, t.Rows[0], true)
	case FormatJSONL, FormatCSV:
		return List(p, t)
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	for i, cell := range t.Cells(t.Rows[0]) {
		if cell != "" {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", t.Columns[i], Clean(cell))
		}
	}
	return w.Flush()
}

func writeJSON(out io.Writer, v any, indent bool) error {
	options := []json.Options{json.Deterministic(true)}
	if indent {
		options = append(options, jsontext.WithIndent("  "))
	}
	raw, err := json.Marshal(v, options...)
	if err != nil {
		return fmt.Errorf("render JSON: %w", err)
	}
	_, err = out.Write(append(raw, '\n'))
	return err
}

// writeCSV writes for machines: cells as they are, one header.
func writeCSV[T any](p Printer, t Table[T]) error {
	w := csv.NewWriter(p.Out)
	if !p.Headless {
		if err := w.Write(t.Columns); err != nil {
			return err
		}
	}
	for _, row := range t.Rows {
		if err := w.Write(t.Cells(row)); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// writeTable writes for people: a column that says nothing of any row is left out.
func writeTable[T any](p Printer, t Table[T]) error {
	if len(t.Rows) == 0 {
		if p.Aside != nil {
			_, _ = fmt.Fprintln(p.Aside, "none")
		}
		return nil
	}
	rows := make([][]string, len(t.Rows))
	speaks := make([]bool, len(t.Columns))
	for i, row := range t.Rows {
		rows[i] = t.Cells(row)
		for k, cell := range rows[i] {
			speaks[k] = speaks[k] || cell != ""
		}
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	line := func(cell func(k int) string) {
		var cells []string
		for k, column := range t.Columns {
			switch {
			case speaks[k] && p.Color && paintable(column):
				cells = append(cells, paint(cell(k)))
			case speaks[k]:
				cells = append(cells, cell(k))
			}
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	line(func(k int) string { return strings.ToUpper(strings.ReplaceAll(t.Columns[k], "_", " ")) })
	for _, row := range rows {
		line(func(k int) string { return Clean(row[k]) })
	}
	return w.Flush()
}

func paintable(column string) bool { return column == "state" || column == "result" }

// paint colours a word. Every code has the same length, because the table is aligned by bytes.
func paint(word string) string {
	code := "\x1b[39m"
	switch word {
	case "ok", "authorized":
		code = "\x1b[32m"
	case "warn", "open", "claimed":
		code = "\x1b[33m"
	case "fail", "parked", "rejected":
		code = "\x1b[31m"
	}
	return code + word + "\x1b[0m"
}

// Clean makes text safe for a terminal: control and format characters are shown as escapes.
func Clean(text string) string {
	if strings.IndexFunc(text, unsafeRune) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unsafeRune(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func unsafeRune(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar
}
