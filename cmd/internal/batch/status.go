package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
)

// Held is the state of a row whose operation was neither under way nor in doubt when its run was paused, and which nobody sends before that is resumed.
const Held = "held"

// heldByRun is true of such an operation o, and rowState is where a row stands. What is in doubt is held by nobody, though an older program may
// have left the mark on it.
const (
	heldByRun = `o.state = 'open' AND NOT o.in_doubt AND ` + markedHeld
	rowState  = `CASE WHEN ` + heldByRun + ` THEN '` + Held + `' ELSE o.state::text END`
)

// markedHeld is true of an open operation o that a resume lets go.
const markedHeld = `o.held AND o.code = '` + ledger.HeldByRun + `'`

// NotEnqueued is the state of a row that is no operation yet. In a cancelled run it never will be one.
const NotEnqueued = "not_enqueued"

// Count is how many rows of a run stand in one state, and what they pay in one currency.
type Count struct {
	State    string `json:"state"`
	Currency string `json:"currency"`
	Rows     int    `json:"rows"`
	Minor    int64  `json:"minor"`
}

// Status is where a run stands, derived from its operations.
type Status struct {
	Run       Run
	Counts    []Count // by state in the order of a life, then by currency
	Enqueued  int
	Published int               // of the enqueued: all but those that wait for the broker
	InDoubt   int               // unfinished operations that may have moved money
	Oldest    time.Time         // when the oldest unfinished operation came on record; zero = none
	Proposal  *operate.Proposal // of a run that waits
}

// Rows is how many rows stand in a state.
func (s *Status) Rows(states ...string) int {
	n := 0
	for _, c := range s.Counts {
		if slices.Contains(states, c.State) {
			n += c.Rows
		}
	}
	return n
}

// Finished is how many rows have their outcome.
func (s *Status) Finished() int {
	return s.Rows(string(ledger.StateAuthorized), string(ledger.StateRejected), string(ledger.StateCancelled))
}

// Complete reports that nothing of the run will happen by itself any more, apart from settlement.
func (s *Status) Complete() bool {
	return s.Run.State == Cancelled && s.Enqueued == s.Finished()+s.Rows(string(ledger.StateParked)) ||
		s.Run.Rows == s.Finished()+s.Rows(string(ledger.StateParked))
}

// AtRest reports that nothing happens before somebody does something: the run is complete, or paused with all that was begun ended.
func (s *Status) AtRest() bool {
	return s.Complete() || s.Run.State == Paused && s.Enqueued == s.Finished()+s.Rows(string(ledger.StateParked), Held)
}

// Trouble is how many rows a person should look at: rejected or parked.
func (s *Status) Trouble() int {
	return s.Rows(string(ledger.StateRejected), string(ledger.StateParked))
}

// order of states in lists.
func stateOrder(state string) int {
	return slices.Index([]string{NotEnqueued, Held, "open", "claimed", "parked", "authorized", "rejected", "cancelled"}, state)
}

// Status counts the rows of a run by where their operations stand.
func (s *Service) Status(ctx context.Context, runKey string) (Status, error) {
	run, err := s.Run(ctx, runKey)
	if err != nil {
		return Status{}, err
	}
	out := Status{Run: run}
	left := map[string]int64{}
	for currency, minor := range run.Sums {
		left[currency] = minor
	}
	counts, err := read(ctx, s, s.db, scanCount, `
SELECT `+rowState+`, o.currency, count(*), sum(o.amount_minor)::int8, count(*) FILTER (WHERE o.in_doubt),
       min(o.created_at) FILTER (WHERE o.state IN ('open', 'claimed', 'parked'))
  FROM batch_rows b JOIN operations o ON o.id = b.operation_id WHERE b.run_id = $1 GROUP BY 1, 2`, run.ID)
	if err != nil {
		return out, fmt.Errorf("count the rows of %s: %w", runKey, err)
	}
	for _, c := range counts {
		out.Counts = append(out.Counts, c.Count)
		out.Enqueued += c.Rows
		out.InDoubt += c.doubt
		left[c.Currency] -= c.Minor
		if c.oldest != nil && (out.Oldest.IsZero() || c.oldest.Before(out.Oldest)) {
			out.Oldest = *c.oldest
		}
	}
	return out, s.completeStatus(ctx, &out, left)
}

type countRow struct {
	Count
	doubt  int
	oldest *time.Time
}

func scanCount(row pgx.CollectableRow) (c countRow, err error) {
	return c, row.Scan(&c.State, &c.Currency, &c.Rows, &c.Minor, &c.doubt, &c.oldest)
}

