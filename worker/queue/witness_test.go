package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
)

func TestLastEvents_NewestFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	keys := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	for _, e := range []Event{
		{ID: keys[0].String() + ".accepted", Ledger: "one"}, {ID: keys[1].String() + ".authorized", Ledger: "one"},
		{ID: "of another program"}, {ID: keys[2].String() + ".parked.17", Ledger: "two"},
	} {
		e.Subject, e.Body = "withdrawals.events.gbp-fps.wallet.any", []byte("{}")
		msg, err := e.msg()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.js.PublishMsg(ctxOf(t), msg); err != nil {
			t.Fatal(err)
		}
	}
	check := func(most int, want []Told) {
		t.Helper()
		got, err := LastEvents(ctxOf(t), r.pub, most)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d reads: %+v, %v", most, got, err)
		}
		for i := range got {
			if got[i].At.IsZero() {
				t.Error("no time")
			}
			got[i].At = want[i].At
			if got[i] != want[i] {
				t.Errorf("%d of %d: %+v, want %+v", i, most, got[i], want[i])
			}
		}
	}
	if cancelled, err := CancelledSince(ctxOf(t), r.pub, time.Time{}); err != nil || len(cancelled) != 0 {
		t.Errorf("cancelled: %v, %v; want none", cancelled, err)
	}
	last, first := Told{4, "two", "parked", keys[2], time.Time{}}, Told{1, "one", "accepted", keys[0], time.Time{}}
	check(9, []Told{last, first}) // 4, 3, 1: 3 is of another program
	check(2, []Told{last})
	for range 17 { // 5 to 21
		if _, err := r.js.PublishMsg(ctxOf(t), &nats.Msg{Subject: "withdrawals.events.gbp-fps.wallet.any", Data: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	check(9, nil)  // 21, 20, 18, 14, 6
	for range 14 { // to 35: 35, 34, 32, 28, 20, 4
		if _, err := r.js.PublishMsg(ctxOf(t), &nats.Msg{Subject: "withdrawals.events.gbp-fps.wallet.any", Data: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	check(20, []Told{last})
}

func TestCancelledSince_TellsThoseAndNoOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	keys := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	publish := func(key uuid.UUID, kind string) time.Time {
		ack, err := r.js.PublishMsg(ctxOf(t), &nats.Msg{Subject: "withdrawals.events.gbp-fps.wallet." + kind, Data: []byte("{}"),
			Header: nats.Header{"Nats-Msg-Id": {key.String() + "." + kind}}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.js.Stream(ctxOf(t), StreamEvents)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := s.GetMsg(ctxOf(t), ack.Sequence)
		if err != nil {
			t.Fatal(err)
		}
		return raw.Time
	}
	first := publish(keys[0], "cancelled")
	publish(keys[1], "authorized")
	publish(keys[2], "cancelled")
	for since, want := range map[time.Time][]uuid.UUID{first: {keys[0], keys[2]}, first.Add(1): {keys[2]}} {
		if got, err := CancelledSince(ctxOf(t), r.pub, since); err != nil || !slices.Equal(got, want) {
			t.Errorf("since %v: %v, %v; want %v", since, got, err, want)
		}
	}
}
