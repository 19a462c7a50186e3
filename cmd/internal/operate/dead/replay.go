package dead

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/time/rate"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/worker/queue"
)

// finishTimeout is how long a chunk that was begun is worked on after its caller has gone.
const finishTimeout = 30 * time.Second

// Tally is what a replay came to, in letters.
type Tally struct {
	Published int64 // now, and confirmed
	Before    int64 // published by an earlier run of the plan
	Duplicate int64 // of Published: the broker had the very message already, from a run that was killed
	Failed    int64 // the broker did not take it; a next run tries again
	Changed   int64 // skipped: it stands in another way now than when this run began
	Left      int64 // not begun
}

// Replay is the act of publishing what is replayable in a plan. Tally is set while it runs.
type Replay struct {
	Tally Tally

	d    *Desk
	plan *Plan
	rate int
	done bool // before this run
}

// Replay is the act upon a plan, at most perSecond letters per second; 0 = as fast as they are confirmed.
func (d *Desk) Replay(ctx context.Context, p *Plan, perSecond int) (*Replay, error) {
	r := &Replay{d: d, plan: p, rate: perSecond}
	_, err := r.count(ctx)
	r.done = r.Tally.Before == p.sum(ClassReplayable).Count
	return r, err
}

// Name is replay.
func (*Replay) Name() string { return ActReplay }

// Role is the operator's.
func (*Replay) Role() operate.Role { return operate.RoleOperator }

// Target is the plan.
func (r *Replay) Target() string { return r.plan.ID.String() }

// Content is the plan, to the byte.
func (r *Replay) Content() ([]byte, error) { return r.plan.contentOf(r.plan.weightOf(ClassReplayable)) }

// Weight is what would be published; nothing, when all of it was.
func (r *Replay) Weight() operate.Weight {
	if r.done {
		return operate.Weight{}
	}
	return r.plan.weightOf(ClassReplayable)
}

// Check refuses a plan that has changed, or that nobody has begun in its time.
func (r *Replay) Check(ctx context.Context, _ operate.Operator) error {
	begun, err := r.count(ctx)
	if err != nil || r.Tally.Left == 0 {
		return err // all was begun: what is unconfirmed is finished, whatever else has changed
	}
	if !begun && !time.Now().Before(r.plan.ExpiresAt) {
		return operate.Refuse("plan_expired", "plan %s could be begun until %s: make a new one", r.plan.ID, r.plan.ExpiresAt.UTC().Format(time.RFC3339))
	}
	if begun {
		return r.d.fresh(ctx, r.plan, []Class{ClassReplayable})
	}
	return r.d.fresh(ctx, r.plan, nil)
}

// count tells what earlier runs have done.
func (r *Replay) count(ctx context.Context) (begun bool, err error) {
	var decided int64
	err = r.d.db.QueryRow(ctx, `SELECT count(*), count(p.id) FROM dead_letter_acts a
		LEFT JOIN dead_letter_acts p ON p.stream_at = a.stream_at AND p.sequence = a.sequence AND p.act = 'published'
		WHERE a.plan = $1 AND a.act = 'replay'`, r.plan.draft).Scan(&decided, &r.Tally.Before)
	if err != nil {
		return false, fmt.Errorf("read what was done of plan %s: %w", r.plan.ID, err)
	}
	r.Tally.Left = r.plan.sum(ClassReplayable).Count - decided
	return decided > 0, nil
}

