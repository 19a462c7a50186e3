package batch

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/integration/stack"
)

// TestRegister_PartsAreNotRemovedWhileTheRunComesOnRecord: an interrupted submitter removes its parts while its commit waits for the standby, and so
// does whoever takes them for orphans. Then the run would be on record with no rows.
func TestRegister_PartsAreNotRemovedWhileTheRunComesOnRecord(t *testing.T) {
	for name, remove := range map[string]func(w *world, run uuid.UUID) error{
		"interrupted": func(w *world, run uuid.UUID) error {
			return (&staging{s: w.Service, run: run}).discard(context.Background())
		},
		"orphans": func(w *world, _ uuid.UUID) error { return w.removeOrphans(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, operate.Options{})
			removed := make(chan error, 1)
			w.Service.opt.point = func(_ context.Context, at point) {
				switch at {
				case pointChecked:
					w.exec(`ALTER TABLE batch_parts DISABLE TRIGGER USER`)
					w.exec(`UPDATE batch_parts SET at = at - interval '2 days'`)
					w.exec(`ALTER TABLE batch_parts ENABLE TRIGGER USER`)
				case pointRegister:
					run := value[uuid.UUID](w, `SELECT DISTINCT run_id FROM batch_parts`)
					go func() { removed <- remove(w, run) }()
					stack.Eventually(t, "the removal waits or is through", func() bool {
						return len(removed) > 0 || value[bool](w, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
							WHERE a.datname = current_database() AND NOT l.granted)`)
					})
				}
			}
			run := w.submit("run-1", twoRows)
			if err := <-removed; err != nil {
				t.Errorf("the removal: %v, want it to leave what belongs to a run", err)
			}
			w.enqueue(run)
			w.want(2, `SELECT count(*) FROM operations`)
		})
	}
}

// TestEnqueue_ARunWhoseRowsAreGoneIsNotDone
func TestEnqueue_ARunWhoseRowsAreGoneIsNotDone(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	run := w.submit("run-1", csvRows(8))
	w.refused("PO022", `DELETE FROM batch_parts WHERE run_id = $1 AND part = 1`, run.ID) // it is released, and the rows are no operations
	w.exec(`ALTER TABLE batch_parts DISABLE TRIGGER USER`)
	w.exec(`DELETE FROM batch_parts WHERE part = 1`)
	w.exec(`ALTER TABLE batch_parts ENABLE TRIGGER USER`)
	for range 2 {
		if err := w.Enqueue(t.Context(), run, EnqueueOptions{}); !errors.Is(err, ErrRowsMissing) {
			t.Errorf("enqueue of a run that has lost four rows: %v", err)
		}
	}
	w.want(4, `SELECT count(*) FROM operations`)
}
