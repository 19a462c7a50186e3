package dead

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// Overtaken says in words what has happened since that leaves nothing to agree to in a proposal about dead letters; "" = it still stands. It asks
// what the act itself would ask, as far as the database tells: a desk without a broker does.
func (d *Desk) Overtaken(ctx context.Context, p operate.Proposal) (string, error) {
	var err error
	switch p.Act {
	case ActCorrect:
		err = d.correctable(ctx, p)
	case ActReplay:
		err = d.replayable(ctx, p)
	case ActDiscard:
		err = d.discardable(ctx, p)
	}
	switch {
	case errors.Is(err, operate.ErrRefused), errors.Is(err, ErrNoPlan):
		return err.Error(), nil
	case err != nil:
		return "", fmt.Errorf("ask what became of proposal %s: %w", p.ID, err)
	}
	return "", nil
}

func (d *Desk) correctable(ctx context.Context, p operate.Proposal) error {
	var content correctContent
	if err := json.Unmarshal(p.Content, &content); err != nil {
		return nil //nolint:nilerr // nothing can be said of it, and Compare refuses it
	}
	stream, err := time.Parse(time.RFC3339Nano, content.StreamAt)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	a := &Correct{d: d, stream: stream}
	entries, err := collect(ctx, d, func(row pgx.CollectableRow) (e Entry, err error) { return e, scanEntry(row, &e) },
		`SELECT `+entryFields+` FROM dead_letters l WHERE l.stream_at = $1 AND l.sequence = $2`, stream, content.Letter)
	switch {
	case err != nil:
		return err
	case len(entries) == 0:
		return operate.Refuse("letter_gone", "dead letter %d is not in the stream any more", content.Letter)
	}
	a.entry = entries[0]
	if a.job.Key, err = uuid.Parse(content.NewKey); err != nil {
		return nil //nolint:nilerr // as above
	}
	a.job.Source, a.sum = a.entry.Source, sumOf(content.PayloadSHA256)
	return a.Check(ctx, operate.Operator{})
}

func (d *Desk) planOf(ctx context.Context, p operate.Proposal) (*Plan, error) {
	id, err := uuid.Parse(p.Target)
	if err != nil {
		return nil, nil //nolint:nilerr // it is of letters by their sequences
	}
	return d.Plan(ctx, id)
}

func (d *Desk) replayable(ctx context.Context, p operate.Proposal) error {
	plan, err := d.planOf(ctx, p)
	if err != nil || plan == nil {
		return err
	}
	r, err := d.Replay(ctx, plan, 0)
	switch {
	case err != nil:
		return err
	case r.Tally.Left == 0:
		return operate.Refuse("done", "all that plan %s replays was replayed", plan.ID)
	case r.plan.sum(ClassReplayable).Count > r.Tally.Left:
		return nil // begun: it goes on
	}
	return d.same(ctx, plan)
}

func (d *Desk) discardable(ctx context.Context, p operate.Proposal) error {
	plan, err := d.planOf(ctx, p)
	if err != nil {
		return err
	}
	if plan == nil {
		return d.discardableLetters(ctx, p)
	}
	a, err := d.DiscardPlan(ctx, plan, "")
	if err != nil {
		return err
	}
	if a.done {
		return operate.Refuse("done", "something was decided about every letter of plan %s", plan.ID)
	}
	if begun, err := a.begun(ctx); err != nil || begun {
		return err
	}
	return d.same(ctx, plan)
}

// same refuses a plan that is too old, or whose letters stand in another way to the ledger now.
func (d *Desk) same(ctx context.Context, p *Plan) error {
	if !time.Now().Before(p.ExpiresAt) {
		return operate.Refuse("plan_expired", "plan %s could be begun until %s", p.ID, p.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return d.sameClasses(ctx, p, nil)
}

func (d *Desk) discardableLetters(ctx context.Context, p operate.Proposal) error {
	var content struct {
		StreamAt string `json:"stream_at"`
		Letters  []struct {
			Letter uint64 `json:"letter"`
		} `json:"letters"`
	}
	if json.Unmarshal(p.Content, &content) != nil {
		return nil
	}
	stream, err := time.Parse(time.RFC3339Nano, content.StreamAt)
	if err != nil || len(content.Letters) == 0 {
		return nil //nolint:nilerr // nothing can be said of it
	}
	a := &Discard{d: d, stream: stream}
	for _, l := range content.Letters {
		a.entries = append(a.entries, Entry{Sequence: l.Letter})
	}
	if err := a.Check(ctx, operate.Operator{}); err != nil {
		return err
	}
	by, err := collect(ctx, d, pgx.RowTo[string], `SELECT by FROM dead_letter_acts WHERE stream_at = $1 AND sequence = ANY ($2::int8[]) AND act = 'discard'`,
		stream, a.sequences())
	if err == nil && len(by) == len(a.entries) {
		return operate.Refuse("done", "%s: discarded already, by %s", a.Target(), by[0])
	}
	return err
}