// Run publishes, chunk by chunk: decide and commit, publish, commit what came of it. It begins with what an earlier run has decided and
// not recorded, and with what the broker has confirmed and lost. When ctx ends, the chunk that was begun is finished.
func (r *Replay) Run(ctx context.Context, by operate.Operator) (string, error) {
	ctx, lease, err := r.d.hold(ctx, r.plan)
	if err != nil {
		return "", err
	}
	defer lease.release(ctx)
	if _, err := r.count(ctx); err != nil {
		return "", err
	}
	if err = r.finish(ctx, by); err == nil {
		err = r.publishLost(ctx, by)
	}
	if err == nil {
		err = r.publishRest(ctx, by)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	switch {
	case err != nil:
		return "", err
	case r.Tally.Failed+r.Tally.Changed > 0:
		return operate.OutcomePartial, nil
	case r.Tally.Published == 0:
		return operate.OutcomeNoEffect, nil
	}
	return operate.OutcomeDone, nil
}

// replaying is one letter whose replay is decided.
type replaying struct {
	sequence uint64
	n        int
}

func scanReplaying(row pgx.CollectableRow) (one replaying, err error) {
	return one, row.Scan(&one.sequence, &one.n)
}

const unconfirmed = `
SELECT a.sequence, a.replay_n FROM dead_letter_acts a
 WHERE a.plan = $1 AND a.act = 'replay' AND a.sequence > $2
   AND (SELECT true FROM dead_letter_acts p WHERE p.stream_at = a.stream_at AND p.sequence = a.sequence AND p.act = 'published' LIMIT 1) IS NULL
 ORDER BY a.plan, a.act, a.sequence LIMIT $3`

// finish publishes again, under the same ids, what was decided and is not on record as published.
func (r *Replay) finish(ctx context.Context, by operate.Operator) error {
	for after := uint64(0); ; {
		chunk, err := collect(ctx, r.d, scanReplaying, unconfirmed, r.plan.draft, after, r.d.opt.Chunk)
		if err != nil {
			return fmt.Errorf("read what plan %s has begun: %w", r.plan.ID, err)
		}
		if len(chunk) == 0 {
			return nil
		}
		after = chunk[len(chunk)-1].sequence
		letters, err := r.read(ctx, chunk)
		if err != nil {
			return err
		}
		if err := r.publish(ctx, by, chunk, letters); err != nil {
			return err
		}
	}
}

// untaken are replays that were published, and of which nothing is known: no operation, no later letter, no correction. Their jobs wait, or are lost.
const untaken = `
SELECT a.sequence, a.replay_n, p.job_sequence FROM dead_letter_acts a
 CROSS JOIN LATERAL (SELECT x.job_sequence FROM dead_letter_acts x WHERE x.stream_at = a.stream_at AND x.sequence = a.sequence AND x.act = 'published' LIMIT 1) p
 WHERE a.plan = $1 AND a.act = 'replay' AND a.sequence > $2 AND NOT EXISTS (SELECT FROM operations o WHERE o.key = a.key)
   AND NOT EXISTS (SELECT FROM corrections c WHERE c.old_key = a.key)
   AND NOT EXISTS (SELECT FROM dead_letters m WHERE m.key = a.key AND m.stream_at = a.stream_at AND m.replays >= a.replay_n)
 ORDER BY a.plan, a.act, a.sequence LIMIT $3`

// publishLost publishes again, under the same ids, what the broker has confirmed and does not have: one that lost its last writes. What it has, or
// what came to the ledger meanwhile, makes no second payment: the key is the same.
func (r *Replay) publishLost(ctx context.Context, by operate.Operator) error {
	type waiting struct {
		replaying
		job uint64
	}
	scan := func(row pgx.CollectableRow) (one waiting, err error) {
		return one, row.Scan(&one.sequence, &one.n, &one.job)
	}
	for after := uint64(0); ; {
		page, err := collect(ctx, r.d, scan, untaken, r.plan.draft, after, r.d.opt.Chunk)
		if err != nil {
			return fmt.Errorf("read what plan %s has published: %w", r.plan.ID, err)
		}
		if len(page) == 0 {
			return nil
		}
		if after == 0 { // it may be a letter again that the index does not know yet
			if state, err := r.d.Sync(ctx); err != nil || !micros(state.Created).Equal(r.plan.Stream) {
				return err
			}
			if page, err = collect(ctx, r.d, scan, untaken, r.plan.draft, after, r.d.opt.Chunk); err != nil || len(page) == 0 {
				return err
			}
		}
		after = page[len(page)-1].sequence
		all := make([]replaying, len(page))
		for i := range page {
			all[i] = page[i].replaying
		}
		letters, err := r.read(ctx, all)
		if err != nil {
			return err
		}
		var lost []replaying
		for _, one := range page {
			held, err := r.d.publish.Holds(ctx, one.job, messageOf(letters[one.sequence], one.n))
			if err != nil {
				return err
			}
			if !held {
				lost = append(lost, one.replaying)
			}
		}
		r.Tally.Before -= int64(len(lost))
		if err := r.publish(ctx, by, lost, letters); err != nil {
			return err
		}
	}
}

// messageOf is the n-th replay of a letter.
func messageOf(letter queue.DeadLetter, n int) queue.Message {
	m := queue.Message{Source: letter.Source, Route: letter.Route, Key: entryOf(letter).Key, Payload: letter.Payload, TraceParent: letter.TraceParent(), FirstSeen: seen(letter)}
	return m.AsReplay(n)
}

func (r *Replay) publishRest(ctx context.Context, by operate.Operator) error {
	limiter := rate.NewLimiter(rate.Inf, 0)
	size := r.d.opt.Chunk
	if r.rate > 0 {
		size = min(size, max(1, r.rate/4))
		limiter = rate.NewLimiter(rate.Limit(r.rate), size)
	}
	for after := uint64(0); ; {
		page, err := r.d.undecided(ctx, r.plan, after, size, ClassReplayable)
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1]
		if err := limiter.WaitN(ctx, len(page)); err != nil {
			return err
		}
		chunk := make([]replaying, len(page))
		for i := range page {
			chunk[i].sequence = page[i]
		}
		letters, err := r.read(ctx, chunk)
		if err != nil {
			return err
		}
		chunk, err = r.decide(ctx, by, chunk)
		if err != nil {
			return err
		}
		r.Tally.Left -= int64(len(page))
		r.Tally.Changed += int64(len(page) - len(chunk))
		if err := r.publish(ctx, by, chunk, letters); err != nil {
			return err
		}
	}
}

