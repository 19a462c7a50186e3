package batch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/batch/file"
	"github.com/paidonce/paidonce/worker/job"
)

// Audience is whom a report is for.
type Audience string

// The audiences. A spreadsheet takes a cell that begins with = for a formula: for people such cells are made harmless, for machines they are the
// bytes of the file.
const (
	ForPeople  Audience = "people"
	ForMachine Audience = "machine"
)

// outcomeNames are the columns that a report adds to those of the file.
func outcomeNames() []string {
	return []string{"row", "line", "key", "state", "in_doubt", "transfer_id", "reason", "outcome_at", "settlement"}
}

// Report writes the rows of a run as CSV: the columns of the file, and what became of each row. A row that is no operation yet says not_enqueued; of
// a row whose payload was purged, the columns of the file are empty. Rows that are enqueued meanwhile are in it once. Where rows of the run are neither
// enqueued nor kept, all others are written, and then the error is ErrNotListed: of a cancelled run, what was never enqueued is not kept, and a server
// that was lost may have paid what it took along.
func (s *Service) Report(ctx context.Context, run Run, audience Audience, out io.Writer) error {
	columns := run.Columns
	if len(columns) == 0 {
		columns = file.Columns()
	}
	w := &reportWriter{out: bufio.NewWriterSize(out, 1<<16), people: audience == ForPeople}
	var headers []string
	for _, item := range columns {
		if header, column := file.SplitDeclared(item); column != "" { // of what was passed over nothing is on record
			headers, w.columns = append(headers, header), append(w.columns, column)
		}
	}
	if w.people {
		_, _ = w.out.WriteString("\ufeff") // without it spreadsheets take UTF-8 for something else
	}
	w.line(append(headers, outcomeNames()...))
	w.told = make([]bool, run.Rows+1)
	for _, pass := range []func(context.Context, Run, *reportWriter) error{
		s.reportEnqueued, s.reportParts,
		s.reportEnqueued, // what was no longer in its part is an operation
	} {
		if err := pass(ctx, run, w); err != nil {
			return err
		}
		if w.rows == run.Rows {
			break
		}
	}
	if err := w.out.Flush(); err != nil {
		return err
	}
	if missing := run.Rows - w.rows; missing > 0 {
		return fmt.Errorf("%w: %d of %d, see `paidonce batch status %s`", ErrNotListed, missing, run.Rows, run.RunKey)
	}
	return nil
}

func (s *Service) reportEnqueued(ctx context.Context, run Run, w *reportWriter) error {
	for after := 0; ; {
		rows, err := read(ctx, s, s.db, scanReportRow, `SELECT `+outcomeColumns+`, o.route, p.body
  FROM (SELECT n, line, row_ref, operation_id FROM batch_rows WHERE run_id = $1 AND n > $2 ORDER BY n LIMIT $3) b
  JOIN operations o ON o.id = b.operation_id LEFT JOIN payloads p ON p.operation_id = o.id ORDER BY b.n`, run.ID, after, rowsPage)
		if err != nil {
			return fmt.Errorf("read the rows of %s: %w", run.RunKey, err)
		}
		if len(rows) == 0 {
			return nil
		}
		for _, r := range rows {
			if err := w.row(run.Source, r.route, r.RowOutcome, r.payload); err != nil {
				return fmt.Errorf("report the rows of %s: %w", run.RunKey, err)
			}
		}
		after = rows[len(rows)-1].N
	}
}

type reportRow struct {
	RowOutcome
	route   string
	payload []byte
}

func scanReportRow(row pgx.CollectableRow) (r reportRow, err error) {
	return r, r.scan(row, &r.route, &r.payload)
}

// reportParts writes the rows that are no operations yet.
func (s *Service) reportParts(ctx context.Context, run Run, w *reportWriter) error {
	return s.eachPart(ctx, run.ID, func(_ part, items []item) error {
		for i := range items {
			row := &items[i]
			outcome := RowOutcome{N: row.n, Line: row.line, RowRef: row.rowRef, Key: row.key, State: NotEnqueued}
			if err := w.row(run.Source, row.route, outcome, row.payload); err != nil {
				return err
			}
		}
		return nil
	})
}

type reportWriter struct {
	out     *bufio.Writer
	people  bool
	columns []string
	buffer  []byte
	told    []bool // by the number of the row
	rows    int
}

func (w *reportWriter) row(source, route string, r RowOutcome, payload []byte) error {
	if w.told[r.N] {
		return nil
	}
	w.told[r.N] = true
	w.rows++
	cells := make([]string, 0, len(w.columns)+9)
	var j job.Job
	if len(payload) > 0 {
		var err error
		if j, err = job.Decode(source, route, payload); err != nil {
			return fmt.Errorf("read the payload of row %d: %w", r.N, err)
		}
	}
	for _, column := range w.columns {
		cells = append(cells, cellOf(column, &j, route, r.RowRef))
	}
	doubt := ""
	if r.InDoubt {
		doubt = "in_doubt"
	}
	cells = append(cells, strconv.Itoa(r.N), strconv.Itoa(r.Line), r.Key.String(), string(r.State), doubt, r.TransferID, r.Code, stamp(r.OutcomeAt), r.Settlement)
	w.line(cells)
	return nil
}

// cellOf gives one column of the file. Amounts and times are in the form of the contract, whatever the file's own was.
func cellOf(column string, j *job.Job, route, rowRef string) string {
	purged := j.Amount.Currency == ""
	switch column {
	case "row_ref":
		return rowRef
	case "route":
		return route
	case "debtor_account":
		return j.DebtorAccount.Reveal()
	case "amount":
		if purged {
			return ""
		}
		return j.Amount.Decimal()
	case "currency":
		return j.Amount.Currency
	case "name":
		return j.Beneficiary.Name.Reveal()
	case "iban":
		return j.Beneficiary.IBAN.Reveal()
	case "bic":
		return j.Beneficiary.BIC.Reveal()
	case "sort_code":
		return j.Beneficiary.SortCode.Reveal()
	case "account_number":
		return j.Beneficiary.AccountNumber.Reveal()
	case "routing_number":
		return j.Beneficiary.RoutingNumber.Reveal()
	case "pix_key":
		return j.Beneficiary.PixKey.Reveal()
	case "reference":
		return j.Reference.Reveal()
	case "not_before":
		return stamp(j.NotBefore)
	case "not_after":
		return stamp(j.NotAfter)
	}
	return ""
}

func (w *reportWriter) line(cells []string) {
	b := w.buffer[:0]
	for i, cell := range cells {
		if i > 0 {
			b = append(b, ',')
		}
		if w.people {
			cell = file.PeopleCell(cell)
		}
		b = file.QuotedCell(b, cell)
	}
	w.buffer = append(b, '\r', '\n')
	_, _ = w.out.Write(w.buffer) // the error comes back from Flush
}
