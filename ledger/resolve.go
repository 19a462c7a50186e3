package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// FactResolution is a person's decision. Its verdict is empty: it proves nothing of the partner.
const FactResolution FactKind = "resolution"

// Resolution is what a person decided of a parked operation, with who, why and on what evidence.
type Resolution struct {
	Token      uuid.UUID // of this decision: the same one again has no second effect
	Key        uuid.UUID
	Fence      int32  // as it was seen; an operation that has moved since is refused
	Said       string // what Said gave: an operation of which anything else was said since is refused
	To         State  // authorized, rejected, or open to let the worker's own rules go on
	TransferID string // with authorized
	Code       string // with rejected
	By         string
	Reason     string
	Evidence   string
	Proposal   uuid.UUID // under whose approval; Nil = none
	Under      Line
}

// Line is what the database asks for before the desk changes an operation: a line of the audit log without a result, and its operator's proof.
type Line struct {
	Line  int64
	Proof string
}

// Obstacle is why a resolution is refused. Nothing was changed.
type Obstacle string

// The obstacles.
const (
	NoObstacle        Obstacle = ""
	NotParked         Obstacle = "not_parked"         // it is not, or no longer, before a person
	Moved             Obstacle = "moved"              // something happened since it was looked at
	NeverSent         Obstacle = "never_sent"         // what was never sent was not authorized
	SaidAuthorized    Obstacle = "said_authorized"    // the partner says that money moved
	FoundSince        Obstacle = "found_since"        // after it had nothing, the partner has it, or something like it: it may be executed still
	SaidMismatch      Obstacle = "said_mismatch"      // the partner's answer disagrees with what was sent: nothing may be sent again
	TransferElsewhere Obstacle = "transfer_elsewhere" // another operation has that transfer
	NotProvedAbsent   Obstacle = "not_proved_absent"  // in doubt, and no look-up since the last attempt says that the partner has nothing
)

// Says is the obstacle in words.
func (o Obstacle) Says() string {
	return map[Obstacle]string{
		NotParked:      "it is not parked: only what waits for a person is resolved",
		Moved:          "something happened to it since it was looked at: look again",
		NeverSent:      "it was never sent, so the partner cannot have authorized it",
		SaidAuthorized: "the partner has said that it authorized it: money moved",
		FoundSince: "after a look-up that found nothing, the partner has said that it has it: it may be executed still; ask again with " +
			"`paidonce ops lookup KEY`",
		SaidMismatch:      "the partner's answer disagreed with what was sent: nothing may be sent again",
		TransferElsewhere: "another operation has that transfer at this partner",
		NotProvedAbsent: "it is in doubt, and no look-up since its last attempt has proved that the partner has nothing: " +
			"ask with `paidonce ops lookup KEY`, or resolve it by what the partner says",
	}[o]
}

// ErrObstacle is what Resolve and CheckResolution refuse with.
var ErrObstacle = errors.New("the resolution is refused")

// ObstacleError says which obstacle.
type ObstacleError struct {
	Key      uuid.UUID
	Obstacle Obstacle
}

// Error says what stands in the way.
func (e *ObstacleError) Error() string {
	return fmt.Sprintf("resolve %s: %s", e.Key, e.Obstacle.Says())
}

// Is ErrObstacle.
func (e *ObstacleError) Is(err error) bool { return err == ErrObstacle }

// proof is what the facts of an operation say together, for a resolution.
const proof = `
SELECT o.id, o.state, o.fence, o.in_doubt, o.first_sent_at IS NOT NULL AND o.partner IS NOT NULL,
       EXISTS (SELECT FROM observations r WHERE r.operation_id = o.id AND r.claim_token = $2),
       coalesce(f.authorized, false), coalesce(f.mismatch, false), coalesce(f.found_at > f.not_found_at, f.found_at IS NOT NULL),
       coalesce(f.not_found_at > coalesce(a.last, '-infinity'), false), coalesce(f.mismatch_at > f.not_found_at, false), said_of(o.key)
  FROM operations o
  LEFT JOIN LATERAL (SELECT max(at) AS last FROM attempts a WHERE a.operation_id = o.id) AS a ON true
  LEFT JOIN LATERAL (
    SELECT bool_or(x.verdict = 'authorized') AS authorized, bool_or(x.verdict = 'mismatch') AS mismatch,
           max(x.at) FILTER (WHERE x.kind = 'look_up' AND x.verdict = 'not_found' AND x.fence >= o.fence - o.fence % 1000000) AS not_found_at, -- since a recovery
           max(x.at) FILTER (WHERE x.verdict = 'mismatch') AS mismatch_at,
           max(x.at) FILTER (WHERE x.kind IN ('look_up', 'webhook') AND x.verdict IN ('unknown', 'in_flight', 'key_reused')) AS found_at
      FROM observations x WHERE x.operation_id = o.id) AS f ON true
 WHERE o.key = $1`

