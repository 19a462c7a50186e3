package prove

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/bojanz/currency"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/bankclient"
)

// Bank lists what a partner has done. *bankclient.Partner is one.
type Bank interface {
	ID() string
	Profile() bankclient.Profile
	Statement(ctx context.Context, from, to time.Time, cursor string) (page []bankclient.Seen, next string, err error)
}

// Options of a run. DatabaseURL, Broker and Banks are needed.
type Options struct {
	DatabaseURL string              // of the primary; a role that may read is enough
	Broker      jetstream.JetStream // a connection that may read single messages of the three streams
	Banks       []Bank              // every partner; authorized operations of others are unproved

	Routes   map[string]string                // the partner of each route; needed with Partner
	Partner  string                           // judge only this partner's operations; default all
	Since    time.Time                        // judge only operations made since then; default all
	Dir      string                           // where the private directory is made; default os.TempDir
	Findings int                              // most findings of the report; default 20
	Patience time.Duration                    // longest wait for a partner's visibility bound; default 30s
	Retries  int                              // of a page of a statement, or a message, that could not be read; default 5
	Progress func(reading string, done int64) // called often, from one goroutine; default none
}

func (o Options) withDefaults() Options {
	if o.Dir == "" {
		o.Dir = os.TempDir()
	}
	if o.Findings == 0 {
		o.Findings = 20
	}
	if o.Patience == 0 {
		o.Patience = 30 * time.Second
	}
	if o.Retries == 0 {
		o.Retries = 5
	}
	if o.Progress == nil {
		o.Progress = func(string, int64) {}
	}
	return o
}

// clockSlack is how far the clocks of partner, broker and database may be apart where Options.Since compares them.
const clockSlack = time.Hour

// run is one run.
type run struct {
	Options
	book *book
	dir  string

	cut     time.Time // the snapshot, by the database's clock
	cutSeen time.Time // the same moment, by ours, with its monotonic reading

	byKey      *spill // operations, messages, events and paid transfers, by operation key
	byEndToEnd *spill // attempts and transfers
	byTransfer *spill // authorized operations, and transfers that no attempt claims
	unclaimed  *spill // transfers that belong to nobody at the cut, and attempts since

	statements map[string]statement // by partner id; what could not be read is not in it
	events     purged
	suspects   int64
}

// statement is what must be known about a partner's statement when operations are judged.
type statement struct {
	blindSince time.Time // what was authorized later may not be in it; zero: nothing
}

// Run reads everything and judges it. The error says that something could not be read; what was found to be wrong is in the report.
func Run(ctx context.Context, options Options) (_ Report, err error) {
	r := &run{Options: options.withDefaults(), statements: map[string]statement{}}
	r.book = newBook(r.Findings)
	r.book.Partner, r.book.Since = r.Partner, r.Since
	if r.dir, err = os.MkdirTemp(r.Dir, "paidonce-prove-"); err != nil {
		return Report{}, fmt.Errorf("make a private directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()

	// 1. How far the queue is.
	queue, err := r.lookAtQueue(ctx)
	if err != nil {
		return Report{}, err
	}
	// 2. The ledger, in one snapshot.
	if err := r.readLedger(ctx); err != nil {
		return Report{}, err
	}
	// 3. The streams.
	if err := r.readStreams(ctx, queue); err != nil {
		return Report{}, err
	}
	// 4. The statements, and whose transfers they list.
	if err := r.readStatements(ctx); err != nil {
		return Report{}, err
	}
	if err := r.match(); err != nil {
		return Report{}, err
	}
	// 5. Attempts once more, for transfers that belong to nobody.
	if err := r.judgeUnclaimed(ctx); err != nil {
		return Report{}, err
	}
	// 6. Every key on its own.
	if err := r.judgeKeys(); err != nil {
		return Report{}, err
	}
	return r.book.report(), nil
}

func (r *run) makeSpills(operations int64) (err error) {
	parts := partsFor(operations)
	for name, s := range map[string]**spill{"keys": &r.byKey, "end-to-end": &r.byEndToEnd, "transfers": &r.byTransfer, "unclaimed": &r.unclaimed} {
		if *s, err = newSpill(r.dir, name, parts); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(r.DatabaseURL)
	if err != nil {
		return nil, errors.New("connect to the ledger: the URL is not valid") // the cause would show it
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // no named statements: a pooler may stand between
	config.RuntimeParams["application_name"] = "paidonce prove"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the ledger: %w", err)
	}
	return conn, nil
}

// wantsRoute says whether messages of a route are judged.
func (r *run) wantsRoute(route string) bool { return r.Partner == "" || r.Routes[route] == r.Partner }

func (r *run) wantsPartner(partner string) bool { return r.Partner == "" || partner == r.Partner }

func (r *run) note(format string, args ...any) {
	r.book.Notes = append(r.book.Notes, fmt.Sprintf(format, args...))
}

// idOf hashes what a partner's transfers are matched by. The parts hold no NUL.
func idOf(what, partner, text string) id {
	sum := sha256.Sum256([]byte(what + "\x00" + partner + "\x00" + text))
	return id(sum[:16])
}

func endToEndID(partner, text string) id { return idOf("end-to-end", partner, text) }
func transferID(partner, text string) id { return idOf("transfer", partner, text) }

// minor reads a decimal with exactly the digits of its currency, as the contract demands of jobs and statements. It is this package's own.
func minor(decimal, code string) (int64, bool) {
	digits, known := currency.GetDigits(code)
	if !known {
		return 0, false
	}
	whole, fraction, dotted := strings.Cut(decimal, ".")
	if len(fraction) != int(digits) || dotted != (digits > 0) || whole == "" || whole[0] == '0' && len(whole) > 1 {
		return 0, false
	}
	var n int64
	for _, c := range []byte(whole + fraction) {
		if c < '0' || c > '9' || n > (1<<63-1-int64(c-'0'))/10 {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, n > 0
}
