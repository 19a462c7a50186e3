package file

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"slices"
	"time"

	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
)

// Reader reads the rows of one file. It is for one goroutine.
type Reader struct {
	opt    Options
	source source
	hashed *hashed
	rows   int
	ended  error

	route  string // whose policy is at hand
	policy Policy
	known  bool
}

// source is a format's own part: it gives one row at a time, with N unset, and knows nothing of policies.
type source interface {
	next() (Row, error)
	// trailer is what the file itself says about its rows; nil = nothing.
	trailer() *Totals
	// refColumn is where a row has a name that no other may have, and which cell that is; "" = no row has one, 0 = it has no cells.
	refColumn() (column string, cell int)
}

// Totals are numbers to compare a file with.
type Totals struct {
	Rows int
	Sums []money.Amount // one per currency, by currency
}

// Open begins to read a file. The error is about the options only: whatever is wrong with the file comes from Next.
func Open(r io.Reader, format Format, opt Options) (*Reader, error) {
	if opt.Location == nil {
		opt.Location = time.UTC
	}
	if !job.ValidName(opt.Source) {
		return nil, errors.New("open a batch file: the source is no possible name")
	}
	if opt.Route != "" && !job.ValidName(opt.Route) {
		return nil, errors.New("open a batch file: the route is no possible name")
	}
	if opt.Charset != CharsetAny && opt.Charset != CharsetSEPA {
		return nil, errors.New("open a batch file: unknown charset")
	}
	out := &Reader{opt: opt, hashed: &hashed{r: r, hash: sha256.New()}}
	var err error
	switch format {
	case FormatCSV:
		out.source, err = newCSV(out.hashed, opt)
	case FormatNDJSON:
		out.source = newNDJSON(out.hashed, opt)
	case FormatPain00103, FormatPain00109:
		out.source, err = newPain(out.hashed, format, opt)
	default:
		err = errors.New("open a batch file: unknown format")
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Next gives the next row, or io.EOF behind the last one. A *Fault is about one row (or, with Row 0, about the file), and reading goes on behind
// it unless it says End. Every other error ends the reading, and is given again.
func (r *Reader) Next() (Row, error) {
	if r.ended != nil {
		return Row{}, r.ended
	}
	row, err := r.source.next()
	var fault *Fault
	switch {
	case err == nil:
		r.rows++
		row.N = r.rows
		if fault = r.finish(&row); fault == nil {
			return row, nil
		}
		fault.Row = row.N
		return Row{}, fault
	case errors.As(err, &fault):
		if fault.Row != 0 {
			r.rows++
			fault.Row = r.rows
		}
		if fault.End {
			r.ended = ErrEnded
		}
		return Row{}, fault
	default:
		r.ended = err
		return Row{}, err
	}
}

// finish adds to a row what the options say, and judges it by them.
func (r *Reader) finish(row *Row) *Fault {
	asked := row.Job
	asked.Source = ""
	if !row.ownRoute {
		asked.Route = ""
	}
	row.Content = asked.Fingerprint().Sum
	if r.opt.NotBefore.After(row.Job.NotBefore) {
		row.Job.NotBefore = r.opt.NotBefore.UTC()
		if !row.Job.NotAfter.IsZero() && !row.Job.NotAfter.After(row.Job.NotBefore) {
			return &Fault{Line: row.Line, Column: "not_after", Code: "window_empty", Message: "ends before the run may begin",
				Hint: "choose an earlier start of the run, or leave the row out"}
		}
	}
	if r.opt.Charset == CharsetSEPA {
		if fault := checkSEPA(row); fault != nil {
			return fault
		}
	}
	return r.checkPolicy(row)
}

func (r *Reader) checkPolicy(row *Row) *Fault {
	if r.opt.Routes == nil {
		return nil
	}
	if row.Job.Route != r.route {
		r.route = row.Job.Route
		r.policy, r.known = r.opt.Routes(r.route)
	}
	amount := row.Job.Amount
	limit, limited := r.policy.MaxMinor[amount.Currency]
	switch {
	case !r.known:
		return &Fault{Line: row.Line, Column: "route", Code: "unknown_route", Message: "no such route is configured",
			Hint: "see 'paidonce partners' for the routes there are"}
	case r.policy.Currencies != nil && !slices.Contains(r.policy.Currencies, amount.Currency):
		return &Fault{Line: row.Line, Column: "currency", Code: "route_currency", Message: "the route does not take this currency",
			Hint: "name another route for the row, or correct the currency"}
	case limited && amount.Minor > limit:
		return &Fault{Line: row.Line, Column: "amount", Code: "route_limit", Message: "is above the limit of the route",
			Hint: "the limit is " + money.Amount{Minor: limit, Currency: amount.Currency}.String() + " for one row"}
	}
	return nil
}

// Trailer is what the file says about itself, complete behind io.EOF; nil if it says nothing.
func (r *Reader) Trailer() *Totals { return r.source.trailer() }

// Rows is how many rows, good and bad, were read so far.
func (r *Reader) Rows() int { return r.rows }

// Bytes is how many bytes of the file were read so far.
func (r *Reader) Bytes() int64 { return r.hashed.bytes }

// Digest reads what is left of the file and gives the SHA-256 of all of it.
func (r *Reader) Digest() ([32]byte, error) {
	if r.ended == nil {
		r.ended = ErrEnded
	}
	if _, err := io.Copy(io.Discard, r.hashed); err != nil {
		return [32]byte{}, err
	}
	return [32]byte(r.hashed.hash.Sum(nil)), nil
}

// hashed hashes what is read through it.
type hashed struct {
	r     io.Reader
	hash  hash.Hash
	bytes int64
}

func (h *hashed) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.bytes += int64(n)
	_, _ = h.hash.Write(p[:n])
	return n, err
}
