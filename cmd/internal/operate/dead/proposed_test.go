package dead_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/worker/job"
)

const ownIBAN = "DE89370400440532013000"

// asked has olga ask for a correction, and gives its proposal as a second person reads it.
func (w *world) asked(act operate.Act) operate.Proposal {
	w.t.Helper()
	done, err := w.do(w.olga, act)
	if !errors.Is(err, operate.ErrWaiting) {
		w.t.Fatalf("%s: %v, want to wait for another person", act.Name(), err)
	}
	p, err := w.service.Proposal(w.t.Context(), done.Proposal.ID)
	w.must(err)
	return p
}

func texts(changes []dead.Change) string {
	var lines []string
	for _, c := range changes {
		lines = append(lines, c.Text())
	}
	return strings.Join(lines, "\n")
}

// The second person is told what each member was and what it would be: the beneficiary may be the author's own.
func TestProposed_OldAndNewOfEveryMember(t *testing.T) {
	w := newWorld(t, dead.Options{})
	w.bury(
		letter{payload: payload(job.NewKey(), `"v":1`, `"v":1,"metadata":{"CANARY-META-NAME":"1"},"not_after":"2027-01-01T00:00:00Z"`)},
		letter{payload: payload(job.NewKey(), "49.00", "49.0")},
		letter{payload: payload(job.NewKey(), "49.00", canaryIBAN, `"v":1`, `"v":1,"`+canaryRef+`":"x","not_before":"`+canaryRef+`"`)},
		letter{payload: []byte(canaryName)},
		letter{payload: payload(job.NewKey(), "49.00", "55779911")}, // an account's number, where the amount should be
	)
	whole := dead.Edit{Payload: payload(job.NewKey(), canaryIBAN, ownIBAN, canaryName, "Olga Canary Own", canaryRef, "another", "cust-4471", "cust-4472")}
	for _, c := range []struct {
		what     string
		sequence uint64
		edit     dead.Edit
		masked   string
		clear    string
	}{
		{
			"a beneficiary", 1, dead.Edit{Set: map[string]string{"amount": "50.00", "beneficiary.iban": ownIBAN, "beneficiary.name": "Olga Canary Own"}, Unset: []string{"not_after", "metadata.CANARY-META-NAME"}},
			"amount: 49.00 GBP -> 50.00 GBP\nbeneficiary.name: [masked] -> [masked] (they differ in what is masked)\n" +
				"beneficiary.iban: [masked, ends in 55] -> [masked, ends in 00]\nnot_after: 2027-01-01T00:00:00Z -> (none)\nmetadata.[masked]: [masked] -> (none)",
			"amount: 49.00 GBP -> 50.00 GBP\nbeneficiary.name: Canary Birdsong -> Olga Canary Own\nbeneficiary.iban: GB33BUKB20201555555555 -> DE89370400440532013000\n" +
				"not_after: 2027-01-01T00:00:00Z -> (none)\nmetadata.CANARY-META-NAME: 1 -> (none)",
		},
		{"a letter that is no job", 2, set("amount", "49.00"), "amount: 49.0 GBP -> 49.00 GBP", "amount: 49.0 GBP -> 49.00 GBP"},
		{"an account in the amount's place", 5, set("amount", "49.00"), "amount: [masked] -> 49.00 GBP", "amount: 55779911 GBP -> 49.00 GBP"},
		{
			"a letter with anything in it", 3, whole,
			"amount: [masked] -> 49.00 GBP\ndebtor_account: [masked, ends in 71] -> [masked, ends in 72]\nbeneficiary.name: [masked] -> [masked] (they differ in what is masked)\n" +
				"beneficiary.iban: [masked, ends in 55] -> [masked, ends in 00]\nreference: [masked] -> [masked] (they differ in what is masked)\n" +
				"[another member]: [masked] -> (none)\nnot_before: [masked] -> (none)",
			"amount: GB33BUKB20201555555555 GBP -> 49.00 GBP\ndebtor_account: cust-4471 -> cust-4472\nbeneficiary.name: Canary Birdsong -> Olga Canary Own\n" +
				"beneficiary.iban: GB33BUKB20201555555555 -> DE89370400440532013000\nreference: canary-reference -> another\n" +
				"canary-reference: x -> (none)\nnot_before: canary-reference -> (none)",
		},
		{
			"a letter that cannot be read", 4, whole,
			"amount: (none) -> 49.00 GBP\nroute: (none) -> gbp-fps\ndebtor_account: (none) -> [masked, ends in 72]\nbeneficiary.name: (none) -> [masked]\n" +
				"beneficiary.iban: (none) -> [masked, ends in 00]\nreference: (none) -> [masked]",
			"amount: (none) -> 49.00 GBP\nroute: (none) -> gbp-fps\ndebtor_account: (none) -> cust-4472\nbeneficiary.name: (none) -> Olga Canary Own\n" +
				"beneficiary.iban: (none) -> DE89370400440532013000\nreference: (none) -> another",
		},
	} {
		p := w.asked(w.correct(c.sequence, c.edit))
		if got := texts(dead.ShownChanges(p)); got != c.masked {
			t.Errorf("%s, masked:\n%s\nwant\n%s", c.what, got, c.masked)
		}
		proposed, err := w.desk.Proposed(t.Context(), p)
		w.must(err)
		reveal := proposed.Reveal()
		_, err = w.do(w.ada, reveal)
		w.must(err)
		if got := texts(reveal.Changes); got != c.clear {
			t.Errorf("%s, revealed:\n%s\nwant\n%s", c.what, got, c.clear)
		}
		var line string
		w.one(&line, `SELECT a.by || ' ' || r.outcome || ' ' || a.reason FROM audit a JOIN audit_results r ON r.audit_id = a.id WHERE a.target = $1`, "proposal "+p.ID.String())
		if line != "ada done ticket 5" {
			t.Errorf("%s: the audit log says %q", c.what, line)
		}
		if err := reveal.Check(t.Context(), operate.Operator{Name: "vera", Roles: []operate.Role{operate.RoleViewer}}); !errors.Is(err, operate.ErrNotPermitted) {
			t.Errorf("a viewer: %v", err)
		}
	}
	dump := w.dump()
	clean(t, "the database", dump)
	for _, secret := range append(canaries(), ownIBAN, "Olga") {
		if strings.Contains(dump, secret) || strings.Contains(dump, fmt.Sprintf("%x", secret)) {
			t.Errorf("%q is in the database", secret)
		}
	}
}