// proved is one row of it.
type proved struct {
	id                                                int64
	state                                             State
	fence                                             int32
	inDoubt, sent, repeated                           bool
	authorized, mismatch, foundSince, notFoundSinceIt bool
	mismatchSince                                     bool
	said                                              string
}

func (p *proved) targets() []any {
	return []any{&p.id, &p.state, &p.fence, &p.inDoubt, &p.sent, &p.repeated, &p.authorized, &p.mismatch, &p.foundSince, &p.notFoundSinceIt,
		&p.mismatchSince, &p.said}
}

// obstacle judges a resolution by what is on record. What the worker may send afterwards is the worker's own judgement (doc of package worker).
func (p *proved) obstacle(r Resolution) Obstacle {
	switch {
	case p.state != StateParked:
		return NotParked
	case p.fence != r.Fence:
		return Moved
	case r.To == StateAuthorized && !p.sent:
		return NeverSent
	case r.To == StateRejected && p.authorized:
		return SaidAuthorized
	case r.To == StateRejected && (p.foundSince || p.mismatchSince):
		return FoundSince
	case p.said != r.Said:
		return Moved
	case r.To == StateOpen && p.mismatch:
		return SaidMismatch
	case r.To == StateOpen && p.authorized:
		return SaidAuthorized
	case r.To == StateOpen && p.inDoubt && (p.foundSince || !p.notFoundSinceIt):
		return NotProvedAbsent
	}
	return NoObstacle
}

// searchWindow is how many internal ids one query of the search for a transfer reads through.
const searchWindow = 250_000

// elsewhere looks for a transfer among all other operations of a partner. No index serves it, since it is asked for a few times a year. So it
// reads a window after the other, each within the limits of any query and all of them within none but the caller's: a search that gives up half
// way would keep what the partner has paid from ever being recorded.
func (l *Ledger) elsewhere(ctx context.Context, id int64, transferID string, window int64) (found bool, err error) {
	var partner string
	var before int64
	err = l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT coalesce(o.partner, ''), (SELECT max(m.id) + 1 FROM operations m) FROM operations o WHERE o.id = $1`, id).
			QueryRow(func(row pgx.Row) error { return row.Scan(&partner, &before) })
	})
	for ; err == nil && !found && before > 1; before -= window {
		_, err = onceMore(ctx, []int64{before}, func(ctx context.Context, _ []int64) ([]bool, error) {
			return nil, l.inOneTrip(ctx, func(b *pgx.Batch) {
				b.Queue(`SELECT EXISTS (SELECT FROM operations o WHERE o.id >= $1 AND o.id < $2 AND o.transfer_id = $3 AND o.partner = $4 AND o.id <> $5)`,
					before-window, before, transferID, partner, id).QueryRow(func(row pgx.Row) error { return row.Scan(&found) })
			})
		})
	}
	if err != nil {
		return false, fmt.Errorf("look for a transfer elsewhere: %w", err)
	}
	return found, nil
}

// Said gives what has been said of an operation, as a Resolution is bound to it.
func (l *Ledger) Said(ctx context.Context, key uuid.UUID) (said string, err error) {
	err = l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT said_of($1)`, key).QueryRow(func(row pgx.Row) error { return row.Scan(&said) })
	})
	if err != nil {
		return "", fmt.Errorf("read what was said of %s: %w", key, err)
	}
	return said, nil
}

// CheckResolution says what stands in the way of a resolution, and changes nothing. Resolve asks the same again under the row's lock, but for a
// transfer elsewhere only among what was recorded lately.
func (l *Ledger) CheckResolution(ctx context.Context, r Resolution) error {
	var p proved
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(proof, r.Key, r.Token).QueryRow(func(row pgx.Row) error { return row.Scan(p.targets()...) })
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", r.Key, err)
	}
	if p.repeated {
		return nil
	}
	if o := p.obstacle(r); o != NoObstacle {
		return &ObstacleError{r.Key, o}
	}
	if r.To != StateAuthorized {
		return nil
	}
	elsewhere, err := l.elsewhere(ctx, p.id, r.TransferID, searchWindow)
	if err != nil {
		return fmt.Errorf("resolve %s: %w", r.Key, err)
	}
	if elsewhere {
		return &ObstacleError{r.Key, TransferElsewhere}
	}
	return nil
}

