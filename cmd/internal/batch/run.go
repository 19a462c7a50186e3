package batch

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/batch/file"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
)

// State is where a run stands. What became of its rows is not in it.
type State string

// The states of a run.
const (
	Waiting   State = "waiting" // on record, not released
	Released  State = "released"
	Paused    State = "paused"
	Cancelled State = "cancelled"
)

// Run is one file that is paid once.
type Run struct {
	ID               uuid.UUID
	RunKey           string
	At               time.Time
	By               string
	Reason           string
	Format           file.Format
	Columns          []string // of the file, where it has any
	Source           string
	Route            string // "" = every row names its own
	NotBefore        time.Time
	Rows             int
	Sums             map[string]int64 // minor units by currency
	Counts           map[string]int   // rows by currency
	Digest           [32]byte         // of the bytes of the file
	ContentDigest    [32]byte         // of the payments, in whatever order
	AgainReason      string           // why the same content is paid again; "" = it is not
	Duplicates       int              // rows beyond the first of each group that look alike
	DuplicatesReason string
	State            State
	ChangedAt        time.Time
	ChangedBy        string
}

// Errors of runs.
var (
	ErrNoRun        = errors.New("there is no such run")
	ErrRunKey       = errors.New("a run key is 1 to 100 letters, digits, '.', '_' and '-', as 2026-11-payroll")
	ErrFaulty       = errors.New("the file has faults, so nothing of it is enqueued")
	ErrDuplicates   = errors.New("rows of the file look alike: are all of them meant? Then say why, with --allow-duplicates")
	ErrOtherContent = errors.New("the run key belongs to another content")
	ErrSameContent  = errors.New("the same payments are on record under another run key")
	ErrOverlap      = errors.New("rows of the file are in another run too")
	ErrPaused       = errors.New("the run is paused")
	ErrCancelled    = errors.New("the run is cancelled")
	ErrNotReleased  = errors.New("the run is not released")
	ErrKeyTaken     = errors.New("the key of a row is on record for another job")
	ErrRowsMissing  = errors.New("rows of the run are on record nowhere: nothing more of it can be enqueued")
	ErrNotListed    = errors.New("the report lacks rows that are on record nowhere: never enqueued, or lost with a server")
	ErrRoute        = errors.New("a route of the run is not configured")
)

// Options bound what a Service does. The zero value works but for Partners.
type Options struct {
	Partners map[string]string // the partner that each route leads to
	// Grace is how long the sweep leaves an operation to its own message: a long run is published, and worked, for that long. Default 30 min
	Grace time.Duration
	// Patience is how long a statement may take. Default 1 min: a status counts a million rows
	Patience time.Duration
	// OverlapWindow is how far back the rows of a file are compared with those of other runs; below 0 = they are not. Default 120 h: a weekly payroll is
	// 168 h after the one before
	OverlapWindow time.Duration
	PartRows      int // rows of a part; default 4096
	PageRows      int // operations that are cancelled, held or let go at once; default 1024
	Workers       int // parts that are written, and recorded, at once: while one waits for the disk the others go on; default 4

	point func(ctx context.Context, at point) // of tests that stop or kill there; nil = nothing
}

// point is a place between two steps of a run, where a process may die.
type point string

const (
	pointStaged     point = "staged"     // a part is written, the file is not read to its end
	pointChecked    point = "checked"    // all parts are written, the run is not on record
	pointRegister   point = "register"   // its parts are counted, the run is not committed
	pointRegistered point = "registered" // the run is on record, not released
	pointReleasing  point = "releasing"  // a second person's agreement is used, the run is not released
	pointReleased   point = "released"
	pointBefore     point = "before"  // a slice is not recorded
	pointInside     point = "inside"  // it is recorded, and not committed
	pointAfter      point = "after"   // it is committed, and nobody has been told
	pointState      point = "state"   // the run is paused or released again, and its rows are neither held nor let go
	pointEnded      point = "ended"   // the run is cancelled, and its rows are not
	pointWalked     point = "walked"  // some of them are
	pointLost       point = "lost"    // they wait for a lock that somebody else has, and begin again
	pointPublish    point = "publish" // a batch of jobs is confirmed, and not marked
)

// Service is safe for concurrent use.
type Service struct {
	ledger *ledger.Ledger
	db     operate.DB
	desk   *operate.Service
	opt    Options
}

// New makes the service of a ledger, which changes runs through the desk.
func New(l *ledger.Ledger, db operate.DB, desk *operate.Service, opt Options) *Service {
	if opt.Grace <= 0 {
		opt.Grace = 30 * time.Minute
	}
	if opt.Patience <= 0 {
		opt.Patience = time.Minute
	}
	if opt.OverlapWindow == 0 {
		opt.OverlapWindow = 120 * time.Hour
	}
	if opt.PartRows <= 0 {
		opt.PartRows = 4096
	}
	if opt.PageRows <= 0 {
		opt.PageRows = 1024
	}
	if opt.Workers <= 0 {
		opt.Workers = 4
	}
	return &Service{ledger: l, db: db, desk: desk, opt: opt}
}

// ValidRunKey says whether a run may be called so.
func ValidRunKey(text string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`).MatchString(text)
}

const runColumns = `id, run_key, at, by, reason, format, columns, source, route, not_before, rows, sums, counts, digest, content_digest,
       coalesce(again_reason, ''), duplicates, coalesce(duplicates_reason, ''), state, changed_at, changed_by`

func scanRun(row pgx.CollectableRow) (Run, error) {
	var r Run
	var notBefore *time.Time
	var sums, counts, digest, content []byte
	err := row.Scan(&r.ID, &r.RunKey, &r.At, &r.By, &r.Reason, &r.Format, &r.Columns, &r.Source, &r.Route, &notBefore, &r.Rows, &sums, &counts, &digest, &content,
		&r.AgainReason, &r.Duplicates, &r.DuplicatesReason, &r.State, &r.ChangedAt, &r.ChangedBy)
	if err != nil {
		return r, err
	}
	if notBefore != nil {
		r.NotBefore = *notBefore
	}
	r.Digest, r.ContentDigest = [32]byte(digest), [32]byte(content)
	return r, errors.Join(json.Unmarshal(sums, &r.Sums), json.Unmarshal(counts, &r.Counts))
}

// Run reads a run by its run key, or ErrNoRun.
func (s *Service) Run(ctx context.Context, runKey string) (Run, error) {
	return s.readRun(ctx, s.db, runKey)
}

// querier is a database or a transaction of it.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (s *Service) readRun(ctx context.Context, db querier, runKey string) (Run, error) {
	runs, err := read(ctx, s, db, scanRun, `SELECT `+runColumns+` FROM batch_runs WHERE run_key = $1`, runKey)
	if err == nil && len(runs) == 0 {
		err = ErrNoRun
	}
	if err != nil {
		return Run{}, fmt.Errorf("read run %s: %w", runKey, err)
	}
	return runs[0], nil
}

// Runs lists runs, the newest first.
func (s *Service) Runs(ctx context.Context, limit int) ([]Run, error) {
	runs, err := read(ctx, s, s.db, scanRun, `SELECT `+runColumns+` FROM batch_runs ORDER BY at DESC, id DESC LIMIT $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return runs, nil
}

// at lets a test stop or kill here.
func (s *Service) at(ctx context.Context, p point) {
	if s.opt.point != nil {
		s.opt.point(ctx, p)
	}
}
