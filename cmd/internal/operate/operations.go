package operate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
)

// Rules are what a partner declares, as far as a decision rests on it.
type Rules struct {
	HonoursKeys bool
	KeyWindow   time.Duration
	LooksUp     bool
}

// Decision is what a person wants of a parked operation. Exactly one of its three ways is set.
type Decision struct {
	Authorized bool
	TransferID string // with Authorized
	Rejected   bool
	Code       string // with Rejected
	Retry      bool
}

// to is the state that a decision leads to.
func (d Decision) to() ledger.State {
	switch {
	case d.Authorized:
		return ledger.StateAuthorized
	case d.Rejected:
		return ledger.StateRejected
	}
	return ledger.StateOpen
}

// Resolution is an Act: a decision on one parked operation as it was seen.
type Resolution struct {
	s        *Service
	seen     ledger.Explanation
	said     string // by the partner and about it; read before seen, so that nothing is bound that was not seen
	decision Decision
	rules    *Rules // nil = the partner is not configured here
	reason   string
	evidence string
}

// Resolve makes the act from the operation as it stands now. rules gives what its partner declares.
func (s *Service) Resolve(ctx context.Context, key uuid.UUID, d Decision, rules func(partner string) *Rules, reason, evidence string) (*Resolution, error) {
	said, err := s.ledger.Said(ctx, key)
	if err != nil {
		return nil, denied(err)
	}
	e, err := s.ledger.Explain(ctx, key)
	if err != nil {
		return nil, denied(err)
	}
	return &Resolution{s: s, seen: e, said: said, decision: d, rules: rules(e.Partner), reason: reason, evidence: evidence}, nil
}

// Seen is the operation as the act was made for it.
func (r *Resolution) Seen() ledger.Explanation { return r.seen }

// Name is resolve.
func (r *Resolution) Name() string { return "resolve" }

// Role is operator; the second person is an approver.
func (r *Resolution) Role() Role { return RoleOperator }

// Target is the key.
func (r *Resolution) Target() string { return r.seen.Key.String() }

// Weight asks for a second person wherever money may have moved, or is said to have. What was never sent, or surely came to nothing, one person has
// the worker try again, up to what one person decides upon.
func (r *Resolution) Weight() Weight {
	if r.repeated() {
		return Weight{Count: 1}
	}
	return Weight{Count: 1, Amounts: map[string]int64{r.seen.Amount.Currency: r.seen.Amount.Minor}, Always: !r.decision.Retry || r.seen.InDoubt}
}

// Content is the decision and what it was taken on: an approval does not outlive news that might have changed it.
func (r *Resolution) Content() ([]byte, error) {
	return json.Marshal(struct {
		Key        string `json:"key"`
		Fence      int32  `json:"fence"`
		InDoubt    bool   `json:"in_doubt"`
		Partner    string `json:"partner"`
		Amount     string `json:"amount"`
		Currency   string `json:"currency"`
		Parked     string `json:"parked_for"`
		Said       string `json:"said"`
		To         string `json:"to"`
		TransferID string `json:"transfer_id,omitempty"`
		Code       string `json:"code,omitempty"`
		Evidence   string `json:"evidence,omitempty"`
	}{r.Target(), r.seen.Fence, r.seen.InDoubt, r.seen.Partner, r.seen.Amount.Decimal(), r.seen.Amount.Currency, r.seen.Code, r.said, string(r.decision.to()),
		r.decision.TransferID, r.decision.Code, r.evidence}, json.Deterministic(true))
}

// repeated reports whether the very decision was carried out before: a command that is run again after its answer was lost changes nothing.
func (r *Resolution) repeated() bool {
	if r.seen.State != r.decision.to() || r.decision.Retry || !slices.ContainsFunc(r.seen.Facts, func(f ledger.Fact) bool { return f.Kind == ledger.FactResolution }) {
		return false
	}
	return r.decision.Authorized && r.seen.TransferID == r.decision.TransferID || r.decision.Rejected && r.seen.Code == r.decision.Code
}

// Check refuses what the evidence speaks against, what has moved on, and a retry that the worker would only park again.
func (r *Resolution) Check(ctx context.Context, by Operator) error {
	if n := count(r.decision.Authorized, r.decision.Rejected, r.decision.Retry); n != 1 {
		return Refuse("decision", "decide one of: authorized, rejected, retry")
	}
	switch {
	case r.repeated():
		return nil
	case r.decision.Authorized && r.decision.TransferID == "":
		return Refuse("decision", "an authorized operation has a transfer id: give the partner's")
	case r.decision.Rejected && r.decision.Code == "":
		return Refuse("decision", "a rejected operation has a code: give the partner's, or a word of your own")
	case !r.decision.Retry && r.evidence == "":
		return Refuse("evidence", "what the partner did is not decided without evidence: say where it is, as a line of a statement")
	}
	resolution, err := r.resolution(by)
	if err != nil {
		return err
	}
	if err := r.s.ledger.CheckResolution(ctx, resolution); err != nil {
		return obstacle(err)
	}
	return r.checkWindow()
}

