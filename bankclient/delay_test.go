package bankclient_test

import (
	"testing"
	"time"
)

// G9: every form in which partners tell how long to wait.
func TestG9_Delays(t *testing.T) {
	const date = "Date: Mon, 02 Nov 2026 10:00:00 GMT"
	for _, row := range []struct {
		headers []string
		want    time.Duration
	}{
		{[]string{"Retry-After: 1800"}, 30 * time.Minute},
		{[]string{"Retry-After:   60  "}, time.Minute},
		{[]string{date, "Retry-After: Mon, 02 Nov 2026 10:30:00 GMT"}, 30 * time.Minute},
		{[]string{date, "Retry-After: Monday, 02-Nov-26 10:30:00 GMT"}, 30 * time.Minute},
		{[]string{date, "Retry-After: 2026-11-02T10:30:00Z"}, 30 * time.Minute},
		{[]string{date, "Retry-After: Mon, 02 Nov 2026 09:00:00 GMT"}, 0},
		{[]string{"Retry-After: Fri, 01 Jan 1999 00:00:00 GMT"}, 0},
		{[]string{date, "Retry-After: Fri, 01 Jan 2100 00:00:00 GMT"}, 24 * time.Hour},
		{[]string{"Retry-After: 0"}, 0},
		{[]string{"Retry-After: -5"}, 0},
		{[]string{"Retry-After: 1.2"}, 2 * time.Second},
		{[]string{"Retry-After: 999999"}, 24 * time.Hour},
		{[]string{"Retry-After: 9999999999999999999999999999"}, 24 * time.Hour},
		{[]string{"Retry-After: -9999999999999999999999999999"}, 0},
		{[]string{"Retry-After: soon"}, 0},
		{[]string{"Retry-After: 1e3"}, 0},
		{[]string{"Retry-After: ."}, 0},
		{[]string{"Retry-After:"}, 0},
		{nil, 0},
		{[]string{"RateLimit-Reset: 120"}, 2 * time.Minute},
		{[]string{date, "RateLimit-Reset: Mon, 02 Nov 2026 10:01:00 GMT"}, time.Minute},
		{[]string{"RateLimit-Reset: 120", "Retry-After: 60"}, time.Minute},
	} {
		for _, status := range []int{429, 503, 409, 500} {
			r := sendTo(t, say(t, reply(status, jsonType, "{}", row.headers...)))
			if r.RetryAfter != row.want {
				t.Errorf("%d %q: %s, want %s", status, row.headers, r.RetryAfter, row.want)
			}
		}
	}
	r := sendTo(t, say(t, reply(201, jsonType, agreeing, "RateLimit-Reset: 120")))
	if r.RetryAfter != 0 {
		t.Errorf("a success with RateLimit-Reset says nothing, got %s", r.RetryAfter)
	}
}
