package dead

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"

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
	page, err := p.letters(ctx, d.db, 0, pageRows)
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
		if page, err = p.letters(ctx, d.db, letter.Sequence, pageRows); err != nil {
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
SELECT g.sequence, g.class, coalesce(` + "%s" + `, 'gone') FROM dead_plan_letters g
  LEFT JOIN dead_letters l ON l.stream_at = $1 AND l.sequence = g.sequence` + classified + `
 WHERE g.draft = $2 AND g.sequence > $4 AND ($6::text[] IS NULL OR g.class = ANY ($6)) AND NOT coalesce(a.act = 'replay' AND a.plan = $2, false) AND NOT coalesce(a.act = 'discard' AND a.plan = $2, false)
 ORDER BY g.sequence LIMIT $5`

func (d *Desk) sameClasses(ctx context.Context, p *Plan, classes []Class) error {
	for after := uint64(0); ; {
		rows, err := d.db.Query(ctx, fmt.Sprintf(classesNow, classOf("$3")), p.Stream, p.draft, d.opt.Routes, after, 5*pageRows, classes)
		if err != nil {
			return fmt.Errorf("classify the letters of plan %s: %w", p.ID, err)
		}
		n := 0
		for rows.Next() {
			var then, now Class
			if err := rows.Scan(&after, &then, &now); err != nil {
				rows.Close()
				return fmt.Errorf("classify the letters of plan %s: %w", p.ID, err)
			}
			if n++; !then.same(now) {
				rows.Close()
				return operate.Refuse("plan_changed", "dead letter %d was %s when plan %s was frozen, and is %s now: make a new plan", after, then, p.ID, now)
			}
		}
		if err := rows.Err(); err != nil {
			return fmt.Errorf("classify the letters of plan %s: %w", p.ID, err)
		}
		if n == 0 {
			return nil
		}
	}
}