// checkWindow: an operation in doubt is sent again only within half of its key's window, and only to a partner that honours keys.
func (r *Resolution) checkWindow() error {
	if !r.decision.Retry || !r.seen.InDoubt {
		return nil
	}
	switch {
	case r.rules == nil:
		return Refuse("partner_unknown", "partner %q is not configured here: what it declares decides whether anything may be sent again", r.seen.Partner)
	case !r.rules.HonoursKeys || r.rules.KeyWindow == 0:
		return Refuse("keys_not_honoured", "partner %s honours no keys: what is in doubt is never sent to it again; resolve it by what the partner says", r.seen.Partner)
	case !r.seen.Now.Before(r.seen.FirstSentAt.Add(r.rules.KeyWindow / 2)):
		return Refuse("window_over", "half of the key's window of %v is over since %s: nothing may be sent again; resolve it by what the partner says",
			r.rules.KeyWindow, r.seen.FirstSentAt.Add(r.rules.KeyWindow/2).UTC().Format(time.RFC3339))
	}
	return nil
}

func (r *Resolution) resolution(by Operator) (ledger.Resolution, error) {
	content, err := r.Content()
	return ledger.Resolution{Token: uuid.NewHash(sha256.New(), uuid.Nil, content, 8), Key: r.seen.Key, Fence: r.seen.Fence, Said: r.said, To: r.decision.to(),
		TransferID: r.decision.TransferID, Code: r.decision.Code, By: by.Name, Reason: r.reason, Evidence: r.evidence}, err
}

// Run carries the decision out.
func (r *Resolution) Run(ctx context.Context, by Operator) (string, error) {
	if r.repeated() {
		return OutcomeNoEffect, nil
	}
	resolution, err := r.resolution(by)
	if err != nil {
		return "", err
	}
	resolution.Under = lineOn(ctx, by)
	if p := under(ctx).Proposal; p != nil {
		resolution.Proposal = p.ID
	}
	changed, err := r.s.ledger.Resolve(ctx, resolution)
	switch {
	case err != nil:
		return "", obstacle(err)
	case !changed:
		return OutcomeNoEffect, nil
	}
	return OutcomeDone, nil
}

// obstacle says a refusal of the ledger in the desk's words.
func obstacle(err error) error {
	var o *ledger.ObstacleError
	if errors.As(err, &o) {
		return Refuse(string(o.Obstacle), "%s: %s", o.Key, o.Obstacle.Says())
	}
	return denied(err)
}

func count(these ...bool) (n int) {
	for _, this := range these {
		if this {
			n++
		}
	}
	return n
}

// LookUp is an Act: a worker asks the partner about one operation now, with its own credentials.
type LookUp struct {
	Answer ledger.Explanation // after it ran: the operation as it then stood

	s     *Service
	seen  ledger.Explanation
	rules *Rules
	wait  time.Duration
}

// AskNow makes the act. It waits that long for what a worker finds.
func (s *Service) AskNow(ctx context.Context, key uuid.UUID, rules func(partner string) *Rules, wait time.Duration) (*LookUp, error) {
	e, err := s.ledger.Explain(ctx, key)
	if err != nil {
		return nil, denied(err)
	}
	return &LookUp{s: s, seen: e, rules: rules(e.Partner), wait: wait}, nil
}

// Name is look_up.
func (l *LookUp) Name() string { return "look_up" }

// Role is operator.
func (l *LookUp) Role() Role { return RoleOperator }

// Target is the key.
func (l *LookUp) Target() string { return l.seen.Key.String() }

// Weight is none: it moves nothing.
func (l *LookUp) Weight() Weight { return Weight{} }

// Content is the key.
func (l *LookUp) Content() ([]byte, error) {
	return json.Marshal(map[string]string{"key": l.Target()}, json.Deterministic(true))
}

