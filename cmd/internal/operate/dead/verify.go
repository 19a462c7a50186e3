package dead

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/worker/queue"
)

// fresh refuses a plan that is not what was frozen any more: its stream was made again, a letter is gone or has other bytes, or a letter that
// the plan has not begun with stands in another way to the ledger now. What the plan itself has done is no change. Classes are those that are
// compared: a plan that was begun has itself changed how its other letters stand. nil = all.
func (d *Desk) fresh(ctx context.Context, p *Plan, classes []Class) error {
	state, err := d.Sync(ctx)
	if err != nil {
		return err
	}
	if !micros(state.Created).Equal(p.Stream) {
		return operate.Refuse("plan_changed", "the stream of dead letters was made again since plan %s was frozen: make a new plan", p.ID)
	}
	if err := d.sameBytes(ctx, p); err != nil {
		return err
	}
	return d.sameClasses(ctx, p, classes)
}

// sameBytes reads the stream beside the plan.
func (d *Desk) sameBytes(ctx context.Context, p *Plan) error {
	page, err := d.lettersOf(ctx, p, 0)
	if err != nil {
		return err
	}
	gone := func(sequence uint64) error {
		return operate.Refuse("plan_changed", "dead letter %d of plan %s is gone from the stream: make a new plan", sequence, p.ID)
	}
	var compared int64
	for letter, err := range d.letters.Scan(ctx, queue.DeadFilter{From: page[0].sequence}) {
		if err != nil {
			return err
		}
		if letter.Sequence < page[0].sequence {
			continue
		}
		if letter.Sequence > page[0].sequence {
			return gone(page[0].sequence)
		}
		if sum := sha256.Sum256(letter.Payload); !bytes.Equal(sum[:], page[0].sha256) {
			return operate.Refuse("plan_changed", "dead letter %d is not the one that plan %s was frozen with: make a new plan", letter.Sequence, p.ID)
		}
		if compared++; compared%pageRows == 0 {
			d.opt.Progress("compare", compared, p.Letters)
		}
		if page = page[1:]; len(page) > 0 {
			continue
		}
		if page, err = d.lettersOf(ctx, p, letter.Sequence); err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
	}
	return gone(page[0].sequence)
}

// classesNow compares in pages, so that no statement takes long.
const classesNow = `
SELECT g.sequence, g.class, CASE WHEN l.sequence IS NULL THEN 'gone' ELSE ` + "%s" + ` END FROM dead_plan_letters g
  LEFT JOIN LATERAL (SELECT x.stream_at, x.sequence, x.key, x.fingerprint_version, x.fingerprint, x.replays, x.route, x.source, x.amount_minor, x.currency FROM dead_letters x
                      WHERE x.stream_at = $1 AND x.sequence = g.sequence LIMIT 1) l ON true` + classified + `
 WHERE g.draft = $2 AND g.sequence > $4 AND ($6::text[] IS NULL OR g.class = ANY ($6)) AND NOT coalesce(a.act = 'replay' AND a.plan = $2, false) AND NOT coalesce(a.act = 'discard' AND a.plan = $2, false)
 ORDER BY g.draft, g.sequence LIMIT $5`

func (d *Desk) sameClasses(ctx context.Context, p *Plan, classes []Class) error {
	type compared struct {
		sequence  uint64
		then, now Class
	}
	scan := func(row pgx.CollectableRow) (c compared, err error) { return c, row.Scan(&c.sequence, &c.then, &c.now) }
	for after := uint64(0); ; {
		page, err := collect(ctx, d, scan, fmt.Sprintf(classesNow, classOf("$3")), p.Stream, p.draft, d.opt.Policy, after, planPage, classes)
		if err != nil {
			return fmt.Errorf("classify the letters of plan %s: %w", p.ID, err)
		}
		if len(page) == 0 {
			return nil
		}
		for _, c := range page {
			if d.opt.Policy == nil && c.now == ClassReplayable && (c.then.Refused() || c.then == ClassUnroutable) {
				continue // who has no settings cannot tell whether they would let it through now
			}
			if !c.then.same(c.now) {
				return operate.Refuse("plan_changed", "dead letter %d was %s when plan %s was frozen, and is %s now: make a new plan", c.sequence, c.then, p.ID, c.now)
			}
		}
		after = page[len(page)-1].sequence
	}
}
