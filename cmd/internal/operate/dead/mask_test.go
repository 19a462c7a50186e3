package dead_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/worker/job"
)

// canaries are what must be seen nowhere, in any spelling that a program might keep.
func canaries() []string {
	return []string{"Canary", "Birdsong", canaryIBAN, "20201555555555", canaryRef, "CANARY-META"}
}

func clean(t *testing.T, where, text string) {
	t.Helper()
	for _, canary := range canaries() {
		if strings.Contains(text, canary) {
			t.Errorf("%s: %q shows in %q", where, canary, text)
		}
	}
}

func TestMasked_NoNameAndNoAccountAnywhere(t *testing.T) {
	w := newWorld(t, dead.Options{Policy: policy()})
	metadata := `"v":1,"metadata":{"CANARY-META-NAME":"CANARY-META-VALUE"}`
	good := payload(job.NewKey(), `"v":1`, metadata)
	w.bury(
		letter{payload: good, detail: notYours},
		letter{payload: payload(job.NewKey(), `"v":1`, metadata, "49.00", "49.0")},
		letter{payload: []byte(canaryName + " " + canaryIBAN), reason: job.ReasonUndecodable},
		letter{payload: payload(job.NewKey(), "GBP", canaryName), subject: canaryIBAN + ".wallet", reason: job.ReasonUnknownRoute},
		letter{payload: payload(job.NewKey(), `"amount":"49.00"`, `"amount":"`+canaryIBAN+`","amount":"1.00"`)},
		letter{payload: bytes.Repeat([]byte(canaryName), 9000), reason: job.ReasonTooLarge},
	)
	var said []string
	say := func(what string, v any, err error) {
		said = append(said, what, fmt.Sprintf("%v %+v %#v %s", v, v, v, err))
	}
	for l, err := range w.desk.List(t.Context(), dead.Filter{}, 0) {
		say("list", l, err)
		shown, err := w.desk.Show(t.Context(), l.Sequence)
		say("show", fmt.Sprint(shown.Entry, shown.Masked, shown.Acts), err)
		for _, e := range []dead.Edit{
			set("amount", "49.00"), set("amount", canaryIBAN), set("currency", canaryName), set("beneficiary.iban", canaryIBAN+"1"), set("reference", strings.Repeat(canaryName, 100)),
			set("not_after", canaryRef), set(canaryName, canaryIBAN), {Payload: []byte(canaryName)}, {Payload: payload(job.NewKey(), "49.00", canaryIBAN)}, {Route: canaryName},
			{Payload: payload(job.NewKey(), `"v":1`, `"v":1,"`+canaryRef+`":1`)},
		} {
			act, err := w.desk.Correct(t.Context(), l.Sequence, e)
			say("correct", "", err)
			if err == nil {
				content, err := act.Content()
				say("content", string(content), err)
				done, err := w.do(w.olga, act)
				say("propose", done.Outcome, err)
			}
		}
	}
	groups, err := w.desk.Groups(t.Context(), dead.Filter{})
	say("groups", groups, err)
	p := w.freeze(dead.Filter{})
	say("plan", *p, nil)
	if _, err := w.agreed(w.correct(2, set("amount", "49.00", "beneficiary.name", canaryName+"2"))); err != nil {
		t.Error(err)
	}
	_, err = w.do(w.olga, w.discard(3))
	w.must(err)
	_, _, err = w.replay(w.freeze(dead.Filter{To: 1}))
	w.must(err)
	for i := 0; i < len(said); i += 2 {
		clean(t, said[i], said[i+1])
	}

	shown, err := w.desk.Show(t.Context(), 1)
	w.must(err)
	if len(shown.Masked) != 7 || strings.Count(strings.Join(shown.Masked, "\n"), "[masked]") != 5 {
		t.Errorf("masked: %q", shown.Masked)
	}
	reveal := shown.Reveal()
	_, err = w.do(w.olga, reveal)
	w.must(err)
	if reveal.Payload != string(good) {
		t.Error("the letter is not revealed as it is")
	}
	if _, err := w.do(w.ada, shown.Reveal()); !errors.Is(err, operate.ErrNotPermitted) {
		t.Errorf("an approver may see the payload: %v", err)
	}
	var lines int
	w.one(&lines, `SELECT count(*) FROM audit WHERE act = 'reveal'`)
	if lines != 2 {
		t.Errorf("%d lines of the audit log tell of it, want 2", lines)
	}
	dump := w.dump()
	clean(t, "the database", dump)
	for _, canary := range canaries() {
		if strings.Contains(dump, fmt.Sprintf("%x", canary)) {
			t.Errorf("%q is in the database, as bytes", canary)
		}
	}
}

// dump is the whole database. Nothing was worked here, so that it holds no payload of an operation either.
func (w *world) dump() string {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.urls.Superuser)
	w.must(err)
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(w.t.Context(), `SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1`)
	w.must(err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.must(err)
	var all strings.Builder
	for _, table := range tables {
		_, err := conn.PgConn().CopyTo(w.t.Context(), &all, "COPY "+pgx.Identifier{table}.Sanitize()+" TO STDOUT")
		w.must(err)
	}
	if !strings.Contains(all.String(), "amount_digits") {
		w.t.Error("the dump is not whole")
	}
	return all.String()
}
