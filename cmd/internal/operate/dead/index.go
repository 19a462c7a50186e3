package dead

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// indexBatch is how many letters are written to the index together.
const indexBatch = 2000

// Entry is a letter as the index has it: everything about it but what it says of people.
type Entry struct {
	Sequence    uint64
	At          time.Time
	FirstSeen   time.Time // zero = the letter does not say
	JobSequence uint64
	Deliveries  int
	Replays     int // before it became this letter
	Bytes       int
	SHA256      [32]byte
	Reason      string
	Detail      string
	Source      string // "" = the subject holds no name
	Route       string
	Fault       string // why it does not decode; "" = it does
	Key         uuid.UUID
	Fingerprint ledger.Fingerprint // zero version = it does not decode
	Amount      money.Amount       // no currency = not readable
}

// entryOf reads a letter. What cannot be read strictly is read leniently, as a hint for people: key and amount.
func entryOf(l queue.DeadLetter) Entry {
	e := Entry{
		Sequence: l.Sequence, At: l.At, FirstSeen: l.FirstSeen, JobSequence: l.StreamSequence, Deliveries: l.Deliveries, Replays: l.Replays,
		Bytes: len(l.Payload), SHA256: sha256.Sum256(l.Payload), Reason: string(l.Reason), Detail: l.Detail,
	}
	// A subject may hold anything, and only names are kept and shown.
	if job.ValidName(l.Source) {
		e.Source = l.Source
	}
	if job.ValidName(l.Route) {
		e.Route = l.Route
	}
	decoded, err := job.Decode(l.Source, l.Route, l.Payload)
	if err == nil {
		e.Key, e.Amount, e.Fingerprint = decoded.Key, decoded.Amount, decoded.Fingerprint()
		return e
	}
	var fault *job.Fault
	if !errors.As(err, &fault) {
		panic("job.Decode returned an error that is no fault")
	}
	e.Fault = fault.Code
	e.hint(l.Payload)
	return e
}

// hint reads what stands in the place of key and amount. Two members of one name are no hint, and neither is a nonsense amount.
func (e *Entry) hint(payload []byte) {
	var body struct {
		Key      any `json:"key"`
		Amount   any `json:"amount"`
		Currency any `json:"currency"`
	}
	if len(payload) > job.MaxBytes || json.Unmarshal(payload, &body) != nil {
		return
	}
	text, _ := body.Key.(string)
	if key, err := job.ParseKey(text); err == nil {
		e.Key = key
	}
	decimal, _ := body.Amount.(string)
	currency, _ := body.Currency.(string)
	if amount, err := money.Parse(decimal, currency); err == nil {
		e.Amount = amount
	}
}

// Sync brings the index up to date with the stream. Every command that reads the index does so first.
func (d *Desk) Sync(ctx context.Context) (queue.DeadState, error) {
	state, err := d.letters.State(ctx)
	if err != nil {
		return state, err
	}
	var last uint64
	var sum []byte
	err = d.db.QueryRow(ctx, `SELECT sequence, sha256 FROM dead_letters WHERE stream_at = $1 ORDER BY sequence DESC LIMIT 1`, micros(state.Created)).
		Scan(&last, &sum)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return state, fmt.Errorf("read how far the index of dead letters is: %w", err)
	}
	if last > state.Last { // another one may have gone further meanwhile
		if state, err = d.letters.State(ctx); err != nil {
			return state, err
		}
	}
	lost, err := d.lost(ctx, state, last, sum)
	switch {
	case err != nil:
		return state, err
	case lost:
		_, err = d.Reindex(ctx)
	case last < state.Last:
		_, err = d.index(ctx, state, last+1, addEntries)
	}
	return state, err
}

// lost reports whether the stream does not hold what the index ends with: a broker that lost the end of its stream gives sequences out again.
func (d *Desk) lost(ctx context.Context, state queue.DeadState, last uint64, sum []byte) (bool, error) {
	if last == 0 {
		return false, nil
	}
	letter, err := d.letters.Show(ctx, last)
	if errors.Is(err, queue.ErrNoDeadLetter) {
		return last > state.Last, nil // else it was deleted
	}
	if err != nil {
		return false, err
	}
	now := sha256.Sum256(letter.Payload)
	return !bytes.Equal(now[:], sum), nil
}