// Whoever writes past the program what looks harmless and is not is found out before somebody agrees to it.
func TestProposed_WhatShowsSomethingElseIsNotAgreedTo(t *testing.T) {
	w := newWorld(t, dead.Options{})
	w.bury(letter{payload: payload(job.NewKey(), "49.00", "49.0")}, letter{payload: payload(job.NewKey(), "49.00", "48.0")})
	judged := operate.New(w.ledger, w.pool, operate.Options{Judges: map[string]operate.Judge{dead.ActCorrect: {Compare: func(ctx context.Context, p operate.Proposal) error {
		_, err := w.desk.Proposed(ctx, p)
		return err
	}}}})
	honest, other := w.asked(w.correct(1, set("amount", "49.00", "beneficiary.iban", ownIBAN))), w.asked(w.correct(2, set("amount", "48.00")))
	var fields, others map[string]any
	w.must(json.Unmarshal(honest.Content, &fields))
	w.must(json.Unmarshal(other.Content, &others))
	for what, change := range map[string]func(map[string]any){
		"a change left out":          func(m map[string]any) { m["changes"] = m["changes"].([]any)[:1] },
		"another amount":             func(m map[string]any) { m["amount"] = "1.00 GBP" },
		"another letter":             func(m map[string]any) { m["letter"] = 2 },
		"the job of another":         func(m map[string]any) { m["payload_sealed"] = others["payload_sealed"] },
		"the SHA-256 of another job": func(m map[string]any) { m["payload_sha256"] = others["payload_sha256"] },
		"no job":                     func(m map[string]any) { delete(m, "payload_sealed") },
		"a letter that is gone":      func(m map[string]any) { m["letter"] = 9 },
	} {
		forged := map[string]any{}
		for name, value := range fields {
			forged[name] = value
		}
		change(forged)
		raw, err := json.Marshal(forged)
		w.must(err)
		p := w.asked(forgery{raw})
		if _, err := judged.Approve(t.Context(), w.ada, p.ID, p.Digest, "yes"); !errors.Is(err, operate.ErrRefused) {
			t.Errorf("%s: agreed to, %v", what, err)
		}
		if err := judged.Decidable(t.Context(), p, w.ada, p.Digest, true); !errors.Is(err, operate.ErrRefused) {
			t.Errorf("%s, tried: %v", what, err)
		}
	}
	var refused int
	w.one(&refused, `SELECT count(*) FROM audit a JOIN audit_results r ON r.audit_id = a.id WHERE a.act = 'approve' AND r.outcome = 'refused' AND r.detail <> ''`)
	if refused != 7 {
		t.Errorf("%d lines of the audit log tell of it, want 7", refused)
	}
	if _, err := judged.Approve(t.Context(), w.ada, honest.ID, honest.Digest, "yes"); err != nil {
		t.Errorf("the honest one: %v", err)
	}
}

// forgery is a proposal of a correction with any content.
type forgery struct{ content []byte }

func (forgery) Name() string                                          { return "correct" }
func (forgery) Role() operate.Role                                    { return operate.RoleOperator }
func (forgery) Target() string                                        { return "dead letter 1" }
func (f forgery) Content() ([]byte, error)                            { return f.content, nil }
func (forgery) Weight() operate.Weight                                { return operate.Weight{Always: true} }
func (forgery) Run(context.Context, operate.Operator) (string, error) { panic("never") }
