package dead

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/worker/queue"
)

// Names of the acts that may wait for a second person, in proposals and in the audit log.
const (
	ActCorrect = "correct"
	ActReplay  = "replay"
	ActDiscard = "discard"
)

// ShownChanges are the changes that the proposal of a correction shows, masked. Nothing, where it is none, or an older version made it.
func ShownChanges(p operate.Proposal) []Change {
	var content correctContent
	if p.Act != ActCorrect || json.Unmarshal(p.Content, &content) != nil {
		return nil
	}
	return content.Changes
}

// Proposed is a correction that waits for a second person, as its letter and the sealed job tell it: not as the proposal says.
type Proposed struct {
	act      *Correct
	proposal operate.Proposal
}

// Proposed opens a proposal, and refuses one that shows something else than what it would do.
func (d *Desk) Proposed(ctx context.Context, p operate.Proposal) (*Proposed, error) {
	var content correctContent
	if p.Act != ActCorrect || json.Unmarshal(p.Content, &content) != nil {
		return nil, operate.Refuse("no_correction", "proposal %s is no correction of a dead letter", p.ID)
	}
	if content.PayloadSealed == "" {
		return nil, operate.Refuse("values_not_kept", "proposal %s was made by an older version and does not hold the values: decline it, and let its author ask again", p.ID)
	}
	state, err := d.letters.State(ctx)
	if err != nil {
		return nil, err
	}
	letter, err := d.letters.Show(ctx, content.Letter)
	if errors.Is(err, queue.ErrNoDeadLetter) {
		return nil, operate.Refuse("letter_gone", "dead letter %d is gone: proposal %s can no longer be read, nor executed", content.Letter, p.ID)
	}
	if err != nil {
		return nil, err
	}
	act, err := d.reopen(state, letter, content)
	if err != nil {
		return nil, operate.Refuse("not_as_shown", "proposal %s does not open with dead letter %d: it is not what its author was shown, decline it", p.ID, content.Letter)
	}
	now, err := act.Content()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(now, p.Content) {
		return nil, operate.Refuse("not_as_shown", "proposal %s shows something else than it would do: decline it, and ask %s about it", p.ID, p.By)
	}
	return &Proposed{act: act, proposal: p}, nil
}

// reopen makes the act again of what is in the seal.
func (d *Desk) reopen(state queue.DeadState, letter queue.DeadLetter, content correctContent) (*Correct, error) {
	payload, err := unseal(letter.Payload, sumOf(content.PayloadSHA256), content.PayloadSealed)
	if err != nil {
		return nil, err
	}
	return d.correction(state, letter, Edit{Payload: payload, Route: content.Route})
}

// sumOf is a SHA-256 that was written in hex; of what is none, nothing's.
func sumOf(text string) (sum [32]byte) {
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == len(sum) {
		copy(sum[:], raw)
	}
	return sum
}

// RevealProposed is the act of showing the changes of a correction as they are. Changes are set after it ran.
type RevealProposed struct {
	Changes []Change

	proposed *Proposed
}

// Reveal makes the act.
func (p *Proposed) Reveal() *RevealProposed { return &RevealProposed{proposed: p} }

// Name is reveal.
func (*RevealProposed) Name() string { return "reveal" }

// Role is anybody's by itself; Check asks for one that proposes or decides.
func (*RevealProposed) Role() operate.Role { return operate.RoleViewer }

// Target is the proposal.
func (r *RevealProposed) Target() string { return "proposal " + r.proposed.proposal.ID.String() }

// Content is the proposal, by its digest.
func (r *RevealProposed) Content() ([]byte, error) {
	return json.Marshal(map[string]string{"proposal": r.proposed.proposal.ID.String(), "digest": hex.EncodeToString(r.proposed.proposal.Digest)},
		json.Deterministic(true))
}

// Weight is nothing.
func (*RevealProposed) Weight() operate.Weight { return operate.Weight{} }

// Check lets those see it who may ask for a correction or agree to one: nobody agrees to what they may not see.
func (r *RevealProposed) Check(_ context.Context, by operate.Operator) error {
	if by.Has(operate.RoleOperator) || by.Has(operate.RoleApprover) {
		return nil
	}
	return fmt.Errorf("%w: reveal needs the role %s or %s, and %s has %v", operate.ErrNotPermitted, operate.RoleOperator, operate.RoleApprover, by.Name, by.Roles)
}

// Run shows it.
func (r *RevealProposed) Run(context.Context, operate.Operator) (string, error) {
	r.Changes = r.proposed.act.changes()
	return operate.OutcomeDone, nil
}
