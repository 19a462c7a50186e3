package queue

import (
	"testing"
	"time"

	"github.com/google/uuid"
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
	for most, want := range map[int][]Told{
		9: {{4, "two", "parked", keys[2], time.Time{}}, {2, "one", "authorized", keys[1], time.Time{}}, {1, "one", "accepted", keys[0], time.Time{}}},
		2: {{4, "two", "parked", keys[2], time.Time{}}},
	} {
		got, err := LastEvents(ctxOf(t), r.pub, most)
		if err != nil || len(got) != len(want) {
			t.Fatalf("the last %d: %+v, %v", most, got, err)
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
}
