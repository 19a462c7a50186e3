package dead

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

func missing(sequence uint64) error {
	return fmt.Errorf("read dead letter %d: %w", sequence, queue.ErrNoDeadLetter)
}

// constraintOf is the constraint or index that a statement has broken, or "".
func constraintOf(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.ConstraintName
	}
	return ""
}

// Shown is one letter with all that is known of it.
type Shown struct {
	Entry
	Masked  []string // the job, member by member, as "amount: 49.00 GBP"; what names people is masked
	Known   bool     // whether the rest is told: not by the stream alone
	State   State
	Class   Class
	Acts    []Act
	Letters int       // that there are, or were, under its key
	NewKey  uuid.UUID // of its correction

	payload []byte
}

// Act is one thing that was done to a letter.
type Act struct {
	At          time.Time
	Act         string
	By          string
	Plan        uuid.UUID
	Key         uuid.UUID
	ReplayN     int
	JobSequence uint64
	Duplicate   bool
	Reason      string
}

// ShowStream shows a letter by the stream alone.
func (d *Desk) ShowStream(ctx context.Context, sequence uint64) (Shown, error) {
	letter, err := d.letters.Show(ctx, sequence)
	if err != nil {
		return Shown{}, err
	}
	return Shown{Entry: entryOf(letter), Masked: masked(letter), payload: letter.Payload}, nil
}

// Show shows a letter, how it stands to the ledger, and what was done to it.
func (d *Desk) Show(ctx context.Context, sequence uint64) (Shown, error) {
	s, err := d.ShowStream(ctx, sequence)
	if err != nil {
		return s, err
	}
	state, err := d.Sync(ctx)
	if err != nil {
		return s, err
	}
	stream := micros(state.Created)
	s.Known = true
	err = d.db.QueryRow(ctx, `SELECT `+stateOf+`, `+classOf("$3")+`, greatest(1, (SELECT count(*) FROM dead_letters m WHERE m.key = l.key))
		FROM dead_letters l`+classified+` WHERE l.stream_at = $1 AND l.sequence = $2`, stream, sequence, d.opt.Policy).Scan(&s.State, &s.Class, &s.Letters)
	if errors.Is(err, pgx.ErrNoRows) {
		return s, missing(sequence)
	}
	if err != nil {
		return s, fmt.Errorf("read how dead letter %d stands: %w", sequence, err)
	}
	rows, err := d.db.Query(ctx, `SELECT a.at, a.act, a.by, h.id, a.key, coalesce(a.replay_n, 0), coalesce(a.job_sequence, 0), coalesce(a.duplicate, false), a.reason
		FROM dead_letter_acts a LEFT JOIN dead_plans h ON h.draft = a.plan WHERE a.stream_at = $1 AND a.sequence = $2 ORDER BY a.id`, stream, sequence)
	if err != nil {
		return s, fmt.Errorf("read what was done to dead letter %d: %w", sequence, err)
	}
	s.Acts, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Act, error) {
		var a Act
		var plan, key *uuid.UUID
		err := row.Scan(&a.At, &a.Act, &a.By, &plan, &key, &a.ReplayN, &a.JobSequence, &a.Duplicate, &a.Reason)
		if plan != nil {
			a.Plan = *plan
		}
		if key != nil {
			a.Key = *key
		}
		if a.Act == "correct" {
			s.NewKey = a.Key
		}
		return a, err
	})
	if err != nil {
		return s, fmt.Errorf("read what was done to dead letter %d: %w", sequence, err)
	}
	return s, nil
}

func (d *Desk) classOfLetter(ctx context.Context, stream time.Time, sequence uint64) (c Class, err error) {
	err = d.db.QueryRow(ctx, `SELECT `+classOf("$3")+` FROM dead_letters l`+classified+` WHERE l.stream_at = $1 AND l.sequence = $2`,
		stream, sequence, d.opt.Policy).Scan(&c)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", missing(sequence)
	}
	if err != nil {
		return "", fmt.Errorf("classify dead letter %d: %w", sequence, err)
	}
	return c, nil
}

// masked tells a job without the people in it. Of what does not decode it tells nothing: nobody knows where a name stands in it.
func masked(l queue.DeadLetter) []string {
	j, err := job.Decode(l.Source, l.Route, l.Payload)
	if err != nil {
		return nil
	}
	lines := []string{"key: " + j.Key.String(), "debtor_account: " + j.DebtorAccount.String(), "amount: " + j.Amount.String()}
	b := j.Beneficiary
	for _, one := range []struct {
		name string
		text job.Sensitive
	}{
		{"beneficiary.name", b.Name}, {"beneficiary.iban", b.IBAN}, {"beneficiary.bic", b.BIC}, {"beneficiary.sort_code", b.SortCode},
		{"beneficiary.account_number", b.AccountNumber}, {"beneficiary.routing_number", b.RoutingNumber}, {"beneficiary.pix_key", b.PixKey},
		{"reference", j.Reference},
	} {
		if one.text != "" {
			lines = append(lines, one.name+": "+one.text.String())
		}
	}
	for name, at := range map[string]time.Time{"not_before": j.NotBefore, "not_after": j.NotAfter} {
		if !at.IsZero() {
			lines = append(lines, name+": "+at.UTC().Format(time.RFC3339))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(j.Metadata)) {
		lines = append(lines, "metadata: "+job.Sensitive(name).String()) // names and values are the source's
	}
	slices.Sort(lines[3:])
	return lines
}

// Reveal is the act of showing a letter as it is. Payload is set after it ran.
type Reveal struct {
	Payload string

	shown Shown
}

// Reveal makes the act.
func (s Shown) Reveal() *Reveal { return &Reveal{shown: s} }

// Name is reveal.
func (*Reveal) Name() string { return "reveal" }

// Role is the operator's: whoever only looks, looks at what is masked.
func (*Reveal) Role() operate.Role { return operate.RoleOperator }

// Target is the letter.
func (r *Reveal) Target() string { return fmt.Sprintf("dead letter %d", r.shown.Sequence) }

// Content is the letter, by its bytes' SHA-256.
func (r *Reveal) Content() ([]byte, error) {
	return json.Marshal(map[string]any{"letter": r.shown.Sequence, "sha256": hex.EncodeToString(r.shown.SHA256[:])}, json.Deterministic(true))
}

// Weight is nothing.
func (*Reveal) Weight() operate.Weight { return operate.Weight{} }

// Run shows it.
func (r *Reveal) Run(context.Context, operate.Operator) (string, error) {
	r.Payload = strings.ToValidUTF8(string(r.shown.payload), "\ufffd")
	return operate.OutcomeDone, nil
}