// Reindexed says what a rebuild found.
type Reindexed struct{ Letters, Gone int64 }

// Reindex reads the whole stream into the index again, and drops from it what the stream does not have any more. Others may read the index
// meanwhile: it is never empty. What was done to letters is kept, also of those that are gone.
func (d *Desk) Reindex(ctx context.Context) (Reindexed, error) {
	var r Reindexed
	var most uint64 // read before the state of the stream: what is beyond that one is not of this stream's life
	if err := d.db.QueryRow(ctx, `SELECT coalesce(max(sequence), 0) FROM dead_letters`).Scan(&most); err != nil {
		return r, fmt.Errorf("read how far the index of dead letters is: %w", err)
	}
	state, err := d.letters.State(ctx)
	if err != nil {
		return r, err
	}
	if r.Gone, err = d.drop(ctx, state, state.Last+1, most); err != nil {
		return r, err
	}
	next := uint64(1) // every index row below it has been compared
	r.Letters, err = d.index(ctx, state, 1, func(ctx context.Context, tx pgx.Tx, stream time.Time, entries []Entry) error {
		if err := replaceEntries(ctx, tx, stream, entries); err != nil {
			return err
		}
		sequences := make([]int64, len(entries))
		for i := range entries {
			sequences[i] = int64(entries[i].Sequence) //nolint:gosec // a sequence
		}
		last := entries[len(entries)-1].Sequence
		gone, err := tx.Exec(ctx, `DELETE FROM dead_letters WHERE stream_at = $1 AND sequence BETWEEN $2 AND $3 AND sequence <> ALL ($4::int8[])`,
			stream, next, last, sequences)
		r.Gone, next = r.Gone+gone.RowsAffected(), last+1
		return err
	})
	if err != nil {
		return r, err
	}
	gone, err := d.drop(ctx, state, next, state.Last)
	r.Gone += gone
	return r, err
}

// drop removes rows from the index.
func (d *Desk) drop(ctx context.Context, state queue.DeadState, from, to uint64) (int64, error) {
	gone, err := d.db.Exec(ctx, `DELETE FROM dead_letters WHERE stream_at = $1 AND sequence BETWEEN $2 AND $3`, micros(state.Created), from, to)
	if err != nil {
		return 0, fmt.Errorf("drop what is gone from the index of dead letters: %w", err)
	}
	return gone.RowsAffected(), nil
}

// index reads the stream from a sequence on and gives the entries to write in parts, each in a transaction of its own. Parts are written in
// order: what is in the index is whole up to its greatest sequence, whenever this ends.
func (d *Desk) index(ctx context.Context, state queue.DeadState, from uint64,
	write func(context.Context, pgx.Tx, time.Time, []Entry) error,
) (read int64, err error) {
	entries := make([]Entry, 0, indexBatch)
	flush := func() error {
		if len(entries) == 0 {
			return nil
		}
		err := d.inTx(ctx, func(tx pgx.Tx) error { return write(ctx, tx, micros(state.Created), entries) })
		read += int64(len(entries))
		entries = entries[:0]
		d.opt.Progress("index", read, int64(state.Letters)) //nolint:gosec // a count
		if err != nil {
			return fmt.Errorf("write the index of dead letters: %w", err)
		}
		return nil
	}
	for letter, err := range d.letters.Scan(ctx, queue.DeadFilter{From: from}) {
		if err != nil {
			return read, err
		}
		entries = append(entries, entryOf(letter))
		if len(entries) == indexBatch {
			if err := flush(); err != nil {
				return read, err
			}
		}
	}
	return read, flush()
}

const insertEntries = `
INSERT INTO dead_letters (stream_at, sequence, at, first_seen, job_sequence, deliveries, replays, bytes, sha256, reason, detail, source, route, fault, key,
                          fingerprint_version, fingerprint, amount_minor, currency)
SELECT $1, w.* FROM unnest($2::int8[], $3::timestamptz[], $4::timestamptz[], $5::int8[], $6::int4[], $7::int4[], $8::int4[], $9::bytea[], $10::text[],
                           $11::text[], $12::text[], $13::text[], $14::text[], $15::uuid[], $16::int2[], $17::bytea[], $18::int8[], $19::text[]) AS w
ON CONFLICT (stream_at, sequence) DO `

