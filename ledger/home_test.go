package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/migrations"
)

// wantMoved wants a ledger that knows that it is not at home, to let nothing begin.
func wantMoved(t *testing.T, l *ledger.Ledger, w ledger.Wish) {
	t.Helper()
	ctx := context.Background()
	if err := l.Check(ctx); !errors.Is(err, ledger.ErrMoved) {
		t.Errorf("check: %v, want ErrMoved", err)
	}
	if work, err := l.ClaimDue(ctx, "northbank", 10); !errors.Is(err, ledger.ErrMoved) || len(work) != 0 {
		t.Errorf("sweep: %d operations, err %v; want ErrMoved", len(work), err)
	}
	if a := l.Claim(ctx, []ledger.Wish{w})[0]; !errors.Is(a.Err, ledger.ErrMoved) {
		t.Errorf("claim: %+v, want ErrMoved", a)
	}
}

// TestHome_ADumpRestoredInPlace: server and timeline are the same, and a day's claims are gone.
func TestHome_ADumpRestoredInPlace(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	open, unseen := newWish(), newWish()
	o := orderOf(open)
	o.Grace = 0
	wantAccepted(t, db.Ledger, o, ledger.Accepted)
	restore := dump(t, db)
	mustRecord(t, db.Ledger, ledger.Authorize(mustClaim(t, db.Ledger, open), "tr_1", verdict("authorized")))
	mustRecord(t, db.Ledger, ledger.Authorize(mustClaim(t, db.Ledger, unseen), "tr_2", verdict("authorized")))
	restore()
	again := db.as(db.urls.Worker, ledger.Options{})
	wantMoved(t, again, unseen)
	before := time.Now()
	recovery, err := db.as(db.urls.Owner, ledger.Options{}).Recover(context.Background(), ledger.Loss{}, "restored", "ann")
	if err != nil {
		t.Fatal(err)
	}
	if recovery.PutInDoubt != 1 || recovery.LostSince.IsZero() || recovery.LostSince.After(before.Add(-time.Minute)) {
		t.Errorf("recovery %+v", recovery)
	}
	if err := again.Check(context.Background()); err != nil {
		t.Errorf("after recover: %v", err)
	}
	unseen.PublishedAt = time.Now()
	mustClaimInDoubt(t, &database{Ledger: again, t: t, urls: db.urls}, unseen, true)
	if work := sweepOne(t, again); !work.InDoubt {
		t.Error("the sweep has what was paid since the dump for fresh")
	}
}

