package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
)

// csvSource reads CSV by RFC 4180, but one row is one line: no value of a payment has a line break, so one inside of quotes is a quote that was
// forgotten, and would swallow the rows behind it.
type csvSource struct {
	lines   *lines
	opt     Options
	dialect Dialect
	header  []column
	names   []string // what the file calls the columns of header
	declare []headerCell
	cells   []string
	closing *Totals // the trailer, once it was read
	dates   dates
}

func newCSV(r io.Reader, opt Options) (*csvSource, error) {
	d := opt.Dialect
	if d.Delimiter == 0 {
		d.Delimiter = ','
	}
	if d.Decimal == 0 {
		d.Decimal = '.'
	}
	switch {
	case strings.IndexByte(",;|\t", d.Delimiter) < 0:
		return nil, errors.New("open a batch file: the delimiter must be one of , ; | and tab")
	case d.Decimal != '.' && d.Decimal != ',':
		return nil, errors.New("open a batch file: the decimal mark must be . or ,")
	case d.Thousands != 0 && strings.IndexByte(".,' ", d.Thousands) < 0:
		return nil, errors.New("open a batch file: the thousands mark must be one of . , ' and space")
	case d.Thousands == d.Decimal:
		return nil, errors.New("open a batch file: decimal mark and thousands mark are the same")
	case strings.ContainsAny(d.Trailer, "\"\r\n") || strings.IndexByte(d.Trailer, d.Delimiter) >= 0:
		return nil, errors.New("open a batch file: the word of the trailer must need no quotes")
	}
	template, err := readTemplate(d.Columns)
	if err != nil {
		return nil, fmt.Errorf("open a batch file: the columns of the template: %w", err)
	}
	return &csvSource{lines: newLines(r), opt: opt, dialect: d, declare: template, dates: dates{location: opt.Location}}, nil
}

func (s *csvSource) trailer() *Totals { return s.closing }

func (s *csvSource) refColumn() (string, int) {
	cell := slices.Index(s.header, colRowRef)
	if cell < 0 {
		return "", 0 // and no row has one
	}
	return s.names[cell], cell + 1
}

func (s *csvSource) next() (Row, error) {
	if s.header == nil {
		if err := s.begin(); err != nil {
			return Row{}, err
		}
	}
	for {
		line, err := s.lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return Row{}, s.end()
		case errors.Is(err, errLineTooLong):
			return Row{}, s.rowFault(noColumn, 0, "too_large", "the line has more than 65536 bytes", "look for a quote that is not closed, or a line end that is missing")
		case err != nil:
			return Row{}, err
		case len(line) == 0:
			continue
		case s.closing != nil:
			return Row{}, endFault(s.lines.number, "after_trailer", "something stands behind the row that closes the file",
				"were two files put together? The trailer must be the last row")
		}
		row, isRow, fault := s.read(line)
		if fault != nil {
			return Row{}, fault
		}
		if isRow {
			return row, nil
		}
	}
}

// begin reads the header.
func (s *csvSource) begin() error {
	line, err := s.lines.next()
	switch {
	case errors.Is(err, io.EOF):
		return endFault(1, "empty", "there is nothing in the file", "was it exported completely?")
	case errors.Is(err, errLineTooLong):
		return endFault(1, "too_large", "the first line has more than 65536 bytes", "is this a text file, and do its lines end with LF or CRLF?")
	case err != nil:
		return err
	}
	line, fault := checkStart(line)
	if fault != nil {
		return fault
	}
	if bytes.IndexByte(line, '\r') >= 0 {
		return endFault(1, "line_end", "lines end with CR alone", "write the file with LF or CRLF at the end of each line")
	}
	if fault := s.split(string(line)); fault != nil {
		fault.Row, fault.End = 0, true
		return fault
	}
	header, fault := readHeader(s.cells, s.declare, s.dialect.Delimiter)
	if fault != nil {
		return fault
	}
	s.header, s.names = header, slices.Clone(s.cells)
	return nil
}

// end is called behind the last line.
func (s *csvSource) end() error {
	if s.dialect.Trailer != "" && s.closing == nil {
		return endFault(s.lines.number, "trailer_missing", "the file ends without the row that closes it",
			"it was probably cut off: fetch it again. The template declares a last row that begins with "+s.dialect.Trailer)
	}
	return io.EOF
}

// read reads one line; false if it is the trailer.
func (s *csvSource) read(line []byte) (Row, bool, *Fault) {
	if !utf8.Valid(line) {
		return Row{}, true, s.bytesFault(line)
	}
	if fault := s.split(string(line)); fault != nil {
		return Row{}, true, fault
	}
	if s.dialect.Trailer != "" && s.cells[0] == s.dialect.Trailer {
		return Row{}, false, s.readTrailer()
	}
	var values [columnCount + 1]string
	empty := true
	if len(s.cells) != len(s.header) {
		return Row{}, true, s.countFault()
	}
	for i, cell := range s.cells {
		if s.header[i] != noColumn {
			values[s.header[i]] = cell
		}
		empty = empty && cell == ""
	}
	if empty {
		return Row{}, true, s.rowFault(noColumn, 0, "row_empty", "all cells are empty", "delete the empty rows of the sheet, and export it again")
	}
	row, fault := s.make(&values)
	return row, true, fault
}