// Resolve carries out a person's decision on a parked operation: observation, state, entries and event in one transaction. It says whether it
// changed anything: the same decision a second time does not. ErrObstacle: it may not be done.
func (l *Ledger) Resolve(ctx context.Context, r Resolution) (changed bool, err error) {
	if r.Token == uuid.Nil || r.By == "" || r.Reason == "" {
		panic("a resolution has a token, and says who and why")
	}
	said := map[string]string{"decision": string(r.To), "by": r.By, "reason": r.Reason}
	if r.Evidence != "" {
		said["evidence"] = r.Evidence
	}
	if r.Proposal != uuid.Nil {
		said["proposal"] = r.Proposal.String()
	}
	evidence, err := json.Marshal(said, json.Deterministic(true))
	if err != nil {
		return false, fmt.Errorf("render the decision: %w", err)
	}
	results, err := onceMore(ctx, []uuid.UUID{r.Key}, func(ctx context.Context, _ []uuid.UUID) ([]bool, error) {
		ctx, cancel := l.bound(ctx)
		defer cancel()
		changed := false
		err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) (err error) {
			if err = l.limit(ctx, tx); err != nil {
				return err
			}
			changed, err = resolveIn(ctx, tx, r, evidence)
			return err
		})
		return []bool{changed}, err
	})
	if err != nil {
		return false, fmt.Errorf("resolve %s: %w", r.Key, err)
	}
	return results[0], nil
}

// codeElsewhere is what resolve_operation refuses a transfer with that another operation has.
const codeElsewhere = "PO016"

func resolveIn(ctx context.Context, tx pgx.Tx, r Resolution, evidence []byte) (bool, error) {
	if _, err := tx.Exec(ctx, `SELECT set_config('paidonce.proof', $1, true), lock_operation($2, $3)`, r.Under.Proof, r.Under.Line, r.Key); err != nil {
		return false, err
	}
	var p proved // read after the lock was got, so that nothing it rests on is older
	err := tx.QueryRow(ctx, proof, r.Key, r.Token).Scan(p.targets()...)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, ErrNotFound
	case err != nil:
		return false, err
	case p.repeated:
		return false, nil
	}
	if o := p.obstacle(r); o != NoObstacle {
		return false, &ObstacleError{r.Key, o}
	}
	var changed bool
	err = tx.QueryRow(ctx, `SELECT resolve_operation($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb)`,
		r.Under.Line, r.Key, r.Fence, string(r.To), r.TransferID, r.Code, r.Token, string(evidence)).Scan(&changed)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == codeElsewhere {
		return false, &ObstacleError{r.Key, TransferElsewhere}
	}
	return changed, err
}

// CancelUnder ends an operation that nobody works on and that is not in doubt, under a line of the audit log. It says whether it did;
// ErrMoved: nobody knows what would be cancelled.
func (l *Ledger) CancelUnder(ctx context.Context, under Line, key uuid.UUID, code string) (cancelled bool, err error) {
	token := newToken()
	results, err := onceMore(ctx, []uuid.UUID{key}, func(ctx context.Context, _ []uuid.UUID) ([]bool, error) {
		err := l.inOneTrip(ctx, func(b *pgx.Batch) {
			b.Queue(`SELECT set_config('paidonce.proof', $1, true)`, under.Proof)
			b.Queue(`SELECT cancel_operation($1, $2, $3, $4) FROM ledger_identity WHERE `+AtHome, under.Line, key, code, token).QueryRow(func(row pgx.Row) error { return row.Scan(&cancelled) })
		})
		if errors.Is(err, pgx.ErrNoRows) {
			err = ErrMoved
		}
		return []bool{cancelled}, err
	})
	if err != nil {
		return false, fmt.Errorf("cancel %s: %w", key, err)
	}
	return results[0], nil
}

// AskNow makes the look-up of a parked operation, or the next step of an open one, due at once, under a line of the audit log, so that a worker
// asks the partner with its own credentials. It says when the operation was last observed; zero = never.
func (l *Ledger) AskNow(ctx context.Context, under Line, key uuid.UUID) (last time.Time, err error) {
	err = l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT (SELECT max(at) FROM observations x WHERE x.operation_id = o.id) FROM operations o WHERE o.key = $1`, key).
			QueryRow(func(row pgx.Row) error { return row.Scan(timeOrZero{&last}) })
		b.Queue(`SELECT set_config('paidonce.proof', $1, true)`, under.Proof)
		b.Queue(`SELECT ask_operation($1, $2)`, under.Line, key)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return last, fmt.Errorf("ask for %s: %w", key, err)
	}
	return last, nil
}
