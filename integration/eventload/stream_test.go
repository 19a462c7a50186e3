package main

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
)

// TestAccount_SeesWhatIsWrong: a count that always agrees would prove nothing.
func TestAccount_SeesWhatIsWrong(t *testing.T) {
	const one, two, three = "01939e1c-7a52-7000-8000-000000000001", "01939e1c-7a52-7000-8000-000000000002", "01939e1c-7a52-7000-8000-000000000003"
	for name, c := range map[string]struct {
		events     []string // key, type, the id if it is another, and the message's if that is another than the event's
		operations int
		good       bool
	}{
		"each once, in order":  {[]string{one + " accepted", two + " accepted", one + " authorized", two + " authorized"}, 2, true},
		"out of order":         {[]string{one + " authorized", one + " accepted"}, 1, false},
		"repeated":             {[]string{one + " accepted", one + " authorized", one + " authorized"}, 1, false},
		"one is missing":       {[]string{one + " accepted"}, 1, false},
		"one for another":      {[]string{one + " accepted", one + " accepted"}, 1, false},
		"an operation missing": {[]string{one + " accepted", one + " authorized"}, 2, false},
		"another message id":   {[]string{one + " accepted " + one + ".accepted " + two + ".accepted", one + " authorized"}, 1, false},
		"halves of two":        {[]string{one + " accepted", one + " authorized", two + " accepted", three + " accepted"}, 2, false},
		"another id":           {[]string{one + " accepted", one + " authorized " + two + ".authorized"}, 1, false},
	} {
		a := &account{seen: map[uuid.UUID]int{}}
		for _, event := range c.events {
			var key, kind, id, messageID string
			n, _ := fmt.Sscan(event, &key, &kind, &id, &messageID)
			if n < 3 {
				id = key + "." + kind
			}
			if n < 4 {
				messageID = id
			}
			if err := a.add(fmt.Appendf(nil, `{"event_id":%q,"type":%q,"key":%q,"amount":"49.00"}`, id, kind, key), messageID); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.judge(c.operations); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