// make turns the cells of a row into a row.
func (s *csvSource) make(values *[columnCount + 1]string) (Row, *Fault) {
	for c, value := range values {
		if value != "" && suspicious(value) {
			if code, message, hint := damaged(column(c), value); code != "" {
				return Row{}, s.rowFault(column(c), 0, code, message, hint)
			}
		}
	}
	if ref := values[colRowRef]; ref != "" {
		if fault := job.CheckRowRef(ref); fault != nil {
			return Row{}, s.jobFault(fault, values)
		}
	}
	route := values[colRoute]
	if route == "" {
		if route = s.opt.Route; route == "" {
			return Row{}, s.rowFault(colRoute, 0, "missing", "neither the row nor the run names a route", "fill in the column route, or name the route of the run")
		}
	}
	texts := job.Texts{
		DebtorAccount: values[colDebtorAccount], Amount: values[colAmount], Currency: values[colCurrency], Name: values[colName],
		IBAN: values[colIBAN], BIC: values[colBIC], SortCode: values[colSortCode], AccountNumber: values[colAccountNumber],
		RoutingNumber: values[colRoutingNumber], PixKey: values[colPixKey], Reference: values[colReference],
		NotBefore: s.dates.from(values[colNotBefore]), NotAfter: s.dates.until(values[colNotAfter]),
	}
	if s.dialect.Decimal != '.' || s.dialect.Thousands != 0 {
		plain, ok := plainAmount(texts.Amount, s.dialect.Decimal, s.dialect.Thousands)
		if !ok {
			return Row{}, s.amountFault(values[colAmount])
		}
		texts.Amount = plain
	}
	j, err := job.FromTexts(s.opt.Source, route, uuid.Nil, &texts)
	if err != nil {
		var fault *job.Fault
		if !errors.As(err, &fault) {
			panic("file: FromTexts gives nothing but faults")
		}
		return Row{}, s.jobFault(fault, values)
	}
	return Row{Line: s.lines.number, Job: j, RowRef: values[colRowRef], ownRoute: values[colRoute] != ""}, nil
}

// split cuts a line into s.cells.
func (s *csvSource) split(line string) *Fault {
	s.cells = s.cells[:0]
	delimiter := s.dialect.Delimiter
	if strings.IndexByte(line, '"') < 0 {
		for {
			i := strings.IndexByte(line, delimiter)
			if i < 0 {
				break
			}
			s.cells = append(s.cells, line[:i])
			line = line[i+1:]
		}
		s.cells = append(s.cells, line)
		return nil
	}
	for {
		cell, rest, more, fault := s.cell(line)
		if fault != nil {
			return fault
		}
		s.cells = append(s.cells, cell)
		if !more {
			return nil
		}
		line = rest
	}
}

// cell reads the first cell of what is left of a line.
func (s *csvSource) cell(line string) (cell, rest string, more bool, fault *Fault) {
	here := len(s.cells) + 1
	if line == "" || line[0] != '"' {
		cell, rest, more = strings.Cut(line, string(s.dialect.Delimiter))
		if strings.IndexByte(cell, '"') >= 0 {
			return "", "", false, s.rowFault(noColumn, here, "quote_bare", "a quote inside of a cell that does not begin with one",
				"write the cell in quotes, and the quote twice")
		}
		return cell, rest, more, nil
	}
	line = line[1:]
	doubled := false
	for at := 0; ; {
		i := strings.IndexByte(line[at:], '"')
		if i < 0 {
			return "", "", false, s.rowFault(noColumn, here, "quote_open", "a quote is not closed on its line",
				"close the quote; no value of a payment has a line break")
		}
		at += i
		if at+1 < len(line) && line[at+1] == '"' {
			doubled = true
			at += 2
			continue
		}
		cell, rest = line[:at], line[at+1:]
		break
	}
	if doubled {
		cell = strings.ReplaceAll(cell, `""`, `"`)
	}
	switch {
	case rest == "":
		return cell, "", false, nil
	case rest[0] == s.dialect.Delimiter:
		return cell, rest[1:], true, nil
	}
	return "", "", false, s.rowFault(noColumn, here, "quote_text", "something stands behind the closing quote", "write a quote inside of a cell twice")
}

// readTrailer reads the row that closes the file.
func (s *csvSource) readTrailer() *Fault {
	const hint = "the last row must be: its word, the number of rows, then currency and sum for each currency"
	cells := s.cells[1:]
	for len(cells) > 0 && cells[len(cells)-1] == "" {
		cells = cells[:len(cells)-1]
	}
	fault := func(code, message string) *Fault {
		return endFault(s.lines.number, code, message, hint)
	}
	if len(cells)%2 != 1 {
		return fault("trailer_form", "has not the cells of a trailer")
	}
	rows, err := strconv.ParseUint(cells[0], 10, 31)
	if err != nil {
		return fault("trailer_form", "the number of rows is no number")
	}
	totals := Totals{Rows: int(rows)}
	for i := 1; i < len(cells); i += 2 {
		decimal, ok := plainAmount(cells[i+1], s.dialect.Decimal, s.dialect.Thousands)
		sum, err := money.Parse(decimal, cells[i])
		if !ok || err != nil {
			return fault("trailer_form", "a sum is no amount of its currency")
		}
		totals.Sums = append(totals.Sums, sum)
	}
	if !sortSums(totals.Sums) {
		return fault("trailer_form", "a currency stands twice")
	}
	s.closing = &totals
	return nil
}