func addEntries(ctx context.Context, tx pgx.Tx, stream time.Time, entries []Entry) error {
	_, err := tx.Exec(ctx, insertEntries+`NOTHING`, entryColumns(stream, entries)...)
	return err
}

func replaceEntries(ctx context.Context, tx pgx.Tx, stream time.Time, entries []Entry) error {
	_, err := tx.Exec(ctx, insertEntries+`UPDATE SET (at, first_seen, job_sequence, deliveries, replays, bytes, sha256, reason, detail, source, route, fault,
		key, fingerprint_version, fingerprint, amount_minor, currency) = (excluded.at, excluded.first_seen, excluded.job_sequence, excluded.deliveries,
		excluded.replays, excluded.bytes, excluded.sha256, excluded.reason, excluded.detail, excluded.source, excluded.route, excluded.fault, excluded.key,
		excluded.fingerprint_version, excluded.fingerprint, excluded.amount_minor, excluded.currency)`, entryColumns(stream, entries)...)
	return err
}

// entryColumns are entries as arrays, in the order of insertEntries.
func entryColumns(stream time.Time, entries []Entry) []any {
	n := len(entries)
	sequence, jobSequence := make([]int64, n), make([]int64, n)
	at, firstSeen := make([]time.Time, n), make([]*time.Time, n)
	deliveries, replays, size := make([]int32, n), make([]int32, n), make([]int32, n)
	sum, fingerprint := make([][]byte, n), make([][]byte, n)
	reason, detail, source, route, fault := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	key, version, minor, currency := make([]*uuid.UUID, n), make([]*int16, n), make([]*int64, n), make([]*string, n)
	for i := range entries {
		e := &entries[i]
		sequence[i], jobSequence[i] = int64(e.Sequence), int64(min(e.JobSequence, 1<<62)) //nolint:gosec // bounded
		at[i] = e.At
		deliveries[i], replays[i], size[i] = clamp(e.Deliveries), clamp(e.Replays), clamp(e.Bytes)
		sum[i] = e.SHA256[:]
		reason[i], detail[i], source[i], route[i], fault[i] = e.Reason, e.Detail, e.Source, e.Route, e.Fault
		if !e.FirstSeen.IsZero() {
			firstSeen[i] = &e.FirstSeen
		}
		if e.Key != uuid.Nil {
			key[i] = &e.Key
		}
		if e.Fingerprint.Version != 0 {
			version[i], fingerprint[i] = &e.Fingerprint.Version, e.Fingerprint.Sum[:]
		}
		if e.Amount.Currency != "" {
			minor[i], currency[i] = &e.Amount.Minor, &e.Amount.Currency
		}
	}
	return []any{stream, sequence, at, firstSeen, jobSequence, deliveries, replays, size, sum, reason, detail, source, route, fault, key, version,
		fingerprint, minor, currency}
}

func clamp(n int) int32 { return int32(max(0, min(n, 1<<30))) } //nolint:gosec // bounded

// Reindexing is the act of reading the whole stream into the index again. Found is set after it ran.
type Reindexing struct {
	Found Reindexed

	d *Desk
}

// Rebuild is the act upon the index.
func (d *Desk) Rebuild() *Reindexing { return &Reindexing{d: d} }

// Name is reindex.
func (*Reindexing) Name() string { return "reindex" }

// Role is the operator's.
func (*Reindexing) Role() operate.Role { return operate.RoleOperator }

// Target is the index.
func (*Reindexing) Target() string { return "index of dead letters" }

// Content is nothing more.
func (*Reindexing) Content() ([]byte, error) { return []byte(`{}`), nil }

// Weight is nothing: the index can always be read again.
func (*Reindexing) Weight() operate.Weight { return operate.Weight{} }

// Run reads it again.
func (r *Reindexing) Run(ctx context.Context, _ operate.Operator) (outcome string, err error) {
	if r.Found, err = r.d.Reindex(ctx); err != nil {
		return "", err
	}
	return operate.OutcomeDone, nil
}
