package dead

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// Correct is the act of making a new operation, under a new key, in place of a letter. Another person always agrees. Closed is set after it
// ran: whether the old key was closed, now or before.
type Correct struct {
	Closed bool

	d       *Desk
	entry   Entry
	stream  time.Time
	trace   string
	seen    time.Time // the letter's job
	job     job.Job   // as it will be published
	old     job.Job   // as it would be under the old key, for the guard
	before  []member  // of the letter
	payload []byte
	sealed  string
	sum     [32]byte
	mine    bool // recorded, as another person has agreed
	done    bool // and published
}

// Correct reads the letter and makes the act. The new key is made of the letter and of what is asked for, so that the same correction has the
// same key, however often it is asked for.
func (d *Desk) Correct(ctx context.Context, sequence uint64, edit Edit) (*Correct, error) {
	state, err := d.Sync(ctx)
	if err != nil {
		return nil, err
	}
	letter, err := d.letters.Show(ctx, sequence)
	if err != nil {
		return nil, err
	}
	a, err := d.correction(state, letter, edit)
	if err != nil {
		return nil, err
	}
	if fault := d.opt.Allowed(&a.job); fault != nil {
		return nil, fault
	}
	if a.mine, err = a.recorded(ctx, d.db); err != nil || !a.mine {
		return a, err
	}
	a.done, err = a.published(ctx)
	return a, err
}

// correction makes the act of a letter and an edit alone.
func (d *Desk) correction(state queue.DeadState, letter queue.DeadLetter, edit Edit) (*Correct, error) {
	a := &Correct{d: d, entry: entryOf(letter), stream: micros(state.Created), trace: letter.TraceParent(), seen: seen(letter)}
	draft, err := edit.apply(a.entry, letter.Payload, correctionDraft())
	if err != nil {
		return nil, err
	}
	a.job = draft
	a.job.Key = a.newKey(draft)
	if a.payload, err = job.Encode(a.job); err != nil {
		return nil, err
	}
	a.sum = sha256.Sum256(a.payload)
	if a.sealed, err = seal(letter.Payload, a.payload); err != nil {
		return nil, err
	}
	a.old = draft
	a.old.Key = a.entry.Key
	a.before = membersIn(a.entry.Route, letter.Payload)
	if a.entry.Fault == "" {
		if a.old, err = job.Decode(letter.Source, letter.Route, letter.Payload); err != nil {
			return nil, err
		}
		a.before = membersOf(a.old)
	}
	return a, nil
}

// correctionDraft stands for the key while it is not made yet.
func correctionDraft() uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("paidonce/correction"))
}

// newKey is a UUID of version 8 made of the letter and of the job without its key.
func (a *Correct) newKey(draft job.Job) uuid.UUID {
	h := hasher{sha256.New()}
	h.text("paidonce/dead/correction/1")
	h.number(a.stream.UnixMicro())
	h.number(int64(a.entry.Sequence)) //nolint:gosec // a sequence
	h.text(string(a.entry.SHA256[:]))
	fingerprint := draft.Fingerprint()
	h.text(string(fingerprint.Sum[:]))
	return planID([32]byte(h.Sum(nil)))
}

// Key is the new operation's. Amount is its.
func (a *Correct) Key() uuid.UUID { return a.job.Key }

// Amount is what the new operation pays.
func (a *Correct) Amount() money.Amount { return a.job.Amount }

// OldKey is the letter's, or Nil.
func (a *Correct) OldKey() uuid.UUID { return a.entry.Key }

// Name is correct.
func (*Correct) Name() string { return ActCorrect }

// Role is the operator's.
func (*Correct) Role() operate.Role { return operate.RoleOperator }

// Target is the letter.
func (a *Correct) Target() string { return fmt.Sprintf("dead letter %d", a.entry.Sequence) }

// correctContent is what a second person agrees to.
type correctContent struct {
	StreamAt      string   `json:"stream_at"`
	Letter        uint64   `json:"letter"`
	LetterSHA256  string   `json:"letter_sha256"`
	OldKey        string   `json:"old_key,omitempty"`
	OldAmount     string   `json:"old_amount,omitempty"`
	NewKey        string   `json:"new_key"`
	Route         string   `json:"route"`
	Amount        string   `json:"amount"`
	Changes       []Change `json:"changes"` // masked
	PayloadSHA256 string   `json:"payload_sha256"`
	PayloadSealed string   `json:"payload_sealed"` // whoever has the letter opens it
}