// completeStatus adds what is no operation, and what is not published.
func (s *Service) completeStatus(ctx context.Context, out *Status, left map[string]int64) error {
	rows := map[string]int{}
	for currency, n := range out.Run.Counts {
		rows[currency] = n
	}
	for _, c := range out.Counts {
		rows[c.Currency] -= c.Rows
	}
	for currency, n := range rows {
		if n > 0 {
			out.Counts = append(out.Counts, Count{State: NotEnqueued, Currency: currency, Rows: n, Minor: left[currency]})
		}
	}
	slices.SortFunc(out.Counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(stateOrder(a.State), stateOrder(b.State)), cmp.Compare(a.Currency, b.Currency))
	})
	unpublished, err := readOne(ctx, s, pgx.RowTo[int], `SELECT count(*) FROM unpublished_jobs WHERE holder = $1`, out.Run.ID)
	if err != nil {
		return fmt.Errorf("count the unpublished jobs of %s: %w", out.Run.RunKey, err)
	}
	out.Published = out.Enqueued - unpublished
	if out.Run.State != Waiting {
		return nil
	}
	proposals, err := s.desk.Proposals(ctx, operate.ProposalFilter{Act: ActSubmit, Target: out.Run.RunKey, Limit: 1})
	if err == nil && len(proposals) > 0 {
		out.Proposal = &proposals[0]
	}
	return err
}

// RowOutcome is where one row of a run stands.
type RowOutcome struct {
	N, Line    int
	RowRef     string
	Key        uuid.UUID
	State      ledger.State
	InDoubt    bool
	Amount     money.Amount
	TransferID string
	Code       string // why it was rejected, cancelled, parked or is held
	OutcomeAt  time.Time
	Settlement string
}

// rowsPage is how many rows are read at once.
const rowsPage = 5000

const outcomeColumns = `b.n, b.line, coalesce(b.row_ref, ''), o.key, ` + rowState + `, o.in_doubt, o.amount_minor, o.currency, coalesce(o.transfer_id, ''),
       coalesce(o.code, ''), o.outcome_at, coalesce(o.settlement::text, '')`

// scan reads one row of outcomeColumns, and what stands behind them.
func (r *RowOutcome) scan(row pgx.CollectableRow, more ...any) error {
	var at *time.Time
	err := row.Scan(append([]any{&r.N, &r.Line, &r.RowRef, &r.Key, &r.State, &r.InDoubt, &r.Amount.Minor, &r.Amount.Currency, &r.TransferID, &r.Code, &at,
		&r.Settlement}, more...)...)
	if at != nil {
		r.OutcomeAt = *at
	}
	return err
}

// Rows visits the enqueued rows of a run in their order; of states, if any are given. It holds no transaction while it visits.
func (s *Service) Rows(ctx context.Context, run Run, states []string, visit func(RowOutcome) error) error {
	for after := 0; ; {
		last, err := readOne(ctx, s, pgx.RowTo[*int], `SELECT max(n) FROM (SELECT n FROM batch_rows WHERE run_id = $1 AND n > $2 ORDER BY n LIMIT $3) p`,
			run.ID, after, rowsPage)
		if err != nil {
			return fmt.Errorf("read the rows of %s: %w", run.RunKey, err)
		}
		if last == nil {
			return nil
		}
		found, err := read(ctx, s, s.db, func(row pgx.CollectableRow) (r RowOutcome, err error) { err = r.scan(row); return r, err },
			`SELECT `+outcomeColumns+` FROM batch_rows b JOIN operations o ON o.id = b.operation_id
			WHERE b.run_id = $1 AND b.n > $2 AND b.n <= $3 AND (coalesce(cardinality($4::text[]), 0) = 0 OR `+rowState+` = ANY($4)) ORDER BY b.n`,
			run.ID, after, *last, states)
		if err != nil {
			return fmt.Errorf("read the rows of %s: %w", run.RunKey, err)
		}
		for _, r := range found {
			if err := visit(r); err != nil {
				return err
			}
		}
		after = *last
	}
}

// RowOf finds the run and the row that an operation came from, or ErrNoRun.
func (s *Service) RowOf(ctx context.Context, key uuid.UUID) (Run, RowOutcome, error) {
	var runKey string
	row, err := readOne(ctx, s, func(row pgx.CollectableRow) (r RowOutcome, err error) { err = r.scan(row, &runKey); return r, err },
		`SELECT `+outcomeColumns+`, r.run_key FROM operations o JOIN batch_rows b ON b.operation_id = o.id JOIN batch_runs r ON r.id = b.run_id
		WHERE o.key = $1`, key)
	if errors.Is(err, pgx.ErrNoRows) {
		return Run{}, row, fmt.Errorf("%s: %w from which this operation came", key, ErrNoRun)
	}
	if err != nil {
		return Run{}, row, fmt.Errorf("find the row of %s: %w", key, err)
	}
	run, err := s.Run(ctx, runKey)
	return run, row, err
}