const undecided = `SELECT g.sequence FROM dead_plan_letters g
 WHERE g.draft = $1 AND g.class = ANY ($5::text[]) AND g.sequence > $2 AND (SELECT true FROM dead_letter_acts a
  WHERE a.stream_at = $3 AND a.sequence = g.sequence AND a.act IN ('replay', 'discard', 'correct') LIMIT 1) IS NULL
 ORDER BY g.draft, g.sequence LIMIT $4`

// undecided reads the sequences of a page of a plan's letters of some classes that nothing was decided about.
func (d *Desk) undecided(ctx context.Context, p *Plan, after uint64, most int, classes ...Class) ([]uint64, error) {
	page, err := collect(ctx, d, pgx.RowTo[uint64], undecided, p.draft, after, p.Stream, most, classes)
	if err != nil {
		return nil, fmt.Errorf("read the letters of a plan: %w", err)
	}
	return page, nil
}

// read reads the letters of a chunk, and refuses one that is gone.
func (r *Replay) read(ctx context.Context, chunk []replaying) (map[uint64]queue.DeadLetter, error) {
	sequences := make([]uint64, len(chunk))
	for i := range chunk {
		sequences[i] = chunk[i].sequence
	}
	return r.d.lettersIn(ctx, r.plan, sequences)
}

// lettersIn reads letters of a plan from the stream, and refuses one that is gone.
func (d *Desk) lettersIn(ctx context.Context, p *Plan, sequences []uint64) (map[uint64]queue.DeadLetter, error) {
	letters, err := d.letters.Read(ctx, sequences)
	if err != nil {
		return nil, err
	}
	found := make(map[uint64]queue.DeadLetter, len(letters))
	for i, l := range letters {
		if l.Sequence != sequences[i] {
			return nil, operate.Refuse("plan_changed", "dead letter %d of plan %s is gone from the stream", sequences[i], p.ID)
		}
		found[l.Sequence] = l
	}
	return found, nil
}

// decideReplays decides what is as replayable as the plan says, of the bytes that the plan names. The number counts the replays of the key, whatever
// letter they came from.
const decideReplays = `
INSERT INTO dead_letter_acts (stream_at, sequence, act, by, plan, key, replay_n)
SELECT l.stream_at, l.sequence, 'replay', $3, $2, l.key, greatest(l.replays, coalesce(s.replays, 0)) + 1
  FROM dead_plan_letters g
  JOIN LATERAL (SELECT x.stream_at, x.sequence, x.key, x.fingerprint_version, x.fingerprint, x.replays, x.route, x.source, x.amount_minor, x.currency FROM dead_letters x
                 WHERE x.stream_at = $1 AND x.sequence = g.sequence AND x.sha256 = g.sha256 LIMIT 1) l ON true` + classified + `
 WHERE g.draft = $2 AND g.sequence = ANY ($4::int8[]) AND `