// Content is the letter and the new job to the byte, sealed, and in the clear what differs, as it is shown: names and accounts masked.
func (a *Correct) Content() ([]byte, error) {
	content := correctContent{
		StreamAt: a.stream.Format(time.RFC3339Nano), Letter: a.entry.Sequence, LetterSHA256: hex.EncodeToString(a.entry.SHA256[:]),
		NewKey: a.job.Key.String(), Route: a.job.Route, Amount: a.job.Amount.String(), Changes: a.shown(), PayloadSHA256: hex.EncodeToString(a.sum[:]),
		PayloadSealed: a.sealed,
	}
	if a.entry.Key != uuid.Nil {
		content.OldKey = a.entry.Key.String()
	}
	if a.entry.Amount.Currency != "" {
		content.OldAmount = a.entry.Amount.String()
	}
	raw, err := json.Marshal(content, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("render the correction: %w", err)
	}
	return raw, nil
}

// Weight is one operation, and always another person; nothing, when it is on record. Another person has agreed to it then, and what is left to do is
// to publish it, however much later.
func (a *Correct) Weight() operate.Weight {
	if a.mine {
		return operate.Weight{}
	}
	return operate.Weight{Count: 1, Amounts: map[string]int64{a.job.Amount.Currency: a.job.Amount.Minor}, Always: true}
}

// correctable are the classes of letters that may be replaced.
func correctable() []Class {
	return []Class{ClassReplayable, ClassConflicting, ClassMalformed, ClassUnroutable, ClassOverLimit, ClassCurrency, ClassNotAllowed}
}

// Check refuses a letter about which something was decided, one whose key is at work, and one whose bytes were corrected in another letter.
func (a *Correct) Check(ctx context.Context, _ operate.Operator) error {
	mine, err := a.recorded(ctx, a.d.db)
	if err != nil || mine {
		return err
	}
	if err := a.elsewhere(ctx); err != nil {
		return err
	}
	class, err := a.d.classOfLetter(ctx, a.stream, a.entry.Sequence)
	if err != nil {
		return err
	}
	if !slices.Contains(correctable(), class) {
		return operate.Refuse(string(class), "dead letter %d: %s", a.entry.Sequence, class.Means())
	}
	var sent, known bool
	err = a.d.db.QueryRow(ctx, `SELECT `+maySent+`, EXISTS (SELECT FROM operations o WHERE o.key = l.key) FROM dead_letters l
		WHERE l.stream_at = $1 AND l.sequence = $2`, a.stream, a.entry.Sequence).Scan(&sent, &known)
	switch {
	case err != nil:
		return fmt.Errorf("read what became of the key: %w", err)
	case sent:
		return operate.Refuse("may_have_been_sent", "dead letter %d, or a correction of it, may have been sent before the last recovery of the ledger, or before one "+
			"that is still to be made (`paidonce doctor`): ask the partner; a payment that is still to be made is a new withdrawal of the source", a.entry.Sequence)
	case known && class == ClassMalformed:
		return operate.Refuse("key_known", "dead letter %d: its key is an operation already, sent again in good form most likely: see `paidonce ops show %s`",
			a.entry.Sequence, a.entry.Key)
	}
	return nil
}

// elsewhere refuses a letter whose withdrawal was corrected in another letter: of the same key, or of the same bytes where there is no key.
func (a *Correct) elsewhere(ctx context.Context) error {
	var sequence uint64
	var key uuid.UUID
	err := a.d.db.QueryRow(ctx, `SELECT sequence, new_key FROM corrections WHERE old_key = $1 OR (old_key IS NULL AND source = $2 AND old_sha256 = $3)
		ORDER BY at LIMIT 1`, orNil(a.entry.Key, uuid.Nil), a.job.Source, a.entry.SHA256[:]).Scan(&sequence, &key)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("read the corrections of the same withdrawal: %w", err)
	case sequence == a.entry.Sequence:
		return operate.Refuse("corrected", "dead letter %d was corrected already, as %s", sequence, key)
	}
	return operate.Refuse("corrected", "dead letter %d: corrected already by letter %d under key %s; a second payment is a new withdrawal of its own",
		a.entry.Sequence, sequence, key)
}

// rower is a pool or a transaction.
type rower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// recorded reports whether this very correction is on record. Another one of the same letter is a refusal.
func (a *Correct) recorded(ctx context.Context, from rower) (bool, error) {
	var key uuid.UUID
	var sum []byte
	err := from.QueryRow(ctx, `SELECT new_key, payload_sha256 FROM corrections WHERE stream_at = $1 AND sequence = $2`, a.stream, a.entry.Sequence).Scan(&key, &sum)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the correction of dead letter %d: %w", a.entry.Sequence, err)
	case key != a.job.Key || string(sum) != string(a.sum[:]):
		return false, operate.Refuse("corrected", "dead letter %d was corrected already, as %s", a.entry.Sequence, key)
	}
	return true, nil
}