// TestHome_ACopyBesideIt: a second ledger for the same jobs.
func TestHome_ACopyBesideIt(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	cfg, err := pgx.ParseConfig(db.urls.Superuser)
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	inPostgres := func(url string) string { return strings.Replace(url, "/"+cfg.Database, "/postgres", 1) }
	super, copied := connect(t, inPostgres(db.urls.Superuser)), cfg.Database+"_copy"
	for _, statement := range []string{
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '` + cfg.Database + `'`,
		`CREATE DATABASE ` + copied + ` TEMPLATE ` + cfg.Database,
	} {
		if _, err := super.Exec(context.Background(), statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := super.Exec(context.Background(), `DROP DATABASE `+copied+` WITH (FORCE)`); err != nil {
			t.Error(err)
		}
	})
	wantMoved(t, db.as(strings.Replace(db.urls.Worker, "/"+cfg.Database, "/"+copied, 1), ledger.Options{}), newWish())
	mustClaim(t, db.as(db.urls.Worker, ledger.Options{}), newWish())
}

// dump keeps the rows of now; what it gives back does what restoring a dump in place does: tables made anew, with the rows of then.
func dump(t *testing.T, db *database) (restore func()) {
	t.Helper()
	super := connect(t, db.urls.Superuser)
	exec := func(statement string) {
		if _, err := super.Exec(context.Background(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	rows := map[string]*bytes.Buffer{"ledger_identity": {}, "operations": {}, "payloads": {}, "attempts": {}, "observations": {}, "due": {}, "outbox": {}, "unpublished_jobs": {}}
	for table, to := range rows {
		if _, err := super.PgConn().CopyTo(context.Background(), to, `COPY public.`+table+` TO STDOUT`); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		exec(`DROP SCHEMA public CASCADE`)
		exec(`CREATE SCHEMA public AUTHORIZATION pg_database_owner`)
		exec(`GRANT USAGE ON SCHEMA public TO PUBLIC`)
		if err := migrations.Up(context.Background(), db.urls.Owner, nil); err != nil {
			t.Fatal(err)
		}
		exec(`SET session_replication_role = replica`) // no trigger judges what is restored
		exec(`DELETE FROM ledger_identity`)
		for table, from := range rows {
			if _, err := super.PgConn().CopyFrom(context.Background(), from, `COPY public.`+table+` FROM STDIN`); err != nil {
				t.Fatal(err)
			}
		}
		exec(`SELECT setval('operations_id_seq', (SELECT max(id) FROM operations))`)
	}
}

// TestRecover_WhatWasToldCancelledIsNotSent: its source has given the money back; the dump of an hour before knows nothing of it.
func TestRecover_WhatWasToldCancelledIsNotSent(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	o := orderOf(w)
	o.Grace = 0
	wantAccepted(t, db.Ledger, o, ledger.Accepted)
	restore := dump(t, db)
	if done, _, err := db.CancelIfOpen(context.Background(), w.Key, w.Source, "by_source"); !done || err != nil {
		t.Fatal(done, err)
	}
	restore()
	if _, err := db.as(db.urls.Owner, ledger.Options{}).Recover(context.Background(), ledger.Loss{Cancelled: []uuid.UUID{w.Key, uuid.New()}}, "restored", "ann"); err != nil {
		t.Fatal(err)
	}
	again := db.as(db.urls.Worker, ledger.Options{})
	work := sweepOne(t, again)
	if work.Stopped != "told_cancelled" || !work.InDoubt {
		t.Errorf("stopped %q, in doubt %t", work.Stopped, work.InDoubt)
	}
	wantAttempt(t, again, intend(work, w.Intention), ledger.AttemptStopped)
}

// TestRecover_WhatIsStoppedIsNeverFresh: also under a key that tells no time, repeated when nothing is open any more from the recovery.
func TestRecover_WhatIsStoppedIsNeverFresh(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	db.recovered(time.Time{}, 10*time.Minute)
	claimed, ordered, other := newWish(), newWish(), newWish()
	for _, w := range []*ledger.Wish{&claimed, &ordered, &other} {
		w.Key, w.PublishedAt = uuid.New(), time.Now()
	}
	db.exec(`INSERT INTO key_stops (key, code) VALUES ($1, 'told_cancelled'), ($2, 'told_cancelled')`, claimed.Key, ordered.Key)
	if _, err := db.as(db.urls.Owner, ledger.Options{}).Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	mustClaimInDoubt(t, db, claimed, true)
	mustClaimInDoubt(t, db, other, false)
	wantAccepted(t, db.Ledger, orderOf(ordered), ledger.Accepted)
	wantAnswer(t, db.Ledger, ordered, ledger.Scheduled) // its message does not begin it: the sweep asks first
}

// TestRecover_AServerWhoseClockIsBehind: what the ledger has recorded says how late it was, at least.
func TestRecover_AServerWhoseClockIsBehind(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	mustClaim(t, db.Ledger, newWish())
	db.exec(`ALTER TABLE operations DISABLE TRIGGER ALL`)
	db.exec(`UPDATE operations SET created_at = created_at + interval '10 min'`)
	db.exec(`ALTER TABLE operations ENABLE TRIGGER ALL`)
	if r := db.recovered(time.Time{}, 0); r.Before.Before(time.Now().Add(10 * time.Minute)) {
		t.Errorf("doubt before %v, want no earlier than the newest record and a minute", r.Before)
	}
}

// recovered moves the ledger, recovers it, and lets so long pass since.
func (db *database) recovered(newestJob time.Time, since time.Duration) ledger.Recovery {
	db.t.Helper()
	db.move(`timeline = timeline + 1`)
	r, err := db.as(db.urls.Owner, ledger.Options{}).Recover(context.Background(), ledger.Loss{NewestJob: newestJob}, "failover", "ann")
	if err != nil {
		db.t.Fatal(err)
	}
	db.exec(`UPDATE ledger_identity SET doubt_before = doubt_before - $1::int8 * interval '1 ms', lost_since = lost_since - $1::int8 * interval '1 ms'`, since.Milliseconds())
	return r
}

// keyMadeAt is a key of version 7 by a clock that shows this time.
func keyMadeAt(at time.Time) uuid.UUID {
	key := uuid.Must(uuid.NewV7())
	for i, ms := 0, at.UnixMilli(); i < 6; i++ {
		key[i] = byte(ms >> (8 * (5 - i)))
	}
	return key
}

// TestRecover_AKeyThatTellsNoTime: an order that was lost, and paid, is repeated long after the recovery; nothing about its key says so.
func TestRecover_AKeyThatTellsNoTime(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	mustClaim(t, db.Ledger, newWish())
	db.recovered(time.Time{}, 10*time.Minute)
	random := func() ledger.Wish {
		w := newWish()
		w.Key, w.PublishedAt = uuid.New(), time.Now()
		return w
	}
	ordered, claimed := random(), random()
	future := newWish()
	future.Key = keyMadeAt(time.Now().Add(time.Hour))
	for name, w := range map[string]ledger.Wish{"random": ordered, "of the future": future} {
		wantAccepted(t, db.Ledger, orderOf(w), ledger.Accepted)
		if e := explain(t, db.Ledger, w); !e.InDoubt || e.FirstSentAt.After(time.Now().Add(-10*time.Minute)) {
			t.Errorf("%s: in doubt %t, first sent %v; want to ask, and no younger than what was lost", name, e.InDoubt, e.FirstSentAt)
		}
	}
	mustClaimInDoubt(t, db, claimed, true)
	if e := explain(t, db.Ledger, claimed); e.FirstSentAt.After(time.Now().Add(-10 * time.Minute)) {
		t.Errorf("claimed: first sent %v", e.FirstSentAt)
	}
	refused := random()
	refused.Refused = true
	wantAnswer(t, db.Ledger, refused, ledger.Scheduled) // the sweep's, which asks first
	if e := explain(t, db.Ledger, refused); !e.InDoubt {
		t.Error("refused by the policy of today, and not asked after")
	}
	young := newWish()
	young.PublishedAt = time.Now()
	mustClaimInDoubt(t, db, young, false)
	owner := db.as(db.urls.Owner, ledger.Options{})
	if since, err := owner.Settle(context.Background()); err != nil || since.IsZero() {
		t.Fatalf("settle: %v, %v", since, err)
	}
	mustClaimInDoubt(t, db, random(), false)
	old := newWish()
	old.Key, old.PublishedAt = keyMadeAt(time.Now().Add(-time.Hour)), time.Now()
	mustClaimInDoubt(t, db, old, true)
	if since, err := owner.Settle(context.Background()); err != nil || !since.IsZero() {
		t.Errorf("settle again: %v, %v", since, err)
	}
}

// TestRecover_WhatWroteSinceSaysNothing: a snapshot of ten hours ago was put back, and workers ran on for a moment before somebody recovers.
func TestRecover_WhatWroteSinceSaysNothing(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	mustClaim(t, db.Ledger, newWish()) // since then
	owner := db.as(db.urls.Owner, ledger.Options{})
	told := time.Now().Add(-10 * time.Hour)
	for _, row := range []struct{ since, want time.Time }{{told, told}, {time.Time{}, time.Unix(0, 0)}, {told, time.Unix(0, 0)}} { // what is open is not forgotten
		r, err := owner.Recover(context.Background(), ledger.Loss{Since: row.since}, "snapshot", "ann")
		if err != nil {
			t.Fatal(err)
		}
		if d := row.want.Add(-time.Minute).Sub(r.LostSince); d < -time.Second || d > time.Second {
			t.Errorf("lost since %v, want a minute before %v", r.LostSince, row.want)
		}
	}
	w := newWish()
	w.Key, w.PublishedAt = uuid.New(), time.Now()
	mustClaimInDoubt(t, db, w, true)
	if e := explain(t, db.Ledger, w); e.FirstSentAt.After(told) {
		t.Errorf("first sent %v", e.FirstSentAt)
	}
}

// TestRecover_AKeyTellsWhenItMayHaveBeenSent: also when nothing is open any more.
func TestRecover_AKeyTellsWhenItMayHaveBeenSent(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	mustClaim(t, db.Ledger, newWish())
	db.recovered(time.Time{}, 10*time.Minute)
	if _, err := db.as(db.urls.Owner, ledger.Options{}).Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	claimed, refused := newWish(), newWish()
	for _, w := range []*ledger.Wish{&claimed, &refused} {
		w.Key, w.PublishedAt = keyMadeAt(time.Now().Add(-30*time.Hour)), time.Now()
	}
	mustClaimInDoubt(t, db, claimed, true)
	refused.Refused = true
	wantAnswer(t, db.Ledger, refused, ledger.Scheduled)
	for what, w := range map[string]ledger.Wish{"claimed": claimed, "refused": refused} {
		if e := explain(t, db.Ledger, w); e.FirstSentAt.After(time.Now().Add(-29 * time.Hour)) {
			t.Errorf("%s: first sent %v", what, e.FirstSentAt)
		}
	}
}

// TestRecover_ASourceWhoseClockIsFast: its keys look younger than they are, by what the ledger has seen.
func TestRecover_ASourceWhoseClockIsFast(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	seen := newWish()
	seen.Key = keyMadeAt(time.Now().Add(5 * time.Minute))
	mustClaim(t, db.Ledger, seen)
	lost, young := newWish(), newWish()
	lost.Key, lost.PublishedAt = keyMadeAt(time.Now().Add(5*time.Minute)), time.Now()
	db.recovered(time.Time{}, 3*time.Minute)
	mustClaimInDoubt(t, db, lost, false) // it would look younger than doubt_before by its key alone, and is not: it was made now
	db.exec(`UPDATE ledger_identity SET doubt_before = doubt_before + interval '3 min'`)
	young.Key, young.PublishedAt = keyMadeAt(time.Now().Add(5*time.Minute)), time.Now().Add(2*time.Minute)
	mustClaimInDoubt(t, db, young, true)
	other := newWish()
	other.Source, other.Key, other.PublishedAt = "payroll", keyMadeAt(time.Now().Add(time.Minute-time.Second)), time.Now().Add(2*time.Minute)
	mustClaimInDoubt(t, db, other, true)
	db.wantCount(1, "clocks", `SELECT count(*) FROM fast_clocks WHERE source = 'wallet' AND ahead BETWEEN interval '4 min' AND interval '6 min'`)
}

// TestRecover_ASourceWhoseKeysAreDaysAhead: they tell nothing, also when the time that they tell has come.
func TestRecover_ASourceWhoseKeysAreDaysAhead(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	seen := newWish()
	seen.Key = keyMadeAt(time.Now().Add(72 * time.Hour))
	mustClaim(t, db.Ledger, seen)
	db.recovered(time.Time{}, 96*time.Hour) // four days later
	lost := newWish()
	lost.Key, lost.PublishedAt = keyMadeAt(time.Now().Add(-24*time.Hour)), time.Now()
	mustClaimInDoubt(t, db, lost, true)
	other := newWish()
	other.Source, other.Key, other.PublishedAt = "payroll", keyMadeAt(time.Now().Add(-24*time.Hour)), time.Now()
	mustClaimInDoubt(t, db, other, false)
}

// TestRecover_ABrokerWhoseClockIsFast: what it stamped before the recovery looks younger than the recovery.
func TestRecover_ABrokerWhoseClockIsFast(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	stamped := time.Now().Add(5 * time.Minute)
	db.recovered(stamped, 0)
	w := newWish()
	w.Key, w.PublishedAt = uuid.New(), stamped
	db.exec(`UPDATE ledger_identity SET lost_since = NULL`) // so that its key does not say it
	mustClaimInDoubt(t, db, w, true)
}
