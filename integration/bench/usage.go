package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	cost "github.com/paidonce/paidonce/integration/stack/usage"
)

// cpu is the processor time of processes so far.
type cpu struct{ worker, postgres, nats, bank time.Duration }

func (c cpu) minus(o cpu) cpu {
	return cpu{c.worker - o.worker, c.postgres - o.postgres, c.nats - o.nats, c.bank - o.bank}
}

func (c cpu) total() time.Duration { return c.worker + c.postgres + c.nats + c.bank }

// memory is the resident memory of a process now.
func memory(pid int) (int64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	fields := strings.Fields(string(text))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// usage is a reading of everything that is counted up.
type usage struct {
	at    time.Time
	cpu   cpu
	wal   int64 // bytes
	xids  int64 // transactions that wrote
	stage *stage
}

func (s *stage) usage(ctx context.Context, worker *child) (u usage, err error) {
	u.stage = s
	if worker != nil {
		if u.cpu.worker, _, err = cost.Process(worker.PID(), false); err != nil {
			return u, err
		}
	}
	if u.cpu.bank, _, err = cost.Process(s.bank.PID(), false); err != nil {
		return u, err
	}
	if u.cpu.nats, _, err = cost.Process(s.bench.nats.PID(), false); err != nil {
		return u, err
	}
	if u.cpu.postgres, err = cost.Tree(s.bench.postgres.PID()); err != nil {
		return u, err
	}
	// An id is assigned to a transaction by its first write, so ids count the commits that cost something.
	err = s.admin.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_snapshot_xmax(pg_current_snapshot())::text::int8").Scan(&u.wal, &u.xids)
	if err != nil {
		return u, fmt.Errorf("read the server's counters: %w", err)
	}
	u.at = time.Now()
	return u, nil
}

// hotShare is the share of updates that touched no index, over all tables. Backends report their counts when they end.
func hotShare(ctx context.Context, admin *pgx.Conn) (share float64, err error) {
	err = admin.QueryRow(ctx, "SELECT coalesce(sum(n_tup_hot_upd)::float8 / nullif(sum(n_tup_upd), 0), 1) FROM pg_stat_user_tables").Scan(&share)
	if err != nil {
		return 0, fmt.Errorf("read the share of HOT updates: %w", err)
	}
	return share, nil
}