// Run records the correction and closes the old key, in one transaction; then it publishes the new job, and records that. What is missing of it
// is made up for when it is asked for again.
func (a *Correct) Run(ctx context.Context, by operate.Operator) (string, error) {
	if err := a.d.inTxOf(ctx, by, func(tx pgx.Tx) error { return a.record(ctx, tx, by) }); err != nil {
		return "", a.explain(ctx, err)
	}
	if published, err := a.published(ctx); err != nil {
		return "", err
	} else if published {
		return operate.OutcomeNoEffect, nil
	}
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	m := queue.Message{Source: a.job.Source, Route: a.job.Route, Key: a.job.Key, Payload: a.payload, TraceParent: a.trace, FirstSeen: a.seen}
	result := a.d.publish.PublishMany(finish, []queue.Message{m})[0]
	if result.Err != nil {
		return "", fmt.Errorf("the correction is on record, and its job %s is not published yet, ask for the same again: %w", a.job.Key, result.Err)
	}
	var found outcomes
	found.add(a.entry.Sequence, result, "")
	return operate.OutcomeDone, found.record(finish, a.d, &Plan{Stream: a.stream}, by)
}

func (a *Correct) published(ctx context.Context) (is bool, err error) {
	err = a.d.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM dead_letter_acts WHERE stream_at = $1 AND sequence = $2 AND act = 'published')`,
		a.stream, a.entry.Sequence).Scan(&is)
	if err != nil {
		return false, fmt.Errorf("read whether the correction was published: %w", err)
	}
	return is, nil
}

func (a *Correct) record(ctx context.Context, tx pgx.Tx, by operate.Operator) error {
	mine, err := a.recorded(ctx, tx)
	if err != nil {
		return err
	}
	if !mine {
		_, err := tx.Exec(ctx, `INSERT INTO corrections (new_key, stream_at, sequence, old_key, old_sha256, payload_sha256, source, route, amount_minor, currency, by)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, a.job.Key, a.stream, a.entry.Sequence, orNil(a.entry.Key, uuid.Nil), a.entry.SHA256[:],
			a.sum[:], a.job.Source, a.job.Route, a.job.Amount.Minor, a.job.Amount.Currency, by.Name)
		if err != nil {
			return fmt.Errorf("record the correction of dead letter %d: %w", a.entry.Sequence, err)
		}
		_, err = tx.Exec(ctx, `INSERT INTO dead_letter_acts (stream_at, sequence, act, by, key) VALUES ($1, $2, 'correct', $3, $4)`,
			a.stream, a.entry.Sequence, by.Name, a.job.Key)
		if err != nil {
			return fmt.Errorf("decide about dead letter %d: %w", a.entry.Sequence, err)
		}
	}
	if a.entry.Key == uuid.Nil {
		return nil
	}
	return a.close(ctx, tx)
}

// close closes the old key, or finds that the operation under it is none of ours and asks for something else.
func (a *Correct) close(ctx context.Context, tx pgx.Tx) error {
	fingerprint := a.old.Fingerprint()
	err := tx.QueryRow(ctx, `SELECT close_corrected_key($1, $2, $3, $4, $5, $6, $7, $8)`, a.job.Key, fingerprint.Version, fingerprint.Sum[:], a.old.Source,
		a.old.Route, a.old.DebtorAccount.Reveal(), a.old.Amount.Minor, a.old.Amount.Currency).Scan(&a.Closed)
	if err != nil || a.Closed {
		return err
	}
	var same, unjudged bool
	err = tx.QueryRow(ctx, `SELECT o.state = 'cancelled' AND coalesce(o.code, '') = 'corrected', o.fingerprint = $3, o.fingerprint_version <> $2
		FROM operations o WHERE o.key = $1`, a.entry.Key, fingerprint.Version, fingerprint.Sum[:]).Scan(&a.Closed, &same, &unjudged)
	switch {
	case err != nil:
		return fmt.Errorf("read the operation under the old key: %w", err)
	case a.Closed:
		return nil
	case unjudged:
		return operate.Refuse(string(ClassUnjudged), "dead letter %d became an operation meanwhile, or another withdrawal did under its key: %s",
			a.entry.Sequence, ClassUnjudged.Means())
	case same || a.entry.Fault != "":
		return operate.Refuse("key_known", "dead letter %d became an operation meanwhile: see `paidonce ops show %s`", a.entry.Sequence, a.entry.Key)
	}
	return nil
}

// explain says in words what a unique index has refused.
func (a *Correct) explain(ctx context.Context, err error) error {
	switch constraintOf(err) {
	case "corrections_old_key", "corrections_old_bytes", "corrections_letter", "corrections_pkey":
		return cmp.Or(a.elsewhere(ctx), err)
	case "dead_letter_acts_decision":
		return operate.Refuse("decided", "something else was decided about dead letter %d meanwhile", a.entry.Sequence)
	}
	return err
}
