package cli

import (
	"bytes"
	"testing"
	"time"
)

func TestBar(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct {
		name     string
		terminal bool
		drive    func(b *Bar)
		want     string
	}{
		{"a short one elsewhere says nothing", false, func(b *Bar) {
			b.update(0, 100, at(0))
			b.update(100, 100, at(1))
			b.end(at(1))
		}, ""},
		{"a line every few seconds elsewhere", false, func(b *Bar) {
			b.update(1000, 4_000_000, at(0))
			b.update(2000, 4_000_000, at(1))
			b.update(1_001_000, 4_000_000, at(4))
			b.update(1_002_000, 4_000_000, at(5))
			b.end(at(6))
		}, "enqueue [######------------------]  25%  1,001,000 of 4,000,000  250,000/s  12s left\n" +
			"enqueue [######------------------]  25%  1,002,000 of 4,000,000  166,833/s  18s left\n"},
		{"a bar that changes on a terminal", true, func(b *Bar) {
			b.update(0, 10, at(0.2))
			b.update(5, 10, at(1.2))
			b.update(4, 10, at(1.25)) // an older one
			b.update(10, 10, at(2.2))
			b.end(at(2.2))
		}, "\r\x1b[Kenqueue [------------------------]   0%  0 of 10" +
			"\r\x1b[Kenqueue [############------------]  50%  5 of 10  5/s  2s left" +
			"\r\x1b[Kenqueue [########################] 100%  10 of 10  5/s" +
			"\r\x1b[Kenqueue [########################] 100%  10 of 10  5/s\n"},
		{"no total", false, func(b *Bar) {
			b.update(0, 0, at(0))
			b.update(9_000, 0, at(3))
		}, "enqueue 9,000  3,000/s\n"},
	} {
		var out bytes.Buffer
		c.drive(newBar(&out, "enqueue", c.terminal, began))
		if out.String() != c.want {
			t.Errorf("%s:\n%q\nwant\n%q", c.name, out.String(), c.want)
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -100: "-100", 1234567: "1,234,567"} {
		if got := Thousands(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