// Check refuses where there is nothing to ask, or nobody to ask.
func (l *LookUp) Check(context.Context, Operator) error {
	switch {
	case l.seen.State.Finished():
		return Refuse("finished", "%s is %s: there is nothing to ask", l.seen.Key, l.seen.State)
	case l.seen.State == ledger.StateClaimed:
		return Refuse("claimed", "%s is claimed: a worker is at it", l.seen.Key)
	case l.seen.FirstSentAt.IsZero():
		return Refuse("never_sent", "%s was never sent: the partner knows nothing of it", l.seen.Key)
	case l.seen.State == ledger.StateOpen && !l.seen.InDoubt:
		return Refuse("not_in_doubt", "%s is open and not in doubt: the worker goes on by itself at its due time", l.seen.Key)
	case l.rules != nil && !l.rules.LooksUp:
		return Refuse("no_look_up", "partner %s cannot be asked: it has no look-up", l.seen.Partner)
	}
	return nil
}

// lookUpPoll is how often it is read whether somebody has asked.
const lookUpPoll = 200 * time.Millisecond

// ErrNoAnswerYet: the look-up is due, and no worker has recorded an answer yet.
var ErrNoAnswerYet = errors.New("no worker has recorded an answer yet")

// Run makes the look-up due and waits for the answer.
func (l *LookUp) Run(ctx context.Context, by Operator) (string, error) {
	before, err := l.s.ledger.AskNow(ctx, lineOn(ctx, by), l.seen.Key)
	if err != nil {
		return "", denied(err)
	}
	poll := time.NewTicker(lookUpPoll)
	defer poll.Stop()
	for over := time.After(l.wait); ; {
		if l.Answer, err = l.s.ledger.Explain(ctx, l.seen.Key); err != nil {
			return "", denied(err)
		}
		if slices.ContainsFunc(l.Answer.Facts, func(f ledger.Fact) bool { return f.Kind != ledger.FactNote && f.At.After(before) }) {
			return OutcomeDone, nil
		}
		select {
		case <-ctx.Done():
			return "asked", fmt.Errorf("wait for the answer: %w", ctx.Err())
		case <-over:
			return "asked", fmt.Errorf("%w within %v; the look-up stays due", ErrNoAnswerYet, l.wait)
		case <-poll.C:
		}
	}
}

// CodeCancelled is the code of an operation that an operator has cancelled.
const CodeCancelled = "operator"

// Cancellation is an Act: it ends an operation that was not sent.
type Cancellation struct {
	s    *Service
	seen ledger.Explanation
}

// Cancel makes the act.
func (s *Service) Cancel(ctx context.Context, key uuid.UUID) (*Cancellation, error) {
	e, err := s.ledger.Explain(ctx, key)
	if err != nil {
		return nil, denied(err)
	}
	return &Cancellation{s: s, seen: e}, nil
}

// Name is cancel.
func (c *Cancellation) Name() string { return "cancel" }

// Role is operator.
func (c *Cancellation) Role() Role { return RoleOperator }

// Target is the key.
func (c *Cancellation) Target() string { return c.seen.Key.String() }

// Weight is none: nothing was sent, and nothing will be.
func (c *Cancellation) Weight() Weight { return Weight{} }

// Content is the key.
func (c *Cancellation) Content() ([]byte, error) {
	return json.Marshal(map[string]string{"key": c.Target()}, json.Deterministic(true))
}

// Check refuses all but what is open and not in doubt.
func (c *Cancellation) Check(context.Context, Operator) error {
	switch {
	case c.repeated():
		return nil
	case c.seen.InDoubt:
		return Refuse("in_doubt", "%s is in doubt: the partner may have moved the money, so it is not cancelled", c.seen.Key)
	case c.seen.State != ledger.StateOpen:
		return Refuse("not_open", "%s is %s: only what is open is cancelled", c.seen.Key, c.seen.State)
	}
	return nil
}

func (c *Cancellation) repeated() bool {
	return c.seen.State == ledger.StateCancelled && c.seen.Code == CodeCancelled
}

// Run cancels. The row decides: a worker that was first wins.
func (c *Cancellation) Run(ctx context.Context, by Operator) (string, error) {
	if c.repeated() {
		return OutcomeNoEffect, nil
	}
	cancelled, err := c.s.ledger.CancelUnder(ctx, lineOn(ctx, by), c.seen.Key, CodeCancelled)
	if err != nil {
		return "", denied(err)
	}
	if cancelled {
		return OutcomeDone, nil
	}
	now, err := c.s.ledger.Explain(ctx, c.seen.Key)
	switch {
	case err != nil:
		return "", denied(err)
	case now.State == ledger.StateCancelled:
		return OutcomeDone, nil // by us, and only the reply was lost, or by whoever was first
	}
	return "", Refuse("not_open", "%s is %s by now: only what is open and not in doubt is cancelled", c.seen.Key, now.State)
}
