package dead

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

const takeLease = `
INSERT INTO leases (name, holder, until) VALUES ($1, $2, now() + $3::int8 * interval '1 ms')
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until WHERE leases.until < now() OR leases.holder = excluded.holder`

// lease is the right to run a plan. It saves work and confusion; that nothing happens twice does not hang on it.
type lease struct {
	d      *Desk
	name   string
	holder uuid.UUID
	lost   context.CancelCauseFunc
	stop   chan struct{}
	ended  sync.WaitGroup
}

// hold takes the lease of a plan and keeps it until release. The context that it gives ends when the lease is lost.
func (d *Desk) hold(ctx context.Context, p *Plan) (context.Context, *lease, error) {
	l := &lease{d: d, name: "dead/" + p.ID.String(), holder: uuid.New(), stop: make(chan struct{})}
	mine, err := l.take(ctx)
	if err != nil {
		return ctx, nil, err
	}
	if !mine {
		return ctx, nil, operate.Refuse("plan_busy", "somebody else is running plan %s at this moment, or was until %s ago: it is not run twice", p.ID, d.opt.Lease)
	}
	ctx, l.lost = context.WithCancelCause(ctx)
	l.ended.Go(func() { l.keep(ctx) })
	return ctx, l, nil
}

func (l *lease) take(ctx context.Context) (bool, error) {
	done, err := l.d.db.Exec(ctx, takeLease, l.name, l.holder, l.d.opt.Lease.Milliseconds())
	if err != nil {
		return false, fmt.Errorf("take the lease of a plan: %w", err)
	}
	return done.RowsAffected() == 1, nil
}

func (l *lease) keep(ctx context.Context) {
	ticker := time.NewTicker(l.d.opt.Lease / 3)
	defer ticker.Stop()
	kept := time.Now()
	for {
		select {
		case <-l.stop:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		mine, err := l.take(ctx)
		switch {
		case mine:
			kept = time.Now()
		case err == nil || time.Since(kept) > l.d.opt.Lease:
			l.lost(operate.Refuse("plan_busy", "the lease of the plan was lost: somebody else may be running it"))
			return
		}
	}
}

func (l *lease) release(ctx context.Context) {
	close(l.stop)
	l.ended.Wait()
	l.lost(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = l.d.db.Exec(ctx, `DELETE FROM leases WHERE name = $1 AND holder = $2`, l.name, l.holder) // else it runs out by itself
}