func (r *Replay) decide(ctx context.Context, by operate.Operator, chunk []replaying) (decided []replaying, err error) {
	sequences := make([]uint64, len(chunk))
	for i := range chunk {
		sequences[i] = chunk[i].sequence
	}
	err = r.d.inTxOf(ctx, by, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, decideReplays+classOf("$5")+` = 'replayable' ORDER BY l.sequence ON CONFLICT DO NOTHING RETURNING sequence, replay_n`,
			r.plan.Stream, r.plan.draft, by.Name, sequences, r.d.opt.Policy)
		if err != nil {
			return err
		}
		decided, err = pgx.CollectRows(rows, scanReplaying)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("decide the replay of %d letters: %w", len(chunk), err)
	}
	return decided, nil
}

// publish publishes a chunk that is decided and records what came of each letter, also when ctx ends meanwhile.
func (r *Replay) publish(ctx context.Context, by operate.Operator, chunk []replaying, letters map[uint64]queue.DeadLetter) error {
	if len(chunk) == 0 {
		return nil
	}
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	messages := make([]queue.Message, len(chunk))
	for i := range chunk {
		messages[i] = messageOf(letters[chunk[i].sequence], chunk[i].n)
	}
	results := r.d.publish.PublishMany(finish, messages)
	found := outcomes{}
	var away error // the broker does not answer: the next chunk would fare no better
	for i, result := range results {
		if err := r.judge(finish, &found, chunk[i].sequence, messages[i], result); err != nil {
			return err
		}
		if errors.Is(result.Err, queue.ErrUnconfirmed) {
			away = result.Err
		}
	}
	// With a time of its own: a broker that was away may have used up the other one.
	record, stop := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer stop()
	if err := found.record(record, r.d, r.plan, by); err != nil {
		return err
	}
	r.d.opt.Progress("replay", r.Tally.Before+r.Tally.Published, r.plan.sum(ClassReplayable).Count)
	return errors.Join(ctx.Err(), away)
}

// seen is when the job of a letter was published first.
func seen(l queue.DeadLetter) time.Time {
	if l.FirstSeen.IsZero() {
		return l.At
	}
	return l.FirstSeen
}

// judge turns one result into what is recorded. A duplicate is ours only if the stream holds what we wanted to publish: somebody else may
// have used the id.
func (r *Replay) judge(ctx context.Context, found *outcomes, sequence uint64, m queue.Message, result queue.Result) error {
	code := ""
	switch {
	case errors.Is(result.Err, queue.ErrRefused), errors.Is(result.Err, queue.ErrTooLarge):
		code = "refused"
	case result.Err != nil:
		code = "unconfirmed"
	case result.Duplicate:
		held, err := r.d.publish.Holds(ctx, result.Sequence, m)
		if err != nil {
			return err
		}
		if !held {
			code = "id_taken"
		}
	}
	if code != "" {
		r.Tally.Failed++
	} else {
		r.Tally.Published++
		if result.Duplicate {
			r.Tally.Duplicate++
		}
	}
	found.add(sequence, result, code)
	return nil
}

// outcomes are what came of a chunk, as columns.
type outcomes struct {
	sequence, job []int64
	duplicate     []bool
	code          []string
}

func (o *outcomes) add(sequence uint64, result queue.Result, code string) {
	o.sequence = append(o.sequence, int64(sequence)) //nolint:gosec // a sequence
	o.job = append(o.job, int64(result.Sequence))    //nolint:gosec // a sequence
	o.duplicate = append(o.duplicate, result.Duplicate)
	o.code = append(o.code, code)
}

func (o *outcomes) record(ctx context.Context, d *Desk, p *Plan, by operate.Operator) error {
	err := d.inTxOf(ctx, by, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
INSERT INTO dead_letter_acts (stream_at, sequence, act, by, plan, job_sequence, duplicate, reason)
SELECT $1, w.sequence, CASE w.code WHEN '' THEN 'published' ELSE 'failed' END, $2, $3, CASE w.code WHEN '' THEN w.job END,
       CASE w.code WHEN '' THEN w.duplicate END, w.code
  FROM unnest($4::int8[], $5::int8[], $6::bool[], $7::text[]) AS w(sequence, job, duplicate, code)
ON CONFLICT (stream_at, sequence) WHERE act = 'published' DO NOTHING`, p.Stream, by.Name, orNil(p.draft, uuid.Nil), o.sequence, o.job, o.duplicate, o.code)
		return err
	})
	if err != nil {
		return fmt.Errorf("record what came of %d letters: %w", len(o.sequence), err)
	}
	return nil
}
