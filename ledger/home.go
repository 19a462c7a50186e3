package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Identity is where the ledger remembers to live, and where it was found: server, timeline, database and its table of operations. The last two
// tell a dump that was restored in place, and a copy of the database beside it, from the ledger itself.
type Identity struct {
	System          string    `json:"system"`
	Timeline        int32     `json:"timeline"`
	Database        uint32    `json:"database"` // object id; 0 = not remembered
	Operations      uint32    `json:"operations"`
	DoubtBefore     time.Time `json:"doubt_before,omitzero"`
	LostSince       time.Time `json:"lost_since,omitzero"` // the earliest moment of what may have been lost; zero = nothing, or it is settled
	FoundSystem     string    `json:"found_system"`
	FoundTimeline   int32     `json:"found_timeline"`
	FoundDatabase   uint32    `json:"found_database"`
	FoundOperations uint32    `json:"found_operations"`
}

// Moved reports whether the ledger was found elsewhere than it remembers.
func (i Identity) Moved() bool { return i.Remembered() != i.Found() }

// Remembered is where the ledger remembers to live, in words.
func (i Identity) Remembered() string { return place(i.System, i.Timeline, i.Database, i.Operations) }

// Found is where it was found, in words.
func (i Identity) Found() string {
	return place(i.FoundSystem, i.FoundTimeline, i.FoundDatabase, i.FoundOperations)
}

func place(system string, timeline int32, database, operations uint32) string {
	return fmt.Sprintf("system %s timeline %d database %d table %d", system, timeline, database, operations)
}

const (
	// currentTimeline reads the timeline being written, from memory; the control file lags behind a promotion.
	currentTimeline = `('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int`
	currentDatabase = `(SELECT oid FROM pg_database WHERE datname = current_database())`
)

// AtHome is true of the ledger_identity row while the ledger lives where it remembers to.
const AtHome = `timeline = ` + currentTimeline + ` AND system_identifier = (SELECT system_identifier::text FROM pg_control_system())
	AND database_oid = ` + currentDatabase + ` AND operations_oid = 'public.operations'::regclass`

// madeAt is when the key of wish w was made, if it is one of version 7, by the clock of whoever made it; NULL for every other one.
const madeAt = `CASE WHEN substr(w.key::text, 15, 1) = '7'
	THEN to_timestamp(('x' || left(replace(w.key::text, '-', ''), 12))::bit(48)::bigint / 1000.0) END`

// KeyMayBeLost is true of a wish w (key, source) whose key does not exclude that it was on record, and sent, before the ledger g was recovered: it
// says of itself that it was made before, or nothing that can be believed, or it is stopped. The clock of a source that is known to run ahead is put
// back; a day ahead is no clock, and its keys tell nothing.
const KeyMayBeLost = `CASE WHEN g.doubt_before > '-infinity' THEN EXISTS (SELECT FROM key_stops k WHERE k.key = w.key) OR (
	SELECT CASE WHEN told.at <= now() + interval '1 min' THEN told.at < g.doubt_before ELSE g.lost_since IS NOT NULL END
	  FROM (SELECT CASE WHEN c.ahead <= interval '1 day' THEN ` + madeAt + ` - c.ahead END AS at
	          FROM (SELECT coalesce((SELECT f.ahead FROM fast_clocks f WHERE f.source = w.source), interval '0') AS ahead) c) told) ELSE false END`

// Identity reads both sides.
func (l *Ledger) Identity(ctx context.Context) (Identity, error) {
	var id Identity
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT i.system_identifier, i.timeline, coalesce(i.database_oid, 0), coalesce(i.operations_oid, 0), nullif(i.doubt_before, '-infinity'), i.lost_since,
		       c.system_identifier::text, ` + currentTimeline + `, ` + currentDatabase + `, 'public.operations'::regclass::oid
		  FROM ledger_identity i, pg_control_system() c`).QueryRow(func(row pgx.Row) error {
			return row.Scan(&id.System, &id.Timeline, &id.Database, &id.Operations, timeOrZero{&id.DoubtBefore}, timeOrZero{&id.LostSince},
				&id.FoundSystem, &id.FoundTimeline, &id.FoundDatabase, &id.FoundOperations)
		})
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return id, fmt.Errorf("%w: the ledger does not remember its server: run `paidonce migrate up`", ErrSchema)
	}
	if err != nil {
		return id, fmt.Errorf("read ledger identity: %w", err)
	}
	if id.Database == 0 || id.Operations == 0 {
		return id, fmt.Errorf("%w: the ledger does not remember its database: run `paidonce migrate up`", ErrSchema)
	}
	return id, nil
}

func (l *Ledger) checkAtHome(ctx context.Context) error {
	id, err := l.Identity(ctx)
	if err == nil && id.Moved() {
		err = ErrMoved
	}
	return err
}
