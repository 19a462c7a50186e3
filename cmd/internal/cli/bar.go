package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
)

const (
	barWidth    = 24
	barEvery    = 100 * time.Millisecond // on a terminal
	barLine     = 3 * time.Second        // elsewhere: one line each
	barWarmup   = 500 * time.Millisecond // before which a rate says nothing
	clearedLine = "\r\x1b[K"
)

// Bar shows how far something is: a bar that changes on a terminal, a line every few seconds elsewhere, and nothing of what ends sooner. It is safe
// for concurrent use.
type Bar struct {
	out      io.Writer
	terminal bool
	label    string

	mu    sync.Mutex
	began time.Time
	first int64 // done when it began: what was done before says nothing of the rate
	done  int64
	total int64
	shown time.Time
}

// NewBar makes a bar that writes to out, which is standard error.
func NewBar(out io.Writer, label string) *Bar {
	file, isFile := out.(*os.File)
	return newBar(out, label, isFile && isatty.IsTerminal(file.Fd()), time.Now())
}

func newBar(out io.Writer, label string, terminal bool, now time.Time) *Bar {
	return &Bar{out: out, terminal: terminal, label: label, began: now, first: -1, shown: now}
}

// Update says how much of total is done. What is older than the newest is no news.
func (b *Bar) Update(done, total int64) { b.update(done, total, time.Now()) }

func (b *Bar) update(done, total int64, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first < 0 {
		b.first, b.began = done, now
	}
	b.done, b.total = max(b.done, done), total
	every := barLine
	if b.terminal {
		every = barEvery
	}
	if now.Sub(b.shown) >= every {
		b.show(now)
	}
}

// End removes a bar from a terminal, and leaves a last line where something was shown.
func (b *Bar) End() { b.end(time.Now()) }

func (b *Bar) end(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shown.After(b.began) {
		b.show(now)
		if b.terminal {
			_, _ = fmt.Fprintln(b.out)
		}
	}
}

// show writes one line. The caller holds the lock.
func (b *Bar) show(now time.Time) {
	b.shown = now
	line := b.label + " " + b.text(now)
	if b.terminal {
		_, _ = fmt.Fprint(b.out, clearedLine+line)
		return
	}
	_, _ = fmt.Fprintln(b.out, line)
}

func (b *Bar) text(now time.Time) string {
	var parts []string
	if b.total > 0 {
		filled := int(barWidth * min(b.done, b.total) / b.total)
		parts = append(parts, fmt.Sprintf("[%s%s] %3d%%", strings.Repeat("#", filled), strings.Repeat("-", barWidth-filled), 100*min(b.done, b.total)/b.total))
	}
	parts = append(parts, Thousands(b.done))
	if b.total > 0 {
		parts[len(parts)-1] += " of " + Thousands(b.total)
	}
	past := now.Sub(b.began)
	if past < barWarmup || b.done == b.first {
		return strings.Join(parts, "  ")
	}
	rate := float64(b.done-b.first) / past.Seconds()
	parts = append(parts, Thousands(int64(rate))+"/s")
	if left := b.total - b.done; left > 0 {
		parts = append(parts, (time.Duration(float64(left)/rate*float64(time.Second))+time.Second).Truncate(time.Second).String()+" left")
	}
	return strings.Join(parts, "  ")
}

// Thousands prints a number for people: 1,000,000.
func Thousands(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
