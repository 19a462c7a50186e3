package file

import (
	"bufio"
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// WriteText writes a report for people: what was read, what is wrong and what to do about it, what stands twice. It has no value of any row in it but
// amounts.
func (r *Report) WriteText(w io.Writer) error {
	out := bufio.NewWriter(w)
	state := "the file is good"
	switch {
	case !r.Complete:
		state = "the file is refused, and was not read to its end"
	case r.FaultCount > 0:
		state = "the file is refused"
	}
	fmt.Fprintf(out, "%s: %s\n\n", r.Format, state)
	fmt.Fprintf(out, "rows       %d, %d of them bad\n", r.Rows, r.Bad)
	fmt.Fprintf(out, "sum        %s\n", sumsText(r.Sums))
	if r.Trailer != nil {
		fmt.Fprintf(out, "trailer    %d rows, %s\n", r.Trailer.Rows, sumsText(r.Trailer.Sums))
	}
	fmt.Fprintf(out, "size       %d bytes\n", r.Bytes)
	fmt.Fprintf(out, "digest     %s\n", hex.EncodeToString(r.Digest[:]))
	fmt.Fprintf(out, "content    %s\n", hex.EncodeToString(r.ContentDigest[:]))
	r.writeFaults(out)
	r.writeDuplicates(out)
	return out.Flush()
}

func (r *Report) writeFaults(out *bufio.Writer) {
	if r.FaultCount == 0 {
		return
	}
	fmt.Fprintf(out, "\n%d %s\n", r.FaultCount, plural(r.FaultCount, "fault", "faults"))
	lineWidth, columnWidth, codeWidth := 4, 6, 4
	for _, f := range r.Faults {
		lineWidth, columnWidth, codeWidth = max(lineWidth, len(strconv.Itoa(f.Line))), max(columnWidth, utf8.RuneCountInString(f.place())), max(codeWidth, len(f.Code))
	}
	columnWidth = min(columnWidth, 40)
	fmt.Fprintf(out, "  %*s  %-*s  %-*s  %s\n", lineWidth, "line", columnWidth, "column", codeWidth, "code", "what is wrong")
	for _, f := range r.Faults {
		line := "-"
		if f.Line > 0 {
			line = strconv.Itoa(f.Line)
		}
		fmt.Fprintf(out, "  %*s  %-*s  %-*s  %s\n", lineWidth, line, columnWidth, f.place(), codeWidth, f.Code, f.Message)
		fmt.Fprintf(out, "  %*s  > %s\n", lineWidth, "", f.Hint)
	}
	if rest := r.FaultCount - len(r.Faults); rest > 0 {
		fmt.Fprintf(out, "  and %d more; all by code:\n", rest)
		codes := slices.SortedFunc(maps.Keys(r.FaultsByCode), func(a, b string) int {
			return cmp.Or(cmp.Compare(r.FaultsByCode[b], r.FaultsByCode[a]), cmp.Compare(a, b))
		})
		for _, code := range codes {
			fmt.Fprintf(out, "  %8d  %s\n", r.FaultsByCode[code], code)
		}
	}
}

// place is the column, and the cell when the column has no name.
func (f *Fault) place() string {
	switch {
	case f.Column != "" && f.Cell > 0:
		return f.Column + " (" + strconv.Itoa(f.Cell) + ")"
	case f.Cell > 0:
		return "cell " + strconv.Itoa(f.Cell)
	case f.Column == "":
		return "-"
	}
	return f.Column
}

func (r *Report) writeDuplicates(out *bufio.Writer) {
	if r.DuplicateSets == 0 {
		return
	}
	fmt.Fprintf(out, "\n%d %s the account, amount and day of an earlier one. If they are meant, say so when you submit the file.\n", r.DuplicateRows,
		plural(r.DuplicateRows, "row has", "rows have"))
	for _, d := range r.Duplicates {
		lines := make([]string, len(d.Lines))
		for i, line := range d.Lines {
			lines[i] = strconv.Itoa(line)
		}
		text := strings.Join(lines, ", ")
		if rest := d.Count - len(d.Lines); rest > 0 {
			text += fmt.Sprintf(" and %d more", rest)
		}
		fmt.Fprintf(out, "  %d times %s: lines %s\n", d.Count, d.Amount, text)
	}
	if rest := r.DuplicateSets - len(r.Duplicates); rest > 0 {
		fmt.Fprintf(out, "  and %d more groups\n", rest)
	}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
