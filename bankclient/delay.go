package bankclient

import (
	"net/http"
	"strings"
	"time"
)

// retryAfter reads how long the partner wants to be left alone: Retry-After in seconds or as a date, else RateLimit-Reset
// in either form. Zero, negative, unreadable and absent give 0; the rest is clamped to ceiling.
//
// A date is measured against the answer's own Date header, because our clock may be wrong by hours.
func retryAfter(h http.Header, now time.Time, ceiling time.Duration) time.Duration {
	text := first(h, "Retry-After")
	if text == "" {
		text = first(h, "Ratelimit-Reset")
	}
	if text == "" {
		return 0
	}
	if seconds, ok := wholeSeconds(text); ok {
		return clamp(seconds, ceiling)
	}
	at, ok := parseDate(text)
	if !ok {
		return 0
	}
	if date, ok := parseDate(first(h, "Date")); ok {
		now = date
	}
	return clamp(at.Sub(now), ceiling)
}

// wholeSeconds reads a decimal count of seconds, of any length; a fraction is rounded up.
func wholeSeconds(text string) (time.Duration, bool) {
	digits, fraction, _ := strings.Cut(text, ".")
	negative := strings.HasPrefix(digits, "-")
	digits = strings.TrimPrefix(digits, "-")
	if digits == "" || !onlyDigits(digits) || !onlyDigits(fraction) {
		return 0, false
	}
	if negative {
		return 0, true
	}
	const most = 1 << 33 // seconds; a Duration holds more, and every ceiling is far below
	var n int64
	for i := range len(digits) {
		n = min(n*10+int64(digits[i]-'0'), most)
	}
	if strings.Trim(fraction, "0") != "" {
		n++
	}
	return time.Duration(n) * time.Second, true
}

func onlyDigits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

func parseDate(text string) (time.Time, bool) {
	if text == "" {
		return time.Time{}, false
	}
	if at, err := http.ParseTime(text); err == nil {
		return at, true
	}
	for _, layout := range []string{time.RFC1123Z, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

func clamp(d, ceiling time.Duration) time.Duration { return min(max(d, 0), ceiling) }

// first reads a header whose name is in canonical form, without the cost of making it so.
func first(h http.Header, canonical string) string {
	if values := h[canonical]; len(values) > 0 {
		return strings.TrimSpace(values[0])
	}
	return ""
}
