package prove

import (
	"cmp"
	"slices"
	"time"
)

// Kind is one kind of fault. Its text is stable.
type Kind string

// The kinds, the worst first.
const (
	KindTwice        Kind = "twice"         // P2: a key with two transfers
	KindContradicted Kind = "contradicted"  // P3, P8: an outcome that evidence speaks against
	KindLost         Kind = "lost"          // P1: a key or message in no place
	KindOrphanTheirs Kind = "orphan_theirs" // P5: a transfer without operation
	KindOrphanOurs   Kind = "orphan_ours"   // P3: authorized without transfer
	KindMismatch     Kind = "mismatch"      // P3, P4: ledger and partner do not tell the same
	KindUnbalanced   Kind = "unbalanced"    // P6: the journal
	KindMisplaced    Kind = "misplaced"     // P1: in two places, or in the wrong one
	KindStray        Kind = "stray"         // P8: evidence without operation
	KindUnannounced  Kind = "unannounced"   // P7: neither event nor outbox
	KindUnproved     Kind = "unproved"      // nobody can tell: the statement is missing
)

// kinds gives their order and what a person does about each.
func kinds() []Kind {
	return []Kind{
		KindTwice, KindContradicted, KindLost, KindOrphanTheirs, KindOrphanOurs, KindMismatch, KindUnbalanced, KindMisplaced, KindStray,
		KindUnannounced, KindUnproved,
	}
}

// Advice says what a person does about a kind of fault.
func (k Kind) Advice() string {
	switch k {
	case KindTwice:
		return "pause the partner, ask it to return the second transfer, and compare its behaviour with its declared profile"
	case KindContradicted:
		return "pause the partner, and settle with it which outcome is true; `paidonce ops explain KEY` shows the evidence"
	case KindLost:
		return "publish the job again under the same key; after a failover run `paidonce recover` first"
	case KindOrphanTheirs:
		return "find who sent it; after a failover or restore run `paidonce recover` before anything is sent again"
	case KindOrphanOurs:
		return "ask the partner for the transfer by its id; do not send again"
	case KindMismatch:
		return "compare `paidonce ops explain KEY` with the partner's statement, and settle the difference with the partner"
	case KindUnbalanced:
		return "do not use the balances; find what wrote to the journal beside paidonce, or restore it from a backup"
	case KindMisplaced:
		return "find what wrote to the ledger beside paidonce; `paidonce ops explain KEY` shows what is known"
	case KindStray:
		return "after a failover run `paidonce recover`; then match the evidence with the partner's statement"
	case KindUnannounced:
		return "tell the upstream system the outcome; find what removed the outbox row or the event"
	case KindUnproved:
		return "configure the partner and make its statement readable, and run again"
	}
	return ""
}

// Finding is one fault. It names keys, messages and transfers, never people or accounts.
type Finding struct {
	Kind       Kind   `json:"kind"`
	Key        string `json:"key,omitzero"`
	Partner    string `json:"partner,omitzero"`
	TransferID string `json:"transfer_id,omitzero"`
	Text       string `json:"text"`
	Advice     string `json:"advice"`
}

// Report is the result of one run.
type Report struct {
	Held bool `json:"held"` // everything that was promised

	Keys       int64 `json:"keys"` // operations, keys that only the queue owns, and lost ones
	Authorized int64 `json:"authorized"`
	Rejected   int64 `json:"rejected"`
	Cancelled  int64 `json:"cancelled"`
	Parked     int64 `json:"parked"`
	Open       int64 `json:"open"` // not decided at the cut, or owned by the queue
	Dead       int64 `json:"dead"` // dead letters

	// What must be zero. Each counts keys, or messages, transfers or rows without one.
	Twice         int64 `json:"twice"`
	Lost          int64 `json:"lost"`
	OrphansOurs   int64 `json:"orphans_ours"`
	OrphansTheirs int64 `json:"orphans_theirs"`
	Mismatched    int64 `json:"mismatched"`
	Unbalanced    int64 `json:"unbalanced"`
	Misplaced     int64 `json:"misplaced"`
	Unannounced   int64 `json:"unannounced"`
	Contradicted  int64 `json:"contradicted"`
	Strays        int64 `json:"strays"`
	Unproved      int64 `json:"unproved"`

	OutboxPending      int64     `json:"outbox_pending"`
	JobsPending        int64     `json:"jobs_pending"`        // accepted by a gateway or a batch, and not published yet: the ledger owns them
	CorrectionsPending int64     `json:"corrections_pending"` // of dead letters, agreed to and never published: whoever began them has to finish
	Transfers          int64     `json:"transfers"`           // read from the statements
	Younger            int64     `json:"younger"`             // transfers of operations after the cut, left for the next run
	CheckedAt          time.Time `json:"checked_at"`          // the cut
	Since              time.Time `json:"since,omitzero"`      // older operations were not judged
	Partner            string    `json:"partner,omitzero"`    // the only one that was judged

	Findings []Finding `json:"findings"` // the worst first, at most Options.Findings
	Notes    []string  `json:"notes,omitzero"`
}

func (r *Report) counter(k Kind) *int64 {
	switch k {
	case KindTwice:
		return &r.Twice
	case KindContradicted:
		return &r.Contradicted
	case KindLost:
		return &r.Lost
	case KindOrphanTheirs:
		return &r.OrphansTheirs
	case KindOrphanOurs:
		return &r.OrphansOurs
	case KindMismatch:
		return &r.Mismatched
	case KindUnbalanced:
		return &r.Unbalanced
	case KindMisplaced:
		return &r.Misplaced
	case KindStray:
		return &r.Strays
	case KindUnannounced:
		return &r.Unannounced
	case KindUnproved:
		return &r.Unproved
	}
	panic("a kind of fault without a counter: " + string(k))
}

// Faults is how many there are of all kinds.
func (r *Report) Faults() int64 {
	var n int64
	for _, k := range kinds() {
		n += *r.counter(k)
	}
	return n
}

// book counts faults and keeps the first findings of each kind.
type book struct {
	Report
	most int
	kept map[Kind][]Finding
}

func newBook(most int) *book { return &book{most: most, kept: map[Kind][]Finding{}} }

// find counts one fault.
func (b *book) find(f Finding) {
	*b.counter(f.Kind)++
	if len(b.kept[f.Kind]) < b.most {
		f.Advice = f.Kind.Advice()
		f.TransferID = clean(f.TransferID)
		b.kept[f.Kind] = append(b.kept[f.Kind], f)
	}
}

// report closes the book.
func (b *book) report() Report {
	b.Held = b.Faults() == 0
	b.Findings = []Finding{}
	for _, k := range kinds() {
		slices.SortStableFunc(b.kept[k], func(x, y Finding) int {
			return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.TransferID, y.TransferID), cmp.Compare(x.Text, y.Text))
		})
		b.Findings = append(b.Findings, b.kept[k][:min(len(b.kept[k]), b.most-len(b.Findings))]...)
	}
	return b.Report
}

// clean keeps what a partner calls a transfer readable, short, and harmless on a terminal.
func clean(text string) string {
	out := []byte(text)
	for i, c := range out {
		if c <= ' ' || c > '~' {
			out[i] = '?'
		}
	}
	return string(out[:min(len(out), 128)])
}
